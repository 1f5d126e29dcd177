// architectures: sm_89 sm_90a sm_100a
//
// Takes `values`, FP32 [count]; gives sum[0], the sum of their squares, in FP64 and in an order that
// depends on the launch alone.
//
// `partials`: FP64 [blocks]. `counter`: one u32, zero before and after.
//
// Launch: `blockDim.x` = 256, at least one block. A pointer that is not aligned to 16 bytes makes the
// loads go one by one.
#include "common/reduce.cuh"

extern "C" __global__ void __launch_bounds__(256)
sum_squares(const float* __restrict__ values, double* partials, u32* counter, double* __restrict__ sum, u64 count) {
    const u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    const u64 threads = (u64)gridDim.x * blockDim.x;
    const u64 num_vectors = aligned(values, 16) ? count / 4 : 0;
    double of[1] = {0.0};
#pragma unroll 4
    for (u64 i = thread; i < num_vectors; i += threads) {
        const float4 x = ((const float4*)values)[i];
        of[0] += (double)x.x * x.x;
        of[0] += (double)x.y * x.y;
        of[0] += (double)x.z * x.z;
        of[0] += (double)x.w * x.w;
    }
    for (u64 i = num_vectors * 4 + thread; i < count; i += threads) of[0] += (double)values[i] * values[i];
    if (grid_reduce<1, 0>(of, partials, counter)) sum[0] = of[0];
}
