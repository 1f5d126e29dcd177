// architectures: sm_89 sm_90a sm_100a
//
// Takes `source`, FP32 [rows, cols], and scales; gives FP8 codes [rows, cols]:
//
//     code = saturating nearest-even cast of (x / scale)      bit for bit as core/src/numerics/cast.rs
//
// (a NaN's sign apart). `scales` by `mode`: none (may be null), tensor [1], row [rows], blocks
// [ceil(cols / 128)][rows], for 128x128 repeated along rows. `format`: E4M3 or E5M2.
//
// Launch: `blockDim.x` = 256, any number of blocks. A number of columns that is no multiple of 4, or
// pointers that are not aligned to 16 (source) and 4 (codes) bytes, make the accesses go one by one.
#include "common/fp8.cuh"
#include "common/operand.cuh"
#include "common/rows.cuh"

extern "C" __global__ void __launch_bounds__(256)
quantize(const float* __restrict__ source, const float* __restrict__ scales, u8* __restrict__ codes, u32 rows,
         u32 cols, u32 mode, u32 format) {
    const bool vectors = cols % 4 == 0 && aligned(source, 16) && aligned(codes, 4);
    for_each_stretch(rows, cols, [&](u32 row, u32 first) {
        const Columns columns = columns_of(first, cols, vectors);
        const float scale = scale_of(scales, mode, rows, row, first);
        float x[4];
        load_four(source + (u64)row * cols, columns, x);
        // Division, not the product with a reciprocal: the sources are any FP32, not BF16.
#pragma unroll
        for (u32 e = 0; e < 4; e++) x[e] = __fdiv_rn(x[e], scale);
        const u32 low = format == FORMAT_E4M3 ? e4m3_pair(x[0], x[1]) : e5m2_pair(x[0], x[1]);
        const u32 high = format == FORMAT_E4M3 ? e4m3_pair(x[2], x[3]) : e5m2_pair(x[2], x[3]);
        const u32 four = low | high << 16;
        u8* to = codes + (u64)row * cols;
        if (columns.together()) {
            if (columns.inside(0)) *(u32*)(to + columns.first) = four;
        } else {
#pragma unroll
            for (u32 e = 0; e < 4; e++) {
                if (columns.inside(e)) to[columns.at(e)] = (u8)(four >> (8 * e));
            }
        }
    });
}
