// Takes x [m, k] in BF16 and one scale for it known beforehand, a power of two, and w [n, k] in E4M3 with its scales;
// gives y [m, n] = (x w^T) * x_scale * w_scale in BF16, x cast to E4M3 on its way to the tensor cores, and counts what
// saturated: elements with |x / x_scale| > 448, infinities among them, NaN not.
//
//     code = saturating nearest-even cast of (x / x_scale)      bit for bit as cast_e4m3_static
//
// Persistent blocks of three warpgroups. Two threads of the first feed two rings in shared memory by the copy engine,
// x as it lies (BF16) and w (codes). The other two warpgroups read rows of x, two stages of 128 ahead of the products,
// cast them into the registers that wgmma takes A from, a stage ahead, multiply, and store. So x crosses memory once,
// as BF16, and no codes of it are ever written. A wide tile casts its x for more columns.
//
// Tiles of 128 rows: each warpgroup has 64 of them.
// Tiles of 64 rows: the warpgroups have every other stage of k, and half of the columns to store. One wave.
// Split: two blocks of a cluster share a tile of 128 rows, half of k each; each then adds the other's sums to its own
// for 64 rows and stores these. Nothing but the sums crosses, through shared memory. One wave.
//
// The same with x in E4M3 already, where nothing is cast and both operands come from shared memory; and with BlockNorm
// and hard swish behind the product, a block of 256 columns in four lanes' registers. A bias is added to y, or in front
// of BlockNorm.
#pragma once
#include "common/block_tail.cuh"
#include "common/static_cast.cuh"
#include "common/static_tile.cuh"
#include "common/warp.cuh"
#include "common/wgmma.cuh"

// CODES: x is E4M3 already, and its scale need not be a power of two.
template <u32 TILE_M, u32 TILE_N, u32 STAGES, u32 SPLITS, bool CODES = false, Tail TAIL = Tail::PLAIN>
struct StaticGemm : StaticTile<TILE_M, TILE_N, STAGES, SPLITS, CODES, TAIL> {
    using Tile = StaticTile<TILE_M, TILE_N, STAGES, SPLITS, CODES, TAIL>;
    using Tile::ALTERNATE, Tile::BESIDE, Tile::MY_N, Tile::STAGE_STEP, Tile::X_STAGES, Tile::W_STAGES, Tile::X_BOX;
    using Tile::OUT_AT, Tile::SCALES_AT, Tile::SQUARES_AT;
    using Tile::x, Tile::w, Tile::y, Tile::z, Tile::codes, Tile::shape, Tile::shared;
    using Tile::x_scale, Tile::w_scales, Tile::y_scale, Tile::saturated_total;
    using Tile::locate, Tile::units, Tile::first_unit, Tile::unit_step, Tile::stages;
    using Tile::x_at, Tile::w_at, Tile::x_full, Tile::x_empty, Tile::w_full, Tile::w_empty, Tile::turn;
    template <u32 STEP> using Place = typename Tile::template Place<STEP>;

    // What a consumer thread keeps from stage to stage.
    struct Consumer {
        Place<STAGE_STEP> x, w;
        // Where in a stage of x this lane reads, rows of its warpgroup, 1 / x_scale twice, the largest BF16 that does
        // not saturate.
        u32 group, lane_at, group_at, inverse, most;
        // The stage of w whose products may still run.
        bool odd_row, counts;
        // Turns of the units before, modulo 2.
        u32 turns_before = 0;
        u32 saturated = 0;
    };

    // What a lane has of a stage's 64 rows by 128: on its way from shared memory while products run.
    struct Raw {
        u32 low[16], high[16];
    };

    // Asks for the next stage of x. Each element of x is counted by one column of tiles.
    //
    // A lane reads four neighbours of k at a time, 8 bytes of its row. Where all lanes read the same 16 of k, two rows
    // of four would meet in the same banks (16-byte pieces are swizzled by the row): so odd rows read the 16 that lie
    // two further, and change places in `cast`.
    __device__ __forceinline__ void fetch(Raw& raw, Consumer& c, u32& before_mine) const {
        wait_barrier(x_full(c.x.stage), c.x.parity);
        c.counts = before_mine == 0;
        before_mine += STAGE_STEP;
        while (before_mine >= shape.tiles_across) before_mine -= shape.tiles_across;
        const u32 at = x_at(c.x.stage) + c.lane_at;
#pragma unroll
        for (u32 i = 0; i < 16; i++) {
            load_shared((at ^ i % 8 / 2 * 32) + i % 2 * 1024 + i / 8 * X_BOX, raw.low[i], raw.high[i]);
        }
    }

    // What was fetched has come: gives the stage back.
    __device__ __forceinline__ void take(Raw& raw, Consumer& c) const {
        settle(raw.low);
        settle(raw.high);
        __syncwarp();
        if (threadIdx.x % 32 == 0) arrive(x_empty(c.x.stage));
        c.x.next();
    }

