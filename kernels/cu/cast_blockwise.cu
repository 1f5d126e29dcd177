// architectures: sm_89 sm_90a sm_100a
//
// Takes BF16 operands; gives, where wanted, codes [rows, cols] and the transposed codes_t [cols, rows],
// each with FP32 scales of blocks of 128 along its own rows:
//
//     scales   [ceil(cols / 128)][rows]        scales_t [ceil(rows / 128)][cols]
//
// or with BLOCK_128X128 both with the scales of square blocks, as cuBLASLt wants them:
//
//     scales   [ceil(rows / 128)][ceil(cols / 128) rounded up to 4]
//     scales_t [ceil(cols / 128)][ceil(rows / 128) rounded up to 4]     the padding is 1
//
//     scale = max(amax / largest, 1e-12)      with POWER_OF_TWO rounded up to the next power of two
//     code  = saturating nearest-even cast of (x / scale)
//
// bit for bit as core/src/numerics/cast.rs, largest = 448, with AS_E5M2 57344. A block with a NaN is
// all NaN; one with an infinity has an infinite scale, zeros and NaN.
//
// Launch: kernels/src/casts.rs; 256 threads, a block a tile of tile_rows by 128 columns: 128 rows, or
// 16, 32 or 64 where only codes with 1x128 scales are wanted, so that small operands reach more
// multiprocessors. Fast with cols and pitch multiples of 8, x aligned to 16 bytes, codes to 8 and for the
// transposed copy rows and pitch_t of 16, codes_t aligned to 16; element by element else.
#include "common/tile.cuh"

static constexpr u32 THREADS = 256;
// Blocks a multiprocessor: with four, sm_100a would spill.
static constexpr u32 RESIDENT = __CUDA_ARCH__ >= 1000 ? 3 : 4;
static constexpr u32 TILE_ROWS = 128;
static constexpr u32 WORDS = TILE_ROWS / 4;
// Tile rows that one load of all threads covers.
static constexpr u32 ROWS_A_LOAD = THREADS / THREADS_ACROSS;
static_assert(ROWS_A_LOAD * 8 == TILE_ROWS, "eight loads a thread");

struct Tile {
    u32 row0, col0;
    u32 row_block, col_block, col_blocks;
};

// Of COUNT rows that 16 lanes share, the largest of row lane / (16 / COUNT), as BF16. Each step halves what
// a lane holds, so that all rows together cost few more shuffles than one.
template <u32 COUNT>
static __device__ __forceinline__ u32 row_amax(const Words4 (&kept)[COUNT]) {
    constexpr u32 PAIRS = COUNT > 1 ? COUNT / 2 : 1;
    const u32 lane = threadIdx.x % THREADS_ACROSS;
    // Row k in the low half, row k + COUNT / 2 in the high one; a single row in both.
    u32 held[PAIRS];
#pragma unroll
    for (u32 k = 0; k < PAIRS; k++) {
        const u32 low = amax_of(0, kept[k]), high = amax_of(0, kept[(k + PAIRS) % COUNT]);
        held[k] = magnitudes_max(__byte_perm(low, high, 0x5410), __byte_perm(low, high, 0x7632));
    }
#pragma unroll
    for (u32 num = PAIRS / 2; num != 0; num /= 2) {
        const u32 step = num * 16 / COUNT;
        const bool upper = (lane & step) != 0;
#pragma unroll
        for (u32 k = 0; k < num; k++) {
            const u32 keep = upper ? held[k + num] : held[k], give = upper ? held[k] : held[k + num];
            held[k] = magnitudes_max(keep, __shfl_xor_sync(0xFFFFFFFFu, give, step));
        }
    }
    // The lanes that hold the same two rows.
#pragma unroll
    for (u32 step = 8 / COUNT; step != 0; step /= 2) {
        held[0] = magnitudes_max(held[0], __shfl_xor_sync(0xFFFFFFFFu, held[0], step));
    }
    held[0] = magnitudes_max(held[0], __shfl_xor_sync(0xFFFFFFFFu, held[0], 8));
    return (lane & 8) != 0 ? held[0] >> 16 : held[0] & 0xFFFFu;
}

// The lane of 16 that has row k of COUNT.
template <u32 COUNT>
static __device__ constexpr u32 lane_of(u32 k) {
    return k * (THREADS_ACROSS / COUNT);
}

