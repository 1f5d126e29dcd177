// Takes addresses; gives what sm_90a has beyond plain CUDA: tensor maps and the copies they steer, barriers
// that count bytes, registers handed from one warpgroup to another, launches that overlap.
#pragma once
#include "common/types.cuh"

// The driver's CUtensorMap, opaque: a matrix in global memory, the box that one copy moves, and how the box
// is swizzled in shared memory. A __grid_constant__ parameter, so that it has an address.
struct TensorMap {
    alignas(64) u64 words[16];
};
static_assert(sizeof(TensorMap) == 128, "CUtensorMap has 128 bytes");

static __device__ __forceinline__ u32 shared_address(const void* at) { return (u32)__cvta_generic_to_shared(at); }

static __device__ __forceinline__ void prefetch_map(const TensorMap& map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Waits for the kernel before on the stream: nothing of global memory may be touched earlier.
static __device__ __forceinline__ void wait_for_previous_grid() {
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

// The kernel behind may take this one's place on a multiprocessor as soon as it is free.
static __device__ __forceinline__ void let_next_grid_start() { asm volatile("griddepcontrol.launch_dependents;"); }

template <u32 REGISTERS> static __device__ __forceinline__ void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

template <u32 REGISTERS> static __device__ __forceinline__ void give_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

// Of `threads` threads that name the same `barrier`, 1 to 15; 0 is __syncthreads'.
static __device__ __forceinline__ void named_barrier(u32 barrier, u32 threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// Counts these threads in without waiting.
static __device__ __forceinline__ void named_arrive(u32 barrier, u32 threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

static __device__ __forceinline__ void init_barrier(u32 barrier, u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Makes initialised barriers visible to the copy engine.
static __device__ __forceinline__ void publish_barriers() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

static __device__ __forceinline__ void wait_barrier(u32 barrier, u32 parity) {
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "AGAIN:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@done bra DONE;\n"
                 "bra AGAIN;\n"
                 "DONE:\n"
                 "}" ::"r"(barrier), "r"(parity)
                 : "memory");
}

// Arrives, and lets the phase end once so many bytes have come.
static __device__ __forceinline__ void expect_bytes(u32 barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

static __device__ __forceinline__ void arrive(u32 barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// One box of a matrix to shared memory; what lies beyond the matrix arrives as zeros, and counts as bytes.
static __device__ __forceinline__ void load_box(u32 to, const TensorMap& map, u32 barrier, u32 col, u32 row) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4}], [%2];" ::"r"(to),
                 "l"(&map), "r"(barrier), "r"(col), "r"(row)
                 : "memory");
}

// One box from shared memory to a matrix; what would lie beyond the matrix is left out.
static __device__ __forceinline__ void store_box(const TensorMap& map, u32 from, u32 col, u32 row) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(&map), "r"(from),
                 "r"(col), "r"(row)
                 : "memory");
}

// Closes a group of stores, an empty one too.
static __device__ __forceinline__ void commit_stores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

// Until at most PENDING of this thread's groups of stores still read shared memory.
template <u32 PENDING> static __device__ __forceinline__ void wait_stores_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING) : "memory");
}

// Ordinary writes to shared memory become visible to the copy engine.
static __device__ __forceinline__ void publish_shared_writes() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Four 8x8 matrices of 16-bit elements as tensor cores hold them; lane l gives row l % 8 of matrix l / 8.
static __device__ __forceinline__ void store_matrices(u32 to, u32 a, u32 b, u32 c, u32 d) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(a), "r"(b), "r"(c),
                 "r"(d)
                 : "memory");
}

static __device__ __forceinline__ u32 bf16_pair(float low, float high) {
    u32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}
