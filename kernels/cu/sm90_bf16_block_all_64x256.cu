// architectures: sm_90a
//
// Takes x [m, k] in BF16, cast by a static scale on its way in, and w [n, k] in E4M3, with their scales; gives
// z [m, n] = x w^T (and a bias) in BF16, h [m, n] = hard swish(BlockNorm(z)) in BF16 and its codes, E4M3 by a static
// scale, each where shape.stores asks for it: what a training step keeps of a block of a perceptron, fast accumulation,
// tiles of 64 x 256.
// The work is in common/static_gemm.cuh; kernels/src/gemm/block.rs has the launch.
#include "common/static_gemm.cuh"

extern "C" __global__ void __launch_bounds__(GEMM_THREADS, 1)
sm90_bf16_block_all_64x256(const __grid_constant__ TensorMap x, const __grid_constant__ TensorMap w,
        const __grid_constant__ TensorMap z, const __grid_constant__ TensorMap h,
        const __grid_constant__ TensorMap codes, const float* x_scale, const float* w_scales, const float* h_scale,
        u64* saturated, const __grid_constant__ StaticShape shape) {
    using Gemm = StaticGemm<64, 256, 4, 1, false, Tail::BLOCK_ALL>;
    Gemm::run(x, w, h, z, codes, x_scale, w_scales, saturated, shape, h_scale);
}
