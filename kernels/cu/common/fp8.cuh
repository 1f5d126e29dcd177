// Takes FP32; gives FP8 codes, the scale of an amax, and quotients rounded as IEEE division rounds
// them. Agrees with core/src/numerics (round.rs, fp8.rs, cast.rs) bit for bit.
#pragma once
#include "common/types.cuh"

static constexpr float E4M3_MAX = 448.0f;
static constexpr float E5M2_MAX = 57344.0f;
// Scales are kept away from zero so that a row of zeros does not divide by it.
static constexpr float SCALE_FLOOR = 1e-12f;

// Two codes, `low` in the low byte: nearest even, beyond the largest value saturates (infinity too,
// E4M3 has none), NaN becomes 0x7F. PTX puts its *first* source into the *upper* byte.
static __device__ __forceinline__ u32 e4m3_pair(float low, float high) {
    u16 codes;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(high), "f"(low));
    return codes;
}

static __device__ __forceinline__ u32 e5m2_pair(float low, float high) {
    u16 codes;
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(high), "f"(low));
    return codes;
}

// amax / largest, at least SCALE_FLOOR; a power of two is rounded *up*, so that nothing saturates.
static __device__ __forceinline__ float scale_from_amax(float amax, float largest, bool power_of_two) {
    float scale = __fdiv_rn(amax, largest);
    // Not fmaxf, which would drop a NaN: a row with a NaN must come out as NaN.
    if (scale < SCALE_FLOOR) scale = SCALE_FLOOR;
    const u32 bits = __float_as_uint(scale);
    const bool finite = bits < 0x7F800000u;
    if (power_of_two && finite && (bits & 0x7FFFFFu) != 0) scale = __uint_as_float((bits & 0x7F800000u) + 0x800000u);
    return scale;
}

// BF16 / FP32 rounded as __fdiv_rn rounds it, in three instructions instead of about ten and a
// branch: the quotient by the reciprocal, corrected once by its own remainder. For BF16 numerators
// this equals division for *every* pair of mantissas (the test in lib.rs tries all 2^30).
// Where the remainder underflows the quotient is far below FP8's smallest step, 2^-9 or 2^-16.
struct alignas(8) Divisor {
    float value;
    float reciprocal;

    // For shared memory, which nothing initialises.
    Divisor() = default;

    // `scale`: at least SCALE_FLOOR, at most 2^120 (the scale of the largest FP32), infinity or NaN.
    __device__ __forceinline__ explicit Divisor(float scale) : value(scale), reciprocal(__frcp_rn(scale)) {
        // By infinity: finite values must give 0 and infinity NaN. With 0 and 0 the steps below do
        // that; with the infinity itself the remainder would turn every value into NaN.
        if (scale == __uint_as_float(0x7F800000u)) value = 0.0f;
    }

    // For quotients below 2^100: beyond FP32 the correction would be NaN. The sign of a zero is
    // lost: see signed_codes.
    __device__ __forceinline__ float of(float numerator) const {
        const float quotient = __fmul_rn(numerator, reciprocal);
        return corrected(numerator, quotient);
    }

    // For any numerator, infinity too.
    __device__ __forceinline__ float of_any(float numerator) const {
        const float quotient = __fmul_rn(numerator, reciprocal);
        // Far out both saturate, and there the correction of an infinity would be NaN.
        return fabsf(quotient) < 1024.0f ? corrected(numerator, quotient) : quotient;
    }

    __device__ __forceinline__ float corrected(float numerator, float quotient) const {
        const float remainder = __fmaf_rn(-quotient, value, numerator);
        return __fmaf_rn(remainder, reciprocal, quotient);
    }
};

// Gives four codes the signs of the four BF16 in `low` and `high`: -0 and what rounds to it
// must come out as 0x80, and the correction above ends in (+0) + (-0) = +0.
static __device__ __forceinline__ u32 signed_codes(u32 codes, u32 low, u32 high) {
    const u32 upper_bytes = __byte_perm(low, high, 0x7531);
    return (codes & 0x7F7F7F7Fu) | (upper_bytes & 0x80808080u);
}
