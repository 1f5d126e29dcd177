// architectures: sm_89 sm_90a sm_100a
//
// Takes the gradient dh [m, n] of h = hard swish(BlockNorm(z)) and z [m, n], both BF16, blocks of 256 columns; gives
// the gradient dz of z in BF16 and as E4M3 codes by one scale a row. A null pointer is an output that is not wanted.
// block_backward_static gives codes by a scale known beforehand.
//
//     y = z * r,  r = 1 / sqrt(mean(z^2) + eps)                 means over a block
//     g = dh * hs'(y),  hs'(y) = 0 below -3, 1 above 3, y / 3 + 1/2 between
//     dz = r * (g - y * mean(g * y))
//
// in FP32, rounded once to BF16. Codes are those of the BF16 values, bit for bit as cast_rowwise gives them (scale =
// max(amax / 448, 1e-12) of the row, written to row_scales).
//
// One pass over memory: a row lives in a block's registers, one or two blocks of 256 a warp, from the loads until its
// largest magnitude is known.
//
// Launch: kernels/src/norms.rs; one block a row, a warp for one block of 256 columns or for two of them. Two have more
// loads in flight than the warps that would fit beside. n up to 16,384. dh, z and dz aligned to 16 bytes, codes to 8.
#include "common/block_gradient.cuh"

struct Outputs {
    u16* dz;
    u8* codes;
    float* row_scales;
};

template <u32 KEPT>
static __device__ __forceinline__ void row_gradient(const u16* dh, const u16* z, const Outputs& to, u32 n) {
    const u32 lane = threadIdx.x % 32, warps = blockDim.x / 32, blocks = n / BLOCK;
    const u64 begin = (u64)blockIdx.x * (n / 8) + lane;
    const Words4 nothing = {0, 0, 0, 0};
    Words4 kept[KEPT], above[KEPT];
#pragma unroll
    for (u32 i = 0; i < KEPT; i++) {
        const u32 block = threadIdx.x / 32 + i * warps;
        kept[i] = block < blocks ? load_once((const Words4*)z + begin + block * (BLOCK / 8)) : nothing;
        above[i] = block < blocks ? load_once((const Words4*)dh + begin + block * (BLOCK / 8)) : nothing;
    }
    u32 largest = 0;
#pragma unroll
    for (u32 i = 0; i < KEPT; i++) {
        const u32 block = threadIdx.x / 32 + i * warps;
        // Zeros of a block that is not there stay zeros.
        kept[i] = gradient(kept[i], above[i]);
        largest = amax_of(largest, kept[i]);
        if (to.dz != nullptr && block < blocks) ((Words4*)to.dz)[begin + block * (BLOCK / 8)] = kept[i];
    }
    if (to.codes == nullptr) return;
    Words2* codes = (Words2*)to.codes + begin;
    const float scale = scale_of_bits<false>(block_max(larger_half(largest)), 0);
    if (threadIdx.x == 0) to.row_scales[blockIdx.x] = scale;
    const Divisor divisor(scale);
#pragma unroll
    for (u32 i = 0; i < KEPT; i++) {
        const u32 block = threadIdx.x / 32 + i * warps;
        if (block < blocks) codes[block * (BLOCK / 8)] = cast_eight<false>(kept[i], divisor);
    }
}

extern "C" __global__ void __launch_bounds__(1024, 1)
block_backward(const u16* __restrict__ dh, const u16* __restrict__ z, u16* __restrict__ dz, u8* __restrict__ codes,
               float* __restrict__ row_scales, u32 n) {
    wait_for_kernel_before();
    const Outputs to{dz, codes, row_scales};
    if (n <= blockDim.x * 8) {
        row_gradient<1>(dh, z, to, n);
    } else {
        row_gradient<2>(dh, z, to, n);
    }
}
