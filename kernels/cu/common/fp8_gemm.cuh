// Takes x [m, k] and w [n, k], FP8 codes, and their scales; gives y [m, n] = (x w^T) * x_scale * w_scale in BF16.
//
// Persistent blocks of three warpgroups: one thread of the first feeds a ring of stages in shared memory by the copy
// engine, the other two warpgroups multiply and store. A unit of work is a tile of 128 x TILE_N outputs over the
// whole of k.
//
// Together: both warpgroups work on one tile, 64 rows each.
// In turns: each works on its own tile, so that one stores while the other multiplies.
// Split: 2, 4 or 8 blocks of a cluster work on one tile, each on its part of k; each then adds up, in the order of k, its
// share of what all have, through shared memory. For few tiles with a long k, as in most wgrads.
#pragma once
#include "common/exchange.cuh"
#include "common/hopper.cuh"
#include "common/wgmma.cuh"

struct GemmShape {
    u32 m, n, k;
    // Tiles down and across, and how many of those down are walked together, for the L2.
    u32 tiles_down, tiles_across, group;
    // 1: a scale a row; 0: one scale.
    u32 x_scale_step, w_scale_step;
};
static_assert(sizeof(GemmShape) == 32, "mirrored in kernels/src/gemm/shapes.rs");

static constexpr u32 TILE_M = 128, TILE_K = 128, GEMM_THREADS = 384;

