// architectures: sm_89 sm_90a sm_100a
//
// Takes `source`, FP32 [rows, cols]; gives `amax`, FP32 [stretches][rows]: the largest magnitude of each
// row over stretches of `stretch` columns, NaN where there is one, 0 without columns. `stretch` is a
// multiple of 128 or at least `cols`; there is always at least one stretch.
//
// Launch: `blockDim.x` = 256, any number of blocks. A number of columns that is no multiple of 4, or a
// pointer that is not aligned to 16 bytes, makes the loads go one by one.
#include "common/reduce.cuh"

// Longer stretches are a block's work, not a warp's: few long rows must not leave the GPU idle.
static constexpr u32 OF_A_WARP = 1024;

static __device__ __forceinline__ u32 larger(u32 largest, float value) {
    // Magnitudes order like their bits, and NaN above all.
    return max(largest, __float_as_uint(value) & 0x7FFFFFFFu);
}

// What this thread, one of `group`, sees of columns begin..end.
static __device__ __forceinline__ u32 seen(const float* row, u32 begin, u32 end, bool vectors, u32 thread, u32 group) {
    u32 largest = 0;
    if (vectors) {
#pragma unroll 4
        for (u64 i = (u64)begin + 4 * thread; i < end; i += 4 * group) {
            const float4 x = *(const float4*)(row + i);
            largest = larger(larger(largest, x.x), x.y);
            largest = larger(larger(largest, x.z), x.w);
        }
    } else {
#pragma unroll 4
        for (u64 i = (u64)begin + thread; i < end; i += group) largest = larger(largest, row[i]);
    }
    return largest;
}

extern "C" __global__ void __launch_bounds__(256)
row_amax(const float* __restrict__ source, float* __restrict__ amax, u32 rows, u32 cols, u32 stretch) {
    const bool vectors = cols % 4 == 0 && aligned(source, 16);
    const u32 whole = stretch >= cols;
    const u32 stretches = whole ? 1 : cols / stretch + (cols % stretch != 0);
    const u64 tasks = (u64)rows * stretches;
    // All threads of the grid decide the same.
    const bool by_warp = min(stretch, cols) <= OF_A_WARP;
    const u32 group = by_warp ? 32 : blockDim.x;
    const u32 thread = threadIdx.x % group;
    const u64 groups = (u64)gridDim.x * (blockDim.x / group);
    for (u64 task = (u64)blockIdx.x * (blockDim.x / group) + threadIdx.x / group; task < tasks; task += groups) {
        const u64 row = task / stretches;
        const u32 s = (u32)(task - row * stretches);
        const u32 begin = whole ? 0 : s * stretch;
        const u32 end = whole || cols - begin <= stretch ? cols : begin + stretch;
        u32 largest = seen(source + row * cols, begin, end, vectors, thread, group);
        // Warps that share a task are whole blocks: the barriers inside are reached by all.
        largest = by_warp ? __reduce_max_sync(0xFFFFFFFFu, largest) : block_largest(largest);
        if (thread == 0) amax[(u64)s * rows + row] = __uint_as_float(largest);
    }
}
