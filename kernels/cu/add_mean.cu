// architectures: sm_89 sm_90a sm_100a
//
// Takes `values`, FP32 [rows, cols], and `mean`, FP32 [cols]; adds the mean to every row in place.
//
// Launch: `blockDim.x` = 256, any number of blocks. A number of columns that is no multiple of 4, or a
// pointer that is not aligned to 16 bytes, makes the accesses go one by one.
#include "common/rows.cuh"

extern "C" __global__ void __launch_bounds__(256)
add_mean(float* __restrict__ values, const float* __restrict__ mean, u32 rows, u32 cols) {
    const bool vectors = cols % 4 == 0 && aligned(values, 16) && aligned(mean, 16);
    for_each_stretch(rows, cols, [&](u32 row, u32 first) {
        const Columns columns = columns_of(first, cols, vectors);
        float* of_row = values + (u64)row * cols;
        float x[4], means[4];
        load_four(of_row, columns, x);
        load_four(mean, columns, means);
#pragma unroll
        for (u32 e = 0; e < 4; e++) x[e] = __fadd_rn(x[e], means[e]);
        store_four(of_row, columns, x);
    });
}
