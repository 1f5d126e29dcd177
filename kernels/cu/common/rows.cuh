// Takes the shape of a row-major matrix; gives each warp stretches of 128 columns of one row, four
// columns a lane, as one 16-byte access where the shape and the pointers allow it.
#pragma once
#include "common/types.cuh"

// As long as the blocks that share a scale: a warp then has one scale for all it holds.
static constexpr u32 STRETCH = 128;

// The four columns of one lane.
struct Columns {
    u32 first;
    // 1: side by side, in one access. 32: one of each 32, so that lanes stay side by side.
    u32 step;
    u32 end;

    __device__ __forceinline__ u32 at(u32 e) const { return first + e * step; }
    __device__ __forceinline__ bool inside(u32 e) const { return at(e) < end; }
    __device__ __forceinline__ bool together() const { return step == 1; }
};

// `vectors`: `cols` is a multiple of 4 and all pointers are aligned, so that four are all in or all out.
static __device__ __forceinline__ Columns columns_of(u32 first, u32 cols, bool vectors) {
    const u32 lane = threadIdx.x % 32;
    return vectors ? Columns{first + 4 * lane, 1, cols} : Columns{first + lane, 32, cols};
}

// Zero beyond the row.
static __device__ __forceinline__ void load_four(const float* row, const Columns& columns, float (&values)[4]) {
    if (columns.together()) {
        float4 four = {0.0f, 0.0f, 0.0f, 0.0f};
        if (columns.inside(0)) four = *(const float4*)(row + columns.first);
        values[0] = four.x;
        values[1] = four.y;
        values[2] = four.z;
        values[3] = four.w;
    } else {
#pragma unroll
        for (u32 e = 0; e < 4; e++) values[e] = columns.inside(e) ? row[columns.at(e)] : 0.0f;
    }
}

static __device__ __forceinline__ void store_four(float* row, const Columns& columns, const float (&values)[4]) {
    if (columns.together()) {
        if (columns.inside(0)) *(float4*)(row + columns.first) = {values[0], values[1], values[2], values[3]};
    } else {
#pragma unroll
        for (u32 e = 0; e < 4; e++) {
            if (columns.inside(e)) row[columns.at(e)] = values[e];
        }
    }
}

// Calls `take(row, first column)` with all threads of a warp together. `blockDim.x` is a multiple of
// 32; rows times stretches a row is below 2^32 (division in 64 bits would cost more than the work).
template <typename Take>
static __device__ __forceinline__ void for_each_stretch(u32 rows, u32 cols, Take take) {
    const u32 stretches = cols / STRETCH + (cols % STRETCH != 0);
    const u64 tasks = (u64)rows * stretches;
    const u64 warps = (u64)gridDim.x * (blockDim.x / 32);
    for (u64 task = (u64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32; task < tasks; task += warps) {
        const u32 row = (u32)task / stretches;
        take(row, ((u32)task - row * stretches) * STRETCH);
    }
}
