// Takes tiles 128 columns wide, spread over a block's threads as 4 rows by 8 columns each; gives them
// transposed through shared memory, and the scales of their columns.
//
// Thread t of a block holds columns 8 (t % 16) and following; its rows are a group of four, so that
// four codes of one column make one word of the transposed tile.
#pragma once
#include "common/cast.cuh"

static constexpr u32 TILE_COLS = 128;
static constexpr u32 THREADS_ACROSS = TILE_COLS / 8;

// Word `group` (rows 4 group and following) of a column in a tile of WORDS words a column. The twist
// spreads over all banks what a warp writes at once, which are 16 columns a multiple of 8 apart and
// two neighbouring groups; it stays within the 32 words that the neighbours of a column share.
template <u32 WORDS>
static __device__ __forceinline__ u32 turned_at(u32 col, u32 group) {
    return (col * WORDS + group) ^ (col / 8 * 2);
}

// Bytes of four rows by four columns, transposed, to four columns from `col` on.
template <u32 WORDS>
static __device__ __forceinline__ void put_four(u32* turned, u32 col, u32 group, u32 row0, u32 row1, u32 row2,
                                                u32 row3) {
    const u32 low01 = __byte_perm(row0, row1, 0x5140), low23 = __byte_perm(row2, row3, 0x5140);
    const u32 high01 = __byte_perm(row0, row1, 0x7362), high23 = __byte_perm(row2, row3, 0x7362);
    turned[turned_at<WORDS>(col, group)] = __byte_perm(low01, low23, 0x5410);
    turned[turned_at<WORDS>(col + 1, group)] = __byte_perm(low01, low23, 0x7632);
    turned[turned_at<WORDS>(col + 2, group)] = __byte_perm(high01, high23, 0x5410);
    turned[turned_at<WORDS>(col + 3, group)] = __byte_perm(high01, high23, 0x7632);
}

// The codes of four rows by the thread's eight columns.
template <u32 WORDS>
static __device__ __forceinline__ void put_turned(u32* turned, u32 group, const Words2 (&codes)[4]) {
    const u32 col = threadIdx.x % THREADS_ACROSS * 8;
    put_four<WORDS>(turned, col, group, codes[0].x, codes[1].x, codes[2].x, codes[3].x);
    put_four<WORDS>(turned, col + 4, group, codes[0].y, codes[1].y, codes[2].y, codes[3].y);
}

// The transposed tile to codes_t, of turned_rows_aligned.
template <u32 WORDS, u32 THREADS>
static __device__ __forceinline__ void write_turned(const u32* turned, const CastOperand& o, u32 row0, u32 col0) {
    constexpr u32 PIECES = WORDS / 4;
#pragma unroll
    for (u32 k = 0; k < TILE_COLS * PIECES / THREADS; k++) {
        const u32 piece = threadIdx.x + k * THREADS;
        const u32 col = piece / PIECES, row = row0 + piece % PIECES * 16;
        // What turned_at does to whole pieces, and to the halves within one.
        const Words4 found = ((const Words4*)turned)[piece ^ (col / 16)];
        const bool swapped = (col / 8 & 1) != 0;
        const Words4 words = swapped ? Words4{found.z, found.w, found.x, found.y} : found;
        if (col0 + col < o.cols && row < o.rows) *(Words4*)(o.codes_t + (u64)(col0 + col) * o.pitch_t + row) = words;
    }
}

// Four rows from `row` on, zeros beyond the operand (they change no amax).
static __device__ __forceinline__ void load_four(Words4 (&kept)[4], const CastOperand& o, u32 row, u32 col) {
    const u16* from = o.x + (u64)row * o.cols + col;
#pragma unroll
    for (u32 k = 0; k < 4; k++) {
        const bool inside = row + k < o.rows && col < o.cols;
        kept[k] = inside ? load_once((const Words4*)(from + (u64)k * o.cols)) : Words4{0, 0, 0, 0};
    }
}

static __device__ __forceinline__ void store_four(const CastOperand& o, u32 row, u32 col, const Words2 (&codes)[4]) {
    u8* to = o.codes + (u64)row * o.pitch + col;
#pragma unroll
    for (u32 k = 0; k < 4; k++) {
        if (row + k < o.rows && col < o.cols) *(Words2*)(to + (u64)k * o.pitch) = codes[k];
    }
}

// Shared memory of column_divisors.
struct ColumnScales {
    Words4 of_warps[8][THREADS_ACROSS];
    alignas(16) Divisor divisors[TILE_COLS + 2 * THREADS_ACROSS];
};

// Where ColumnScales keeps a column: two empty places after every eight spread over all banks what
// the threads of a row read, eight neighbours each.
static __device__ __forceinline__ u32 divisor_at(u32 col) { return col + col / 8 * 2; }

// The scales of a tile's columns, to `shared.divisors` and, if wanted, to `to`, which points at the
// tile's first column. `largest`: magnitudes of the thread's eight columns over its rows.
template <bool E5M2, u32 THREADS>
static __device__ __forceinline__ void column_divisors(ColumnScales& shared, Words4 largest, u32 flags, float* to,
                                                       u32 num_cols) {
    const u32 thread = threadIdx.x;
    // The other half of the warp holds the same columns.
    largest.x = magnitudes_max(largest.x, __shfl_xor_sync(0xFFFFFFFFu, largest.x, 16));
    largest.y = magnitudes_max(largest.y, __shfl_xor_sync(0xFFFFFFFFu, largest.y, 16));
    largest.z = magnitudes_max(largest.z, __shfl_xor_sync(0xFFFFFFFFu, largest.z, 16));
    largest.w = magnitudes_max(largest.w, __shfl_xor_sync(0xFFFFFFFFu, largest.w, 16));
    if (thread % 32 < THREADS_ACROSS) shared.of_warps[thread / 32][thread % 32] = largest;
    __syncthreads();
    if (thread < TILE_COLS) {
        const u16* magnitudes = (const u16*)shared.of_warps;
        u32 bits = 0;
#pragma unroll
        for (u32 warp = 0; warp < THREADS / 32; warp++) bits = max(bits, (u32)magnitudes[warp * TILE_COLS + thread]);
        const float scale = scale_of_bits<E5M2>(bits, flags);
        shared.divisors[divisor_at(thread)] = Divisor(scale);
        if (to != nullptr && thread < num_cols) to[thread] = scale;
    }
    __syncthreads();
}
