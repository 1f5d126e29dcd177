//! Takes a product's sizes; gives the FP8 GEMM kernels of sm_90a that can run it, the one expected to be fastest
//! first, and how each is launched.
//!
//! y `[m, n]` = x `[m, k]` w `[n, k]`^T, both operands FP8 with k contiguous, scales for the tensor or a row, BF16
//! out. What is done on the device is said in `cu/common/fp8_gemm.cuh`; docs/engineering/kernels.md has what was measured.

use crate::LaunchGrid;

mod block;
mod list;
mod static_scale;

pub use block::{
    BLOCK_COLUMNS, BlockLaunch, BlockType, CODES_BOX, STORE_CODES, STORE_H, STORE_Z, block_all, block_gemm, casts_first,
};
pub(crate) use list::{BLOCK_TAIL, STATIC_CAST};
pub use list::{BLOCKS, GEMMS, STATIC_GEMMS};
pub use static_scale::{StaticLaunch, X_BOX_COLUMNS, static_gemm};

/// `CUtensorMap`, as the driver fills it in.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorMap {
    pub words: [u64; 16],
}

const MAP_BYTES: u32 = 128;
const _: () = assert!(size_of::<TensorMap>() == MAP_BYTES as usize, "cu/common/hopper.cuh mirrors it");

/// The struct of `cu/common/fp8_gemm.cuh`, field by field.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GemmShape {
    pub m: u32,
    pub n: u32,
    pub k: u32,
    pub tiles_down: u32,
    pub tiles_across: u32,
    /// Tiles down that are walked together, so that a wave of blocks shares what it reads through the L2.
    pub group: u32,
    /// 1: a scale a row; 0: one scale.
    pub x_scale_step: u32,
    pub w_scale_step: u32,
}

const SHAPE_BYTES: u32 = 32;
const _: () = assert!(size_of::<GemmShape>() == SHAPE_BYTES as usize, "cu/common/fp8_gemm.cuh mirrors it");

/// The struct of `cu/common/static_tile.cuh`, field by field: the others as in [`GemmShape`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StaticShape {
    pub m: u32,
    pub n: u32,
    pub k: u32,
    pub tiles_down: u32,
    pub tiles_across: u32,
    pub group: u32,
    /// What a block that can store all of it does store: [`STORE_Z`] and its like.
    pub stores: u32,
    pub w_scale_step: u32,
    /// The address of a bias, BF16 `[n]`, aligned to 4 bytes; 0, as launches come, is none.
    pub bias: u64,
}

const STATIC_SHAPE_BYTES: u32 = 40;
const _: () = assert!(size_of::<StaticShape>() == STATIC_SHAPE_BYTES as usize, "cu/common/static_tile.cuh mirrors it");

/// Rows of a tile, and elements of k in a stage.
const TILE_M: u32 = 128;
pub const TILE_K: u32 = 128;
/// Rows and columns of y that one store writes.
pub const Y_BOX: [u32; 2] = [16, 64];
const THREADS: u32 = 384;

/// What is multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fp8Product {
    pub m: u32,
    pub n: u32,
    pub k: u32,
    /// The tensor cores' accumulator from beginning to end; else added to FP32 every 128 elements of k.
    pub fast: bool,
    /// x is E5M2; w is E4M3 always.
    pub is_x_e5m2: bool,
    /// A scale for each row of x and each of w; else one each.
    pub scaled_by_rows: bool,
}

/// One way of cutting the work, with its expected time on an H200 in microseconds:
/// `waves * (stages of k * stage_us + tile_us) + launch_us`. Only their order matters.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Tiling {
    entries: [&'static str; 2],
    fast: bool,
    columns: u32,
    stages: u32,
    stage_us: f64,
    tile_us: f64,
    launch_us: f64,
}