static __device__ __forceinline__ Divisor from_lane(const Divisor& mine, u32 lane) {
    Divisor found;
    found.value = __shfl_sync(0xFFFFFFFFu, mine.value, lane);
    found.reciprocal = __shfl_sync(0xFFFFFFFFu, mine.reciprocal, lane);
    return found;
}

// The scale of each row that a half warp holds, in the lanes from lane_of its number on.
// `row_of(k)`: which row of the operand that is.
template <bool E5M2, u32 COUNT, typename RowOf>
static __device__ __forceinline__ Divisor row_divisor(const CastOperand& o, const Tile& tile,
                                                      const Words4 (&kept)[COUNT], RowOf row_of) {
    constexpr u32 LANES = THREADS_ACROSS / COUNT;
    const u32 lane = threadIdx.x % THREADS_ACROSS, row = row_of(lane / LANES);
    const float scale = scale_of_bits<E5M2>(row_amax(kept), o.flags);
    if (o.scales != nullptr && lane % LANES == 0 && row < o.rows) o.scales[(u64)tile.col_block * o.rows + row] = scale;
    return Divisor(scale);
}

// Codes alone with 1x128 scales: no shared memory, no barrier. COUNT rows a thread, 16 apart.
template <bool E5M2, u32 COUNT>
static __device__ __forceinline__ void cast_direct(const CastOperand& o, const Tile& tile) {
    const u32 row0 = tile.row0 + threadIdx.x / THREADS_ACROSS;
    const u32 col = tile.col0 + threadIdx.x % THREADS_ACROSS * 8;
    Words4 kept[COUNT];
#pragma unroll
    for (u32 k = 0; k < COUNT; k++) {
        const u32 row = row0 + k * ROWS_A_LOAD;
        const bool inside = row < o.rows && col < o.cols;
        kept[k] = inside ? load_once((const Words4*)(o.x + (u64)row * o.cols + col)) : Words4{0, 0, 0, 0};
    }
    const Divisor mine = row_divisor<E5M2, COUNT>(o, tile, kept, [&](u32 k) { return row0 + k * ROWS_A_LOAD; });
    const u32 half = threadIdx.x & 16;
#pragma unroll
    for (u32 k = 0; k < COUNT; k++) {
        const u32 row = row0 + k * ROWS_A_LOAD;
        const Divisor scale = from_lane(mine, half + lane_of<COUNT>(k));
        if (row < o.rows && col < o.cols) {
            *(Words2*)(o.codes + (u64)row * o.pitch + col) = cast_eight<E5M2>(kept[k], scale);
        }
    }
}

// One scale for the square block, to both outputs and the padding beside them.
template <bool E5M2>
static __device__ __forceinline__ Divisor square_divisor(const CastOperand& o, const Tile& tile, u32 bits) {
    const float scale = scale_of_bits<E5M2>(bits, o.flags);
    const u32 row_blocks = ceil_div(o.rows, TILE_ROWS);
    const u32 pitch = ceil_div(tile.col_blocks, 4) * 4, pitch_t = ceil_div(row_blocks, 4) * 4;
    // Thread 0 writes the scale; the last block of a row also the padding after it, 3 at most.
    const u32 i = threadIdx.x;
    const float value = i == 0 ? scale : 1.0f;
    const u32 ahead = tile.col_block + 1 == tile.col_blocks ? pitch - tile.col_block : 1;
    const u32 ahead_t = tile.row_block + 1 == row_blocks ? pitch_t - tile.row_block : 1;
    if (o.scales != nullptr && i < ahead) o.scales[(u64)tile.row_block * pitch + tile.col_block + i] = value;
    if (o.scales_t != nullptr && i < ahead_t) o.scales_t[(u64)tile.col_block * pitch_t + tile.row_block + i] = value;
    return Divisor(scale);
}

// The thread's rows are two groups of four: 4 group and following, 64 further down again.
static __device__ __forceinline__ u32 tile_row(u32 group, u32 k) { return 4 * group + k % 4 + k / 4 * 64; }

static __device__ __forceinline__ void load_tile(Words4 (&kept)[8], const CastOperand& o, const Tile& tile, u32 group,
                                                 u32 col) {
#pragma unroll
    for (u32 k = 0; k < 8; k++) {
        const u32 row = tile.row0 + tile_row(group, k);
        const bool inside = row < o.rows && col < o.cols;
        kept[k] = inside ? load_once((const Words4*)(o.x + (u64)row * o.cols + col)) : Words4{0, 0, 0, 0};
    }
}

