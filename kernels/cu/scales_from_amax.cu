// architectures: sm_89 sm_90a sm_100a
//
// Takes `amax`, FP32 [stretches][rows] as row_amax gives it; gives `scales` by `mode`, as
// core/src/numerics/cast.rs: max(amax / largest, 1e-12), with power_of_two rounded up.
//
//     tensor   [1]: of the largest of all and of `floor_amax` (the tensor that this is a part of)
//     row, 1x128      [stretches][rows]: of each entry
//     128x128         [stretches][rows]: of the largest of each 128 rows, repeated along them
//
// `blocked`, with tensor, may be null: [rows], the scale once a row, for products whose other operand is
// scaled by rows.
//
// A NaN, in `amax` or `floor_amax`, makes its group's scale NaN, as on the CPU: magnitudes order like their
// bits, and NaN above all. `scales` may be `amax`. `blocked`, with 128x128, may be null:
// [ceil(rows / 128)][stretches rounded up to 4], the layout of cuBLASLt's 128x128 scales, zero in the
// padding.
//
// Launch: `blockDim.x` = 1024 and one block for tensor; 256 and any number of blocks for the others.
#include "common/fp8.cuh"
#include "common/operand.cuh"
#include "common/reduce.cuh"

static __device__ void of_tensor(const float* amax, float* scales, float* once_a_row, u32 rows, u64 count,
                                 float largest, float floor_amax, bool power_of_two) {
    u32 seen = 0;
#pragma unroll 4
    for (u64 i = threadIdx.x; i < count; i += blockDim.x) seen = max(seen, __float_as_uint(amax[i]));
    seen = block_largest(seen);
    seen = max(seen, __float_as_uint(floor_amax) & 0x7FFFFFFFu);
    const float scale = scale_from_amax(__uint_as_float(seen), largest, power_of_two);
    // All have read by now: `scales` may be `amax`.
    if (threadIdx.x == 0) scales[0] = scale;
    // The first warp alone knows the largest.
    if (once_a_row == nullptr || threadIdx.x >= 32) return;
    for (u32 i = threadIdx.x; i < rows; i += 32) once_a_row[i] = scale;
}

// One warp a block of 128 rows: it has read all its entries before it writes the first.
static __device__ void of_blocks(const float* amax, float* scales, float* blocked, u32 rows, u32 stretches,
                                 float largest, bool power_of_two) {
    const u32 lane = threadIdx.x % 32;
    const u32 padded = (stretches + 3) / 4 * 4;
    const u32 row_blocks = rows / 128 + (rows % 128 != 0);
    const u64 tasks = (u64)row_blocks * padded;
    const u64 warps = (u64)gridDim.x * (blockDim.x / 32);
    for (u64 task = (u64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32; task < tasks; task += warps) {
        const u64 block = task / padded;
        const u32 s = (u32)(task - block * padded);
        if (s >= stretches) {
            if (blocked != nullptr && lane == 0) blocked[task] = 0.0f;
            continue;
        }
        const u64 first = block * 128 + lane;
        u32 seen = 0;
#pragma unroll
        for (u32 k = 0; k < 4; k++) {
            const u64 row = first + 32 * k;
            if (row < rows) seen = max(seen, __float_as_uint(amax[(u64)s * rows + row]));
        }
        seen = __reduce_max_sync(0xFFFFFFFFu, seen);
        const float scale = scale_from_amax(__uint_as_float(seen), largest, power_of_two);
#pragma unroll
        for (u32 k = 0; k < 4; k++) {
            const u64 row = first + 32 * k;
            if (row < rows) scales[(u64)s * rows + row] = scale;
        }
        if (blocked != nullptr && lane == 0) blocked[task] = scale;
    }
}

extern "C" __global__ void __launch_bounds__(1024)
scales_from_amax(const float* amax, float* scales, float* blocked, u32 rows, u32 stretches, u32 mode, float largest,
                 float floor_amax, u32 power_of_two) {
    const u64 count = (u64)rows * stretches;
    if (mode == MODE_TENSOR) {
        if (blockIdx.x == 0) of_tensor(amax, scales, blocked, rows, count, largest, floor_amax, power_of_two != 0);
    } else if (mode == MODE_BLOCK_128X128) {
        of_blocks(amax, scales, blocked, rows, stretches, largest, power_of_two != 0);
    } else {
        const u64 threads = (u64)gridDim.x * blockDim.x;
        for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += threads) {
            scales[i] = scale_from_amax(amax[i], largest, power_of_two != 0);
        }
    }
}
