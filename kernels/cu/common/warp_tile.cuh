// Takes E4M3 codes of four rows by 256 columns, which a warp holds, eight columns a lane; gives a block's 32 rows
// transposed through shared memory, where each warp has one word (its four rows) of each column.
#pragma once
#include "common/types.cuh"

static constexpr u32 TILE_ROWS = 32, TILE_COLS = 256;
static constexpr u32 TILE_THREADS = 256, WORDS = TILE_ROWS / 4;
static constexpr u32 TILE_WORDS = TILE_COLS * WORDS;

// A warp's word of a column. The twist spreads over all banks what a warp writes at once, 32 columns eight apart; it
// stays within 32 words.
static __device__ __forceinline__ u32 twisted_at(u32 col, u32 warp) { return (col * WORDS + warp) ^ (col / 8); }

// Bytes of four rows by four columns, transposed, to four columns from `col` on.
static __device__ __forceinline__ void put_columns(u32* turned, u32 col, u32 warp, u32 row0, u32 row1, u32 row2,
                                                   u32 row3) {
    const u32 low01 = __byte_perm(row0, row1, 0x5140), low23 = __byte_perm(row2, row3, 0x5140);
    const u32 high01 = __byte_perm(row0, row1, 0x7362), high23 = __byte_perm(row2, row3, 0x7362);
    turned[twisted_at(col, warp)] = __byte_perm(low01, low23, 0x5410);
    turned[twisted_at(col + 1, warp)] = __byte_perm(low01, low23, 0x7632);
    turned[twisted_at(col + 2, warp)] = __byte_perm(high01, high23, 0x5410);
    turned[twisted_at(col + 3, warp)] = __byte_perm(high01, high23, 0x7632);
}

// The tile whose first element is [row0, col0] of codes [rows, cols] to codes_t [cols, rows], aligned to 16 bytes.
// `rows` a multiple of 16: a piece of 16 bytes lies within the matrix or beyond it, never across.
static __device__ __forceinline__ void store_turned(u32* turned, const Words2 (&codes)[4], u8* codes_t, u32 row0,
                                                    u32 col0, u32 rows, u32 cols) {
    constexpr u32 PIECES = WORDS / 4;
    const u32 first = threadIdx.x % 32 * 8, warp = threadIdx.x / 32;
    put_columns(turned, first, warp, codes[0].x, codes[1].x, codes[2].x, codes[3].x);
    put_columns(turned, first + 4, warp, codes[0].y, codes[1].y, codes[2].y, codes[3].y);
    __syncthreads();
#pragma unroll
    for (u32 k = 0; k < TILE_COLS * PIECES / TILE_THREADS; k++) {
        const u32 piece = threadIdx.x + k * TILE_THREADS, col = piece / PIECES, row = row0 + piece % PIECES * 16;
        // What the twist does to whole pieces, and to the words within one.
        Words4 words = ((const Words4*)turned)[piece ^ (col / 32)];
        if (col / 8 & 1) words = Words4{words.y, words.x, words.w, words.z};
        if (col / 8 & 2) words = Words4{words.z, words.w, words.x, words.y};
        if (row < rows && col0 + col < cols) *(Words4*)(codes_t + (u64)(col0 + col) * rows + row) = words;
    }
}
