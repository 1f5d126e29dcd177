// architectures: sm_89 sm_90a sm_100a
//
// Takes `from`, FP32 [rows, cols]; gives `to`, FP32 [cols, rows].
//
// Launch: `blockDim.x` = 256; `gridDim.x` tiles of 32 columns, `gridDim.y` tiles of 32 rows, of which a
// block strides over the rest (a grid has at most 65535 in y).
#include "common/types.cuh"

static constexpr u32 TILE = 32;
static constexpr u32 LINES = 8;

extern "C" __global__ void __launch_bounds__(256)
transpose_f32(const float* __restrict__ from, float* __restrict__ to, u32 rows, u32 cols) {
    // One more a line: reading a column would otherwise hit one bank 32 times.
    __shared__ float tile[TILE][TILE + 1];
    const u32 x = threadIdx.x % TILE, y = threadIdx.x / TILE;
    const u64 first_col = (u64)blockIdx.x * TILE;
    for (u64 first_row = (u64)blockIdx.y * TILE; first_row < rows; first_row += (u64)gridDim.y * TILE) {
#pragma unroll
        for (u32 line = y; line < TILE; line += LINES) {
            const u64 row = first_row + line, col = first_col + x;
            if (row < rows && col < cols) tile[line][x] = from[row * cols + col];
        }
        __syncthreads();
#pragma unroll
        for (u32 line = y; line < TILE; line += LINES) {
            const u64 row = first_row + x, col = first_col + line;
            if (row < rows && col < cols) to[col * rows + row] = tile[x][line];
        }
        __syncthreads();
    }
}
