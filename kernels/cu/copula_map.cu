// architectures: sm_89 sm_90a sm_100a
//
// Takes `values`, FP32 [rows, cols], deviations from the mean; puts each through its feature's quantile
// function in place, bit for bit as CopulaMap::map_rows of core/src/stats/copula.rs:
//
//     score = value * inverse_deviation[col]
//     value = first[col] + sum over segments of slopes[segment][col] * ramp(score), within +-amax
//
// `scores` [num_scores], ascending, at least two; `inverse_deviation` and `first` [cols];
// `slopes` [num_scores - 1][cols]. The outermost segments are open.
//
// Launch: `blockDim.x` = 256, any number of blocks. A number of columns that is no multiple of 4, or a
// pointer that is not aligned to 16 bytes, makes the accesses go one by one.
#include "common/rows.cuh"

static constexpr float LARGEST = 3.40282346638528859812e+38f;

static __device__ __forceinline__ float along(float score, float start, float low, float high) {
    const float above = score > low ? score : low;
    return __fsub_rn(above < high ? above : high, start);
}

// Keeps NaN, as the CPU does.
static __device__ __forceinline__ float clamped(float value, float amax) {
    value = value < -amax ? -amax : value;
    return value > amax ? amax : value;
}

extern "C" __global__ void __launch_bounds__(256)
copula_map(float* __restrict__ values, const float* __restrict__ scores, const float* __restrict__ inverse_deviation,
           const float* __restrict__ first, const float* __restrict__ slopes, u32 rows, u32 cols, u32 num_scores,
           float amax) {
    const bool vectors = cols % 4 == 0 && aligned(values, 16) && aligned(inverse_deviation, 16) &&
                         aligned(first, 16) && aligned(slopes, 16);
    const u32 last = num_scores - 2;
    for_each_stretch(rows, cols, [&](u32 row, u32 first_column) {
        const Columns columns = columns_of(first_column, cols, vectors);
        float* of_row = values + (u64)row * cols;
        float score[4], inverse[4], sum[4], slope[4];
        load_four(of_row, columns, score);
        load_four(inverse_deviation, columns, inverse);
        load_four(first, columns, sum);
#pragma unroll
        for (u32 e = 0; e < 4; e++) score[e] = __fmul_rn(score[e], inverse[e]);
        for (u32 s = 0; s <= last; s++) {
            const float start = scores[s];
            const float low = s == 0 ? -LARGEST : start;
            const float high = s == last ? LARGEST : scores[s + 1];
            load_four(slopes + (u64)s * cols, columns, slope);
#pragma unroll
            for (u32 e = 0; e < 4; e++) {
                sum[e] = __fadd_rn(sum[e], __fmul_rn(slope[e], along(score[e], start, low, high)));
            }
        }
#pragma unroll
        for (u32 e = 0; e < 4; e++) sum[e] = clamped(sum[e], amax);
        store_four(of_row, columns, sum);
    });
}
