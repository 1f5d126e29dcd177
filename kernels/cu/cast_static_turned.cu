// architectures: sm_89 sm_90a sm_100a
//
// Takes up to four BF16 matrices [rows, cols] and for each a scale, a power of two known beforehand; gives E4M3 codes
// [rows, cols] and codes transposed [cols, rows] in one pass over memory, adds to `saturated` the elements with
// |x| > 448 * scale (infinities among them, NaN not), and raises `amax`, FP32 in its bits, to the largest magnitude
// (NaN is larger than all): what the next scale is made of. A null pointer is an output that is not wanted.
//
//     code = saturating nearest-even cast of (x / scale)      bit for bit as cast_e4m3_static
//
// Launch: kernels/src/casts.rs; 256 threads, a tile of 32 rows by 256 columns a block. x aligned to 16 bytes, codes to
// 8, codes_t to 16; cols % 8 == 0, with codes_t rows % 16 == 0.
#include "common/cast.cuh"
#include "common/static_cast.cuh"
#include "common/warp_tile.cuh"

struct StaticOperand {
    const u16* x;
    const float* scale_at;
    u8* codes;
    u8* codes_t;
    u64* saturated;
    u32* amax;
    u32 rows;
    u32 cols;
};

static constexpr u32 OPERANDS = 4;

struct StaticOperands {
    StaticOperand of[OPERANDS];
    // The first block of each.
    u32 first[OPERANDS];
};
static_assert(sizeof(StaticOperands) == 240, "kernels/src/casts.rs mirrors it");

extern "C" __global__ void __launch_bounds__(TILE_THREADS, 6)
cast_static_turned(const __grid_constant__ StaticOperands operands) {
    __shared__ alignas(16) u32 turned[TILE_WORDS];
    wait_for_predecessor();
    u32 which = 0;
#pragma unroll
    for (u32 i = 1; i < OPERANDS; i++) which += blockIdx.x >= operands.first[i];
    const StaticOperand o = operands.of[which];
    const u32 block = blockIdx.x - operands.first[which], across = ceil_div(o.cols, TILE_COLS);
    const u32 row0 = block / across * TILE_ROWS, col0 = block % across * TILE_COLS;
    const u32 row = row0 + threadIdx.x / 32 * 4, col = col0 + threadIdx.x % 32 * 8;
    const u64 begin = (u64)row * o.cols + col;
    Words4 kept[4];
#pragma unroll
    for (u32 k = 0; k < 4; k++) {
        const bool inside = row + k < o.rows && col < o.cols;
        kept[k] = inside ? load_once((const Words4*)(o.x + begin + (u64)k * o.cols)) : Words4{0, 0, 0, 0};
    }
    const StaticScale scale(*o.scale_at);
    u32 saturated = 0, largest = 0;
    Words2 codes[4];
#pragma unroll
    for (u32 k = 0; k < 4; k++) {
        codes[k] = scale.codes(kept[k], saturated);
        largest = amax_of(largest, kept[k]);
        const bool inside = row + k < o.rows && col < o.cols;
        if (o.codes != nullptr && inside) *(Words2*)(o.codes + begin + (u64)k * o.cols) = codes[k];
    }
    if (o.codes_t != nullptr) store_turned(turned, codes, o.codes_t, row0, col0, o.rows, o.cols);
    tell(saturated, largest, o.saturated, o.amax);
}
