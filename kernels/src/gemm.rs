//! Takes a product's sizes; gives the FP8 GEMM kernels of sm_90a that can run it, the one expected to be fastest
//! first, and how each is launched.
//!
//! y `[m, n]` = x `[m, k]` w `[n, k]`^T, both operands FP8 with k contiguous, scales for the tensor or a row, BF16
//! out. What is done on the device is said in `cu/common/fp8_gemm.cuh`; docs/engineering/kernels.md has what was measured.

use crate::LaunchGrid;
use cost::{Cost, Cut};
use shapes::{THREADS, TILE_M};

mod block;
mod cost;
mod list;
mod shapes;
mod static_scale;

pub use block::{
    BLOCK_COLUMNS, BlockLaunch, BlockType, CODES_BOX, STORE_CODES, STORE_H, STORE_Z, block_all, block_gemm, casts_first,
};
pub use cost::static_cast_us;
pub(crate) use list::{BLOCK_TAIL, STATIC_CAST};
pub use list::{BLOCKS, GEMMS, STATIC_GEMMS};
pub use shapes::{GemmShape, StaticShape, TILE_K, TensorMap, X_ROWS, Y_BOX};
pub use static_scale::{StaticLaunch, X_BOX_COLUMNS, static_gemm};

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

/// One way of cutting the work.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Tiling {
    /// Where x is E4M3, where it is E5M2.
    entries: [&'static str; 2],
    fast: bool,
    columns: u32,
    stages: u32,
    /// Blocks of a cluster that share a tile, each with its part of k.
    splits: u32,
    cost: Cost,
}

/// The name of the kernel's file behind the formats; `[columns, stages, splits]`; what it costs.
macro_rules! tiling {
    ($name:literal, [$columns:literal, $stages:literal, $splits:literal], $cost:expr) => {
        Tiling {
            entries: [concat!("sm90_e4m3_gemm_", $name), concat!("sm90_e5m2_gemm_", $name)],
            fast: $name.as_bytes()[0] == b'f',
            columns: $columns,
            stages: $stages,
            splits: $splits,
            cost: Cost::new($cost),
        }
    };
}

/// Columns, stages and accumulation as the kernel's file has them; costs fitted to 600 random shapes.
const TILINGS: [Tiling; 19] = [
    tiling!("fast_2x128x128", [128, 6, 1], [0.2448, 0.02134, 0.1201, 0.5508, 2.415]),
    tiling!("fast_128x192", [192, 4, 1], [0.3874, 0.03659, 0.03673, 1.069, 1.995]),
    tiling!("fast_128x256", [256, 4, 1], [0.5219, 0.04162, 0.02774, 1.301, 2.002]),
    tiling!("fast_128x64", [64, 8, 1], [0.1046, 0.05308, 0.07852, 0.3595, 2.173]),
    tiling!("fast_split_128x128", [128, 6, 2], [0.2168, 0.05168, 0.07692, 1.795, 3.111]),
    tiling!("fast_split_128x128", [128, 6, 4], [0.1729, 0.08654, 0.02161, 2.317, 3.556]),
    tiling!("fast_split_128x128", [128, 6, 8], [0.1509, 0.1002, 0.001, 3.047, 3.948]),
    tiling!("fast_split_128x192", [192, 4, 2], [0.3741, 0.02216, 0.05962, 2.739, 3.29]),
    tiling!("fast_split_128x192", [192, 4, 4], [0.3278, 0.0411, 0.04085, 4.22, 3.149]),
    tiling!("fast_split_128x192", [192, 4, 8], [0.3632, 0.05603, 0.001, 4.839, 4.19]),
    tiling!("promoted_128x128", [128, 6, 1], [0.2398, 0.03183, 0.08992, 0.8597, 2.036]),
    tiling!("promoted_128x192", [192, 4, 1], [0.4521, 0.04582, 0.001, 1.182, 1.863]),
    tiling!("promoted_128x64", [64, 8, 1], [0.1257, 0.05035, 0.06188, 0.4086, 2.16]),
    tiling!("promoted_split_128x128", [128, 6, 2], [0.2195, 0.05929, 0.06888, 1.825, 3.136]),
    tiling!("promoted_split_128x128", [128, 6, 4], [0.174, 0.07432, 0.06979, 2.455, 3.663]),
    tiling!("promoted_split_128x128", [128, 6, 8], [0.1561, 0.09746, 0.001111, 3.909, 3.442]),
    tiling!("promoted_split_128x192", [192, 4, 2], [0.4321, 0.02328, 0.03696, 3.001, 2.938]),
    tiling!("promoted_split_128x192", [192, 4, 4], [0.397, 0.04041, 0.01068, 2.711, 5.02]),
    tiling!("promoted_split_128x192", [192, 4, 8], [0.3827, 0.05647, 0.001, 2.294, 7.306]),
];

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

impl GemmLaunch {
    /// For people: the kernel, and how many blocks share a tile.
    pub fn name(&self) -> String {
        match self.grid.cluster {
            1 => self.entry.to_owned(),
            splits => format!("{} by {splits}", self.entry),
        }
    }
}

