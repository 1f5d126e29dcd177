// architectures: sm_89 sm_90a sm_100a
//
// Takes `difference`, FP32 [rows, cols]; gives in FP64, in an order that depends on the launch alone:
//
//     sums[0] = sum over rows and columns of weights[col] * difference^2      0 where `weights` is null
//     sums[1] = sum over rows of (sum over columns of mean[col] * difference)^2      0 where `mean` is null
//
// the parts of core/src/engine/cpu/loss.rs that come from a diagonal covariance (its variances) and from
// the mean.
//
// `partials`: FP64 [blocks][2]. `counter`: one u32, zero before and after.
//
// Launch: `blockDim.x` = 256, at least one block. A number of columns that is no multiple of 4, or
// pointers that are not aligned to 16 bytes, make the loads go one by one.
#include "common/reduce.cuh"

// Both sums over one thread's share of a row: [weighted squares, product with the mean].
struct RowSums {
    double weighted = 0.0;
    double dot = 0.0;

    __device__ __forceinline__ void take(float d, float weight, float mean) {
        const double wide = d;
        weighted += weight * (wide * wide);
        dot += mean * wide;
    }
};

extern "C" __global__ void __launch_bounds__(256)
loss_rows(const float* __restrict__ difference, const float* __restrict__ weights, const float* __restrict__ mean,
          double* partials, u32* counter, double* __restrict__ sums, u32 rows, u32 cols) {
    // Null is aligned to anything.
    const bool vectors = cols % 4 == 0 && aligned(difference, 16) && aligned(weights, 16) && aligned(mean, 16);
    double of[2] = {0.0, 0.0};
    for (u32 row = blockIdx.x; row < rows; row += gridDim.x) {
        const float* from = difference + (u64)row * cols;
        RowSums share;
        if (vectors) {
#pragma unroll 4
            for (u32 i = threadIdx.x; i < cols / 4; i += blockDim.x) {
                const float4 none = {0.0f, 0.0f, 0.0f, 0.0f};
                const float4 d = ((const float4*)from)[i];
                const float4 w = weights != nullptr ? ((const float4*)weights)[i] : none;
                const float4 m = mean != nullptr ? ((const float4*)mean)[i] : none;
                share.take(d.x, w.x, m.x);
                share.take(d.y, w.y, m.y);
                share.take(d.z, w.z, m.z);
                share.take(d.w, w.w, m.w);
            }
        } else {
            for (u32 i = threadIdx.x; i < cols; i += blockDim.x) {
                share.take(from[i], weights != nullptr ? weights[i] : 0.0f, mean != nullptr ? mean[i] : 0.0f);
            }
        }
        of[0] += share.weighted;
        const double dot = block_sum(share.dot);
        // One thread keeps the square: all of them would count it 256 times.
        if (threadIdx.x == 0) of[1] += dot * dot;
    }
    if (grid_reduce<2, 0>(of, partials, counter)) {
        sums[0] = weights != nullptr ? of[0] : 0.0;
        sums[1] = mean != nullptr ? of[1] : 0.0;
    }
}
