// Takes BF16 and scales; gives what every cast kernel starts from: the operand it is told about, and
// codes of either format, eight to a 16-byte load.
#pragma once
#include "common/fp8.cuh"
#include "common/warp.cuh"

// One operand of a launch; kernels/src/casts.rs mirrors it field by field. A null output is not
// wanted. Every kernel takes two, so that both operands of a product cost one launch: the first
// `a.blocks` blocks of the grid do a, the rest b.
struct CastOperand {
    const u16* x;    // BF16 [rows, cols] row-major
    u8* codes;       // [rows, cols]
    float* scales;   // as the kernel says
    u8* codes_t;     // [cols, rows]
    float* scales_t; // as the kernel says
    u32* partials;   // what the first of two launches leaves to the second
    u32 rows;
    u32 cols;
    u32 blocks;    // of this operand, 0 when it is absent
    u32 flags;     // the bits below
    u32 tiles;     // number of partials: in the whole tensor, or along the rows; of rows: see cast_rowwise
    u32 tile_rows; // rows of a tile, where the kernel leaves the choice to the launch; of rows: likewise
    u32 pitch;     // of codes, from one row to the next: cols at least
    u32 pitch_t;   // of codes_t: rows at least
};
static_assert(sizeof(CastOperand) == 80, "kernels/src/casts.rs mirrors it");

static constexpr u32 POWER_OF_TWO = 1;
static constexpr u32 AS_E5M2 = 2;
static constexpr u32 BLOCK_128X128 = 4;
static constexpr u32 ROW_CAST = 8;
static constexpr u32 COLUMN_AMAX = 16;

// Field by field: the address of a parameter chosen at run time would copy both to local memory.
static __device__ __forceinline__ CastOperand picked(const CastOperand& a, const CastOperand& b, bool first) {
    CastOperand to;
    to.x = first ? a.x : b.x;
    to.codes = first ? a.codes : b.codes;
    to.scales = first ? a.scales : b.scales;
    to.codes_t = first ? a.codes_t : b.codes_t;
    to.scales_t = first ? a.scales_t : b.scales_t;
    to.partials = first ? a.partials : b.partials;
    to.rows = first ? a.rows : b.rows;
    to.cols = first ? a.cols : b.cols;
    to.blocks = first ? a.blocks : b.blocks;
    to.flags = first ? a.flags : b.flags;
    to.tiles = first ? a.tiles : b.tiles;
    to.tile_rows = first ? a.tile_rows : b.tile_rows;
    to.pitch = first ? a.pitch : b.pitch;
    to.pitch_t = first ? a.pitch_t : b.pitch_t;
    return to;
}

// First of all in every cast: a launch with the programmatic attribute begins while the kernel before it
// still runs, and from here on the next one may begin likewise. Without it neither does anything.
static __device__ __forceinline__ void wait_for_predecessor() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;\ngriddepcontrol.launch_dependents;" ::: "memory");
#endif
}

static __device__ __forceinline__ u32 ceil_div(u32 value, u32 by) { return (value + by - 1) / by; }

// Larger magnitude of each half, in one instruction; the sign is arbitrary, and NaN wins.
static __device__ __forceinline__ u32 unsigned_max(u32 largest, u32 pair) {
    u32 result;
    asm("max.NaN.xorsign.abs.bf16x2 %0, %1, %2;" : "=r"(result) : "r"(largest), "r"(pair));
    return result;
}

// Larger magnitude of each half over eight BF16, without sign.
static __device__ __forceinline__ u32 amax_of(u32 largest, const Words4& x) {
    largest = unsigned_max(largest, x.x);
    largest = unsigned_max(largest, x.y);
    largest = unsigned_max(largest, x.z);
    return unsigned_max(largest, x.w) & 0x7FFF7FFFu;
}

static __device__ __forceinline__ u32 larger_half(u32 pair) { return max(pair & 0xFFFFu, pair >> 16); }

// The same, column by column.
static __device__ __forceinline__ Words4 amax_each(const Words4& largest, const Words4& x) {
    return Words4{magnitudes_max(largest.x, x.x), magnitudes_max(largest.y, x.y), magnitudes_max(largest.z, x.z),
                  magnitudes_max(largest.w, x.w)};
}

// `bits`: a magnitude as BF16.
template <bool E5M2>
static __device__ __forceinline__ float scale_of_bits(u32 bits, u32 flags) {
    return scale_from_amax(__uint_as_float(bits << 16), E5M2 ? E5M2_MAX : E4M3_MAX, (flags & POWER_OF_TWO) != 0);
}

template <bool E5M2>
static __device__ __forceinline__ u32 code_pair(float low, float high) {
    return E5M2 ? e5m2_pair(low, high) : e4m3_pair(low, high);
}

template <bool E5M2>
static __device__ __forceinline__ u8 cast_one(u32 value, const Divisor& scale) {
    return (u8)signed_codes(code_pair<E5M2>(scale.of(bf16_low(value)), 0.0f), value, 0);
}

template <bool E5M2>
static __device__ __forceinline__ u32 cast_four(u32 low, u32 high, const Divisor& scale) {
    const u32 codes = code_pair<E5M2>(scale.of(bf16_low(low)), scale.of(bf16_high(low))) |
                      code_pair<E5M2>(scale.of(bf16_low(high)), scale.of(bf16_high(high))) << 16;
    return signed_codes(codes, low, high);
}

template <bool E5M2>
static __device__ __forceinline__ Words2 cast_eight(const Words4& x, const Divisor& scale) {
    return Words2{cast_four<E5M2>(x.x, x.y, scale), cast_four<E5M2>(x.z, x.w, scale)};
}

// A scale a column: `scales` of four neighbouring columns.
template <bool E5M2>
static __device__ __forceinline__ u32 cast_four_by(u32 low, u32 high, const Divisor* scales) {
    const u32 codes = code_pair<E5M2>(scales[0].of(bf16_low(low)), scales[1].of(bf16_high(low))) |
                      code_pair<E5M2>(scales[2].of(bf16_low(high)), scales[3].of(bf16_high(high))) << 16;
    return signed_codes(codes, low, high);
}

template <bool E5M2>
static __device__ __forceinline__ Words2 cast_eight_by(const Words4& x, const Divisor* scales) {
    return Words2{cast_four_by<E5M2>(x.x, x.y, scales), cast_four_by<E5M2>(x.z, x.w, scales + 4)};
}

// Whether rows of x and of codes start where 16- and 8-byte accesses may.
static __device__ __forceinline__ bool rows_aligned(const CastOperand& o) {
    return o.cols % 8 == 0 && o.pitch % 8 == 0 && aligned(o.x, 16) && aligned(o.codes, 8);
}

// Whether 16-byte pieces of the transposed rows lie within the operand or beyond it, never across.
static __device__ __forceinline__ bool turned_rows_aligned(const CastOperand& o) {
    return o.rows % 16 == 0 && o.pitch_t % 16 == 0 && aligned(o.codes_t, 16);
}
