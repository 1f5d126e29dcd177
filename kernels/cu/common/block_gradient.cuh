// Takes z and the gradient of h = hard swish(BlockNorm(z)) as a warp holds one block of 256, eight BF16 a lane; gives
// the gradient of z.
#pragma once
#include "common/cast.cuh"
#include "common/norm.cuh"

static __device__ __forceinline__ float hard_swish_slope(float y) {
    const float slope = __fmaf_rn(y, 1.0f / 3.0f, 0.5f);
    return y >= 3.0f ? 1.0f : y <= -3.0f ? 0.0f : slope;
}

static __device__ __forceinline__ Words4 gradient(const Words4& z, const Words4& dh) {
    float y[8], g[8];
    widen(z, y);
    widen(dh, g);
    const float r = normalise(y);
#pragma unroll
    for (u32 i = 0; i < 8; i++) g[i] *= hard_swish_slope(y[i]);
    const float mean = block_mean(g, y);
#pragma unroll
    for (u32 i = 0; i < 8; i++) g[i] = r * __fmaf_rn(-y[i], mean, g[i]);
    return narrow(g);
}
