// architectures: sm_89 sm_90a sm_100a
//
// Takes `output`, BF16 (`output_is_bf16` != 0) or FP32 [count], and `reference`, FP64 [count]; gives
// `sums`, what DrawStats::measure of core/src/numerics/error_stats.rs counts and adds up, and the
// histogram of the relative errors of every 7th element. The sums are FP64 all the way, in an order that
// depends on the launch alone. A NaN makes the sums NaN; the maximum and the counts pass it by.
//
// `difference`, FP32 [count], output - reference; null: not wanted.
// `histogram`, u32 [1025]: **added to**, so that the caller zeroes it.
// `partials`: FP64 [blocks][7]. `counter`: one u32, zero before and after.
//
// Launch: `blockDim.x` = 256, at least one block. Pointers that are not aligned to 16 (8 for BF16) bytes
// make the accesses go one by one.
#include "common/reduce.cuh"

static constexpr float TAIL_START = 2.0f;
static constexpr u32 HISTOGRAM_STRIDE = 7;
static constexpr u32 HISTOGRAM_BINS = 1025;
// 16 bins an octave from 2^-48.
static constexpr u32 BINS_PER_OCTAVE_LOG2 = 4;
static constexpr u32 FIRST_OCTAVE = 127 - 48;

struct ErrorSums {
    double sum_error_squares;
    double sum_ref_squares;
    double sum_relative_body;
    double max_abs;
    u64 elements;
    u64 zeros;
    u64 tail_count;
    double sum_error_ref;
};
static_assert(sizeof(ErrorSums) == 64, "mirrored in probing.rs");

struct Running {
    double error_squares = 0.0;
    double ref_squares = 0.0;
    double error_ref = 0.0;
    double body = 0.0;
    float largest = 0.0f;
    u32 zeros = 0;
    u32 tail = 0;
};

// 1 / |ref|, 0 where ref = 0. Clamped, so that no error over a tiny reference is 0 and not NaN.
static __device__ __forceinline__ float inverse_of(double reference) {
    const double inverse = fmin(__drcp_rn(fabs(reference)), 3.40282346638528859812e+38);
    return reference == 0.0 ? 0.0f : __double2float_rn(inverse);
}

static __device__ __forceinline__ u32 bin_of(float relative) {
    const u32 index = __float_as_uint(relative) >> (23 - BINS_PER_OCTAVE_LOG2);
    const u32 first = FIRST_OCTAVE << BINS_PER_OCTAVE_LOG2;
    return index < first ? 0 : min(index - first, HISTOGRAM_BINS - 1);
}

// Takes one element and gives its error.
static __device__ __forceinline__ float take(Running& sums, u32* bins, bool counted, float output, double reference) {
    const float inverse = inverse_of(reference);
    const double exact = (double)output - reference;
    const float error = __double2float_rn(exact);
    const float magnitude = fabsf(error);
    const float relative = __fmul_rn(magnitude, inverse);
    const bool beyond = relative > TAIL_START;
    sums.error_squares += exact * exact;
    sums.ref_squares += reference * reference;
    sums.error_ref += exact * reference;
    sums.body += beyond ? 0.0 : (double)relative;
    sums.tail += beyond;
    sums.zeros += reference == 0.0;
    // A NaN compares false: it is passed by.
    sums.largest = magnitude > sums.largest ? magnitude : sums.largest;
    if (counted && inverse > 0.0f) atomicAdd(bins + bin_of(relative), 1u);
    return error;
}

extern "C" __global__ void __launch_bounds__(256)
error_metrics(const void* __restrict__ output, const double* __restrict__ reference, float* __restrict__ difference,
              u32* __restrict__ histogram, double* partials, u32* counter, ErrorSums* __restrict__ sums, u64 count,
              u32 output_is_bf16) {
    __shared__ u32 bins[HISTOGRAM_BINS];
    for (u32 bin = threadIdx.x; bin < HISTOGRAM_BINS; bin += blockDim.x) bins[bin] = 0;
    __syncthreads();

    const bool bf16 = output_is_bf16 != 0;
    const u16* halves = (const u16*)output;
    const float* floats = (const float*)output;
    const u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    const u64 threads = (u64)gridDim.x * blockDim.x;
    const bool vectors = aligned(output, bf16 ? 8 : 16) && aligned(reference, 16) && aligned(difference, 16);
    const u64 num_vectors = vectors ? count / 4 : 0;
    Running of;
    for (u64 i = thread; i < num_vectors; i += threads) {
        float4 x;
        if (bf16) {
            const Words2 pairs = ((const Words2*)output)[i];
            x = {bf16_low(pairs.x), bf16_high(pairs.x), bf16_low(pairs.y), bf16_high(pairs.y)};
        } else {
            x = ((const float4*)output)[i];
        }
        const double2 a = ((const double2*)reference)[2 * i], b = ((const double2*)reference)[2 * i + 1];
        // The multiple of 7 among the four, if there is one.
        const u32 counted = (HISTOGRAM_STRIDE - (u32)(4 * i % HISTOGRAM_STRIDE)) % HISTOGRAM_STRIDE;
        float4 d;
        d.x = take(of, bins, counted == 0, x.x, a.x);
        d.y = take(of, bins, counted == 1, x.y, a.y);
        d.z = take(of, bins, counted == 2, x.z, b.x);
        d.w = take(of, bins, counted == 3, x.w, b.y);
        if (difference != nullptr) ((float4*)difference)[i] = d;
    }
    for (u64 i = num_vectors * 4 + thread; i < count; i += threads) {
        const float x = bf16 ? bf16_low(halves[i]) : floats[i];
        const float d = take(of, bins, i % HISTOGRAM_STRIDE == 0, x, reference[i]);
        if (difference != nullptr) difference[i] = d;
    }

    __syncthreads();
    for (u32 bin = threadIdx.x; bin < HISTOGRAM_BINS; bin += blockDim.x) {
        if (bins[bin] != 0) atomicAdd(histogram + bin, bins[bin]);
    }
    // Counts are exact in FP64 up to 2^53.
    double values[7] = {of.error_squares, of.ref_squares,   of.body,     of.largest,
                        (double)of.zeros, (double)of.tail, of.error_ref};
    if (grid_reduce<7, 1u << 3>(values, partials, counter)) {
        const u64 zeros = (u64)values[4];
        *sums =
            ErrorSums{values[0], values[1], values[2], values[3], count - zeros, zeros, (u64)values[5], values[6]};
    }
}