    // Half of what was fetched, as wgmma takes it: four registers for each 32 of k.
    template <u32 HALF_OF_K> static __device__ __forceinline__ void cast(u32 (&codes)[16], Raw& raw, Consumer& c) {
        constexpr u32 FIRST = 8 * HALF_OF_K;
        u32 found[8];
#pragma unroll
        for (u32 i = 0; i < 8; i++) found[i] = four_codes(raw.low[FIRST + i], raw.high[FIRST + i], c.inverse);
#pragma unroll
        for (u32 i = 0; i < 8; i++) codes[FIRST + i] = c.odd_row ? found[i ^ 4] : found[i];
        if (c.counts) count<FIRST>(raw, c);
    }

    template <u32 FIRST> static __device__ __forceinline__ void count(const Raw& raw, Consumer& c) {
        u32 largest = 0;
#pragma unroll
        for (u32 i = FIRST; i < FIRST + 8; i++) {
            largest = larger_pair(larger_pair(largest, raw.low[i]), raw.high[i]);
        }
        if (max(largest >> 16 & 0x7FFFu, largest & 0x7FFFu) <= c.most) return;
#pragma unroll
        for (u32 i = FIRST; i < FIRST + 8; i++) {
            c.saturated += count_above(raw.low[i], c.most) + count_above(raw.high[i], c.most);
        }
    }

    // By each of a warpgroup's warps. No bar.arrive: racecheck loses count of the other named barriers by it, and reports
    // hazards that are none.
    __device__ __forceinline__ void give_turn(u32 group) const {
        if (threadIdx.x % 32 == 0) arrive(turn(group));
    }

