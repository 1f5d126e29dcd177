// architectures: sm_89 sm_90a sm_100a
//
// Takes `source`, FP64 [count]; gives `out`, FP32 [count], to nearest even.
//
// Launch: `blockDim.x` = 256, any number of blocks. Pointers that are not aligned to 16 bytes make the
// accesses go one by one.
#include "common/types.cuh"

extern "C" __global__ void __launch_bounds__(256)
f64_to_f32(const double* __restrict__ source, float* __restrict__ out, u64 count) {
    const u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    const u64 threads = (u64)gridDim.x * blockDim.x;
    const u64 num_vectors = aligned(source, 16) && aligned(out, 16) ? count / 4 : 0;
#pragma unroll 4
    for (u64 i = thread; i < num_vectors; i += threads) {
        const double2 a = ((const double2*)source)[2 * i], b = ((const double2*)source)[2 * i + 1];
        ((float4*)out)[i] = {__double2float_rn(a.x), __double2float_rn(a.y), __double2float_rn(b.x),
                             __double2float_rn(b.y)};
    }
    for (u64 i = num_vectors * 4 + thread; i < count; i += threads) out[i] = __double2float_rn(source[i]);
}
