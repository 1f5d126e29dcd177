// architectures: sm_89 sm_90a sm_100a
//
// Takes BF16 operands; gives partials [tiles], the largest magnitude that each block saw as FP32 bits:
// the first of two launches, cast_tensorwise is the second. The partials are written whole by every
// launch and reduced in any order to the same maximum: no atomics, nothing to zero beforehand.
//
// Launch: kernels/src/casts.rs, `blocks` = `tiles` of each operand. An x that is not aligned to
// 16 bytes goes element by element: correct, not fast.
#include "common/cast.cuh"

// Loads in flight a thread.
static constexpr u32 DEPTH = 8;

extern "C" __global__ void __launch_bounds__(256)
amax_tensor(const CastOperand a, const CastOperand b) {
    wait_for_predecessor();
    const bool first = blockIdx.x < a.blocks;
    const CastOperand o = picked(a, b, first);
    const u32 block = first ? blockIdx.x : blockIdx.x - a.blocks;
    const u64 count = (u64)o.rows * o.cols, thread = (u64)block * blockDim.x + threadIdx.x;
    const u64 threads = (u64)o.blocks * blockDim.x;
    const u64 num_vectors = aligned(o.x, 16) ? count / 8 : 0;
    const Words4* vectors = (const Words4*)o.x;
    u32 largest = 0;
    for (u64 i = thread; i < num_vectors; i += DEPTH * threads) {
        Words4 kept[DEPTH];
#pragma unroll
        for (u32 k = 0; k < DEPTH; k++) {
            const u64 at = i + k * threads;
            kept[k] = at < num_vectors ? load_once(vectors + at) : Words4{0, 0, 0, 0};
        }
#pragma unroll
        for (u32 k = 0; k < DEPTH; k++) largest = amax_of(largest, kept[k]);
    }
    u32 bits = larger_half(largest);
    for (u64 i = num_vectors * 8 + thread; i < count; i += threads) bits = max(bits, (u32)o.x[i] & 0x7FFFu);
    bits = block_max(bits);
    if (threadIdx.x == 0) o.partials[block] = bits << 16;
}
