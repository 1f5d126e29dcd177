// Takes a block number, a stream and a key; gives the standard normals of core/src/numerics/rng.rs, the
// same floats: every product and sum is rounded on its own (Rust does not fuse them), in the same order.
#pragma once
#include "common/types.cuh"

struct PhiloxBlock {
    u32 x, y, z, w;
};

// Four standard normals of one block.
struct Normals {
    float values[4];
};

// One Philox4x32-10 block (Salmon et al., SC'11) of 128-bit counter (block, stream).
static __device__ __forceinline__ PhiloxBlock philox4x32(u64 block, u64 stream, u32 key0, u32 key1) {
    PhiloxBlock c{(u32)block, (u32)(block >> 32), (u32)stream, (u32)(stream >> 32)};
#pragma unroll
    for (u32 round = 0; round < 10; round++) {
        const u64 p0 = (u64)0xD2511F53u * c.x;
        const u64 p1 = (u64)0xCD9E8D57u * c.z;
        c = PhiloxBlock{(u32)(p1 >> 32) ^ c.y ^ key0, (u32)p1, (u32)(p0 >> 32) ^ c.w ^ key1, (u32)p0};
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    return c;
}

// p * m + c, rounded twice.
static __device__ __forceinline__ float step(float p, float m, float c) { return __fadd_rn(__fmul_rn(p, m), c); }

// ln((bits + 1) / 2^32). Cephes `logf`'s polynomial.
static __device__ __forceinline__ float ln_uniform(u32 bits) {
    const float uniform = __fmul_rn(__fadd_rn(__uint2float_rn(bits), 1.0f), 2.3283064e-10f);
    const u32 raw = __float_as_uint(uniform);
    // Mantissa in [sqrt(1/2), sqrt(2)), so that the polynomial's argument stays small.
    const u32 shifted = raw + (0x3F800000u - 0x3F3504F3u);
    const int exponent = (int)(shifted >> 23) - 127;
    const float m = __fadd_rn(__uint_as_float((shifted & 0x7FFFFFu) + 0x3F3504F3u), -1.0f);
    float p = 7.0376836e-2f;
    p = step(p, m, -1.151461e-1f);
    p = step(p, m, 1.1676999e-1f);
    p = step(p, m, -1.2420141e-1f);
    p = step(p, m, 1.4249323e-1f);
    p = step(p, m, -1.6668057e-1f);
    p = step(p, m, 2.0000714e-1f);
    p = step(p, m, -2.4999994e-1f);
    p = step(p, m, 3.333333e-1f);
    const float z = __fmul_rn(m, m);
    const float linear = __fsub_rn(m, __fmul_rn(0.5f, z));
    const float rest = __fadd_rn(linear, __fmul_rn(__fmul_rn(z, m), p));
    return __fadd_rn(__fmul_rn(__int2float_rn(exponent), 0.693147180559945309417f), rest);
}

// Sine and cosine of `bits / 2^32` turns: the top two bits pick the quadrant.
static __device__ __forceinline__ void sin_cos_turn(u32 bits, float& s, float& c) {
    // Within a quadrant, an angle in [-pi/4, pi/4).
    const u32 quadrant = (bits + 0x20000000u) >> 30;
    const int offset = (int)(bits - (quadrant << 30));
    // 2 pi as FP32 over 2^32: a power of two, so the quotient of the constants is exact.
    const float t = __fmul_rn(__int2float_rn(offset), 6.28318530717958647693f * 2.3283064365386962890625e-10f);
    const float t2 = __fmul_rn(t, t);
    const float sin_inner = __fsub_rn(8.332161e-3f, __fmul_rn(t2, 1.9515296e-4f));
    const float sin_outer = __fadd_rn(-1.6666655e-1f, __fmul_rn(t2, sin_inner));
    const float sin = __fadd_rn(t, __fmul_rn(__fmul_rn(t, t2), sin_outer));
    const float cos_inner = __fadd_rn(-1.3887316e-3f, __fmul_rn(t2, 2.4433157e-5f));
    const float cos_outer = __fadd_rn(4.1666646e-2f, __fmul_rn(t2, cos_inner));
    const float cos_linear = __fsub_rn(1.0f, __fmul_rn(0.5f, t2));
    const float cos = __fadd_rn(cos_linear, __fmul_rn(__fmul_rn(t2, t2), cos_outer));
    s = (quadrant & 1) == 0 ? sin : cos;
    c = (quadrant & 1) == 0 ? cos : -sin;
    if ((quadrant & 2) != 0) {
        s = -s;
        c = -c;
    }
}

// Box-Muller of two 32-bit words: cosine first.
static __device__ __forceinline__ void box_muller(u32 length, u32 angle, float& first, float& second) {
    float s, c;
    sin_cos_turn(angle, s, c);
    const float radius = __fsqrt_rn(__fmul_rn(-2.0f, ln_uniform(length)));
    first = __fmul_rn(radius, c);
    second = __fmul_rn(radius, s);
}

static __device__ __forceinline__ Normals normals(u64 block, u64 stream, u32 key0, u32 key1) {
    const PhiloxBlock bits = philox4x32(block, stream, key0, key1);
    Normals out;
    box_muller(bits.x, bits.y, out.values[0], out.values[1]);
    box_muller(bits.z, bits.w, out.values[2], out.values[3]);
    return out;
}
