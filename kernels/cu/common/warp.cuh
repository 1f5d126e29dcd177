// Takes one value of each thread; gives the warp's or block's result to every thread.
#pragma once
#include "common/types.cuh"

// One instruction on sm_80 and later, instead of five shuffles.
static __device__ __forceinline__ u32 warp_max(u32 value) {
    u32 result;
    asm volatile("redux.sync.max.u32 %0, %1, 0xffffffff;" : "=r"(result) : "r"(value));
    return result;
}

static __device__ __forceinline__ u32 warp_sum(u32 value) {
    u32 result;
    asm volatile("redux.sync.add.u32 %0, %1, 0xffffffff;" : "=r"(result) : "r"(value));
    return result;
}

// `blockDim.x` is a multiple of 32, at most 1024. For one use per kernel: a second would need a
// barrier in front, so that nobody still reads the first one's results.
static __device__ __forceinline__ u32 block_max(u32 value) {
    __shared__ u32 of_warps[32];
    const u32 warps = blockDim.x / 32;
    value = warp_max(value);
    if (warps == 1) return value;
    const u32 lane = threadIdx.x % 32;
    if (lane == 0) of_warps[threadIdx.x / 32] = value;
    __syncthreads();
    return warp_max(lane < warps ? of_warps[lane] : 0);
}

// Larger magnitude of each half of two BF16 pairs without their signs. Magnitudes order like their
// bits, and NaN above all.
static __device__ __forceinline__ u32 magnitudes_max(u32 largest, u32 pair) {
#if __CUDA_ARCH__ >= 900
    u32 result;
    asm("max.u16x2 %0, %1, %2;" : "=r"(result) : "r"(largest), "r"(pair & 0x7FFF7FFFu));
    return result;
#else
    const u32 high = max(largest & 0xFFFF0000u, pair & 0x7FFF0000u);
    const u32 low = max(largest & 0xFFFFu, pair & 0x7FFFu);
    return high | low;
#endif
}
