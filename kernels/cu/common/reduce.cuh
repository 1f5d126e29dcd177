// Takes a few FP64 values of each thread; gives their sums (or maxima) over the block and over the
// grid. The order of the additions depends on the launch alone: same launch, same bits.
#pragma once
#include "common/types.cuh"

// Bit i of MAXIMA: value i is a maximum of values from 0 up, none of them NaN; else a sum.
template <u32 N, u32 MAXIMA>
static __device__ __forceinline__ void combine(double (&values)[N], u32 i, double other) {
    if ((MAXIMA >> i & 1) != 0) {
        values[i] = other > values[i] ? other : values[i];
    } else {
        values[i] += other;
    }
}

template <u32 N, u32 MAXIMA>
static __device__ __forceinline__ void warp_reduce(double (&values)[N]) {
#pragma unroll
    for (u32 i = 0; i < N; i++) {
#pragma unroll
        for (u32 distance = 16; distance > 0; distance /= 2) {
            combine<N, MAXIMA>(values, i, __shfl_xor_sync(0xFFFFFFFFu, values[i], distance));
        }
    }
}

// The result is in the threads of the first warp. `blockDim.x` is a multiple of 32. May be called
// again and again: nobody writes before all have read.
template <u32 N, u32 MAXIMA>
static __device__ __forceinline__ void block_reduce(double (&values)[N]) {
    __shared__ double of_warps[32][N];
    const u32 lane = threadIdx.x % 32, warps = blockDim.x / 32;
    warp_reduce<N, MAXIMA>(values);
    __syncthreads();
    if (lane == 0) {
#pragma unroll
        for (u32 i = 0; i < N; i++) of_warps[threadIdx.x / 32][i] = values[i];
    }
    __syncthreads();
    if (threadIdx.x < 32) {
#pragma unroll
        for (u32 i = 0; i < N; i++) values[i] = lane < warps ? of_warps[lane][i] : 0.0;
        warp_reduce<N, MAXIMA>(values);
    }
}

// A sum that every thread of the block gets.
static __device__ __forceinline__ double block_sum(double value) {
    __shared__ double total;
    double values[1] = {value};
    block_reduce<1, 0>(values);
    // The next call's barriers stand between this read and the next write.
    if (threadIdx.x == 0) total = values[0];
    __syncthreads();
    return total;
}

// Largest of each thread's values, in the threads of the first warp. Callable again and again.
static __device__ __forceinline__ u32 block_largest(u32 value) {
    __shared__ u32 of_warps[32];
    const u32 lane = threadIdx.x % 32, warps = blockDim.x / 32;
    value = __reduce_max_sync(0xFFFFFFFFu, value);
    __syncthreads();
    if (lane == 0) of_warps[threadIdx.x / 32] = value;
    __syncthreads();
    if (threadIdx.x < 32) value = __reduce_max_sync(0xFFFFFFFFu, lane < warps ? of_warps[lane] : 0u);
    return value;
}

// Over the grid (in x alone). Each block leaves its values in `partials` [blocks][N]; the last one to
// finish adds them up, always in the same order. True in one thread of the grid, which then has the
// totals. `counter` is zero before and after.
template <u32 N, u32 MAXIMA>
static __device__ __forceinline__ bool grid_reduce(double (&values)[N], double* partials, u32* counter) {
    __shared__ u32 finished;
    block_reduce<N, MAXIMA>(values);
    if (threadIdx.x == 0) {
#pragma unroll
        for (u32 i = 0; i < N; i++) partials[(u64)blockIdx.x * N + i] = values[i];
        // The values must be seen before the count that announces them.
        __threadfence();
        // Wraps to 0 by itself at the last block.
        finished = atomicInc(counter, gridDim.x - 1);
    }
    __syncthreads();
    if (finished != gridDim.x - 1) return false;
    __threadfence();
#pragma unroll
    for (u32 i = 0; i < N; i++) values[i] = 0.0;
    // Volatile: from L2, where the other blocks' writes are.
    const volatile double* from = partials;
    for (u32 block = threadIdx.x; block < gridDim.x; block += blockDim.x) {
#pragma unroll
        for (u32 i = 0; i < N; i++) combine<N, MAXIMA>(values, i, from[(u64)block * N + i]);
    }
    block_reduce<N, MAXIMA>(values);
    return threadIdx.x == 0;
}