/// E4M3 and E5M2 of x, accumulation, columns and stages as the kernel's file has them; times fitted to 81 shapes
/// (docs/engineering/kernels.md).
const TILINGS: [Tiling; 6] = [
    tiling(["sm90_e4m3_gemm_fast_2x128x128", "sm90_e5m2_gemm_fast_2x128x128"], true, (128, 6), [0.399, 0.425, 2.10]),
    tiling(["sm90_e4m3_gemm_fast_128x192", "sm90_e5m2_gemm_fast_128x192"], true, (192, 4), [0.586, 2.292, 0.18]),
    tiling(["sm90_e4m3_gemm_fast_128x64", "sm90_e5m2_gemm_fast_128x64"], true, (64, 8), [0.261, 0.305, 1.50]),
    tiling(
        ["sm90_e4m3_gemm_promoted_128x128", "sm90_e5m2_gemm_promoted_128x128"],
        false,
        (128, 6),
        [0.398, 1.539, 0.88],
    ),
    tiling(
        ["sm90_e4m3_gemm_promoted_128x192", "sm90_e5m2_gemm_promoted_128x192"],
        false,
        (192, 4),
        [0.692, 2.559, 0.00],
    ),
    tiling(["sm90_e4m3_gemm_promoted_128x64", "sm90_e5m2_gemm_promoted_128x64"], false, (64, 8), [0.280, 0.443, 1.38]),
];

const fn tiling(
    entries: [&'static str; 2],
    fast: bool,
    (columns, stages): (u32, u32),
    [stage_us, tile_us, launch_us]: [f64; 3],
) -> Tiling {
    Tiling { entries, fast, columns, stages, stage_us, tile_us, launch_us }
}

/// One kernel at one product: all that a launch needs but the addresses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GemmLaunch {
    pub entry: &'static str,
    pub grid: LaunchGrid,
    pub shape: GemmShape,
    /// Rows of w in one load, all of them [`TILE_K`] long; of x it is [`X_ROWS`].
    pub w_rows: u32,
    pub expected_us: f64,
}

/// Rows of x in one load.
pub const X_ROWS: u32 = TILE_M;

impl Tiling {
    fn launch(&self, product: Fp8Product, multiprocessors: u32) -> GemmLaunch {
        let Fp8Product { m, n, k, .. } = product;
        let (tiles_down, tiles_across) = (m.div_ceil(TILE_M), n.div_ceil(self.columns));
        let units = tiles_down * tiles_across;
        let blocks = units.min(multiprocessors);
        // A wave of about as many rows as columns reads least.
        let square = (f64::from(multiprocessors) * f64::from(self.columns) / f64::from(TILE_M)).sqrt();
        let step = u32::from(product.scaled_by_rows);
        let group = (square.round() as u32).max(1);
        let waves = f64::from(units.div_ceil(multiprocessors));
        GemmLaunch {
            entry: self.entries[usize::from(product.is_x_e5m2)],
            grid: LaunchGrid {
                shared_bytes: self.shared_bytes(),
                programmatic: true,
                ..LaunchGrid::line(blocks, THREADS)
            },
            shape: GemmShape { m, n, k, tiles_down, tiles_across, group, x_scale_step: step, w_scale_step: step },
            w_rows: self.columns,
            expected_us: waves * (f64::from(k.div_ceil(TILE_K)) * self.stage_us + self.tile_us) + self.launch_us,
        }
    }

    /// The ring's stages, two boxes of y a warp, the columns' scales for both warpgroups, two barriers a stage.
    fn shared_bytes(&self) -> u32 {
        let boxes = 8 * 2 * Y_BOX[0] * Y_BOX[1] * 2;
        self.stages * ((TILE_M + self.columns) * TILE_K + 16) + boxes + 2 * 4 * self.columns
    }
}

/// Every kernel that runs the product on a GPU with so many multiprocessors, the one expected to be fastest first.
/// None where sizes are 0, or n or k no multiple of 16: the copy engine moves 16 bytes at least.
pub fn fp8_gemm(product: Fp8Product, multiprocessors: u32) -> Vec<GemmLaunch> {
    let Fp8Product { m, n, k, fast, .. } = product;
    if m == 0 || n == 0 || k == 0 || n % 16 != 0 || k % 16 != 0 {
        return Vec::new();
    }
    let suited = TILINGS.iter().filter(|tiling| tiling.fast == fast);
    let mut launches: Vec<GemmLaunch> = suited.map(|tiling| tiling.launch(product, multiprocessors.max(1))).collect();
    launches.sort_by(|a, b| a.expected_us.total_cmp(&b.expected_us));
    launches
}

