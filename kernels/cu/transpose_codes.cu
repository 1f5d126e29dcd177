// architectures: sm_89 sm_90a sm_100a
//
// Takes FP8 codes [rows, cols] of one operand or two; gives them transposed, codes_t [cols, rows]: what a product reads
// that reduces over the rows, where one scale is known for the whole tensor. Nothing else of the operands is read.
//
// Launch: kernels/src/casts.rs; 256 threads, a block for each tile of 64 rows by 128 columns. Fast with cols and
// pitch multiples of 8, rows and pitch_t of 16, codes aligned to 8 bytes and codes_t to 16; element by element else.
#include "common/tile.cuh"

static constexpr u32 GROUPS = 16, TILE_ROWS = 4 * GROUPS;

extern "C" __global__ void __launch_bounds__(256, 6)
transpose_codes(const CastOperand a, const CastOperand b) {
    __shared__ alignas(16) u32 turned[TILE_COLS * GROUPS];
    wait_for_predecessor();
    const bool first = blockIdx.x < a.blocks;
    const CastOperand o = picked(a, b, first);
    const u32 block = first ? blockIdx.x : blockIdx.x - a.blocks, strips = ceil_div(o.cols, TILE_COLS);
    // Neighbouring blocks read neighbouring columns: whole rows between them.
    const u32 row0 = block / strips * TILE_ROWS, col0 = block % strips * TILE_COLS;
    if (o.cols % 8 != 0 || o.pitch % 8 != 0 || !aligned(o.codes, 8) || !turned_rows_aligned(o)) {
#pragma unroll 1
        for (u32 i = threadIdx.x; i < TILE_ROWS * TILE_COLS; i += blockDim.x) {
            const u32 row = row0 + i % TILE_ROWS, col = col0 + i / TILE_ROWS;
            if (row >= o.rows || col >= o.cols) continue;
            o.codes_t[(u64)col * o.pitch_t + row] = o.codes[(u64)row * o.pitch + col];
        }
        return;
    }
    const u32 group = threadIdx.x / THREADS_ACROSS, row = row0 + 4 * group;
    const u32 col = col0 + threadIdx.x % THREADS_ACROSS * 8;
    Words2 codes[4];
#pragma unroll
    for (u32 k = 0; k < 4; k++) {
        const bool inside = row + k < o.rows && col < o.cols;
        codes[k] = inside ? *(const Words2*)(o.codes + (u64)(row + k) * o.pitch + col) : Words2{0, 0};
    }
    put_turned<GROUPS>(turned, group, codes);
    __syncthreads();
    write_turned<GROUPS, 256>(turned, o, row0, col0);
}
