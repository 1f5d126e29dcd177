// Takes a product's shape and a tiling; gives the tiles in their order, where things lie in shared memory, and the two
// threads that keep its rings filled: what static_gemm.cuh multiplies.
#pragma once
#include "common/static_store.cuh"

struct StaticShape {
    u32 m, n, k;
    // Tiles down and across, and how many of those down are walked together, for the L2.
    u32 tiles_down, tiles_across, group;
    // What BLOCK_ALL writes: the bits below.
    u32 stores;
    // 1: a scale a row of w; 0: one scale.
    u32 w_scale_step;
    // BF16 [n], or null.
    const u16* bias;
};
static_assert(sizeof(StaticShape) == 40, "mirrored in kernels/src/gemm/shapes.rs");

static constexpr u32 STORE_Z = 1, STORE_H = 2, STORE_CODES = 4;

static constexpr u32 TILE_K = 128, GEMM_THREADS = 384;

// PLAIN: y as it is. Blocks, of 256 columns: BlockNorm and hard swish behind the product, stored in BF16, or in E4M3
// with one scale known beforehand, a power of two; or in both, and what BlockNorm reads in BF16 beside them: what a
// training step keeps.
enum class Tail { PLAIN, BLOCK_BF16, BLOCK_E4M3, BLOCK_ALL };

// CODES: x is E4M3 already, and its scale need not be a power of two.
template <u32 TILE_M, u32 TILE_N, u32 STAGES, u32 SPLITS, bool CODES, Tail TAIL>
struct StaticTile {
    static_assert(TILE_M == 128 || (TILE_M == 64 && SPLITS == 1), "64 rows a warpgroup, or 64 for both");
    static_assert(SPLITS == 1 || SPLITS == 2, "blocks of a cluster, one of each 64 rows");
    // The warpgroups take stages in turn; or, with nothing to cast twice, half of the columns each.
    static constexpr bool ALTERNATE = TILE_M == 64 && !CODES, BESIDE = TILE_M == 64 && CODES;
    // Columns that a warpgroup sums.
    static constexpr u32 MY_N = BESIDE ? TILE_N / 2 : TILE_N;
    static_assert(!ALTERNATE || STAGES % 2 == 0, "each warpgroup has stages of its own");
    static constexpr u32 X_STAGES = STAGES, W_STAGES = STAGES, STAGE_STEP = ALTERNATE ? 2 : 1;
    static_assert(TAIL == Tail::PLAIN || (TILE_N == 256 && SPLITS == 1), "a tile is a block across");
    // Of x two boxes of 64 columns, of codes one of 128.
    static constexpr u32 X_BOX = TILE_M * 128, X_BYTES = (CODES ? 1 : 2) * X_BOX, W_BYTES = TILE_N * TILE_K;
    static constexpr u32 W_AT = X_STAGES * X_BYTES, OUT_AT = W_AT + W_STAGES * W_BYTES;
    // Boxes of eight warps.
    static constexpr u32 SCALES_AT = OUT_AT + 16 * BOX_BYTES;
    static constexpr u32 BARRIERS_AT = SCALES_AT + 2 * 4 * TILE_N, TURNS_AT = BARRIERS_AT + 32 * STAGES;
    // Two turns, where anything is cast.
    static constexpr u32 SQUARES_AT = TURNS_AT + (CODES ? 0 : 16);
    static_assert(64 * TILE_N * 4 <= OUT_AT, "sums cross where the rings were");

    const TensorMap &x, &w, &y;
    // Of BLOCK_ALL.
    const TensorMap &z, &codes;
    const float *x_scale, *w_scales;
    // Of codes of h.
    const float* y_scale;
    u64* saturated_total;
    const StaticShape& shape;
    u32 shared;

    // A place in a ring, and in what order its stages are taken.
    template <u32 STEP> struct Place {
        u32 stage = 0, parity = 0;
        __device__ __forceinline__ void next() {
            stage += STEP;
            if (stage >= STAGES) stage -= STAGES, parity ^= 1;
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
    __device__ __forceinline__ u32 first_unit() const { return blockIdx.x / SPLITS; }
    __device__ __forceinline__ u32 unit_step() const { return gridDim.x / SPLITS; }
    // Stages of k that this block multiplies: [begin, end). Two at least where two share them.
    __device__ __forceinline__ void stages(u32& begin, u32& end) const {
        const u32 all = (shape.k + TILE_K - 1) / TILE_K, share = (all + SPLITS - 1) / SPLITS;
        begin = SPLITS == 1 ? 0 : rank_in_cluster() * share;
        end = min(all, begin + share);
    }

    __device__ __forceinline__ u32 x_at(u32 stage) const { return shared + stage * X_BYTES; }
    __device__ __forceinline__ u32 w_at(u32 stage) const { return shared + W_AT + stage * W_BYTES; }
    __device__ __forceinline__ u32 x_full(u32 stage) const { return shared + BARRIERS_AT + 8 * stage; }
    __device__ __forceinline__ u32 x_empty(u32 stage) const { return x_full(stage) + 8 * X_STAGES; }
    __device__ __forceinline__ u32 w_full(u32 stage) const { return x_full(stage) + 16 * X_STAGES; }
    __device__ __forceinline__ u32 w_empty(u32 stage) const { return w_full(stage) + 8 * W_STAGES; }
    __device__ __forceinline__ u32 turn(u32 group) const { return shared + TURNS_AT + 8 * group; }

    // One thread: tiles of x, a stage at a time.
    __device__ __forceinline__ void produce_x() const {
        Place<1> place;
        u32 begin, end, row, col;
        stages(begin, end);
        for (u32 unit = first_unit(); unit < units(); unit += unit_step()) {
            locate(unit, row, col);
            for (u32 stage = begin; stage < end; stage++) {
                const u32 barrier = x_full(place.stage), to = x_at(place.stage);
                wait_barrier(x_empty(place.stage), place.parity ^ 1);
                expect_bytes(barrier, X_BYTES);
                load_box(to, x, barrier, stage * TILE_K, row);
                if constexpr (!CODES) load_box(to + X_BOX, x, barrier, stage * TILE_K + 64, row);
                place.next();
            }
        }
    }

    // Another: tiles of w.
    __device__ __forceinline__ void produce_w() const {
        Place<1> place;
        u32 begin, end, row, col;
        stages(begin, end);
        for (u32 unit = first_unit(); unit < units(); unit += unit_step()) {
            locate(unit, row, col);
            for (u32 stage = begin; stage < end; stage++) {
                const u32 barrier = w_full(place.stage);
                wait_barrier(w_empty(place.stage), place.parity ^ 1);
                expect_bytes(barrier, W_BYTES);
                load_box(w_at(place.stage), w, barrier, stage * TILE_K, col);
                place.next();
            }
        }
    }
};
