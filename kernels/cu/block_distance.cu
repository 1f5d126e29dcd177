// architectures: sm_89 sm_90a sm_100a
//
// Takes a cast operand, `codes` [rows, cols] of `format` (E4M3, E5M2, BF16, or FP32 already on its grid)
// with scales by `mode` as in quantize, and `exact`, FP32 [rows, cols]; gives sums[0], the squared
// distance of value * scale (rounded to FP32, as squared_distance of core/src/numerics/cast.rs) from
// `exact`, and sums[1], the squared norm of `exact`. FP64, in an order that depends on the launch alone.
//
// `partials`: FP64 [blocks][2]. `counter`: one u32, zero before and after.
//
// Launch: `blockDim.x` = 256, at least one block. A number of columns that is no multiple of 4, or
// pointers that are not aligned to 16 bytes, make the accesses go one by one.
#include "common/operand.cuh"
#include "common/reduce.cuh"
#include "common/rows.cuh"

static __device__ __forceinline__ float value_at(const void* codes, u32 format, u64 index) {
    if (format == FORMAT_E4M3) return e4m3_value(((const u8*)codes)[index]);
    if (format == FORMAT_E5M2) return e5m2_value(((const u8*)codes)[index]);
    if (format == FORMAT_BF16) return bf16_low(((const u16*)codes)[index]);
    return ((const float*)codes)[index];
}

// Four neighbours from `index`, a multiple of 4.
static __device__ __forceinline__ float4 values_at(const void* codes, u32 format, u64 index) {
    if (format == FORMAT_F32) return ((const float4*)codes)[index / 4];
    if (format == FORMAT_BF16) {
        const Words2 pairs = ((const Words2*)codes)[index / 4];
        return {bf16_low(pairs.x), bf16_high(pairs.x), bf16_low(pairs.y), bf16_high(pairs.y)};
    }
    const u32 four = ((const u32*)codes)[index / 4];
    if (format == FORMAT_E4M3) {
        return {e4m3_value(four), e4m3_value(four >> 8), e4m3_value(four >> 16), e4m3_value(four >> 24)};
    }
    return {e5m2_value(four), e5m2_value(four >> 8), e5m2_value(four >> 16), e5m2_value(four >> 24)};
}

extern "C" __global__ void __launch_bounds__(256)
block_distance(const void* __restrict__ codes, const float* __restrict__ scales, const float* __restrict__ exact,
               double* partials, u32* counter, double* __restrict__ sums, u32 rows, u32 cols, u32 mode, u32 format) {
    const bool vectors = cols % 4 == 0 && aligned(codes, 16) && aligned(exact, 16);
    double of[2] = {0.0, 0.0};
    for_each_stretch(rows, cols, [&](u32 row, u32 first) {
        const Columns columns = columns_of(first, cols, vectors);
        const float scale = scale_of(scales, mode, rows, row, first);
        const u64 begin = (u64)row * cols;
        float truth[4], values[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        load_four(exact + begin, columns, truth);
        if (columns.together()) {
            if (columns.inside(0)) {
                const float4 four = values_at(codes, format, begin + columns.first);
                values[0] = four.x;
                values[1] = four.y;
                values[2] = four.z;
                values[3] = four.w;
            }
        } else {
#pragma unroll
            for (u32 e = 0; e < 4; e++) {
                if (columns.inside(e)) values[e] = value_at(codes, format, begin + columns.at(e));
            }
        }
#pragma unroll
        for (u32 e = 0; e < 4; e++) {
            // Beyond the row there is nothing, even where the scale is infinite.
            if (!columns.inside(e)) continue;
            const double reference = truth[e];
            const double error = (double)__fmul_rn(values[e], scale) - reference;
            of[0] += error * error;
            of[1] += reference * reference;
        }
    });
    if (grid_reduce<2, 0>(of, partials, counter)) {
        sums[0] = of[0];
        sums[1] = of[1];
    }
}
