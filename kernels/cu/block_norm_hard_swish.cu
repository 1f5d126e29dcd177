// architectures: sm_89 sm_90a sm_100a
//
// Takes z, BF16, `count` elements, blocks of 256 behind one another (a matrix whose rows are whole blocks); gives
// h = hard swish(BlockNorm(z)) in BF16 and in E4M3 by one scale known beforehand, a power of two. A null pointer is an
// output that is not wanted; without codes the scale is not read.
//
//     y = z / sqrt(mean z^2 + eps) over a block
//     h = y * clamp(y / 6 + 1/2, 0, 1)
//     code = saturating nearest-even cast of h / scale, of the FP32 h
//
// In FP32 from the load to the store, with the operations of common/block_tail.cuh: what a fused block has behind its
// product. |h| <= 16, so that a scale of 2^-4 saturates nothing.
//
// Launch: kernels/src/norms.rs; `blockDim.x` = 256, any number of blocks (their warps stride over blocks of 256). z and
// h aligned to 16 bytes, codes to 8.
#include "common/block_tail.cuh"
#include "common/cast.cuh"
#include "common/norm.cuh"

static __device__ __forceinline__ void finish(const Words4& z, u64 block, u16* h, u8* codes, float inverse) {
    const u64 at = block * (BLOCK / 8) + threadIdx.x % 32;
    float y[8];
    widen(z, y);
    normalise(y);
#pragma unroll
    for (u32 i = 0; i < 8; i++) y[i] = hard_swish(y[i]);
    if (h != nullptr) ((Words4*)h)[at] = narrow(y);
    if (codes == nullptr) return;
    ((Words2*)codes)[at] = Words2{
        e4m3_pair(y[0] * inverse, y[1] * inverse) | e4m3_pair(y[2] * inverse, y[3] * inverse) << 16,
        e4m3_pair(y[4] * inverse, y[5] * inverse) | e4m3_pair(y[6] * inverse, y[7] * inverse) << 16};
}

extern "C" __global__ void __launch_bounds__(256, 4)
block_norm_hard_swish(const u16* __restrict__ z, u16* __restrict__ h, u8* __restrict__ codes,
                      const float* __restrict__ scale_at, u64 count) {
    wait_for_kernel_before();
    const float inverse = codes != nullptr ? 1.0f / *scale_at : 0.0f;
    const u64 blocks = count / BLOCK, warps = (u64)gridDim.x * (blockDim.x / 32);
    const Words4* from = (const Words4*)z + threadIdx.x % 32;
    u64 block = (u64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    // Four loads in flight: with one the latency of memory, not its bandwidth, would decide.
    for (; block + 3 * warps < blocks; block += 4 * warps) {
        Words4 kept[4];
#pragma unroll
        for (u32 i = 0; i < 4; i++) kept[i] = load_once(from + (block + i * warps) * (BLOCK / 8));
#pragma unroll
        for (u32 i = 0; i < 4; i++) finish(kept[i], block + i * warps, h, codes, inverse);
    }
    for (; block < blocks; block += warps) finish(load_once(from + block * (BLOCK / 8)), block, h, codes, inverse);
}