#[cfg(test)]
mod tests {
    use super::*;

    const H200: u32 = 132;

    fn product(m: u32, n: u32, k: u32, fast: bool) -> Fp8Product {
        Fp8Product { m, n, k, fast, is_x_e5m2: false, scaled_by_rows: true }
    }

    #[test]
    fn every_tiling_is_a_listed_kernel_of_its_own_and_every_kernel_has_one() {
        let mut entries: Vec<&str> = TILINGS.iter().flat_map(|tiling| tiling.entries).collect();
        entries.sort_unstable();
        let listed: Vec<&str> = GEMMS.iter().map(|kernel| kernel.entry).collect();
        assert_eq!(entries, listed);
        for tiling in TILINGS {
            for (entry, format) in tiling.entries.into_iter().zip(["e4m3", "e5m2"]) {
                let words = if tiling.fast { "fast" } else { "promoted" };
                assert!(entry.starts_with(&format!("sm90_{format}_gemm_{words}_")), "{entry}");
                assert!(entry.ends_with(&format!("128x{}", tiling.columns)), "{entry}");
            }
        }
    }

    /// The launch knows columns and stages from here, the device from the file.
    #[test]
    fn the_kernels_files_say_the_same_columns_and_stages() {
        for tiling in TILINGS {
            for (entry, is_e5m2) in tiling.entries.into_iter().zip([false, true]) {
                let source = crate::find(entry).expect("listed").source;
                let in_turns = entry.contains("_2x");
                let (columns, stages, promoted) = (tiling.columns, tiling.stages, !tiling.fast);
                let used = format!("Fp8Gemm<{columns}, {stages}, {in_turns}, {promoted}, {is_e5m2}>::run(");
                assert!(source.contains(&used), "{entry}: {used}");
            }
        }
    }

    #[test]
    fn shared_memory_fits_a_hopper_block() {
        for tiling in TILINGS {
            assert!(tiling.shared_bytes() <= 232_448, "{:?}", tiling.entries);
        }
    }

    #[test]
    fn one_wave_takes_wide_tiles_and_small_outputs_narrow_ones() {
        let first = |m, n, k, fast| fp8_gemm(product(m, n, k, fast), H200)[0].entry;
        assert_eq!(first(2048, 1024, 123_200, true), "sm90_e4m3_gemm_fast_2x128x128");
        assert_eq!(first(2048, 1024, 123_200, false), "sm90_e4m3_gemm_promoted_128x128");
        assert_eq!(first(2048, 1536, 20_480, true), "sm90_e4m3_gemm_fast_128x192");
        assert_eq!(first(2048, 512, 512, true), "sm90_e4m3_gemm_fast_128x64");
        assert_eq!(first(512, 512, 2048, false), "sm90_e4m3_gemm_promoted_128x64");
    }

    #[test]
    fn launches_cover_the_output_and_nobody_gets_an_empty_block() {
        for (m, n, k) in [(1, 16, 16), (129, 208, 144), (2048, 1024, 1024), (20_480, 5120, 2048)] {
            for launch in [true, false].into_iter().flat_map(|fast| fp8_gemm(product(m, n, k, fast), H200)) {
                let GemmShape { tiles_down, tiles_across, group, .. } = launch.shape;
                assert!(tiles_down * X_ROWS >= m && tiles_across * launch.w_rows >= n);
                assert!(launch.grid.blocks[0] <= (tiles_down * tiles_across).min(H200) && group > 0);
            }
        }
    }

    #[test]
    fn sizes_that_the_copy_engine_cannot_move_have_no_kernel() {
        for (m, n, k) in [(0, 16, 16), (16, 8, 16), (16, 16, 24), (16, 16, 0)] {
            assert!(fp8_gemm(product(m, n, k, true), H200).is_empty(), "{m} {n} {k}");
        }
    }
}
