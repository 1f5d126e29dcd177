// architectures: sm_89 sm_90a sm_100a
//
// Takes `source`, FP32 [count]; gives `out`, FP32 [count] on TF32's grid (10 mantissa bits), to nearest
// even as core/src/numerics/round.rs; NaN stays. `out` may be `source`.
//
// Launch: `blockDim.x` = 256, any number of blocks. Pointers that are not aligned to 16 bytes make the
// accesses go one by one.
#include "common/types.cuh"

static __device__ __forceinline__ float on_grid(float value) {
    const u32 bits = __float_as_uint(value);
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return value;
    return __uint_as_float((bits + 0xFFFu + (bits >> 13 & 1)) & 0xFFFFE000u);
}

extern "C" __global__ void __launch_bounds__(256)
round_tf32(const float* source, float* out, u64 count) {
    const u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    const u64 threads = (u64)gridDim.x * blockDim.x;
    const u64 num_vectors = aligned(source, 16) && aligned(out, 16) ? count / 4 : 0;
    for (u64 i = thread; i < num_vectors; i += threads) {
        const float4 x = ((const float4*)source)[i];
        ((float4*)out)[i] = {on_grid(x.x), on_grid(x.y), on_grid(x.z), on_grid(x.w)};
    }
    for (u64 i = num_vectors * 4 + thread; i < count; i += threads) out[i] = on_grid(source[i]);
}
