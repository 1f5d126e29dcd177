// architectures: sm_89 sm_90a sm_100a
//
// Takes BF16 operands; does to each what its role bit says:
//
//   ROW_CAST      codes [rows, cols] and one FP32 scale a row, scales [rows]:
//                     scale = max(amax / largest, 1e-12)    with POWER_OF_TWO rounded up to the next
//                     code  = saturating nearest-even cast of (x / scale)
//                 bit for bit as core/src/numerics/cast.rs, largest = 448, with AS_E5M2 57344. A row
//                 with a NaN is all NaN; a row with an infinity has an infinite scale, zeros and NaN.
//   COLUMN_AMAX   partials [tiles, cols rounded up to 256] of 16-bit magnitudes: the largest of each
//                 column over tile_rows rows, for cast_columnwise.
//
// Launch: kernels/src/casts.rs. Rows stay in registers between amax and cast, so memory is read once.
// Rows of at most 1024 columns go to a part of a warp each. Longer ones go to a block, or with
// clusters to several; tile_rows says how many vectors of theirs a thread keeps, and tiles, unless it
// is 0, how many rows further down a row is by now wanted in L2. Where tile_rows is 0 they are read
// twice, the second time mostly from L2. Rows whose length is no multiple of 8, and pointers
// that are not aligned to 16 (x) and 8 (codes) bytes, go element by element: correct, not fast (FP8
// products want multiples of 16).
#include "common/cast.cuh"

// 16-byte vectors a thread keeps, all loads in flight before the first use: of short rows and of rows
// up to 16384, which gain more from many threads; and of the longest.
static constexpr u32 KEPT = 4;
static constexpr u32 MOST_KEPT = 8;
static constexpr u32 SHORT_ROW = 1024;
static constexpr u32 MOST_WARPS = 32;
// Blocks of a cluster.
static constexpr u32 MOST_PARTS = 8;

// ---- Clusters: one row over several multiprocessors ---------------------------------------------

static __device__ __forceinline__ u32 cluster_size() {
#if __CUDA_ARCH__ >= 900
    u32 size;
    asm("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(size));
    return size;
#else
    return 1;
#endif
}

#if __CUDA_ARCH__ >= 900
static __device__ __forceinline__ void cluster_arrive() {
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");
}

static __device__ __forceinline__ void cluster_wait() {
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}

// To the same place of another block's shared memory.
static __device__ __forceinline__ void store_there(u32* here, u32 block, u32 value) {
    u32 address, there;
    asm("{ .reg .u64 at; cvta.to.shared.u64 at, %1; cvt.u32.u64 %0, at; }" : "=r"(address) : "l"(here));
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(block));
    asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(there), "r"(value) : "memory");
}
#endif

// ---- ROW_CAST -----------------------------------------------------------------------------------

// Lanes of a warp that share a row of `count` vectors: a power of two, so that shuffles reduce it.
static __device__ __forceinline__ u32 lanes_of_row(u32 count) {
    return count > 16 ? 32 : 1u << (32 - __clz(count - 1));
}

// A row by a block, or by a warp of it.
template <bool E5M2, bool BY_BLOCK>
static __device__ __forceinline__ void element_row(const CastOperand& o, u32 row, u32 thread, u32 threads) {
    const u16* from = o.x + (u64)row * o.cols;
    u8* to = o.codes + (u64)row * o.pitch;
    u32 largest = 0;
#pragma unroll 1
    for (u32 i = thread; i < o.cols; i += threads) largest = max(largest, (u32)from[i] & 0x7FFFu);
    const float scale = scale_of_bits<E5M2>(BY_BLOCK ? block_max(largest) : warp_max(largest), o.flags);
    if (thread == 0) o.scales[row] = scale;
    const Divisor divisor(scale);
#pragma unroll 1
    for (u32 i = thread; i < o.cols; i += threads) to[i] = cast_one<E5M2>(from[i], divisor);
}

// Several rows a block: a warp, or a part of one, holds a row.
template <bool E5M2>
static __device__ __forceinline__ void cast_short_rows(const CastOperand& o, u32 block) {
    const u32 count = ceil_div(o.cols, 8), lanes = lanes_of_row(count), rows_a_warp = 32 / lanes;
    const u32 lane = threadIdx.x % 32, warp = block * (blockDim.x / 32) + threadIdx.x / 32;
    if (!rows_aligned(o)) {
        for (u32 i = 0; i < rows_a_warp; i++) {
            const u32 row = warp * rows_a_warp + i;
            if (row < o.rows) element_row<E5M2, false>(o, row, lane, 32);
        }
        return;
    }
    const u32 row = warp * rows_a_warp + lane / lanes, first = lane % lanes;
    const bool inside = row < o.rows;
    const Words4* from = (const Words4*)(o.x + (u64)row * o.cols);
    Words4 kept[KEPT];
#pragma unroll
    for (u32 k = 0; k < KEPT; k++) {
        const u32 i = first + k * lanes;
        kept[k] = inside && i < count ? load_once(from + i) : Words4{0, 0, 0, 0};
    }
    u32 largest = 0;
#pragma unroll
    for (u32 k = 0; k < KEPT; k++) largest = amax_of(largest, kept[k]);
    u32 bits = larger_half(largest);
    if (lanes == 32) {
        bits = warp_max(bits);
    } else {
        for (u32 step = lanes / 2; step != 0; step /= 2) bits = max(bits, __shfl_xor_sync(0xFFFFFFFFu, bits, step));
    }
    if (!inside) return;
    const float scale = scale_of_bits<E5M2>(bits, o.flags);
    if (first == 0) o.scales[row] = scale;
    const Divisor divisor(scale);
    Words2* to = (Words2*)(o.codes + (u64)row * o.pitch);
#pragma unroll
    for (u32 k = 0; k < KEPT; k++) {
        const u32 i = first + k * lanes;
        if (i < count) to[i] = cast_eight<E5M2>(kept[k], divisor);
    }
}

