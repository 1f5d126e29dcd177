// architectures: sm_89 sm_90a sm_100a
//
// Takes x, BF16, `count` elements in rows of `cols`, and one FP32 scale by pointer (a scale measured beforehand, so no
// pass for the amax); gives E4M3 codes, `pitch` from one row to the next, and adds to `saturated` the number of elements with
// |x / scale| > 448, infinities among them, NaN not. The caller zeroes `saturated`: one counter can
// watch a whole step.
//
//     code = saturating nearest-even cast of (x / scale)      bit for bit as core/src/numerics
//
// The scale is positive, from 1e-12 (what scale_from_amax gives at least) to 2^120, or infinity or NaN.
//
// Launch: `blockDim.x` = 256, any number of blocks (they stride over the elements); some eight a
// multiprocessor fill the GPU. Pointers that are not aligned to 16 (x) and 8 (codes) bytes make it go
// element by element: correct, not fast.
#include "common/fp8.cuh"
#include "common/warp.cuh"

static __device__ __forceinline__ float divided(float value, const Divisor& scale, u32& saturated) {
    const float quotient = scale.of_any(value);
    saturated += fabsf(quotient) > E4M3_MAX; // false for NaN
    return quotient;
}

static __device__ __forceinline__ u32 cast_four(u32 low, u32 high, const Divisor& scale, u32& saturated) {
    const u32 codes =
        e4m3_pair(divided(bf16_low(low), scale, saturated), divided(bf16_high(low), scale, saturated)) |
        e4m3_pair(divided(bf16_low(high), scale, saturated), divided(bf16_high(high), scale, saturated)) << 16;
    return signed_codes(codes, low, high);
}

static __device__ __forceinline__ Words2 cast_eight(const Words4& x, const Divisor& scale, u32& saturated) {
    return Words2{cast_four(x.x, x.y, scale, saturated), cast_four(x.z, x.w, scale, saturated)};
}

extern "C" __global__ void __launch_bounds__(256)
cast_e4m3_static(const u16* __restrict__ x, const float* __restrict__ scale_at, u8* __restrict__ codes,
                 u64* __restrict__ saturated_total, u64 count, u32 cols, u32 pitch) {
    const Divisor scale(*scale_at);
    const u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    const u64 threads = (u64)gridDim.x * blockDim.x;
    u32 saturated = 0;

    const bool packed = pitch == cols, by_eight = packed || (cols % 8 == 0 && pitch % 8 == 0);
    const u64 num_vectors = by_eight && aligned(x, 16) && aligned(codes, 8) ? count / 8 : 0;
    Spaced place(thread, threads, max(cols / 8, 1u), pitch / 8);
    const Words4* vectors = (const Words4*)x;
    Words2* out = (Words2*)codes;
    u64 i = thread;
    // Four loads in flight: with one the latency of memory, not its bandwidth, would decide.
    for (; i + 3 * threads < num_vectors; i += 4 * threads) {
        Words4 kept[4];
#pragma unroll
        for (u32 k = 0; k < 4; k++) kept[k] = load_once(vectors + i + k * threads);
#pragma unroll
        for (u32 k = 0; k < 4; k++) out[packed ? i + k * threads : place.next()] = cast_eight(kept[k], scale, saturated);
    }
    for (; i < num_vectors; i += threads) out[packed ? i : place.next()] = cast_eight(load_once(vectors + i), scale, saturated);
    for (u64 j = num_vectors * 8 + thread; j < count; j += threads) {
        const u32 value = x[j];
        codes[packed ? j : j / cols * pitch + j % cols] =
            (u8)signed_codes(e4m3_pair(divided(bf16_low(value), scale, saturated), 0.0f), value, 0);
    }

    // One atomic a warp: the counter is a single address, and one an element would queue there.
    saturated = warp_sum(saturated);
    if (threadIdx.x % 32 == 0 && saturated != 0) atomicAdd(saturated_total, (u64)saturated);
}
