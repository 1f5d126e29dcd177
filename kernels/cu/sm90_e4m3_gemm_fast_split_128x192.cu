// architectures: sm_90a
//
// Takes x [m, k] in E4M3 and w [n, k] in E4M3, with their scales; gives y [m, n] = x w^T in BF16:
// tiles of 128 x 192 whose k a cluster shares, fast accumulation.
// The work is in common/fp8_gemm.cuh; kernels/src/gemm.rs has the launch.
#include "common/fp8_gemm.cuh"

extern "C" __global__ void __launch_bounds__(GEMM_THREADS, 1)
sm90_e4m3_gemm_fast_split_128x192(const __grid_constant__ TensorMap x, const __grid_constant__ TensorMap w,
        const __grid_constant__ TensorMap y, const float* x_scales,
        const float* w_scales, const __grid_constant__ GemmShape shape) {
    Fp8Gemm<192, 4, false, false, false, true>::run(x, w, y, x_scales, w_scales, shape);
}
