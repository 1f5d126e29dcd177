// architectures: sm_89 sm_90a sm_100a
//
// Takes rows of a linear's outputs, `source` [rows, features] in FP32, FP64 (rounded to FP32 first) or
// BF16 by `source_kind`, and the steps that follow; gives `destination`, FP32 [rows, features], as
// core/src/mods/tail.rs: sums in FP64 (in another order), everything else the same operations, save for
// tanh and the exponential of GELU, whose last bits are this compiler's. `destination` may be `source`
// when that is FP32.
//
// Launch: one block a row, `blockDim.x` a multiple of 32 up to 512, 4 * features bytes of dynamic shared
// memory, in which the row lives from the first step to the last. Beyond 48 KiB the function's attribute
// must allow it.
#include "common/reduce.cuh"

static constexpr u32 SOURCE_F32 = 0;
static constexpr u32 SOURCE_F64 = 1;
// 2: BF16

static constexpr u32 OP_BIAS = 0;
static constexpr u32 OP_LAYER_NORM = 1;
static constexpr u32 OP_RMS_NORM = 2;
static constexpr u32 OP_BLOCK_NORM = 3;
static constexpr u32 OP_SWISH = 4;
static constexpr u32 OP_HARD_SWISH = 5;
static constexpr u32 OP_RELU = 6;
static constexpr u32 OP_SIGMOID = 7;
static constexpr u32 OP_TANH = 8;
static constexpr u32 OP_GELU = 9;

static constexpr u32 MOST_STEPS = 12;

struct TailStep {
    u32 op;
    // Block norm's block.
    u32 block;
    float eps;
    u32 padding;
    // Null: none.
    const float* gamma;
    // Layer norm's offset, or the bias.
    const float* beta;
};

struct TailSteps {
    u32 count;
    u32 padding;
    TailStep step[MOST_STEPS];
};
static_assert(sizeof(TailSteps) == 392, "mirrored in probing.rs");

// e^x as core/src/numerics/special.rs computes it, operation by operation.
static __device__ __forceinline__ float exp_f32(float x) {
    x = x > 87.0f ? 87.0f : x;
    x = x < -87.0f ? -87.0f : x;
    // Adding 1.5 * 2^23 rounds to an integer, which is then in the low bits.
    const float shifted = __fadd_rn(__fmul_rn(x, 1.44269504088896340736f), 12582912.0f);
    const float n = __fsub_rn(shifted, 12582912.0f);
    const float high = __fsub_rn(x, __fmul_rn(n, 0.6933594f));
    const float r = __fadd_rn(high, __fmul_rn(n, 2.1219444e-4f));
    float p = 1.9875691e-4f;
    p = __fadd_rn(__fmul_rn(p, r), 1.3981999e-3f);
    p = __fadd_rn(__fmul_rn(p, r), 8.333452e-3f);
    p = __fadd_rn(__fmul_rn(p, r), 4.1665796e-2f);
    p = __fadd_rn(__fmul_rn(p, r), 1.6666666e-1f);
    p = __fadd_rn(__fmul_rn(p, r), 0.5f);
    const float mantissa = __fadd_rn(__fadd_rn(__fmul_rn(__fmul_rn(p, r), r), r), 1.0f);
    const u32 exponent = (__float_as_uint(shifted) - 0x4B400000u + 127u) << 23;
    return __fmul_rn(mantissa, __uint_as_float(exponent));
}

static __device__ __forceinline__ float sigmoid(float x) {
    return __fdiv_rn(1.0f, __fadd_rn(1.0f, exp_f32(-x)));
}

// The error function's complement with the CPU's coefficients, so that their own error (1.2e-7) is the same.
static __device__ __forceinline__ double erfc_fit(double x) {
    const double z = fabs(x);
    const double t = 1.0 / (1.0 + 0.5 * z);
    double p = 0.17087277;
    p = p * t - 0.82215223;
    p = p * t + 1.48851587;
    p = p * t - 1.13520398;
    p = p * t + 0.27886807;
    p = p * t - 0.18628806;
    p = p * t + 0.09678418;
    p = p * t + 0.37409196;
    p = p * t + 1.00002368;
    p = p * t - 1.26551223;
    const double value = t * exp(p - z * z);
    return x >= 0.0 ? value : 2.0 - value;
}