// A square block: one scale, each element cast once.
template <bool E5M2>
static __device__ __forceinline__ void cast_square(const CastOperand& o, const Tile& tile, u32* turned) {
    const u32 group = threadIdx.x / THREADS_ACROSS, col = tile.col0 + threadIdx.x % THREADS_ACROSS * 8;
    Words4 kept[8];
    load_tile(kept, o, tile, group, col);
    u32 largest = 0;
#pragma unroll
    for (u32 k = 0; k < 8; k++) largest = amax_of(largest, kept[k]);
    const Divisor scale = square_divisor<E5M2>(o, tile, block_max(larger_half(largest)));
#pragma unroll
    for (u32 part = 0; part < 2; part++) {
        Words2 codes[4];
#pragma unroll
        for (u32 k = 0; k < 4; k++) codes[k] = cast_eight<E5M2>(kept[4 * part + k], scale);
        if (o.codes != nullptr) store_four(o, tile.row0 + tile_row(group, 4 * part), col, codes);
        if (o.codes_t != nullptr) put_turned<WORDS>(turned, group + 16 * part, codes);
    }
    if (o.codes_t == nullptr) return;
    __syncthreads();
    write_turned<WORDS, THREADS>(turned, o, tile.row0, tile.col0);
}

// 1x128 along rows for codes, along columns for codes_t: each element cast twice, read once.
template <bool E5M2>
static __device__ __forceinline__ void cast_both(const CastOperand& o, const Tile& tile, u32* turned,
                                                 ColumnScales& columns) {
    const u32 group = threadIdx.x / THREADS_ACROSS, across = threadIdx.x % THREADS_ACROSS * 8;
    const u32 col = tile.col0 + across;
    Words4 kept[8];
    load_tile(kept, o, tile, group, col);
    if (o.codes != nullptr) {
        const Divisor mine =
            row_divisor<E5M2, 8>(o, tile, kept, [&](u32 k) { return tile.row0 + tile_row(group, k); });
        const u32 half = threadIdx.x & 16;
#pragma unroll
        for (u32 part = 0; part < 2; part++) {
            Words2 codes[4];
#pragma unroll
            for (u32 k = 0; k < 4; k++) {
                codes[k] = cast_eight<E5M2>(kept[4 * part + k], from_lane(mine, half + lane_of<8>(4 * part + k)));
            }
            store_four(o, tile.row0 + tile_row(group, 4 * part), col, codes);
        }
    }
    Words4 largest = {0, 0, 0, 0};
#pragma unroll
    for (u32 k = 0; k < 8; k++) largest = amax_each(largest, kept[k]);
    float* const to = o.scales_t != nullptr ? o.scales_t + (u64)tile.row_block * o.cols + tile.col0 : nullptr;
    column_divisors<E5M2, THREADS>(columns, largest, o.flags, to, o.cols - tile.col0);
    Divisor scales[8];
#pragma unroll
    for (u32 k = 0; k < 8; k++) scales[k] = columns.divisors[divisor_at(across) + k];
#pragma unroll
    for (u32 part = 0; part < 2; part++) {
        Words2 codes[4];
#pragma unroll
        for (u32 k = 0; k < 4; k++) codes[k] = cast_eight_by<E5M2>(kept[4 * part + k], scales);
        put_turned<WORDS>(turned, group + 16 * part, codes);
    }
    __syncthreads();
    write_turned<WORDS, THREADS>(turned, o, tile.row0, tile.col0);
}

// ---- Element by element -------------------------------------------------------------------------

