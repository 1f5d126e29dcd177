// architectures: sm_89 sm_90a sm_100a
//
// Takes the gradient dh [m, n] of h = hard swish(BlockNorm(z)) and z [m, n], both BF16, blocks of 256 columns, and one
// scale, a power of two known beforehand; gives the gradient dz of z in BF16, as E4M3 codes [m, n], and as codes
// transposed [n, m], which a weight's gradient reads. A null pointer is an output that is not wanted.
//
// dz is block_backward's to the bit; codes are those of its BF16 values by cast_e4m3_static, bit for bit. Elements with
// |dz| > 448 * scale are added to `saturated`, infinities among them; `amax`, FP32 in its bits, is raised to the
// largest magnitude of dz (NaN is larger than all): what the next step's scale is made of.
//
// Nothing here needs a whole row: a warp has four rows of one block, so that four codes of a column make one word of
// the transposed tile.
//
// Launch: kernels/src/norms.rs; 256 threads, one tile of 32 rows by 256 columns a block of threads. dh, z and dz
// aligned to 16 bytes, codes to 8; with codes_t m % 16 == 0 and codes_t aligned to 16.
#include "common/block_gradient.cuh"
#include "common/static_cast.cuh"
#include "common/warp_tile.cuh"

static_assert(TILE_COLS == BLOCK, "a warp has four rows of one block");

extern "C" __global__ void __launch_bounds__(TILE_THREADS, 4)
block_backward_static(const u16* __restrict__ dh, const u16* __restrict__ z, u16* __restrict__ dz,
                      u8* __restrict__ codes, u8* __restrict__ codes_t, const float* __restrict__ scale_at,
                      u64* __restrict__ saturated_total, u32* __restrict__ amax, u32 m, u32 n) {
    __shared__ alignas(16) u32 turned[TILE_WORDS];
    wait_for_predecessor();
    const u32 across = n / BLOCK, row0 = blockIdx.x / across * TILE_ROWS, col0 = blockIdx.x % across * BLOCK;
    const u32 row = row0 + threadIdx.x / 32 * 4;
    const u64 begin = (u64)row * n + col0 + threadIdx.x % 32 * 8;
    const Words4 nothing = {0, 0, 0, 0};
    Words4 kept[4], above[4];
#pragma unroll
    for (u32 k = 0; k < 4; k++) {
        kept[k] = row + k < m ? load_once((const Words4*)(z + begin + (u64)k * n)) : nothing;
        above[k] = row + k < m ? load_once((const Words4*)(dh + begin + (u64)k * n)) : nothing;
    }
    const StaticScale scale(*scale_at);
    u32 saturated = 0, largest = 0;
    Words2 of_rows[4];
#pragma unroll
    for (u32 k = 0; k < 4; k++) {
        const Words4 gradient_of_z = gradient(kept[k], above[k]);
        of_rows[k] = scale.codes(gradient_of_z, saturated);
        largest = amax_of(largest, gradient_of_z);
        if (row + k < m && dz != nullptr) *(Words4*)(dz + begin + (u64)k * n) = gradient_of_z;
        if (row + k < m && codes != nullptr) *(Words2*)(codes + begin + (u64)k * n) = of_rows[k];
    }
    if (codes_t != nullptr) store_turned(turned, of_rows, codes_t, row0, col0, m, n);
    tell(saturated, largest, saturated_total, amax);
}