static __device__ __forceinline__ float activated(u32 op, float x) {
    switch (op) {
    case OP_SWISH: return __fmul_rn(x, sigmoid(x));
    case OP_HARD_SWISH: {
        float gate = __fadd_rn(x, 3.0f);
        gate = gate < 0.0f ? 0.0f : gate;
        gate = gate > 6.0f ? 6.0f : gate;
        return __fdiv_rn(__fmul_rn(x, gate), 6.0f);
    }
    // Rust's `max`: a NaN becomes 0.
    case OP_RELU: return x > 0.0f ? x : 0.0f;
    case OP_SIGMOID: return sigmoid(x);
    case OP_TANH: return tanhf(x);
    case OP_GELU: {
        const double tail = erfc_fit(-(double)x / 1.41421356237309504880);
        return __fmul_rn(__fmul_rn(0.5f, x), __double2float_rn(tail));
    }
    default: return x;
    }
}

static __device__ __forceinline__ float inverse_rms(double squares, u32 length, float eps) {
    return __double2float_rn(1.0 / sqrt(squares / (double)length + (double)eps));
}

// The whole row to a root mean square of 1.
static __device__ void scale_row(float* row, u32 features, float eps) {
    double squares = 0.0;
    for (u32 i = threadIdx.x; i < features; i += blockDim.x) squares += (double)row[i] * row[i];
    const float inverse = inverse_rms(block_sum(squares), features, eps);
    for (u32 i = threadIdx.x; i < features; i += blockDim.x) row[i] = __fmul_rn(row[i], inverse);
}

// Each block of `block` to a root mean square of 1, one warp a block.
static __device__ void scale_blocks(float* row, u32 features, u32 block, float eps) {
    const u32 lane = threadIdx.x % 32, warps = blockDim.x / 32;
    // The last step left these elements to other threads.
    __syncthreads();
    for (u32 b = threadIdx.x / 32; b < features / block; b += warps) {
        float* of = row + b * block;
        double squares[1] = {0.0};
        for (u32 i = lane; i < block; i += 32) squares[0] += (double)of[i] * of[i];
        warp_reduce<1, 0>(squares);
        const float inverse = inverse_rms(squares[0], block, eps);
        for (u32 i = lane; i < block; i += 32) of[i] = __fmul_rn(of[i], inverse);
    }
    __syncthreads();
}

static __device__ void centre_row(float* row, u32 features) {
    double sum = 0.0;
    for (u32 i = threadIdx.x; i < features; i += blockDim.x) sum += row[i];
    const float mean = __double2float_rn(block_sum(sum) / (double)features);
    for (u32 i = threadIdx.x; i < features; i += blockDim.x) row[i] = __fsub_rn(row[i], mean);
}

static __device__ void gain_row(float* row, u32 features, const float* gamma, const float* beta) {
    for (u32 i = threadIdx.x; i < features; i += blockDim.x) {
        float x = row[i];
        if (gamma != nullptr) x = __fmul_rn(x, gamma[i]);
        if (beta != nullptr) x = __fadd_rn(x, beta[i]);
        row[i] = x;
    }
}

// Every step but the block norm leaves element i to the thread that had it: no barriers between them.
static __device__ __forceinline__ void apply(const TailStep& step, float* row, u32 features) {
    switch (step.op) {
    case OP_BIAS: return gain_row(row, features, nullptr, step.beta);
    case OP_LAYER_NORM:
        centre_row(row, features);
        scale_row(row, features, step.eps);
        return gain_row(row, features, step.gamma, step.beta);
    case OP_RMS_NORM:
        scale_row(row, features, step.eps);
        return gain_row(row, features, step.gamma, nullptr);
    case OP_BLOCK_NORM: {
        // A block that does not divide the row is the row.
        const bool divides = step.block > 0 && features % step.block == 0;
        if (divides && step.block < features) return scale_blocks(row, features, step.block, step.eps);
        return scale_row(row, features, step.eps);
    }
    default:
        for (u32 i = threadIdx.x; i < features; i += blockDim.x) row[i] = activated(step.op, row[i]);
    }
}

static __device__ __forceinline__ float source_at(const void* source, u32 kind, u64 index) {
    if (kind == SOURCE_F32) return ((const float*)source)[index];
    if (kind == SOURCE_F64) return __double2float_rn(((const double*)source)[index]);
    return bf16_low(((const u16*)source)[index]);
}

extern "C" __global__ void __launch_bounds__(512)
tail_rows(const void* source, float* destination, u32 source_kind, u32 features,
          const __grid_constant__ TailSteps steps) {
    extern __shared__ float row[];
    const u64 begin = (u64)blockIdx.x * features;
#pragma unroll 4
    for (u32 i = threadIdx.x; i < features; i += blockDim.x) row[i] = source_at(source, source_kind, begin + i);
    for (u32 s = 0; s < steps.count; s++) apply(steps.step[s], row, features);
    for (u32 i = threadIdx.x; i < features; i += blockDim.x) destination[begin + i] = row[i];
}
