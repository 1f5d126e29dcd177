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

static __device__ __forceinline__ float hard_swish(float value) {
    return value * __saturatef(__fmaf_rn(value, 1.0f / 6.0f, 0.5f));
}

// Sums become y: times the scales of x and of their columns.
template <u32 COUNT>
static __device__ __forceinline__ void scale_columns(float (&sums)[COUNT], const float* scales, float scale) {
    const u32 lane = threadIdx.x % 32;
#pragma unroll
    for (u32 i = 0; i < COUNT; i += 4) {
        const float left = scale * scales[2 * i + lane % 4 * 2], right = scale * scales[2 * i + lane % 4 * 2 + 1];
        sums[i] *= left;
        sums[i + 1] *= right;
        sums[i + 2] *= left;
        sums[i + 3] *= right;
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

// n = y / sqrt(mean y^2 + eps); y becomes n * clamp(n / 6 + 1/2, 0, 1). `share` adds the squares that others have of
// the same rows.
template <u32 COUNT, typename Share>
static __device__ __forceinline__ void block_tail(float (&sums)[COUNT], Share share) {
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
    high = reciprocal_root(high * (1.0f / 256.0f) + BLOCK_EPS);
    low = reciprocal_root(low * (1.0f / 256.0f) + BLOCK_EPS);
#pragma unroll
    for (u32 i = 0; i < COUNT; i++) sums[i] = hard_swish(sums[i] * (i % 4 < 2 ? high : low));
}