// The largest of a row, whose threads are the block's or, with more than one part, the cluster's:
// then all of it have arrived once at its barrier, so that all have begun and may be written to.
static __device__ __forceinline__ u32 row_max(u32 bits, u32 parts, u32 rank, u32* maxima) {
    const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
    bits = warp_max(bits);
    u32 found = 0;
    if (parts == 1) {
        if (lane == 0) maxima[warp] = bits;
        __syncthreads();
        if (lane < warps) found = maxima[lane];
    } else {
#if __CUDA_ARCH__ >= 900
        cluster_wait();
        if (lane < parts) store_there(maxima + rank * MOST_WARPS + warp, lane, bits);
        cluster_arrive();
        cluster_wait();
        if (lane < warps) {
            for (u32 part = 0; part < parts; part++) found = max(found, maxima[part * MOST_WARPS + lane]);
        }
#endif
    }
    return warp_max(found);
}

// Asks for a block's share of a later row, [begin, end) in vectors. Where few blocks fit on a
// multiprocessor, memory would idle while they cast: so it fetches what the blocks after them will read.
static __device__ __forceinline__ void fetch_ahead(const CastOperand& o, u32 row, u32 begin, u32 end) {
#if __CUDA_ARCH__ >= 900
    if (threadIdx.x != 0 || o.tiles == 0 || row + o.tiles >= o.rows || begin >= end) return;
    const u16* from = o.x + (u64)(row + o.tiles) * o.cols + begin * 8;
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"((end - begin) * 16) : "memory");
#endif
}

// A row a block, or a row a cluster. The blocks of an operand are a multiple of the cluster's size, so
// all of a cluster have the same operand and row. No division: the first load waits for all of this.
template <bool E5M2, u32 VECTORS>
static __device__ __forceinline__ void cast_kept_row(const CastOperand& o, u32 block, u32* maxima) {
    const u32 parts = VECTORS == KEPT ? 1 : cluster_size(), log_parts = 31 - __clz(parts);
    const u32 rank = block & (parts - 1), row = block >> log_parts;
    // Blocks that only fill the last cluster.
    if (row >= o.rows) return;
#if __CUDA_ARCH__ >= 900
    if (parts != 1) cluster_arrive();
#endif
    // A block's share is whole lines of 128 codes.
    const u32 count = o.cols / 8, share = (((count + parts - 1) >> log_parts) + 15) & ~15u;
    const u32 begin = rank * share + threadIdx.x, end = min(rank * share + share, count);
    const Words4* from = (const Words4*)(o.x + (u64)row * o.cols) + begin;
    Words4 kept[VECTORS];
#pragma unroll
    for (u32 k = 0; k < VECTORS; k++) {
        kept[k] = begin + k * blockDim.x < end ? load_once(from + k * blockDim.x) : Words4{0, 0, 0, 0};
    }
    u32 largest = 0;
#pragma unroll
    for (u32 k = 0; k < VECTORS; k++) largest = amax_of(largest, kept[k]);
    const u32 own = larger_half(largest);
    // Not before: what the row itself still waits for comes first.
    asm volatile("" ::: "memory");
    if (VECTORS == MOST_KEPT) fetch_ahead(o, row, rank * share, end);
    const u32 bits = row_max(own, parts, rank, maxima);
    const float scale = scale_of_bits<E5M2>(bits, o.flags);
    if (begin == 0) o.scales[row] = scale;
    const Divisor divisor(scale);
    Words2* to = (Words2*)(o.codes + (u64)row * o.pitch) + begin;
#pragma unroll
    for (u32 k = 0; k < VECTORS; k++) {
        if (begin + k * blockDim.x < end) to[k * blockDim.x] = cast_eight<E5M2>(kept[k], divisor);
    }
}

