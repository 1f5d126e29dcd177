// Takes tiles in shared memory; gives their FP8 products by the tensor cores of sm_90a: one warpgroup multiplies
// 64 rows of A by N rows of B over 32 elements of K, FP32 sums in its registers.
//
// Tiles lie as the copy engine writes them with 128-byte swizzle: rows of 128 codes, eight rows of 1,024 bytes
// an atom, atoms behind one another.
#pragma once
#include "common/types.cuh"

// Start in units of 16 bytes, 1,024 bytes from atom to atom, swizzle of 128 bytes; the tile aligned to 1,024.
static __device__ __forceinline__ u64 tile_descriptor(u32 shared) {
    return (u64)((shared & 0x3FFFF) >> 4) | (u64)1 << 16 | (u64)64 << 32 | (u64)1 << 62;
}

// From one 32 codes to the next within a tile.
static constexpr u64 NEXT_32_CODES = 2;
// From one 8 rows to the next.
static constexpr u64 NEXT_8_ROWS = 8 * 128 / 16;

// Orders the registers' earlier use before the products that follow.
static __device__ __forceinline__ void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
static __device__ __forceinline__ void commit_products() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Until at most PENDING committed groups are unfinished.
template <u32 PENDING> static __device__ __forceinline__ void wait_products() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

// Behind wait_products: the compiler does not know that products write registers later than where they stand, and
// would move uses of the sums in front of the wait.
template <u32 COUNT> static __device__ __forceinline__ void settle(float (&sums)[COUNT]) {
#pragma unroll
    for (u32 i = 0; i < COUNT; i++) asm volatile("" : "+f"(sums[i])::"memory");
}

// Operands of an asm statement: so many registers from d[i] on, and their numbers.
#define SUMS_8(d, i)                                                                                                   \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]),        \
        "+f"(d[i + 7])
#define SUMS_32(d, i) SUMS_8(d, i), SUMS_8(d, i + 8), SUMS_8(d, i + 16), SUMS_8(d, i + 24)
#define SUMS_48(d, i) SUMS_32(d, i), SUMS_8(d, i + 32), SUMS_8(d, i + 40)
#define SUMS_64(d, i) SUMS_32(d, i), SUMS_32(d, i + 32)
#define SUMS_96(d, i) SUMS_64(d, i), SUMS_32(d, i + 64)
#define SUMS_128(d, i) SUMS_64(d, i), SUMS_64(d, i + 64)
#define NAMES_32                                                                                                       \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23"     \
    ", %24, %25, %26, %27, %28, %29, %30, %31"
#define NAMES_48 NAMES_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define NAMES_64 NAMES_48 ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define NAMES_96                                                                                                       \
    NAMES_64                                                                                                           \
    ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84"        \
    ", %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define NAMES_128                                                                                                      \
    NAMES_96                                                                                                           \
    ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114"   \
    ", %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

#define PRODUCT(N, X_TYPE, NAMES, SUMS, A, B, KEEP)                                                                    \
    asm volatile("{\n"                                                                                                 \
                 ".reg .pred keep;\n"                                                                                  \
                 "setp.ne.b32 keep, %" KEEP ", 0;\n"                                                                   \
                 "wgmma.mma_async.sync.aligned.m64n" N "k32.f32." X_TYPE ".e4m3 {" NAMES "}, %" A ", %" B              \
                 ", keep, 1, 1;\n"                                                                                     \
                 "}"                                                                                                   \
                 : SUMS                                                                                                \
                 : "l"(a), "l"(b), "r"(keep))

// d += a * b^T, or d = a * b^T where `keep` is 0. Asynchronous: d is not to be touched before wait_products.
template <u32 N, bool E5M2_X>
static __device__ __forceinline__ void product(float (&d)[N / 2], u64 a, u64 b, u32 keep) {
    static_assert(N == 64 || N == 96 || N == 128 || N == 192 || N == 256, "one of the widths below");
    if constexpr (N == 64 && !E5M2_X) PRODUCT("64", "e4m3", NAMES_32, SUMS_32(d, 0), "32", "33", "34");
    if constexpr (N == 64 && E5M2_X) PRODUCT("64", "e5m2", NAMES_32, SUMS_32(d, 0), "32", "33", "34");
    if constexpr (N == 96 && !E5M2_X) PRODUCT("96", "e4m3", NAMES_48, SUMS_48(d, 0), "48", "49", "50");
    if constexpr (N == 96 && E5M2_X) PRODUCT("96", "e5m2", NAMES_48, SUMS_48(d, 0), "48", "49", "50");
    if constexpr (N == 128 && !E5M2_X) PRODUCT("128", "e4m3", NAMES_64, SUMS_64(d, 0), "64", "65", "66");
    if constexpr (N == 128 && E5M2_X) PRODUCT("128", "e5m2", NAMES_64, SUMS_64(d, 0), "64", "65", "66");
    if constexpr (N == 192 && !E5M2_X) PRODUCT("192", "e4m3", NAMES_96, SUMS_96(d, 0), "96", "97", "98");
    if constexpr (N == 192 && E5M2_X) PRODUCT("192", "e5m2", NAMES_96, SUMS_96(d, 0), "96", "97", "98");
    if constexpr (N == 256 && !E5M2_X) PRODUCT("256", "e4m3", NAMES_128, SUMS_128(d, 0), "128", "129", "130");
    if constexpr (N == 256 && E5M2_X) PRODUCT("256", "e5m2", NAMES_128, SUMS_128(d, 0), "128", "129", "130");
}

#define PRODUCT_OF_CODES(N, NAMES, SUMS, A0, A1, A2, A3, B, KEEP)                                                      \
    asm volatile("{\n"                                                                                                 \
                 ".reg .pred keep;\n"                                                                                  \
                 "setp.ne.b32 keep, %" KEEP ", 0;\n"                                                                   \
                 "wgmma.mma_async.sync.aligned.m64n" N "k32.f32.e4m3.e4m3 {" NAMES "}, {%" A0 ", %" A1 ", %" A2         \
                 ", %" A3 "}, %" B ", keep, 1, 1;\n"                                                                   \
                 "}"                                                                                                   \
                 : SUMS                                                                                                \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep))

// The same with A in registers, four codes each, E4M3. Lane l of a warp holds of its 16 rows l / 4, l / 4 + 8, l / 4
// and l / 4 + 8; of the 32 codes 4 (l % 4) and following, twice, then 16 further on, twice. Asynchronous: neither d
// nor a is to be touched before wait_products.
template <u32 N> static __device__ __forceinline__ void product(float (&d)[N / 2], const u32* a, u64 b, u32 keep) {
    static_assert(N == 64 || N == 128 || N == 256, "one of the widths below");
    if constexpr (N == 64) PRODUCT_OF_CODES("64", NAMES_32, SUMS_32(d, 0), "32", "33", "34", "35", "36", "37");
    if constexpr (N == 128) PRODUCT_OF_CODES("128", NAMES_64, SUMS_64(d, 0), "64", "65", "66", "67", "68", "69");
    if constexpr (N == 256) {
        PRODUCT_OF_CODES("256", NAMES_128, SUMS_128(d, 0), "128", "129", "130", "131", "132", "133");
    }
}

// Behind wait_products, like settle: codes that products were still reading stay where they are until here.
template <u32 COUNT> static __device__ __forceinline__ void settle(u32 (&codes)[COUNT]) {
#pragma unroll
    for (u32 i = 0; i < COUNT; i++) asm volatile("" : "+r"(codes[i])::"memory");
}
