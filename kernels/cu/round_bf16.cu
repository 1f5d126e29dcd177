// architectures: sm_89 sm_90a sm_100a
//
// Takes `source`, FP32 [count]; gives `out`, BF16 [count], to nearest even as core/src/numerics/round.rs:
// overflow becomes infinity, NaN stays NaN with its sign.
//
// Launch: `blockDim.x` = 256, any number of blocks. Pointers that are not aligned to 16 (source) and 8
// (out) bytes make the accesses go one by one.
#include "common/types.cuh"

static __device__ __forceinline__ u32 bf16_bits(float value) {
    const u32 bits = __float_as_uint(value);
    // A NaN may carry its payload in the lower half alone: cut off, it would be an infinity.
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return bits >> 16 | 0x40u;
    return (bits + 0x7FFFu + (bits >> 16 & 1)) >> 16;
}

extern "C" __global__ void __launch_bounds__(256)
round_bf16(const float* __restrict__ source, u16* __restrict__ out, u64 count) {
    const u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    const u64 threads = (u64)gridDim.x * blockDim.x;
    const u64 num_vectors = aligned(source, 16) && aligned(out, 8) ? count / 4 : 0;
#pragma unroll 4
    for (u64 i = thread; i < num_vectors; i += threads) {
        const float4 x = ((const float4*)source)[i];
        ((Words2*)out)[i] = {bf16_bits(x.x) | bf16_bits(x.y) << 16, bf16_bits(x.z) | bf16_bits(x.w) << 16};
    }
    for (u64 i = num_vectors * 4 + thread; i < count; i += threads) out[i] = (u16)bf16_bits(source[i]);
}
