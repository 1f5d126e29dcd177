// architectures: sm_89 sm_90a sm_100a
//
// Takes `source`, FP32 [rows, cols], and `indices`, u32 [count], each below `cols`; gives `out`,
// FP32 [rows, count]: the chosen columns in the given order.
//
// Launch: `blockDim.x` = 256, any number of blocks.
#include "common/rows.cuh"

extern "C" __global__ void __launch_bounds__(256)
gather_columns(const float* __restrict__ source, const u32* __restrict__ indices, float* __restrict__ out, u32 rows,
               u32 cols, u32 count) {
    for_each_stretch(rows, count, [&](u32 row, u32 first) {
        const Columns columns = columns_of(first, count, false);
        const float* from = source + (u64)row * cols;
        float* to = out + (u64)row * count;
#pragma unroll
        for (u32 e = 0; e < 4; e++) {
            if (columns.inside(e)) to[columns.at(e)] = from[indices[columns.at(e)]];
        }
    });
}
