// architectures: sm_89 sm_90a sm_100a
//
// Takes `source`, FP32 [rows, cols]; gives `out`, FP64 [rows, width]: columns first..first + width, a
// chunk of the reduced dimension for the reference product.
//
// Launch: `blockDim.x` = 256, any number of blocks. `cols`, `first` or `width` that are no multiples of
// 4, or pointers that are not aligned to 16 bytes, make the accesses go one by one.
#include "common/rows.cuh"

extern "C" __global__ void __launch_bounds__(256)
to_f64(const float* __restrict__ source, double* __restrict__ out, u32 rows, u32 cols, u32 first, u32 width) {
    const bool vectors = (cols | first | width) % 4 == 0 && aligned(source, 16) && aligned(out, 16);
    for_each_stretch(rows, width, [&](u32 row, u32 begin) {
        const Columns columns = columns_of(begin, width, vectors);
        double* to = out + (u64)row * width;
        float x[4];
        load_four(source + (u64)row * cols + first, columns, x);
        if (columns.together()) {
            if (columns.inside(0)) {
                *(double2*)(to + columns.first) = {x[0], x[1]};
                *(double2*)(to + columns.first + 2) = {x[2], x[3]};
            }
        } else {
#pragma unroll
            for (u32 e = 0; e < 4; e++) {
                if (columns.inside(e)) to[columns.at(e)] = x[e];
            }
        }
    });
}
