// architectures: sm_90a
//
// Takes x [m, k] in BF16 with a static scale and w [n, k] in E4M3 with its scales; gives y [m, n] = x w^T in BF16, the
// codes of x and the count of its saturated elements: x cast once, ahead of the products, fast accumulation,
// two tiles of 128 x 128 in turns.
// The work is in common/ahead_gemm.cuh; kernels/src/gemm/static_scale.rs has the launch.
#include "common/ahead_gemm.cuh"

extern "C" __global__ void __launch_bounds__(AHEAD_THREADS, 1)
sm90_bf16_gemm_ahead_2x128x128(const __grid_constant__ TensorMap x, const __grid_constant__ TensorMap w,
        const __grid_constant__ TensorMap y, const float* x_scale, const float* w_scales,
        const __grid_constant__ Ahead ahead, const __grid_constant__ GemmShape shape) {
    AheadGemm<128, 6, true>::run(x, w, y, x_scale, w_scales, ahead, shape);
}
