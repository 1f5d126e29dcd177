// architectures: sm_90a
//
// Takes x [m, k] in BF16 with a static scale and w [n, k] in E4M3 with its scales; gives y [m, n] = x w^T in BF16 and
// the count of saturated elements of x: x cast on the way in, fast accumulation,
// tiles of 128 x 256.
// The work is in common/static_gemm.cuh; kernels/src/gemm/static_scale.rs has the launch.
#include "common/static_gemm.cuh"

extern "C" __global__ void __launch_bounds__(GEMM_THREADS, 1)
sm90_bf16_gemm_static_128x256(const __grid_constant__ TensorMap x, const __grid_constant__ TensorMap w,
        const __grid_constant__ TensorMap y, const float* x_scale, const float* w_scales,
        u64* saturated, const __grid_constant__ StaticShape shape) {
    StaticGemm<128, 256, 3, 1>::run(x, w, y, x_scale, w_scales, saturated, shape);
}
