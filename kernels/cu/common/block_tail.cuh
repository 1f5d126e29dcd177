// Takes a warp's sums of 16 rows as wgmma leaves them, a block of 256 columns of each row in four lanes (or in eight, of
// two warpgroups); gives BlockNorm and hard swish of them.
#pragma once
#include "common/types.cuh"

// PyTorch's rms_norm takes FP32's when none is given.
static constexpr float BLOCK_EPS = 1.1920929e-7f;

static __device__ __forceinline__ float reciprocal_root(float value) {
    float root;
    asm("rsqrt.approx.f32 %0, %1;" : "=f"(root) : "f"(value));
    return root;
}

// Of values / `unit`, a power of two, over it again: the same bits as of values, since scaling by a power of two is exact.
static __device__ __forceinline__ float hard_swish(float value, float unit = 1.0f) {
    return value * __saturatef(__fmaf_rn(value, unit * (1.0f / 6.0f), 0.5f));
}

// Two neighbouring columns in one access.
struct alignas(8) ScalePair {
    float left, right;
};

// Sums become y: times the scales of their columns, which lie in shared memory, aligned to 8 bytes.
template <u32 COUNT> static __device__ __forceinline__ void scale_columns(float (&sums)[COUNT], const float* scales) {
    const ScalePair* pairs = (const ScalePair*)scales + threadIdx.x % 4;
#pragma unroll
    for (u32 i = 0; i < COUNT; i += 4) {
        const ScalePair scale = pairs[i];
        sums[i] *= scale.left;
        sums[i + 1] *= scale.right;
        sums[i + 2] *= scale.left;
        sums[i + 3] *= scale.right;
    }
}

static __device__ __forceinline__ u32 load_pair(const u16* from) {
    u32 pair;
    asm("ld.global.nc.b32 %0, [%1];" : "=r"(pair) : "l"(from));
    return pair;
}

// `bias`: BF16 [n]; the sums' first column is `col`, a multiple of 64, and some may lie beyond n, a multiple of 16.
template <u32 COUNT>
static __device__ __forceinline__ void add_bias(float (&sums)[COUNT], const u16* bias, u32 col, u32 n) {
    const u32 lane = threadIdx.x % 32;
#pragma unroll
    for (u32 i = 0; i < COUNT; i += 4) {
        const u32 at = col + 2 * i + lane % 4 * 2, pair = at < n ? load_pair(bias + at) : 0;
        const float left = bf16_low(pair), right = bf16_high(pair);
        sums[i] += left;
        sums[i + 1] += right;
        sums[i + 2] += left;
        sums[i + 3] += right;
    }
}

// n = y / sqrt(mean y^2 + eps); y becomes n * clamp(n / 6 + 1/2, 0, 1) / unit. `share` adds the squares that others have
// of the same rows.
template <u32 COUNT, typename Share>
static __device__ __forceinline__ void block_tail(float (&sums)[COUNT], float unit, Share share) {
    float high = 0.0f, low = 0.0f;
#pragma unroll
    for (u32 i = 0; i < COUNT; i += 4) {
        high = __fmaf_rn(sums[i], sums[i], __fmaf_rn(sums[i + 1], sums[i + 1], high));
        low = __fmaf_rn(sums[i + 2], sums[i + 2], __fmaf_rn(sums[i + 3], sums[i + 3], low));
    }
#pragma unroll
    for (u32 step = 1; step < 4; step *= 2) {
        high += __shfl_xor_sync(0xFFFFFFFFu, high, step);
        low += __shfl_xor_sync(0xFFFFFFFFu, low, step);
    }
    share(high, low);
    high = reciprocal_root(high * (1.0f / 256.0f) + BLOCK_EPS) / unit;
    low = reciprocal_root(low * (1.0f / 256.0f) + BLOCK_EPS) / unit;
#pragma unroll
    for (u32 i = 0; i < COUNT; i++) sums[i] = hard_swish(sums[i] * (i % 4 < 2 ? high : low), unit);
}