// Tile rows by a warp each, and their columns by a thread each: correct for any size and address.
template <bool E5M2>
static __device__ __forceinline__ void element_vectors(const CastOperand& o, const Tile& tile) {
    const u32 lane = threadIdx.x % 32;
    const u32 row_end = min(tile.row0 + o.tile_rows, o.rows), col_end = min(tile.col0 + TILE_COLS, o.cols);
    if (o.codes != nullptr) {
#pragma unroll 1
        for (u32 row = tile.row0 + threadIdx.x / 32; row < row_end; row += THREADS / 32) {
            const u64 start = (u64)row * o.cols, to = (u64)row * o.pitch;
            u32 bits = 0;
#pragma unroll 1
            for (u32 col = tile.col0 + lane; col < col_end; col += 32) bits = max(bits, o.x[start + col] & 0x7FFFu);
            const float scale = scale_of_bits<E5M2>(warp_max(bits), o.flags);
            if (o.scales != nullptr && lane == 0) o.scales[(u64)tile.col_block * o.rows + row] = scale;
            const Divisor divisor(scale);
#pragma unroll 1
            for (u32 col = tile.col0 + lane; col < col_end; col += 32) {
                o.codes[to + col] = cast_one<E5M2>(o.x[start + col], divisor);
            }
        }
    }
    const u32 col = tile.col0 + threadIdx.x;
    if (o.codes_t == nullptr || col >= col_end) return;
    u32 bits = 0;
#pragma unroll 1
    for (u32 row = tile.row0; row < row_end; row++) bits = max(bits, o.x[(u64)row * o.cols + col] & 0x7FFFu);
    const float scale = scale_of_bits<E5M2>(bits, o.flags);
    if (o.scales_t != nullptr) o.scales_t[(u64)tile.row_block * o.cols + col] = scale;
    const Divisor divisor(scale);
#pragma unroll 1
    for (u32 row = tile.row0; row < row_end; row++) {
        o.codes_t[(u64)col * o.pitch_t + row] = cast_one<E5M2>(o.x[(u64)row * o.cols + col], divisor);
    }
}

template <bool E5M2>
static __device__ __forceinline__ void element_square(const CastOperand& o, const Tile& tile) {
    u32 bits = 0;
#pragma unroll 1
    for (u32 i = threadIdx.x; i < TILE_ROWS * TILE_COLS; i += THREADS) {
        const u32 row = tile.row0 + i / TILE_COLS, col = tile.col0 + i % TILE_COLS;
        if (row < o.rows && col < o.cols) bits = max(bits, o.x[(u64)row * o.cols + col] & 0x7FFFu);
    }
    const Divisor scale = square_divisor<E5M2>(o, tile, block_max(bits));
#pragma unroll 1
    for (u32 i = threadIdx.x; i < TILE_ROWS * TILE_COLS; i += THREADS) {
        const u32 row = tile.row0 + i / TILE_COLS, col = tile.col0 + i % TILE_COLS;
        if (row >= o.rows || col >= o.cols) continue;
        const u8 code = cast_one<E5M2>(o.x[(u64)row * o.cols + col], scale);
        if (o.codes != nullptr) o.codes[(u64)row * o.pitch + col] = code;
        if (o.codes_t != nullptr) o.codes_t[(u64)col * o.pitch_t + row] = code;
    }
}

template <bool E5M2>
static __device__ __forceinline__ void cast_operand(const CastOperand& o, u32 block, u32* turned,
                                                    ColumnScales& columns) {
    Tile tile;
    tile.col_blocks = ceil_div(o.cols, TILE_COLS);
    tile.row_block = block / tile.col_blocks;
    tile.col_block = block % tile.col_blocks;
    tile.row0 = tile.row_block * o.tile_rows;
    tile.col0 = tile.col_block * TILE_COLS;
    const bool square = (o.flags & BLOCK_128X128) != 0, turns = o.codes_t != nullptr;
    if (!rows_aligned(o) || (turns && !turned_rows_aligned(o))) {
        square ? element_square<E5M2>(o, tile) : element_vectors<E5M2>(o, tile);
    } else if (square) {
        cast_square<E5M2>(o, tile, turned);
    } else if (turns) {
        cast_both<E5M2>(o, tile, turned, columns);
    } else if (o.tile_rows == ROWS_A_LOAD) {
        cast_direct<E5M2, 1>(o, tile);
    } else if (o.tile_rows == 2 * ROWS_A_LOAD) {
        cast_direct<E5M2, 2>(o, tile);
    } else {
        cast_direct<E5M2, 4>(o, tile);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
cast_blockwise(const CastOperand a, const CastOperand b) {
    // Here rather than where it is used: each instance of a template would have its own.
    __shared__ alignas(16) u32 turned[TILE_COLS * WORDS];
    __shared__ ColumnScales columns;
    wait_for_predecessor();
    const bool first = blockIdx.x < a.blocks;
    const CastOperand o = picked(a, b, first);
    const u32 block = first ? blockIdx.x : blockIdx.x - a.blocks;
    if (o.flags & AS_E5M2) {
        cast_operand<true>(o, block, turned, columns);
    } else {
        cast_operand<false>(o, block, turned, columns);
    }
}
