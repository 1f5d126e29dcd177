// Takes BF16 in registers and a scale known beforehand, a power of two; gives E4M3 codes and counts what saturates.
#pragma once
#include "common/fp8.cuh"
#include "common/warp.cuh"

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

// By a scale known beforehand, a power of two; counts what saturates.
struct StaticScale {
    float inverse;
    // The largest BF16 that does not saturate.
    u32 most;

    __device__ __forceinline__ explicit StaticScale(float scale)
        : inverse(1.0f / scale), most(__float_as_uint(E4M3_MAX * scale) >> 16) {}

    __device__ __forceinline__ u32 pair(u32 x) const {
        return e4m3_pair(bf16_low(x) * inverse, bf16_high(x) * inverse);
    }

    __device__ __forceinline__ Words2 codes(const Words4& x, u32& saturated) const {
        saturated += count_above(x.x, most) + count_above(x.y, most) + count_above(x.z, most) + count_above(x.w, most);
        return Words2{pair(x.x) | pair(x.y) << 16, pair(x.z) | pair(x.w) << 16};
    }
};

// A thread's count and largest magnitudes of BF16 (of each half), to where they are wanted. One atomic a warp.
static __device__ __forceinline__ void tell(u32 saturated, u32 largest, u64* saturated_total, u32* amax) {
    saturated = warp_sum(saturated);
    const u32 bits = warp_max(max(largest & 0xFFFFu, largest >> 16));
    if (threadIdx.x % 32 != 0) return;
    if (saturated_total != nullptr && saturated != 0) atomicAdd(saturated_total, (u64)saturated);
    // Most warps find a larger one there already.
    if (amax != nullptr && *(volatile u32*)amax < bits << 16) atomicMax(amax, bits << 16);
}
