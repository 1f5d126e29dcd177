// architectures: sm_89 sm_90a sm_100a
//
// Takes `source`, FP32 [count], and its FP8 `codes` [count], E4M3 or E5M2; adds to counts[0] the elements that are not
// zero, NaN among them, and to counts[1] those of them whose code is: what the cast flushed. As flushed_share of
// core/src/numerics/cast.rs. The caller zeroes `counts`.
//
// Launch: `blockDim.x` = 256, any number of blocks. Pointers that are not aligned to 16 (source) and 4 (codes) bytes
// make the accesses go one by one.
#include "common/warp.cuh"

static __device__ __forceinline__ void take(float value, u32 code, u32& nonzero, u32& flushed) {
    const bool counts = value != 0.0f;
    nonzero += counts;
    // Of both formats zero is 0x00, and 0x80 with a sign.
    flushed += counts && (code & 0x7Fu) == 0;
}

extern "C" __global__ void __launch_bounds__(256)
count_flushed(const float* __restrict__ source, const u8* __restrict__ codes, u64* __restrict__ counts, u64 count) {
    const u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    const u64 threads = (u64)gridDim.x * blockDim.x;
    const u64 num_vectors = aligned(source, 16) && aligned(codes, 4) ? count / 4 : 0;
    u32 nonzero = 0, flushed = 0;
    for (u64 i = thread; i < num_vectors; i += threads) {
        const float4 x = ((const float4*)source)[i];
        const u32 four = ((const u32*)codes)[i];
        take(x.x, four, nonzero, flushed);
        take(x.y, four >> 8, nonzero, flushed);
        take(x.z, four >> 16, nonzero, flushed);
        take(x.w, four >> 24, nonzero, flushed);
    }
    for (u64 i = num_vectors * 4 + thread; i < count; i += threads) take(source[i], codes[i], nonzero, flushed);
    // One atomic a warp: integers, so that their order does not matter.
    nonzero = warp_sum(nonzero);
    flushed = warp_sum(flushed);
    if (threadIdx.x % 32 == 0 && nonzero != 0) {
        atomicAdd(counts, (u64)nonzero);
        if (flushed != 0) atomicAdd(counts + 1, (u64)flushed);
    }
}
