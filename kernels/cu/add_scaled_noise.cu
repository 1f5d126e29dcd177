// architectures: sm_89 sm_90a sm_100a
//
// Takes `values`, FP32 [rows, cols], `noise`, FP32 [rows, noise_stride], and `deviations`, FP32 [cols];
// adds noise times deviation in place, product and sum rounded each as core/src/stats/rows.rs does.
//
// `noise_stride` is at least `cols`. The CPU starts each row at a whole 64 normals: one fill_normal of
// rows * noise_stride with noise_stride = 64 ceil(cols / 64) gives the same numbers.
//
// Launch: `blockDim.x` = 256, any number of blocks. Columns or a stride that are no multiples of 4, or
// a pointer that is not aligned to 16 bytes, make the accesses go one by one.
#include "common/rows.cuh"

extern "C" __global__ void __launch_bounds__(256)
add_scaled_noise(float* __restrict__ values, const float* __restrict__ noise, const float* __restrict__ deviations,
                 u32 rows, u32 cols, u32 noise_stride) {
    const bool vectors = cols % 4 == 0 && noise_stride % 4 == 0 && aligned(values, 16) && aligned(noise, 16) &&
                         aligned(deviations, 16);
    for_each_stretch(rows, cols, [&](u32 row, u32 first) {
        const Columns columns = columns_of(first, cols, vectors);
        float* of_row = values + (u64)row * cols;
        float x[4], z[4], scale[4];
        load_four(of_row, columns, x);
        load_four(noise + (u64)row * noise_stride, columns, z);
        load_four(deviations, columns, scale);
#pragma unroll
        for (u32 e = 0; e < 4; e++) x[e] = __fadd_rn(x[e], __fmul_rn(z[e], scale[e]));
        store_four(of_row, columns, x);
    });
}
