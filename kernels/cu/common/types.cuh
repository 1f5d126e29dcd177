// Takes nothing; gives fixed-width integers and BF16 as FP32. No toolkit headers: a user needs the
// driver and libnvrtc, not a CUDA toolkit.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

// Eight BF16 in one 16-byte access; element 0 lies in the low half of x.
struct alignas(16) Words4 {
    u32 x, y, z, w;
};

// Eight FP8 codes in one 8-byte access; element 0 lies in the low byte of x.
struct alignas(8) Words2 {
    u32 x, y;
};

// BF16 is the upper half of an FP32: a shift, no conversion.
static __device__ __forceinline__ float bf16_low(u32 pair) { return __uint_as_float(pair << 16); }
static __device__ __forceinline__ float bf16_high(u32 pair) { return __uint_as_float(pair & 0xFFFF0000u); }

// Each input is read once: keep it out of L1, which has nothing to gain from it.
static __device__ __forceinline__ Words4 load_once(const Words4* from) {
    Words4 value;
    asm("ld.global.nc.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];"
        : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
        : "l"(from));
    return value;
}

// Where the elements i, i + step, and so on of a matrix lie in memory: rows of `cols` elements, `pitch` from one to the
// next. One division for all of them.
struct Spaced {
    u32 row, col, rows_a_step, cols_a_step, cols, pitch;

    __device__ __forceinline__ Spaced(u64 i, u64 step, u32 of_cols, u32 of_pitch) : cols(of_cols), pitch(of_pitch) {
        row = (u32)(i / cols);
        col = (u32)(i % cols);
        rows_a_step = (u32)(step / cols);
        cols_a_step = (u32)(step % cols);
    }
    // This one, and on to the next.
    __device__ __forceinline__ u64 next() {
        const u64 at = (u64)row * pitch + col;
        row += rows_a_step;
        col += cols_a_step;
        if (col >= cols) col -= cols, row++;
        return at;
    }
};

static __device__ __forceinline__ bool aligned(const void* pointer, u32 bytes) {
    return ((u64)pointer & (bytes - 1)) == 0;
}