    // The products of one stage, and meanwhile the next one's cast and the one's after it on its way.
    //
    // The warpgroups have the tensor cores in turns: one multiplies while the other casts. Left to themselves both
    // would wait for the same stage, multiply together and then cast together. The turn ends two products early, so
    // that the next one is there when this one is done.
    template <u32 PARITY>
    __device__ __forceinline__ void step(float (&sums)[TILE_N / 2], u32 (&codes)[16], u32 (&next)[16], Raw& raw,
                                         Consumer& c, u32& before_mine, bool is_first, u32 left) const {
        const bool has_next = left > STAGE_STEP;
        wait_barrier(w_full(c.w.stage), c.w.parity);
        const u64 b = tile_descriptor(w_at(c.w.stage));
        wait_barrier(turn(c.group), c.turns_before ^ PARITY);
        begin_products();
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            product<TILE_N>(sums, codes + 4 * i, b + i * NEXT_32_CODES, i == 0 ? (u32)!is_first : 1);
            if (i % 2 == 1) commit_products();
        }
        if (has_next) {
            take(raw, c);
            cast<0>(next, raw, c);
        }
        wait_products<1>();
        give_turn(1 - c.group);
        if (has_next) cast<1>(next, raw, c);
        wait_products<0>();
        settle(codes);
        if (threadIdx.x % 32 == 0) arrive(w_empty(c.w.stage));
        c.w.next();
        if (left > 2 * STAGE_STEP) fetch(raw, c, before_mine);
    }

    // x in codes: both operands from shared memory.
    __device__ __forceinline__ void sum_codes(float (&sums)[MY_N / 2], Consumer& c) const {
        u32 begin, end, before = 0;
        stages(begin, end);
        const u32 w_offset = BESIDE ? c.group * MY_N * TILE_K : 0;
        for (u32 stage = begin; stage < end; stage += STAGE_STEP) {
            wait_barrier(x_full(c.x.stage), c.x.parity);
            wait_barrier(w_full(c.x.stage), c.x.parity);
            const u64 a = tile_descriptor(x_at(c.x.stage) + c.group_at);
            const u64 b = tile_descriptor(w_at(c.x.stage) + w_offset);
            begin_products();
#pragma unroll
            for (u32 i = 0; i < 4; i++) {
                product<MY_N, false>(sums, a + i * NEXT_32_CODES, b + i * NEXT_32_CODES, stage - begin + i);
            }
            commit_products();
            wait_products<1>();
            if (stage != begin) release(before);
            before = c.x.stage;
            c.x.next();
        }
        wait_products<0>();
        settle(sums);
        release(before);
    }

    __device__ __forceinline__ void release(u32 stage) const {
        if (threadIdx.x % 32 != 0) return;
        arrive(x_empty(stage));
        arrive(w_empty(stage));
    }

    __device__ __forceinline__ void sum_cast(float (&sums)[TILE_N / 2], Consumer& c, u32 col) const {
        u32 begin, end, even[16], odd[16];
        Raw raw;
        stages(begin, end);
        if (ALTERNATE) begin += c.group;
        // Stages until this column of tiles counts: the one whose index modulo the columns is its own.
        u32 before_mine = (begin + shape.tiles_across - col / TILE_N) % shape.tiles_across;
        fetch(raw, c, before_mine);
        take(raw, c);
        cast<0>(even, raw, c);
        cast<1>(even, raw, c);
        if (begin + STAGE_STEP < end) fetch(raw, c, before_mine);
        for (u32 stage = begin; stage < end; stage += 2 * STAGE_STEP) {
            step<0>(sums, even, odd, raw, c, before_mine, stage == begin, end - stage);
            if (stage + STAGE_STEP >= end) break;
            step<1>(sums, odd, even, raw, c, before_mine, false, end - stage - STAGE_STEP);
        }
        // Tilings of one wave have no unit behind this one.
        if constexpr (!ALTERNATE && SPLITS == 1) c.turns_before ^= (end - begin) % 2;
        settle(sums);
    }

    __device__ __forceinline__ void consume() const {
        const u32 thread = threadIdx.x - 128, lane = thread % 32;
        // Shuffled, so that the compiler knows it to be the same for the whole warp.
        const u32 warp = __shfl_sync(0xFFFFFFFF, thread / 32, 0), group = warp / 4;
        const u32 boxes = shared + OUT_AT + warp * 2 * BOX_BYTES;
        float* scales = (float*)(shared_memory() + SCALES_AT) + group * TILE_N;
        const float scale = *x_scale;
        const u32 high_row = lane / 4, quarter = lane % 4, inverse = __float_as_uint(1.0f / scale) >> 16;
        Consumer c;
        c.group = group;
        c.group_at = TILE_M == 64 ? 0 : group * 64 * 128;
        c.lane_at = (ALTERNATE ? warp % 4 : warp) * 16 * 128 + high_row * 128 +
                    (quarter / 2 ^ high_row % 2) * 16 + quarter % 2 * 8 + (high_row / 2 ^ high_row % 2 * 2) * 32;
        c.inverse = inverse << 16 | inverse;
        c.most = __float_as_uint(E4M3_MAX * scale) >> 16;
        c.odd_row = high_row % 2 != 0;
        if (ALTERNATE) c.x.stage = c.w.stage = group;
        u32 stored = 0, flip = 0;
        // The first warpgroup begins.
        if (!CODES && group == 1) give_turn(0);
        for (u32 unit = first_unit(); unit < units(); unit += unit_step()) {
            u32 row, col;
            locate(unit, row, col);
            row += (TILE_M == 64 ? warp % 4 : warp) * 16;
            // On their way while the tensor cores work.
            float kept[(TILE_N + 127) / 128];
#pragma unroll
            for (u32 i = 0; i < TILE_N; i += 128) {
                const u32 at = col + i + thread % 128;
                kept[i / 128] = at < shape.n ? w_scales[at * shape.w_scale_step] : 0.0f;
            }
            float sums[MY_N / 2];
            if constexpr (CODES) {
                sum_codes(sums, c);
            } else {
                sum_cast(sums, c, col);
            }
            // The scales of the unit before are still being read until all warps are here.
            named_barrier(1 + group, 128);
#pragma unroll
            for (u32 i = 0; i < TILE_N; i += 128) {
                if (i + thread % 128 < TILE_N) scales[i + thread % 128] = scale * kept[i / 128];
            }
            named_barrier(1 + group, 128);
            if constexpr (SPLITS == 2) {
                const bool stores = group == rank_in_cluster();
                exchange(sums, stores, shared);
                if (!stores) break;
            }
            if constexpr (ALTERNATE && TILE_N == 64) {
                // One box across: the first warpgroup stores it.
                named_barrier(BOTH, 256);
                const u32 at = shared + thread % 128 * 16;
#pragma unroll
                for (u32 i = 0; i < TILE_N / 8; i++) {
                    if (group == 1) store_shared(at + i * 2048, sums + 4 * i);
                }
                named_barrier(BOTH, 256);
                if (group == 1) break;
#pragma unroll
                for (u32 i = 0; i < TILE_N / 8; i++) add_shared(sums + 4 * i, at + i * 2048);
                finish(sums, scales, row, col, boxes, stored, 0);
                break;
            } else if constexpr (ALTERNATE) {
                constexpr u32 HALF = TILE_N / 4;
                auto& left = *(float(*)[HALF])sums;
                auto& right = *(float(*)[HALF])(sums + HALF);
                if (group == 0) {
                    trade(left, right, group, shared);
                    finish(left, scales, row, col, boxes, stored, 0);
                } else {
                    trade(right, left, group, shared);
                    finish(right, scales + TILE_N / 2, row, col + TILE_N / 2, boxes, stored, 0);
                }
                break;
            } else {
                const u32 first = BESIDE ? group * MY_N : 0;
                finish(sums, scales + first, row, col + first, boxes, stored, flip);
                flip ^= 1;
            }
        }
        if (lane == 0) wait_stores_read<0>();
        const u32 saturated = warp_sum(c.saturated);
        if (lane == 0 && saturated != 0) atomicAdd(saturated_total, (u64)saturated);
    }

    template <u32 COUNT>
    __device__ __forceinline__ void finish(float (&sums)[COUNT], const float* scales, u32 row, u32 col, u32 boxes,
                                           u32& stored, u32 flip) const {
        scale_columns(sums, scales);
        if (shape.bias != nullptr) add_bias(sums, shape.bias, col, shape.n);
        if constexpr (TAIL == Tail::BLOCK_ALL) {
            if (shape.stores & STORE_Z) store(z, sums, row, col, boxes, stored);
        }
        // Where codes alone are stored, their scale comes with the norm.
        if constexpr (TAIL != Tail::PLAIN) block(sums, TAIL == Tail::BLOCK_E4M3 ? *y_scale : 1.0f, flip);
        if constexpr (TAIL == Tail::BLOCK_ALL) {
            if (shape.stores & STORE_H) store(y, sums, row, col, boxes, stored);
            if (shape.stores & STORE_CODES) store_codes(codes, sums, *y_scale, row, col, boxes, stored);
        } else if constexpr (TAIL == Tail::BLOCK_E4M3) {
            store_codes(y, sums, 1.0f, row, col, boxes, stored);
        } else {
            store(y, sums, row, col, boxes, stored);
        }
    }

    // Where the warpgroups have half of the columns each, they tell one another, at one place for even tiles and
    // another for odd ones: who is ahead does not write where the other still reads.
    template <u32 COUNT>
    __device__ __forceinline__ void block(float (&sums)[COUNT], float unit, u32 flip) const {
        block_tail(sums, unit, [&](float& high, float& low) {
            if constexpr (TILE_M == 64) {
                float* squares = (float*)(shared_memory() + SQUARES_AT) + flip * 128;
                const u32 lane = threadIdx.x % 32, group = threadIdx.x / 128 - 1;
                const u32 at = threadIdx.x % 128 / 32 * 16 + lane / 4;
                if (lane % 4 == 0) {
                    squares[group * 64 + at] = high;
                    squares[group * 64 + at + 8] = low;
                }
                named_barrier(BOTH, 256);
                high += squares[(1 - group) * 64 + at];
                low += squares[(1 - group) * 64 + at + 8];
            }
        });
    }

    static __device__ __forceinline__ u8* shared_memory() {
        extern __shared__ __align__(1024) u8 memory[];
        return memory;
    }

    static __device__ __forceinline__ void run(const TensorMap& x, const TensorMap& w, const TensorMap& y,
                                               const float* x_scale, const float* w_scales, u64* saturated_total,
                                               const StaticShape& shape, const float* y_scale = nullptr) {
        run(x, w, y, y, y, x_scale, w_scales, saturated_total, shape, y_scale);
    }

    // BLOCK_ALL: maps of what is not stored are not read.
    static __device__ __forceinline__ void run(const TensorMap& x, const TensorMap& w, const TensorMap& y,
                                               const TensorMap& z, const TensorMap& codes, const float* x_scale,
                                               const float* w_scales, u64* saturated_total, const StaticShape& shape,
                                               const float* y_scale) {
        const u32 shared = shared_address(shared_memory());
        const StaticGemm gemm{{x, w, y, z, codes, x_scale, w_scales, y_scale, saturated_total, shape, shared}};
        if (threadIdx.x == 0) {
            prefetch_map(x);
            prefetch_map(w);
            if (TAIL != Tail::BLOCK_ALL) prefetch_map(y);
            for (u32 stage = 0; stage < X_STAGES; stage++) {
                init_barrier(gemm.x_full(stage), 1);
                init_barrier(gemm.x_empty(stage), ALTERNATE ? 4 : 8);
            }
            for (u32 stage = 0; stage < W_STAGES; stage++) {
                init_barrier(gemm.w_full(stage), 1);
                init_barrier(gemm.w_empty(stage), ALTERNATE ? 4 : 8);
            }
            for (u32 group = 0; group < 2 && !CODES; group++) init_barrier(gemm.turn(group), 4);
            publish_barriers();
        }
        __syncthreads();
        let_next_grid_start();
        wait_for_previous_grid();
        if (threadIdx.x < 128) {
            give_registers<40>();
            if (threadIdx.x == 0) gemm.produce_x();
            if (threadIdx.x == 32) gemm.produce_w();
            if constexpr (SPLITS == 2) {
                // Those of exchange.
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