// A row a block, read twice.
template <bool E5M2>
static __device__ __forceinline__ void cast_long_row(const CastOperand& o, u32 row) {
    if (row >= o.rows) return;
    const u32 thread = threadIdx.x, threads = blockDim.x;
    if (!rows_aligned(o)) {
        element_row<E5M2, true>(o, row, thread, threads);
        return;
    }
    const u32 count = o.cols / 8;
    const Words4* from = (const Words4*)(o.x + (u64)row * o.cols);
    Words2* to = (Words2*)(o.codes + (u64)row * o.pitch);
    u32 largest = 0;
#pragma unroll 4
    for (u32 i = thread; i < count; i += threads) largest = amax_of(largest, from[i]);
    const float scale = scale_of_bits<E5M2>(block_max(larger_half(largest)), o.flags);
    if (thread == 0) o.scales[row] = scale;
    const Divisor divisor(scale);
#pragma unroll 4
    for (u32 i = thread; i < count; i += threads) to[i] = cast_eight<E5M2>(from[i], divisor);
}

template <bool E5M2>
static __device__ __forceinline__ void cast_rows(const CastOperand& o, u32 block, u32* maxima) {
    if (o.tile_rows == KEPT) {
        cast_kept_row<E5M2, KEPT>(o, block, maxima);
    } else if (o.tile_rows == MOST_KEPT) {
        cast_kept_row<E5M2, MOST_KEPT>(o, block, maxima);
    } else if (o.cols <= SHORT_ROW) {
        cast_short_rows<E5M2>(o, block);
    } else {
        cast_long_row<E5M2>(o, block);
    }
}

// ---- COLUMN_AMAX --------------------------------------------------------------------------------

static constexpr u32 AMAX_COLS = 256;
// Loads in flight a thread.
static constexpr u32 AMAX_DEPTH = 4;
static constexpr u32 AMAX_WARPS = 16;

// Eight elements one by one, zeros beyond the row.
static __device__ __forceinline__ Words4 gathered(const u16* from, u32 count) {
    u32 values[8];
#pragma unroll
    for (u32 i = 0; i < 8; i++) values[i] = i < count ? from[i] : 0;
    return Words4{values[0] | values[1] << 16, values[2] | values[3] << 16, values[4] | values[5] << 16,
                  values[6] | values[7] << 16};
}

static __device__ __forceinline__ void column_amax(const CastOperand& o, u32 block, Words4 (&of_warps)[AMAX_WARPS][32]) {
    const u32 warps = min(blockDim.x / 32, AMAX_WARPS), warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const u32 col_tiles = ceil_div(o.cols, AMAX_COLS), tile = block / col_tiles, col_tile = block % col_tiles;
    // Blocks that only fill the last cluster.
    if (tile >= o.tiles) return;
    const u32 col = col_tile * AMAX_COLS + lane * 8;
    const u32 row_end = min(o.rows, (tile + 1) * o.tile_rows);
    // Warps beyond those have no rows.
    u32 row = warp < warps ? tile * o.tile_rows + warp : row_end;
    Words4 largest = {0, 0, 0, 0};
    if (o.cols % 8 == 0 && aligned(o.x, 16)) {
        if (col >= o.cols) row = row_end;
        for (; row < row_end; row += AMAX_DEPTH * warps) {
            const u16* from = o.x + (u64)row * o.cols + col;
            Words4 kept[AMAX_DEPTH];
#pragma unroll
            for (u32 k = 0; k < AMAX_DEPTH; k++) {
                const bool inside = row + k * warps < row_end;
                kept[k] = inside ? load_once((const Words4*)(from + (u64)(k * warps) * o.cols)) : Words4{0, 0, 0, 0};
            }
#pragma unroll
            for (u32 k = 0; k < AMAX_DEPTH; k++) largest = amax_each(largest, kept[k]);
        }
    } else {
        const u32 count = col < o.cols ? o.cols - col : 0;
#pragma unroll 1
        for (; row < row_end; row += warps) {
            largest = amax_each(largest, gathered(o.x + (u64)row * o.cols + col, count));
        }
    }
    if (warp < warps) of_warps[warp][lane] = largest;
    __syncthreads();
    // One word is two columns; all 128 of the tile are written, so nothing reads what was never set.
    u32* to = o.partials + ((u64)tile * col_tiles + col_tile) * (AMAX_COLS / 2);
    for (u32 i = threadIdx.x; i < AMAX_COLS / 2; i += blockDim.x) {
        u32 word = 0;
        for (u32 w = 0; w < warps; w++) word = magnitudes_max(word, ((const u32*)of_warps[w])[i]);
        to[i] = word;
    }
}

union BlockMemory {
    Words4 of_warps[AMAX_WARPS][32];
    u32 maxima[MOST_PARTS * MOST_WARPS];
};

extern "C" __global__ void __launch_bounds__(1024, 1)
cast_rowwise(const CastOperand a, const CastOperand b) {
    __shared__ BlockMemory memory;
    wait_for_predecessor();
    const bool first = blockIdx.x < a.blocks;
    const CastOperand o = picked(a, b, first);
    const u32 block = first ? blockIdx.x : blockIdx.x - a.blocks;
    if (o.flags & COLUMN_AMAX) {
        column_amax(o, block, memory.of_warps);
    } else if (o.flags & AS_E5M2) {
        cast_rows<true>(o, block, memory.maxima);
    } else {
        cast_rows<false>(o, block, memory.maxima);
    }
}
