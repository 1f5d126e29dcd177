// Takes x [m, k] in BF16 and one scale for it known beforehand, a power of two, and w [n, k] in E4M3 with its scales;
// gives y [m, n] = (x w^T) * x_scale * w_scale in BF16, the codes of x, and counts what saturated: elements with
// |x / x_scale| > 448, infinities among them, NaN not.
//
//     code = saturating nearest-even cast of (x / x_scale)      bit for bit as cast_e4m3_static
//
// The GEMM of common/fp8_gemm.cuh with a fourth warpgroup a block that casts x while the others multiply: each element
// once, into memory that stays in the L2, in the order in which tiles want it. A flag for 128 x 128 codes says that
// they are there; the copies of the ring wait for it. Work is drawn from a counter, so that nobody waits for a block
// that has not begun. The last block leaves counter and flags at zero, as the first launch must find them.
#pragma once
#include "common/fp8.cuh"
#include "common/fp8_gemm.cuh"
#include "common/warp.cuh"

// Where codes and flags are; mirrored in kernels/src/gemm/static_scale.rs.
struct Ahead {
    const u16* x;
    u8* codes;
    // Next chunk, blocks that are done, then a count for each 128 x 128 codes, row by row of them: 2 once they are there.
    u32* flags;
    u64* saturated;
};
static_assert(sizeof(Ahead) == 32, "mirrored in kernels/src/gemm/static_scale.rs");

static constexpr u32 AHEAD_THREADS = 512, CHUNK_ROWS = 64, NEXT_CHUNK = 0, BLOCKS_DONE = 1, FIRST_FLAG = 2;

static __device__ __forceinline__ u32 load_acquire(const u32* from) {
    u32 value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    return value;
}

static __device__ __forceinline__ void add_release(u32* to) {
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(to) : "memory");
}

// Ordinary accesses of global memory before, the copy engine's behind.
static __device__ __forceinline__ void fence_copy_engine() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

static __device__ __forceinline__ u32 multiply_pair(u32 a, u32 b) {
    u32 product;
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
    return product;
}

// Four BF16 times a power of two, which is exact wherever E4M3 is not 0 or saturated, as codes.
static __device__ __forceinline__ u32 four_codes(u32 low, u32 high, u32 inverse) {
    low = multiply_pair(low, inverse);
    high = multiply_pair(high, inverse);
    return e4m3_pair(bf16_low(low), bf16_high(low)) | e4m3_pair(bf16_low(high), bf16_high(high)) << 16;
}

// Magnitudes above `most` of two BF16, NaN not among them.
static __device__ __forceinline__ u32 count_above(u32 pair, u32 most) {
    const u32 low = pair & 0x7FFFu, high = pair >> 16 & 0x7FFFu;
    return (u32)(low > most && low <= 0x7F80u) + (u32)(high > most && high <= 0x7F80u);
}

