// Takes BF16 in registers and a scale known beforehand, a power of two; gives E4M3 codes and counts what saturates.
#pragma once
#include "common/fp8.cuh"

static __device__ __forceinline__ u32 multiply_pair(u32 a, u32 b) {
    u32 product;
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
    return product;
}

// Four BF16 times a power of two, which is exact wherever E4M3 is not 0 or saturated, as codes.
static __device__ __forceinline__ u32 four_codes(u32 low, u32 high, u32 inverse) {
    low = multiply_pair(low, inverse);
    high = multiply_pair(high, inverse);
    return e4m3_pair(bf16_low(low), bf16_high(low)) | e4m3_pair(bf16_low(high), bf16_high(high)) << 16;
}

// Larger magnitude of each half, its sign arbitrary; NaN only where both are.
static __device__ __forceinline__ u32 larger_pair(u32 a, u32 b) {
    u32 larger;
    asm("max.xorsign.abs.bf16x2 %0, %1, %2;" : "=r"(larger) : "r"(a), "r"(b));
    return larger;
}

// Magnitudes above `most` of two BF16, NaN not among them.
static __device__ __forceinline__ u32 count_above(u32 pair, u32 most) {
    const u32 low = pair & 0x7FFFu, high = pair >> 16 & 0x7FFFu;
    return (u32)(low > most && low <= 0x7F80u) + (u32)(high > most && high <= 0x7F80u);
}
