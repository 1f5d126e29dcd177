// Takes a block of 256 BF16 as a warp loads it, eight a lane; gives BlockNorm of it in FP32.
#pragma once
#include "common/block_tail.cuh"
#include "common/types.cuh"

static constexpr u32 BLOCK = 256;

// A launch with the programmatic attribute begins while the kernel before it still runs; without it this is nothing.
static __device__ __forceinline__ void wait_for_kernel_before() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

static __device__ __forceinline__ u32 bf16_words(float low, float high) {
    u32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

static __device__ __forceinline__ void widen(const Words4& x, float (&values)[8]) {
    const u32 words[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        values[2 * i] = bf16_low(words[i]);
        values[2 * i + 1] = bf16_high(words[i]);
    }
}

static __device__ __forceinline__ Words4 narrow(const float (&values)[8]) {
    return Words4{bf16_words(values[0], values[1]), bf16_words(values[2], values[3]), bf16_words(values[4], values[5]),
                  bf16_words(values[6], values[7])};
}

// Over the warp, the same in every lane.
static __device__ __forceinline__ float warp_total(float value) {
#pragma unroll
    for (u32 step = 1; step < 32; step *= 2) value += __shfl_xor_sync(0xFFFFFFFFu, value, step);
    return value;
}

// Of the sum of a * b over a block.
static __device__ __forceinline__ float block_mean(const float (&a)[8], const float (&b)[8]) {
    float sum = 0.0f;
#pragma unroll
    for (u32 i = 0; i < 8; i++) sum = __fmaf_rn(a[i], b[i], sum);
    return warp_total(sum) * (1.0f / BLOCK);
}

// z becomes y = z * r; gives r = 1 / sqrt(mean z^2 + eps).
static __device__ __forceinline__ float normalise(float (&values)[8]) {
    const float inverse = reciprocal_root(block_mean(values, values) + BLOCK_EPS);
#pragma unroll
    for (u32 i = 0; i < 8; i++) values[i] *= inverse;
    return inverse;
}
