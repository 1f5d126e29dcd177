// architectures: sm_90a
//
// Takes x [m, k] in BF16, cast by a static scale on its way in, and w [n, k] in E4M3, with their scales; gives
// h [m, n] = hard swish(BlockNorm(x w^T)) in BF16:
// one block of a perceptron without its round trips, fast accumulation, tiles of 64 x 256.
// The work is in common/static_gemm.cuh; kernels/src/gemm/block.rs has the launch.
#include "common/static_gemm.cuh"

extern "C" __global__ void __launch_bounds__(GEMM_THREADS, 1)
sm90_bf16_block_bf16_64x256(const __grid_constant__ TensorMap x, const __grid_constant__ TensorMap w,
        const __grid_constant__ TensorMap h, const float* x_scale, const float* w_scales,
        const float* h_scale, u64* saturated, const __grid_constant__ StaticShape shape) {
    StaticGemm<64, 256, 4, 1, false, Tail::BLOCK_BF16>::run(x, w, h, x_scale, w_scales, saturated, shape, h_scale);
}
