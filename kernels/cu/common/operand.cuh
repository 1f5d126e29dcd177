// Takes a cast operand's codes and scales; gives their values and the scale of a stretch. The numbers of
// modes and formats are those of ScaleMode and CodeFormat in kernels/src/probing.rs.
#pragma once
#include "common/rows.cuh"
#include "common/types.cuh"

static constexpr u32 MODE_NONE = 0;
static constexpr u32 MODE_TENSOR = 1;
static constexpr u32 MODE_ROW = 2;
static constexpr u32 MODE_BLOCK_1X128 = 3;
static constexpr u32 MODE_BLOCK_128X128 = 4;

static constexpr u32 FORMAT_E4M3 = 0;
static constexpr u32 FORMAT_E5M2 = 1;
static constexpr u32 FORMAT_BF16 = 2;
static constexpr u32 FORMAT_F32 = 3;

// The scale of the stretch of `row` that begins at column `first`. Blocks: [stretches][rows], for
// 128x128 too.
static __device__ __forceinline__ float scale_of(const float* scales, u32 mode, u32 rows, u32 row, u32 first) {
    if (mode == MODE_NONE) return 1.0f;
    if (mode == MODE_TENSOR) return scales[0];
    if (mode == MODE_ROW) return scales[row];
    return scales[(u64)(first / STRETCH) * rows + row];
}

static __device__ __forceinline__ float half_value(u16 half) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
    return value;
}

// Exact: every FP8 value is an FP16 value. The lower byte's value is in the lower half.
static __device__ __forceinline__ float e4m3_value(u32 code) {
    u32 halves;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"((u16)(code & 0xFFu)));
    return half_value((u16)halves);
}

// E5M2 is the upper byte of an FP16.
static __device__ __forceinline__ float e5m2_value(u32 code) { return half_value((u16)((code & 0xFFu) << 8)); }