impl Tiling {
    /// None where a block would have nothing to multiply, or a second tile: then there is nothing to gain by sharing.
    ///
    /// A cluster lies within one GPC, whose multiprocessors are no multiple of 4 or 8: of an H200's 132 no more than 31
    /// clusters of 4 and 14 of 8 ran at once.
    fn launch(&self, product: Fp8Product, multiprocessors: u32) -> Option<GemmLaunch> {
        let Fp8Product { m, n, k, .. } = product;
        let (tiles_down, tiles_across) = (m.div_ceil(TILE_M), n.div_ceil(self.columns));
        let (units, stages) = (tiles_down * tiles_across * self.splits, k.div_ceil(TILE_K));
        let unusable = 3 * self.splits.saturating_sub(2);
        if self.splits > 1 && (units + unusable > multiprocessors || stages < self.splits) {
            return None;
        }
        // A wave of about as many rows as columns reads least.
        let square = (f64::from(multiprocessors) * f64::from(self.columns) / f64::from(TILE_M)).sqrt();
        let step = u32::from(product.scaled_by_rows);
        let group = (square.round() as u32).max(1);
        let of_block = stages.div_ceil(self.splits);
        let (rows, columns, x_bytes) = (TILE_M, self.columns, 1);
        let cut = Cut { m, n, k, units, stages: of_block, rows, columns, x_bytes, group, multiprocessors };
        Some(GemmLaunch {
            entry: self.entries[usize::from(product.is_x_e5m2)],
            grid: LaunchGrid {
                shared_bytes: self.shared_bytes(),
                cluster: self.splits,
                programmatic: true,
                ..LaunchGrid::line(units.min(multiprocessors), THREADS)
            },
            shape: GemmShape { m, n, k, tiles_down, tiles_across, group, x_scale_step: step, w_scale_step: step },
            w_rows: self.columns,
            expected_us: self.cost.expected_us(cut),
        })
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
    let mut launches: Vec<GemmLaunch> =
        suited.filter_map(|tiling| tiling.launch(product, multiprocessors.max(1))).collect();
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
    fn every_tiling_is_a_listed_kernel_and_every_kernel_has_one() {
        let mut entries: Vec<&str> = TILINGS.iter().flat_map(|tiling| tiling.entries).collect();
        entries.sort_unstable();
        // One kernel for any number of blocks that share a tile, each number once.
        let ways: std::collections::BTreeSet<_> =
            TILINGS.iter().map(|tiling| (tiling.entries, tiling.splits)).collect();
        assert_eq!(ways.len(), TILINGS.len());
        entries.dedup();
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
                let split = if tiling.splits > 1 { ", true" } else { "" };
                let used = format!("Fp8Gemm<{columns}, {stages}, {in_turns}, {promoted}, {is_e5m2}{split}>::run(");
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

    /// x is read once a column of tiles: outputs of a little more than 128 columns take one of them.
    #[test]
    fn narrow_outputs_take_the_width_that_they_fill() {
        let first = |n, fast| fp8_gemm(product(16_896, n, 2768, fast), H200)[0].entry;
        assert_eq!(first(208, true), "sm90_e4m3_gemm_fast_128x256");
        assert_eq!(first(128, true), "sm90_e4m3_gemm_fast_2x128x128");
    }

    #[test]
    fn few_tiles_with_a_long_k_share_it_among_as_many_blocks_as_there_are() {
        let first = |m, n, k| fp8_gemm(product(m, n, k, true), H200)[0].name();
        assert_eq!(first(256, 512, 8192), "sm90_e4m3_gemm_fast_split_128x128 by 8");
        assert_eq!(first(512, 768, 8192), "sm90_e4m3_gemm_fast_split_128x128 by 4");
        // 32 clusters of 4 do not run at once; of wider tiles there are 24.
        assert_eq!(first(1024, 512, 65_536), "sm90_e4m3_gemm_fast_split_128x192 by 4");
        assert_eq!(first(3968, 320, 25_536), "sm90_e4m3_gemm_fast_split_128x192 by 2");
        assert_eq!(first(2048, 2048, 65_536), "sm90_e4m3_gemm_fast_2x128x128");
    }

    #[test]
    fn launches_cover_the_output_and_nobody_gets_an_empty_block() {
        for (m, n, k) in [(1, 16, 16), (129, 208, 144), (256, 512, 8192), (2048, 1024, 1024), (20_480, 5120, 2048)] {
            for launch in [true, false].into_iter().flat_map(|fast| fp8_gemm(product(m, n, k, fast), H200)) {
                let GemmShape { tiles_down, tiles_across, group, .. } = launch.shape;
                let (tiles, splits) = (tiles_down * tiles_across, launch.grid.cluster);
                assert!(tiles_down * X_ROWS >= m && tiles_across * launch.w_rows >= n && group > 0);
                assert_eq!(launch.grid.blocks[0], (tiles * splits).min(H200));
                // Who shares k has one tile, and something of k.
                assert!(splits == 1 || (tiles * splits <= H200 && k > (splits - 1) * TILE_K), "{launch:?}");
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
