// architectures: sm_89 sm_90a sm_100a
//
// Gives `out`, FP32 [count]: independent standard normals, bit for bit those of Rng::fill_normal in
// core/src/numerics/rng.rs at block `first_block` of `stream`. Each 64 normals come from 16 blocks:
// number 16 r + b of them is normal r of block b. The next free block is
// first_block + 16 ceil(count / 64).
//
// Launch: `blockDim.x` = 256, any number of blocks. A pointer that is not aligned to 16 bytes makes
// the stores go one by one.
#include "common/philox.cuh"

static constexpr u32 CHUNK = 64;
static constexpr u32 BLOCKS_OF_CHUNK = 16;

extern "C" __global__ void __launch_bounds__(256)
fill_normal(float* __restrict__ out, u64 count, u64 first_block, u64 stream, u32 key0, u32 key1) {
    const u64 threads = (u64)gridDim.x * blockDim.x;
    // A thread takes four neighbouring blocks, so that each of their four normals is one store.
    const u64 quads = (count + CHUNK - 1) / CHUNK * 4;
    const bool vectors = aligned(out, 16);
    for (u64 quad = (u64)blockIdx.x * blockDim.x + threadIdx.x; quad < quads; quad += threads) {
        const u64 chunk = quad / 4;
        const u32 lane = (u32)(quad % 4) * 4;
        Normals of[4];
#pragma unroll
        for (u32 b = 0; b < 4; b++) {
            of[b] = normals(first_block + chunk * BLOCKS_OF_CHUNK + lane + b, stream, key0, key1);
        }
#pragma unroll
        for (u32 r = 0; r < 4; r++) {
            const u64 at = chunk * CHUNK + r * BLOCKS_OF_CHUNK + lane;
            if (vectors && at + 4 <= count) {
                *(float4*)(out + at) = {of[0].values[r], of[1].values[r], of[2].values[r], of[3].values[r]};
            } else {
#pragma unroll
                for (u32 b = 0; b < 4; b++) {
                    if (at + b < count) out[at + b] = of[b].values[r];
                }
            }
        }
    }
}
