// Takes sums in registers; gives them to another warpgroup, or to another block of the cluster, through shared memory.
#pragma once
#include "common/types.cuh"

static __device__ __forceinline__ u32 rank_in_cluster() {
    u32 rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

static __device__ __forceinline__ u32 blocks_in_cluster() {
    u32 count;
    asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(count));
    return count;
}

// All threads of all blocks of the cluster.
static __device__ __forceinline__ void cluster_barrier() {
    asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

// The same place of another block's shared memory.
static __device__ __forceinline__ u32 shared_of(u32 here, u32 rank) {
    u32 there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(here), "r"(rank));
    return there;
}

static __device__ __forceinline__ void store_there(u32 there, const float* four) {
    asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(there), "f"(four[0]), "f"(four[1]),
                 "f"(four[2]), "f"(four[3])
                 : "memory");
}

static __device__ __forceinline__ void add_there(float* four, u32 there) {
    float a, b, c, d;
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(a), "=f"(b), "=f"(c), "=f"(d)
                 : "r"(there)
                 : "memory");
    four[0] += a;
    four[1] += b;
    four[2] += c;
    four[3] += d;
}

static __device__ __forceinline__ void load_shared(u32 from, u32& a, u32& b) {
    asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(a), "=r"(b) : "r"(from) : "memory");
}

static __device__ __forceinline__ Words4 load_shared(u32 from) {
    Words4 found;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(found.x), "=r"(found.y), "=r"(found.z), "=r"(found.w)
                 : "r"(from)
                 : "memory");
    return found;
}

static __device__ __forceinline__ void store_shared(u32 to, const float* four) {
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to), "f"(four[0]), "f"(four[1]), "f"(four[2]),
                 "f"(four[3])
                 : "memory");
}

static __device__ __forceinline__ void add_shared(float* four, u32 from) {
    const Words4 found = load_shared(from);
    four[0] += __uint_as_float(found.x);
    four[1] += __uint_as_float(found.y);
    four[2] += __uint_as_float(found.z);
    four[3] += __uint_as_float(found.w);
}

static __device__ __forceinline__ void store_pair(u32 to, u32 codes) {
    asm volatile("st.shared.b16 [%0], %1;" ::"r"(to), "h"((u16)codes) : "memory");
}
