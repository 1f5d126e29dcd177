// architectures: sm_89 sm_90a sm_100a
//
// Takes x, BF16 [rows, cols] row-major; gives E4M3 codes [rows, cols] and one FP32 scale a row:
//
//     scale = max(amax / 448, 1e-12)      with power_of_two rounded up to the next power of two
//     code  = saturating nearest-even cast of (x / scale)
//
// bit for bit as core/src/numerics/cast.rs. A row with a NaN is all NaN; a row with an infinity has
// an infinite scale, zeros and NaN.
//
// Launch: one block a row. `blockDim.x` a multiple of 32 up to 1024; a row of at most 32 columns a
// thread stays in registers between amax and cast, so memory is read once. Longer rows are read
// twice, the second time mostly from L2. Rows whose length is no multiple of 8, and pointers that
// are not aligned to 16 (x) and 8 (codes) bytes, go element by element: correct, not fast (FP8
// matrix products want multiples of 16 anyway).
#include "common/fp8.cuh"
#include "common/warp.cuh"

// 16-byte vectors a thread keeps: 4 x 4 registers, all loads in flight before the first use.
static constexpr u32 KEPT = 4;

static __device__ __forceinline__ u32 amax_of(u32 largest, const Words4& x) {
    largest = magnitudes_max(largest, x.x);
    largest = magnitudes_max(largest, x.y);
    largest = magnitudes_max(largest, x.z);
    return magnitudes_max(largest, x.w);
}

static __device__ __forceinline__ u32 cast_four(u32 low, u32 high, const Divisor& scale) {
    const u32 codes = e4m3_pair(scale.of(bf16_low(low)), scale.of(bf16_high(low))) |
                      e4m3_pair(scale.of(bf16_low(high)), scale.of(bf16_high(high))) << 16;
    return e4m3_signed(codes, low, high);
}

static __device__ __forceinline__ Words2 cast_eight(const Words4& x, const Divisor& scale) {
    return Words2{cast_four(x.x, x.y, scale), cast_four(x.z, x.w, scale)};
}

// The row's scale, to all threads and to memory. `largest`: a pair of magnitudes as BF16 bits.
static __device__ __forceinline__ Divisor row_scale(u32 largest, bool power_of_two, float* to) {
    const u32 bits = block_max(max(largest & 0xFFFFu, largest >> 16));
    const float scale = scale_from_amax(__uint_as_float(bits << 16), E4M3_MAX, power_of_two);
    if (threadIdx.x == 0) *to = scale;
    return Divisor(scale);
}

extern "C" __global__ void __launch_bounds__(1024)
cast_e4m3_rowwise(const u16* __restrict__ x, u8* __restrict__ codes, float* __restrict__ scales, u32 cols,
                  u32 power_of_two) {
    const u64 row = blockIdx.x;
    const u16* from = x + row * cols;
    u8* to = codes + row * cols;
    const u32 thread = threadIdx.x, threads = blockDim.x;
    u32 largest = 0;

    // All threads of the grid decide the same, so the barrier below is reached by all or none.
    if (cols % 8 != 0 || !aligned(x, 16) || !aligned(codes, 8)) {
        for (u32 i = thread; i < cols; i += threads) largest = max(largest, (u32)from[i] & 0x7FFFu);
        const Divisor scale = row_scale(largest, power_of_two, scales + row);
        for (u32 i = thread; i < cols; i += threads) {
            const u32 value = from[i];
            to[i] = (u8)e4m3_signed(e4m3_pair(scale.of(bf16_low(value)), 0.0f), value, 0);
        }
        return;
    }

    const Words4* vectors = (const Words4*)from;
    Words2* out = (Words2*)to;
    const u32 count = cols / 8;
    if (count <= threads * KEPT) {
        Words4 kept[KEPT];
#pragma unroll
        for (u32 k = 0; k < KEPT; k++) {
            const u32 i = thread + k * threads;
            kept[k] = i < count ? load_once(vectors + i) : Words4{0, 0, 0, 0};
        }
#pragma unroll
        for (u32 k = 0; k < KEPT; k++) largest = amax_of(largest, kept[k]);
        const Divisor scale = row_scale(largest, power_of_two, scales + row);
#pragma unroll
        for (u32 k = 0; k < KEPT; k++) {
            const u32 i = thread + k * threads;
            if (i < count) out[i] = cast_eight(kept[k], scale);
        }
    } else {
#pragma unroll 4
        for (u32 i = thread; i < count; i += threads) largest = amax_of(largest, vectors[i]);
        const Divisor scale = row_scale(largest, power_of_two, scales + row);
#pragma unroll 4
        for (u32 i = thread; i < count; i += threads) out[i] = cast_eight(vectors[i], scale);
    }
}
