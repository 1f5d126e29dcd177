// architectures: sm_89 sm_90a sm_100a
//
// Takes BF16 operands and the partials that cast_rowwise left of each with COLUMN_AMAX; gives the
// transposed codes_t [cols, rows] and one FP32 scale a column, scales_t [cols]: what a product reads
// that reduces over the rows.
//
//     scale = max(amax / largest, 1e-12)      with POWER_OF_TWO rounded up to the next power of two
//     code  = saturating nearest-even cast of (x / scale)
//
// bit for bit as core/src/numerics/cast.rs, largest = 448, with AS_E5M2 57344. A column with a NaN is
// all NaN; a column with an infinity has an infinite scale, zeros and NaN.
//
// Launch: kernels/src/casts.rs. `blocks` is a multiple of the strips of 128 columns; the blocks of a
// strip share its tiles, 64 rows each with 256 threads, 32 with 128. Fast with cols % 8 == 0,
// rows and pitch_t of 16 and x and codes_t aligned to 16 bytes; element by element else. partials are aligned to 16 bytes.
#include "common/tile.cuh"

// The largest magnitudes of the thread's eight columns over its share of the partials.
static __device__ __forceinline__ Words4 partial_amax(const CastOperand& o, u32 col0) {
    // Rows of partials are whole tiles of 256 columns: two bytes a column, eight columns a vector.
    const u32 pitch = ceil_div(o.cols, 256) * 32;
    const Words4* from = (const Words4*)o.partials + col0 / 8 + threadIdx.x % THREADS_ACROSS;
    Words4 largest = {0, 0, 0, 0};
#pragma unroll 4
    for (u32 i = threadIdx.x / THREADS_ACROSS; i < o.tiles; i += blockDim.x / THREADS_ACROSS) {
        largest = amax_each(largest, from[(u64)i * pitch]);
    }
    return largest;
}

template <bool E5M2, u32 THREADS>
static __device__ __forceinline__ void cast_strip(const CastOperand& o, u32 block, u32* turned,
                                                  ColumnScales& columns) {
    constexpr u32 WORDS = THREADS / THREADS_ACROSS, ROWS = 4 * WORDS;
    const u32 strips = ceil_div(o.cols, TILE_COLS), splits = o.blocks / strips;
    const u32 split = block / strips, col0 = block % strips * TILE_COLS;
    const u32 group = threadIdx.x / THREADS_ACROSS, across = threadIdx.x % THREADS_ACROSS * 8;
    const bool fast = o.cols % 8 == 0 && aligned(o.x, 16) && turned_rows_aligned(o);
    const u32 step = splits * ROWS;
    u32 row0 = split * ROWS;
    Words4 kept[4];
    // Before the scales are there: their latency hides behind that of memory.
    if (fast) load_four(kept, o, row0 + 4 * group, col0 + across);
    // The first split writes the scales for all.
    float* const to = split == 0 && o.scales_t != nullptr ? o.scales_t + col0 : nullptr;
    column_divisors<E5M2, THREADS>(columns, partial_amax(o, col0), o.flags, to, o.cols - col0);

    if (!fast) {
#pragma unroll 1
        for (; row0 < o.rows; row0 += step) {
#pragma unroll 1
            for (u32 i = threadIdx.x; i < ROWS * TILE_COLS; i += THREADS) {
                const u32 row = row0 + i / TILE_COLS, col = i % TILE_COLS;
                if (row >= o.rows || col0 + col >= o.cols) continue;
                const u32 value = o.x[(u64)row * o.cols + col0 + col];
                o.codes_t[(u64)(col0 + col) * o.pitch_t + row] =
                    cast_one<E5M2>(value, columns.divisors[divisor_at(col)]);
            }
        }
        return;
    }
    while (row0 < o.rows) {
        // From shared memory again for every tile: kept, these 16 registers would cost a block a multiprocessor.
        Divisor scales[8];
#pragma unroll
        for (u32 k = 0; k < 8; k++) scales[k] = columns.divisors[divisor_at(across) + k];
        Words2 codes[4];
#pragma unroll
        for (u32 k = 0; k < 4; k++) codes[k] = cast_eight_by<E5M2>(kept[k], scales);
        const u32 this_row = row0;
        row0 += step;
        // The next tile's loads, in flight while this one is written.
        if (row0 < o.rows) load_four(kept, o, row0 + 4 * group, col0 + across);
        put_turned<WORDS>(turned, group, codes);
        __syncthreads();
        write_turned<WORDS, THREADS>(turned, o, this_row, col0);
        __syncthreads();
    }
}

template <bool E5M2>
static __device__ __forceinline__ void cast_operand(const CastOperand& o, u32 block, u32* turned,
                                                    ColumnScales& columns) {
    if (blockDim.x == 128) {
        cast_strip<E5M2, 128>(o, block, turned, columns);
    } else {
        cast_strip<E5M2, 256>(o, block, turned, columns);
    }
}

extern "C" __global__ void __launch_bounds__(256, 4)
cast_columnwise(const CastOperand a, const CastOperand b) {
    // Here rather than where it is used: each instance of a template would have its own.
    __shared__ alignas(16) u32 turned[TILE_COLS * 256 / THREADS_ACROSS];
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