template <u32 TILE_N, u32 STAGES, bool IN_TURNS> struct AheadGemm {
    using Gemm = Fp8Gemm<TILE_N, STAGES, IN_TURNS, false, false>;
    // Named barriers beyond those of the GEMM.
    static constexpr u32 CASTERS = 6, LAST = 7;

    const Gemm& gemm;
    const Ahead& ahead;

    __device__ __forceinline__ u32 stages_of_k() const { return (gemm.shape.k + TILE_K - 1) / TILE_K; }
    __device__ __forceinline__ u32* flag(u32 tile_row, u32 stage) const {
        return ahead.flags + FIRST_FLAG + tile_row * stages_of_k() + stage;
    }

    // One warp: tiles of codes and w, a stage at a time; its lanes look at the flags of 32 stages at once.
    __device__ __forceinline__ void produce() const {
        typename Gemm::Place place;
        const u32 lane = threadIdx.x % 32, all = stages_of_k();
        for (u32 unit = blockIdx.x; unit < gemm.units(); unit += gridDim.x) {
            u32 row, col, ready = 0;
            gemm.locate(unit, row, col);
            for (u32 stage = 0; stage < all; stage++) {
                while (ready <= stage) {
                    const bool there = ready + lane >= all || load_acquire(flag(row / TILE_M, ready + lane)) == 2;
                    const u32 missing = ~__ballot_sync(0xFFFFFFFFu, there);
                    ready += missing == 0 ? 32 : __ffs(missing) - 1;
                    __syncwarp();
                    fence_copy_engine();
                }
                if (lane == 0) {
                    const u32 barrier = gemm.full(place.stage), to = gemm.at(place.stage);
                    wait_barrier(gemm.empty(place.stage), place.parity ^ 1);
                    expect_bytes(barrier, Gemm::STAGE_BYTES);
                    load_box(to, gemm.x, barrier, stage * TILE_K, row);
                    load_box(to + Gemm::X_BYTES, gemm.w, barrier, stage * TILE_K, col);
                }
                __syncwarp();
                place.next();
            }
        }
    }

    // Upper left corner of a chunk of 64 rows and one stage: groups of tiles as the units have them, then k, then rows.
    __device__ __forceinline__ void locate(u32 chunk, u32& row, u32& stage) const {
        const u32 all = stages_of_k(), halves = TILE_M / CHUNK_ROWS;
        const u32 of_group = gemm.shape.group * halves * all;
        const u32 first = chunk / of_group * gemm.shape.group, within = chunk % of_group;
        const u32 high = min(gemm.shape.group, gemm.shape.tiles_down - first) * halves;
        row = first * TILE_M + within % high * CHUNK_ROWS;
        stage = within / high;
    }

    // The fourth warpgroup. A thread takes eight columns of every eighth row, all its loads in flight at once.
    __device__ __forceinline__ void cast() const {
        u32* drawn = (u32*)(Gemm::shared_memory() + Gemm::EMPTY_AT + 8 * STAGES);
        const GemmShape& shape = gemm.shape;
        const u32 thread = threadIdx.x % 128, chunks = shape.tiles_down * (TILE_M / CHUNK_ROWS) * stages_of_k();
        const float scale = *gemm.x_scales;
        const u32 most = __float_as_uint(E4M3_MAX * scale) >> 16, one = __float_as_uint(1.0f / scale) >> 16;
        const u32 inverse = one << 16 | one;
        u32 saturated = 0, turn = 0;
        if (thread == 0) drawn[0] = atomicAdd(ahead.flags + NEXT_CHUNK, 1);
        named_barrier(CASTERS, 128);
        for (u32 chunk = drawn[0]; chunk < chunks;) {
            u32 row, stage;
            locate(chunk, row, stage);
            const u32 first = row + thread / 16, col = stage * TILE_K + thread % 16 * 8;
            Words4 words[8];
#pragma unroll
            for (u32 i = 0; i < 8; i++) {
                const u32 at = first + 8 * i;
                const bool inside = at < shape.m && col < shape.k;
                words[i] = inside ? load_once((const Words4*)(ahead.x + (u64)at * shape.k + col)) : Words4{0, 0, 0, 0};
            }
            turn ^= 1;
            if (thread == 0) drawn[turn] = atomicAdd(ahead.flags + NEXT_CHUNK, 1);
            u32 largest = 0;
#pragma unroll
            for (u32 i = 0; i < 8; i++) {
                const u32 at = first + 8 * i;
                largest = magnitudes_max(magnitudes_max(largest, words[i].x), words[i].y);
                largest = magnitudes_max(magnitudes_max(largest, words[i].z), words[i].w);
                const Words2 codes = {four_codes(words[i].x, words[i].y, inverse),
                                      four_codes(words[i].z, words[i].w, inverse)};
                if (at < shape.m && col < shape.k) *(Words2*)(ahead.codes + (u64)at * shape.k + col) = codes;
            }
            if (max(largest >> 16, largest & 0xFFFFu) > most) {
#pragma unroll
                for (u32 i = 0; i < 8; i++) {
                    saturated += count_above(words[i].x, most) + count_above(words[i].y, most);
                    saturated += count_above(words[i].z, most) + count_above(words[i].w, most);
                }
            }
            fence_copy_engine();
            named_barrier(CASTERS, 128);
            if (thread == 0) add_release(flag(row / TILE_M, stage));
            chunk = drawn[turn];
        }
        saturated = warp_sum(saturated);
        if (thread % 32 == 0 && saturated != 0) atomicAdd(ahead.saturated, (u64)saturated);
        // The producer has seen all its flags.
        named_barrier(LAST, 160);
        if (thread == 0) {
            asm volatile("fence.acq_rel.gpu;" ::: "memory");
            drawn[0] = atomicAdd(ahead.flags + BLOCKS_DONE, 1);
        }
        named_barrier(CASTERS, 128);
        if (drawn[0] != gridDim.x - 1) return;
        for (u32 i = thread; i < FIRST_FLAG + shape.tiles_down * stages_of_k(); i += 128) ahead.flags[i] = 0;
    }

    static __device__ __forceinline__ void run(const TensorMap& x, const TensorMap& w, const TensorMap& y,
                                               const float* x_scale, const float* w_scales, const Ahead& ahead,
                                               const GemmShape& shape) {
        const Gemm gemm{x, w, y, x_scale, w_scales, shape, shared_address(Gemm::shared_memory())};
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
        const AheadGemm self{gemm, ahead};
        if (threadIdx.x < 128) {
            give_registers<32>();
            if (threadIdx.x < 32) {
                self.produce();
                named_arrive(LAST, 160);
            }
        } else if (threadIdx.x < 384) {
            take_registers<192>();
            gemm.consume();
        } else {
            give_registers<96>();
            self.cast();
        }
    }
};