template <u32 TILE_N, u32 STAGES, bool IN_TURNS, bool PROMOTED, bool E5M2_X, bool SPLIT = false> struct Fp8Gemm {
    static_assert(!(IN_TURNS && PROMOTED), "128 rows of sums and accumulators do not fit one warpgroup's registers");
    static_assert(!SPLIT || !IN_TURNS, "a block has columns of some warps' rows to add up");
    // Blocks of 64 rows that a warpgroup multiplies, and columns at a time.
    static constexpr u32 BLOCKS = IN_TURNS ? 2 : 1, PART_N = PROMOTED && TILE_N > 128 ? TILE_N / 2 : TILE_N;
    static constexpr u32 X_BYTES = TILE_M * TILE_K, STAGE_BYTES = X_BYTES + TILE_N * TILE_K;
    // Two boxes of 16 rows and 64 columns of BF16 for each of eight warps.
    static constexpr u32 BOX_BYTES = 16 * 128, OUT_AT = STAGES * STAGE_BYTES;
    static constexpr u32 SCALES_AT = OUT_AT + 16 * BOX_BYTES;
    static constexpr u32 FULL_AT = SCALES_AT + 2 * 4 * TILE_N, EMPTY_AT = FULL_AT + 8 * STAGES;

    const TensorMap &x, &w, &y;
    const float *x_scales, *w_scales;
    const GemmShape& shape;
    u32 shared;

    // A place in the ring.
    struct Place {
        u32 stage = 0, parity = 0;
        __device__ __forceinline__ void next() {
            if (++stage == STAGES) stage = 0, parity ^= 1;
        }
        __device__ __forceinline__ void skip(u32 stages) {
            stage += stages;
            parity ^= stage / STAGES & 1;
            stage %= STAGES;
        }
    };

    // Upper left corner of a unit.
    __device__ __forceinline__ void locate(u32 unit, u32& row, u32& col) const {
        const u32 of_group = shape.group * shape.tiles_across;
        const u32 first = unit / of_group * shape.group, within = unit % of_group;
        const u32 high = min(shape.group, shape.tiles_down - first);
        row = (first + within % high) * TILE_M;
        col = within / high * TILE_N;
    }

    __device__ __forceinline__ u32 units() const { return shape.tiles_down * shape.tiles_across; }
    // Split: one unit a cluster.
    __device__ __forceinline__ u32 first_unit() const {
        return SPLIT ? blockIdx.x / blocks_in_cluster() : blockIdx.x;
    }
    __device__ __forceinline__ u32 unit_step() const { return SPLIT ? units() : gridDim.x; }
    // This block's part of k: at least one stage, the host sees to it.
    __device__ __forceinline__ u32 first_k() const { return SPLIT ? part_of_k(rank_in_cluster()) : 0; }
    __device__ __forceinline__ u32 end_k() const {
        return SPLIT ? min(shape.k, part_of_k(rank_in_cluster() + 1)) : shape.k;
    }
    __device__ __forceinline__ u32 part_of_k(u32 rank) const {
        return (shape.k + TILE_K - 1) / TILE_K * rank / blocks_in_cluster() * TILE_K;
    }
    __device__ __forceinline__ u32 at(u32 stage) const { return shared + stage * STAGE_BYTES; }
    __device__ __forceinline__ u32 full(u32 stage) const { return shared + FULL_AT + 8 * stage; }
    __device__ __forceinline__ u32 empty(u32 stage) const { return shared + EMPTY_AT + 8 * stage; }

    // One thread: tiles of x and w, a stage at a time.
    __device__ __forceinline__ void produce() const {
        Place place;
        const u32 end = end_k();
        for (u32 unit = first_unit(); unit < units(); unit += unit_step()) {
            u32 row, col;
            locate(unit, row, col);
            for (u32 k = first_k(); k < end; k += TILE_K) {
                const u32 barrier = full(place.stage), to = at(place.stage);
                wait_barrier(empty(place.stage), place.parity ^ 1);
                expect_bytes(barrier, STAGE_BYTES);
                load_box(to, x, barrier, k, row);
                load_box(to + X_BYTES, w, barrier, k, col);
                place.next();
            }
        }
    }

    // A warp no longer needs a stage.
    __device__ __forceinline__ void release(u32 stage) const {
        if (threadIdx.x % 32 == 0) arrive(empty(stage));
    }

    // A warpgroup's turn at the ring, and the end of it. Parities tell a stage's uses apart only for who has seen the
    // one before, so that nobody may wait for a stage out of turn.
    __device__ __forceinline__ void wait_turn(u32 unit) const {
        if (IN_TURNS && unit != blockIdx.x) named_barrier(2 + threadIdx.x / 128, 256);
    }
    __device__ __forceinline__ void end_turn(u32 unit) const {
        if (IN_TURNS && unit + gridDim.x < units()) named_arrive(5 - threadIdx.x / 128, 256);
    }

    // One accumulator from beginning to end.
    __device__ __forceinline__ void sum_fast(float (&sums)[BLOCKS][TILE_N / 2], Place& place, u32 x_offset,
                                             u32 unit) const {
        const u32 begin = first_k(), end = end_k();
        u32 before = 0;
        wait_turn(unit);
        for (u32 k = begin; k < end; k += TILE_K) {
            wait_barrier(full(place.stage), place.parity);
            const u64 a = tile_descriptor(at(place.stage) + x_offset), b = tile_descriptor(at(place.stage) + X_BYTES);
            begin_products();
#pragma unroll
            for (u32 i = 0; i < 4; i++) {
#pragma unroll
                for (u32 block = 0; block < BLOCKS; block++) {
                    product<TILE_N, E5M2_X>(sums[block], a + block * 8 * NEXT_8_ROWS + i * NEXT_32_CODES,
                                            b + i * NEXT_32_CODES, k - begin + i);
                }
            }
            commit_products();
            wait_products<1>();
            if (k > begin) release(before);
            before = place.stage;
            place.next();
        }
        end_turn(unit);
        wait_products<0>();
#pragma unroll
        for (u32 block = 0; block < BLOCKS; block++) settle(sums[block]);
        release(before);
    }

    // Starts the products of 64 rows with PART_N of the tile's columns over one stage.
    __device__ __forceinline__ void start(float (&part)[PART_N / 2], u32 stage, u32 x_offset, u32 w_part) const {
        const u64 a = tile_descriptor(at(stage) + x_offset), b = tile_descriptor(at(stage) + X_BYTES);
        begin_products();
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            product<PART_N, E5M2_X>(part, a + i * NEXT_32_CODES,
                                    b + w_part * (PART_N / 8) * NEXT_8_ROWS + i * NEXT_32_CODES, i);
        }
        commit_products();
    }

    static __device__ __forceinline__ void add(float (&sums)[TILE_N / 2], u32 from, float (&part)[PART_N / 2]) {
        settle(part);
#pragma unroll
        for (u32 i = 0; i < PART_N / 2; i++) sums[from + i] += part[i];
    }

    // The tensor cores' accumulator is added to FP32 sums every 128 elements of k. A wide tile goes in two parts, one
    // after the other: its sums and one accumulator fit the registers, and the other warpgroup keeps the tensor cores
    // busy meanwhile.
    __device__ __forceinline__ void sum_promoted_in_parts(float (&sums)[TILE_N / 2], Place& place,
                                                          u32 x_offset) const {
        const u32 end = end_k();
        for (u32 k = first_k(); k < end; k += TILE_K) {
            wait_barrier(full(place.stage), place.parity);
#pragma unroll
            for (u32 w_part = 0; w_part < TILE_N / PART_N; w_part++) {
                float part[PART_N / 2];
                start(part, place.stage, x_offset, w_part);
                wait_products<0>();
                if (w_part + 1 == TILE_N / PART_N) release(place.stage);
                add(sums, w_part * PART_N / 2, part);
            }
            place.next();
        }
    }

    // Two accumulators in turn: one is added while the tensor cores fill the other.
    __device__ __forceinline__ void sum_promoted_in_pairs(float (&sums)[TILE_N / 2], Place& place, u32 x_offset) const {
        float even[PART_N / 2], odd[PART_N / 2];
        const u32 end = end_k();
        u32 before = 0;
        const auto start_next = [&](float(&part)[PART_N / 2]) {
            wait_barrier(full(place.stage), place.parity);
            start(part, place.stage, x_offset, 0);
        };
        const auto add_before = [&](float(&part)[PART_N / 2]) {
            release(before);
            add(sums, 0, part);
            before = place.stage;
            place.next();
        };
        start_next(even);
        before = place.stage;
        place.next();
        u32 k = first_k() + TILE_K;
        for (; k + TILE_K < end; k += 2 * TILE_K) {
            start_next(odd);
            wait_products<1>();
            add_before(even);
            start_next(even);
            wait_products<1>();
            add_before(odd);
        }
        if (k < end) {
            start_next(odd);
            wait_products<1>();
            add_before(even);
            wait_products<0>();
            release(before);
            add(sums, 0, odd);
        } else {
            wait_products<0>();
            release(before);
            add(sums, 0, even);
        }
    }

    __device__ __forceinline__ void consume() const {
        const u32 thread = threadIdx.x - 128, lane = thread % 32;
        // Shuffled, so that the compiler knows it to be the same for the whole warp.
        const u32 warp = __shfl_sync(0xFFFFFFFF, thread / 32, 0), group = warp / 4;
        const u32 first_row = IN_TURNS ? 0 : group * 64;
        const u32 boxes = shared + OUT_AT + warp * 2 * BOX_BYTES;
        float* scales = (float*)(shared_memory() + SCALES_AT) + group * TILE_N;
        const u32 blocks_of_k = (shape.k + TILE_K - 1) / TILE_K, turns = IN_TURNS ? 2 : 1;
        Place place;
        if (IN_TURNS && group == 1) place.skip(blocks_of_k);
        u32 stored = 0;
        for (u32 unit = first_unit() + (IN_TURNS ? group * gridDim.x : 0); unit < units(); unit += turns * unit_step()) {
            u32 row, col;
            locate(unit, row, col);
            row += first_row + warp % 4 * 16;
            float high[BLOCKS], low[BLOCKS];
#pragma unroll
            for (u32 block = 0; block < BLOCKS; block++) {
                const u32 mine = row + block * 64 + lane / 4;
                high[block] = mine < shape.m ? x_scales[mine * shape.x_scale_step] : 0.0f;
                low[block] = mine + 8 < shape.m ? x_scales[(mine + 8) * shape.x_scale_step] : 0.0f;
            }
            // On their way while the tensor cores work.
            float kept[(TILE_N + 127) / 128];
#pragma unroll
            for (u32 i = 0; i < TILE_N; i += 128) {
                const u32 at = col + i + thread % 128;
                kept[i / 128] = at < shape.n ? w_scales[at * shape.w_scale_step] : 0.0f;
            }
            float sums[BLOCKS][TILE_N / 2];
            if constexpr (PROMOTED) {
#pragma unroll
                for (u32 i = 0; i < TILE_N / 2; i++) sums[0][i] = 0.0f;
                if constexpr (TILE_N > PART_N) {
                    sum_promoted_in_parts(sums[0], place, first_row * TILE_K);
                } else {
                    sum_promoted_in_pairs(sums[0], place, first_row * TILE_K);
                }
            } else {
                sum_fast(sums, place, first_row * TILE_K, unit);
            }
            if (IN_TURNS) place.skip(blocks_of_k);
            // The scales of the unit before are still being read until all warps are here.
            named_barrier(1 + group, 128);
#pragma unroll
            for (u32 i = 0; i < TILE_N; i += 128) {
                if (i + thread % 128 < TILE_N) scales[i + thread % 128] = kept[i / 128];
            }
            named_barrier(1 + group, 128);
            if constexpr (SPLIT) {
                store_share(sums[0], scales, high[0], low[0], row, col, boxes, stored);
            } else {
#pragma unroll
                for (u32 block = 0; block < BLOCKS; block++) {
                    store(sums[block], scales, high[block], low[block], row + block * 64, col, boxes, stored);
                }
            }
        }
        if (lane == 0) wait_stores_read<0>();
    }

    // A warp's 16 rows, 64 columns at a time, each warp by itself. Boxes wholly beyond the matrix too: the copy engine
    // leaves out what is not there.
    __device__ __forceinline__ void store(const float (&sums)[TILE_N / 2], const float* scales, float high, float low,
                                          u32 row, u32 col, u32 boxes, u32& stored) const {
#pragma unroll
        for (u32 chunk = 0; chunk < TILE_N / 64; chunk++) {
            store_chunk(sums + chunk * 32, scales + chunk * 64, high, low, row, col + chunk * 64, boxes, stored);
        }
    }

    __device__ __forceinline__ void store_chunk(const float* sums, const float* scales, float high, float low, u32 row,
                                                u32 col, u32 boxes, u32& stored) const {
        const u32 lane = threadIdx.x % 32;
        const u32 place = lane % 16 * 128, turn = lane % 8, half = lane / 16;
        const u32 box = boxes + (stored++ & 1) * BOX_BYTES;
        // The store before the last is done with this box.
        if (lane == 0) wait_stores_read<1>();
        __syncwarp();
#pragma unroll
        for (u32 pair = 0; pair < 4; pair++) {
            u32 words[4];
#pragma unroll
            for (u32 i = 0; i < 2; i++) {
                const u32 at = pair * 16 + i * 8;
                const float* d = sums + at / 2;
                const float left = scales[at + lane % 4 * 2], right = scales[at + lane % 4 * 2 + 1];
                words[2 * i] = bf16_pair(d[0] * high * left, d[1] * high * right);
                words[2 * i + 1] = bf16_pair(d[2] * low * left, d[3] * low * right);
            }
            store_matrices(box + place + ((pair * 2 + half) ^ turn) * 16, words[0], words[1], words[2], words[3]);
        }
        publish_shared_writes();
        __syncwarp();
        if (lane == 0) {
            store_box(y, box, col, row);
            commit_stores();
        }
    }

    // The cluster's sums of a tile are added and stored: of 2, 4, 8 blocks each has every other 64 columns of all, half, a quarter
    // of the warps' rows. The rings have been read: sums lie there.
    __device__ __forceinline__ void store_share(const float (&sums)[TILE_N / 2], const float* scales, float high,
                                                float low, u32 row, u32 col, u32 boxes, u32& stored) const {
        static_assert(TILE_M * TILE_N * 4 <= OUT_AT, "sums cross where the ring was");
        const u32 warp = threadIdx.x / 32 - 4, splits = blocks_in_cluster(), rank = rank_in_cluster();
        const u32 mine = shared + warp * TILE_N * 64 + threadIdx.x % 32 * 16;
        named_barrier(5, 256);
#pragma unroll
        for (u32 i = 0; i < TILE_N / 8; i++) store_shared(mine + i * 512, sums + 4 * i);
        cluster_barrier();
        for (u32 chunk = rank % 2; chunk < TILE_N / 64 && warp % (splits / 2) == rank / 2; chunk += 2) {
            float total[32];
#pragma unroll
            for (u32 i = 0; i < 32; i++) total[i] = 0.0f;
            for (u32 other = 0; other < splits; other++) {
                const u32 there = shared_of(mine + chunk * 8 * 512, other);
#pragma unroll
                for (u32 i = 0; i < 8; i++) add_there(total + 4 * i, there + i * 512);
            }
            store_chunk(total, scales + chunk * 64, high, low, row, col + chunk * 64, boxes, stored);
        }
        // Nobody leaves while its shared memory is read.
        cluster_barrier();
    }

    static __device__ __forceinline__ u8* shared_memory() {
        extern __shared__ __align__(1024) u8 memory[];
        return memory;
    }

    static __device__ __forceinline__ void run(const TensorMap& x, const TensorMap& w, const TensorMap& y,
                                               const float* x_scales, const float* w_scales, const GemmShape& shape) {
        const Fp8Gemm gemm{x, w, y, x_scales, w_scales, shape, shared_address(shared_memory())};
        if (threadIdx.x == 0) {
            prefetch_map(x);
            prefetch_map(w);
            prefetch_map(y);
            for (u32 stage = 0; stage < STAGES; stage++) {
                init_barrier(gemm.full(stage), 1);
                init_barrier(gemm.empty(stage), IN_TURNS ? 4 : 8);
            }
            publish_barriers();
        }
        __syncthreads();
        let_next_grid_start();
        wait_for_previous_grid();
        if (threadIdx.x < 128) {
            give_registers<40>();
            if (threadIdx.x == 0) gemm.produce();
            if constexpr (SPLIT) {
                // Those of store_share.
                __syncwarp();
                cluster_barrier();
                cluster_barrier();
            }
        } else {
            take_registers<232>();
            gemm.consume();
        }
    }
};
