// Takes a tile's sums in registers; gives them to another warpgroup or block that adds its own, or to memory, each warp
// its 16 rows through boxes of shared memory and the copy engine.
#pragma once
#include "common/exchange.cuh"
#include "common/fp8.cuh"
#include "common/hopper.cuh"

// Two boxes of 16 rows and 64 columns of BF16 for each warp.
static constexpr u32 BOX_BYTES = 16 * 128;

// Named barriers: of a warpgroup (from 1 on), of both.
static constexpr u32 BOTH = 3;

// The other block's half of the sums, for the 64 rows that this one stores.
template <u32 COUNT>
static __device__ __forceinline__ void exchange(float (&sums)[COUNT], bool stores, u32 shared) {
    const u32 mine = shared + threadIdx.x % 128 * 16;
    // Both blocks are done with their rings.
    cluster_barrier();
    if (!stores) {
        const u32 there = shared_of(mine, rank_in_cluster() ^ 1);
#pragma unroll
        for (u32 i = 0; i < COUNT / 4; i++) store_there(there + i * 2048, sums + 4 * i);
    }
    cluster_barrier();
    if (stores) {
#pragma unroll
        for (u32 i = 0; i < COUNT / 4; i++) add_shared(sums + 4 * i, mine + i * 2048);
    }
}

// Sums of half of the columns to the other warpgroup, which stores them, and of the others from it.
template <u32 HALF>
static __device__ __forceinline__ void trade(float (&mine)[HALF], const float (&others)[HALF], u32 group, u32 shared) {
    const u32 at = shared + threadIdx.x % 128 * 16, bytes = HALF * 512;
    // Both are done with the rings.
    named_barrier(BOTH, 256);
#pragma unroll
    for (u32 i = 0; i < HALF / 4; i++) store_shared(at + (1 - group) * bytes + i * 2048, others + 4 * i);
    named_barrier(BOTH, 256);
#pragma unroll
    for (u32 i = 0; i < HALF / 4; i++) add_shared(mine + 4 * i, at + group * bytes + i * 2048);
}

// Codes of a warp's 16 rows, 128 columns at a time.
template <u32 COUNT>
static __device__ __forceinline__ void store_codes(const TensorMap& map, const float (&sums)[COUNT], float scale,
                                                   u32 row, u32 col, u32 boxes, u32& stored) {
    const u32 lane = threadIdx.x % 32, turn = lane / 4;
    const float inverse = 1.0f / scale;
#pragma unroll
    for (u32 chunk = 0; chunk < COUNT / 64; chunk++) {
        const u32 box = boxes + (stored++ & 1) * BOX_BYTES;
        if (lane == 0) wait_stores_read<1>();
        __syncwarp();
        const u32 to = box + lane / 4 * 128 + lane % 4 * 2;
#pragma unroll
        for (u32 i = 0; i < 16; i++) {
            const float* d = sums + chunk * 64 + i * 4;
            const u32 at = to + ((i / 2) ^ turn) * 16 + i % 2 * 8;
            store_pair(at, e4m3_pair(d[0] * inverse, d[1] * inverse));
            store_pair(at + 8 * 128, e4m3_pair(d[2] * inverse, d[3] * inverse));
        }
        publish_shared_writes();
        __syncwarp();
        if (lane == 0) {
            store_box(map, box, col + chunk * 128, row);
            commit_stores();
        }
    }
}

// A warp's 16 rows, 64 columns at a time, each warp by itself. Boxes wholly beyond the matrix too: the copy engine
// leaves out what is not there.
template <u32 COUNT>
static __device__ __forceinline__ void store(const TensorMap& map, const float (&sums)[COUNT], u32 row, u32 col,
                                             u32 boxes, u32& stored) {
    const u32 lane = threadIdx.x % 32;
    const u32 place = lane % 16 * 128, turn = lane % 8, half = lane / 16;
#pragma unroll
    for (u32 chunk = 0; chunk < COUNT / 32; chunk++) {
        const u32 box = boxes + (stored++ & 1) * BOX_BYTES;
        // The store before the last is done with this box.
        if (lane == 0) wait_stores_read<1>();
        __syncwarp();
#pragma unroll
        for (u32 pair = 0; pair < 4; pair++) {
            u32 words[4];
#pragma unroll
            for (u32 i = 0; i < 2; i++) {
                const float* d = sums + chunk * 32 + pair * 8 + i * 4;
                words[2 * i] = bf16_pair(d[0], d[1]);
                words[2 * i + 1] = bf16_pair(d[2], d[3]);
            }
            store_matrices(box + place + ((pair * 2 + half) ^ turn) * 16, words[0], words[1], words[2], words[3]);
        }
        publish_shared_writes();
        __syncwarp();
        if (lane == 0) {
            store_box(map, box, col + chunk * 64, row);
            commit_stores();
        }
    }
}
