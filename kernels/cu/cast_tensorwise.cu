// architectures: sm_89 sm_90a sm_100a
//
// Takes BF16 operands and the partials that amax_tensor left of each; gives, where wanted, codes
// [rows, cols], their transposed copy codes_t [cols, rows], and the FP32 scale of the tensor, scales [1]:
//
//     scale = max(amax / largest, 1e-12)      with POWER_OF_TWO rounded up to the next power of two
//     code  = saturating nearest-even cast of (x / scale)
//
// bit for bit as core/src/numerics/cast.rs, largest = 448, with AS_E5M2 57344. A tensor with a NaN is
// all NaN; one with an infinity has an infinite scale, zeros and NaN.
//
// Launch: kernels/src/casts.rs. Each block reduces the partials for itself: they lie in L2, and a
// third launch would cost more. 256 threads work on tiles of 64 rows by 128 columns, 128 threads on
// 32 rows, so that small operands reach more multiprocessors. Fast with x aligned to 16 bytes, codes
// to 8, and for the transposed copy cols % 8 == 0, rows % 16 == 0, codes_t aligned to 16; correct else.
#include "common/tile.cuh"

// Loads in flight a thread where nothing is transposed.
static constexpr u32 DEPTH = 4;

template <bool E5M2>
static __device__ __forceinline__ Divisor tensor_scale(const CastOperand& o, u32 block) {
    u32 bits = 0;
    for (u32 i = threadIdx.x; i < o.tiles; i += blockDim.x) bits = max(bits, o.partials[i]);
    const float scale = scale_of_bits<E5M2>(block_max(bits) >> 16, o.flags);
    if (o.scales != nullptr && block == 0 && threadIdx.x == 0) *o.scales = scale;
    return Divisor(scale);
}

// Codes alone: the operand as one long row, whose codes are apart where their rows are.
template <bool E5M2>
static __device__ __forceinline__ void cast_flat(const CastOperand& o, u32 block) {
    const u64 count = (u64)o.rows * o.cols, thread = (u64)block * blockDim.x + threadIdx.x;
    const u64 threads = (u64)o.blocks * blockDim.x;
    const bool packed = o.pitch == o.cols;
    const bool by_eight = packed ? aligned(o.x, 16) && aligned(o.codes, 8) : rows_aligned(o);
    const u64 num_vectors = by_eight ? count / 8 : 0;
    const Words4* vectors = (const Words4*)o.x;
    Words2* to = (Words2*)o.codes;
    Words4 kept[DEPTH];
    const auto load = [&](u64 i) {
#pragma unroll
        for (u32 k = 0; k < DEPTH; k++) {
            const u64 at = i + k * threads;
            kept[k] = at < num_vectors ? load_once(vectors + at) : Words4{0, 0, 0, 0};
        }
    };
    // Before the scale is there: its latency hides behind that of memory.
    load(thread);
    const Divisor scale = tensor_scale<E5M2>(o, block);
    Spaced place(thread, threads, max(o.cols / 8, 1u), o.pitch / 8);
    for (u64 i = thread; i < num_vectors;) {
#pragma unroll
        for (u32 k = 0; k < DEPTH; k++) {
            const u64 at = i + k * threads;
            if (at >= num_vectors) continue;
            to[packed ? at : place.next()] = cast_eight<E5M2>(kept[k], scale);
        }
        i += DEPTH * threads;
        load(i);
    }
    for (u64 i = num_vectors * 8 + thread; i < count; i += threads) {
        o.codes[packed ? i : i / o.cols * o.pitch + i % o.cols] = cast_one<E5M2>(o.x[i], scale);
    }
}

// Codes and their transposed copy where rows start anywhere.
template <bool E5M2>
static __device__ __forceinline__ void cast_elements(const CastOperand& o, u32 block) {
    const Divisor scale = tensor_scale<E5M2>(o, block);
    const u64 count = (u64)o.rows * o.cols, threads = (u64)o.blocks * blockDim.x;
#pragma unroll 1
    for (u64 i = (u64)block * blockDim.x + threadIdx.x; i < count; i += threads) {
        const u8 code = cast_one<E5M2>(o.x[i], scale);
        const u64 row = i / o.cols, col = i % o.cols;
        if (o.codes != nullptr) o.codes[row * o.pitch + col] = code;
        o.codes_t[col * o.pitch_t + row] = code;
    }
}

// The block's tiles, the next one's loads in flight while the last one is written.
template <bool E5M2, u32 THREADS>
static __device__ __forceinline__ void cast_turned(const CastOperand& o, u32 block, u32* turned) {
    constexpr u32 WORDS = THREADS / THREADS_ACROSS, ROWS = 4 * WORDS;
    const u32 strips = ceil_div(o.cols, TILE_COLS), tiles = strips * ceil_div(o.rows, ROWS);
    const u32 group = threadIdx.x / THREADS_ACROSS, across = threadIdx.x % THREADS_ACROSS * 8;
    Words4 kept[4];
    u32 tile = block;
    u32 row0 = tile / strips * ROWS, col0 = tile % strips * TILE_COLS;
    load_four(kept, o, row0 + 4 * group, col0 + across);
    const Divisor scale = tensor_scale<E5M2>(o, block);
    while (tile < tiles) {
        Words2 codes[4];
#pragma unroll
        for (u32 k = 0; k < 4; k++) codes[k] = cast_eight<E5M2>(kept[k], scale);
        const u32 this_row = row0, this_col = col0;
        tile += o.blocks;
        row0 = tile / strips * ROWS;
        col0 = tile % strips * TILE_COLS;
        if (tile < tiles) load_four(kept, o, row0 + 4 * group, col0 + across);
        put_turned<WORDS>(turned, group, codes);
        if (o.codes != nullptr) store_four(o, this_row + 4 * group, this_col + across, codes);
        __syncthreads();
        write_turned<WORDS, THREADS>(turned, o, this_row, this_col);
        __syncthreads();
    }
}

template <bool E5M2>
static __device__ __forceinline__ void cast_operand(const CastOperand& o, u32 block, u32* turned) {
    if (o.codes_t == nullptr) {
        cast_flat<E5M2>(o, block);
    } else if (!rows_aligned(o) || !turned_rows_aligned(o)) {
        cast_elements<E5M2>(o, block);
    } else if (blockDim.x == 128) {
        cast_turned<E5M2, 128>(o, block, turned);
    } else {
        cast_turned<E5M2, 256>(o, block, turned);
    }
}

extern "C" __global__ void __launch_bounds__(256, 4)
cast_tensorwise(const CastOperand a, const CastOperand b) {
    // Here rather than where it is used: each instance of a template would have its own.
    __shared__ alignas(16) u32 turned[TILE_COLS * 256 / THREADS_ACROSS];
    wait_for_predecessor();
    const bool first = blockIdx.x < a.blocks;
    const CastOperand o = picked(a, b, first);
    const u32 block = first ? blockIdx.x : blockIdx.x - a.blocks;
    if (o.flags & AS_E5M2) {
        cast_operand<true>(o, block, turned);
    } else {
        cast_operand<false>(o, block, turned);
    }
}
