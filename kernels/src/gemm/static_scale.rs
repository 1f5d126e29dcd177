//! Takes a product's sizes; gives the GEMMs that read x in BF16 and cast it on its way in with a scale known
//! beforehand (`cu/common/static_gemm.cuh`), the one expected to be fastest first, and how each is launched.

use super::{
    cost::{Cost, Cut},
    shapes::{StaticShape, THREADS, TILE_K, TURNS_BYTES, Y_BOX},
};
use crate::LaunchGrid;

/// Columns of x, BF16, in one load: a stage takes two.
pub const X_BOX_COLUMNS: u32 = TILE_K / 2;

/// One way of cutting the work.
#[derive(Clone, Copy, Debug, PartialEq)]
struct StaticTiling {
    entry: &'static str,
    /// Of a tile: 128, or 64 where the two warpgroups take every other stage of k.
    rows: u32,
    columns: u32,
    /// Of both rings.
    stages: u32,
    /// Blocks of a cluster that share a tile, each with its part of k.
    splits: u32,
    cost: Cost,
}

/// Rows, columns, stages and splits as the kernel's file has them; costs fitted to 600 random shapes.
const STATIC_TILINGS: [StaticTiling; 7] = [
    tiling("sm90_bf16_gemm_static_128x128", [128, 128, 4, 1], [0.5589, 0.03056, 0.0363, 0.6415, 2.598]),
    tiling("sm90_bf16_gemm_static_128x256", [128, 256, 3, 1], [0.7056, 0.02863, 0.05796, 1.507, 2.551]),
    tiling("sm90_bf16_gemm_static_64x128", [64, 128, 6, 1], [0.3318, 0.002276, 0.1922, 0.8231, 2.309]),
    tiling("sm90_bf16_gemm_static_64x256", [64, 256, 4, 1], [0.3515, 0.02755, 0.1408, 1.306, 2.733]),
    tiling("sm90_bf16_gemm_static_64x64", [64, 64, 8, 1], [0.2569, 0.001, 0.1877, 0.6159, 2.104]),
    tiling("sm90_bf16_gemm_static_split2_128x128", [128, 128, 4, 2], [0.5849, 0.001, 0.1447, 1.934, 2.754]),
    tiling("sm90_bf16_gemm_static_split2_128x256", [128, 256, 3, 2], [0.7172, 0.02068, 0.075, 2.708, 3.682]),
];

const fn tiling(entry: &'static str, [rows, columns, stages, splits]: [u32; 4], cost: [f64; 5]) -> StaticTiling {
    StaticTiling { entry, rows, columns, stages, splits, cost: Cost::new(cost) }
}

/// One kernel at one product: all that a launch needs but the addresses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StaticLaunch {
    pub entry: &'static str,
    pub grid: LaunchGrid,
    pub shape: StaticShape,
    /// Rows of x in one load, [`X_BOX_COLUMNS`] long, and of w, [`TILE_K`] long.
    pub x_rows: u32,
    pub w_rows: u32,
    pub expected_us: f64,
}

impl StaticTiling {
    /// Whoever shares k has no second tile: the rings are where the sums cross.
    fn is_one_wave(&self) -> bool {
        self.splits > 1 || self.rows < 128
    }

    /// None where someone would have nothing to multiply, or a second tile.
    fn launch(&self, [m, n, k]: [u32; 3], w_scale_step: u32, multiprocessors: u32) -> Option<StaticLaunch> {
        let (tiles_down, tiles_across) = (m.div_ceil(self.rows), n.div_ceil(self.columns));
        let (units, stages) = (tiles_down * tiles_across * self.splits, k.div_ceil(TILE_K));
        if self.is_one_wave() && (stages < 2 || units > multiprocessors) {
            return None;
        }
        // A wave of about as many rows as columns reads least.
        let square = (f64::from(multiprocessors) * f64::from(self.columns) / f64::from(self.rows)).sqrt();
        let group = (square.round() as u32).max(1);
        let of_block = stages.div_ceil(self.splits);
        let (rows, columns, x_bytes) = (self.rows, self.columns, 2);
        let cut = Cut { m, n, k, units, stages: of_block, rows, columns, x_bytes, group, multiprocessors };
        let line = LaunchGrid::line(units.min(multiprocessors), THREADS);
        Some(StaticLaunch {
            entry: self.entry,
            grid: LaunchGrid { shared_bytes: self.shared_bytes(), cluster: self.splits, programmatic: true, ..line },
            shape: StaticShape { m, n, k, tiles_down, tiles_across, group, stores: 0, w_scale_step, bias: 0 },
            x_rows: self.rows,
            w_rows: self.columns,
            expected_us: self.cost.expected_us(cut),
        })
    }

    /// The rings of x and w with two barriers a stage each, two boxes of y a warp, the columns' scales for both
    /// warpgroups, their turns.
    fn shared_bytes(&self) -> u32 {
        let boxes = 8 * 2 * Y_BOX[0] * Y_BOX[1] * 2;
        self.stages * ((2 * self.rows + self.columns) * TILE_K + 32) + boxes + 2 * 4 * self.columns + TURNS_BYTES
    }
}

/// Every kernel for x `[m, k]` in BF16 and w `[n, k]` in E4M3 with a scale a row, or one, on a GPU with so many
/// multiprocessors, the one expected to be fastest first. None where sizes are 0, or n or k no multiple of 16.
pub fn static_gemm(m: u32, n: u32, k: u32, w_scaled_by_rows: bool, multiprocessors: u32) -> Vec<StaticLaunch> {
    if m == 0 || n == 0 || k == 0 || !n.is_multiple_of(16) || !k.is_multiple_of(16) {
        return Vec::new();
    }
    let step = u32::from(w_scaled_by_rows);
    let launches = STATIC_TILINGS.iter().filter_map(|tiling| tiling.launch([m, n, k], step, multiprocessors.max(1)));
    let mut launches: Vec<StaticLaunch> = launches.collect();
    launches.sort_by(|a, b| a.expected_us.total_cmp(&b.expected_us));
    launches
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemm::STATIC_GEMMS;

    const H200: u32 = 132;

    #[test]
    fn every_tiling_is_a_listed_kernel_of_its_own_and_every_kernel_has_one() {
        let entries: Vec<&str> = STATIC_TILINGS.iter().map(|tiling| tiling.entry).collect();
        let listed: Vec<&str> = STATIC_GEMMS.iter().map(|kernel| kernel.entry).collect();
        assert_eq!(entries, listed);
    }

    /// The launch knows rows, columns, stages and splits from here, the device from the file.
    #[test]
    fn the_kernels_files_say_the_same_sizes() {
        for StaticTiling { entry, rows, columns, stages, splits, .. } in STATIC_TILINGS {
            let source = crate::find(entry).expect("listed").source;
            let used = format!("StaticGemm<{rows}, {columns}, {stages}, {splits}>::run(");
            assert!(source.contains(&used), "{entry}: {used}");
            let split = if splits > 1 { format!("split{splits}_") } else { String::new() };
            assert_eq!(entry, format!("sm90_bf16_gemm_static_{split}{rows}x{columns}"));
        }
    }

    #[test]
    fn shared_memory_fits_a_hopper_block() {
        for tiling in STATIC_TILINGS {
            assert!(tiling.shared_bytes() <= 232_448, "{}", tiling.entry);
        }
    }

    #[test]
    fn launches_cover_the_output_and_who_shares_k_has_one_tile() {
        for (m, n, k) in [(1, 16, 16), (129, 208, 144), (2048, 1024, 1024), (20_480, 5120, 2048)] {
            let launches = static_gemm(m, n, k, true, H200);
            assert!(!launches.is_empty());
            for launch in launches {
                let StaticShape { tiles_down, tiles_across, group, .. } = launch.shape;
                let units = tiles_down * tiles_across * launch.grid.cluster;
                assert!(tiles_down * launch.x_rows >= m && tiles_across * launch.w_rows >= n && group > 0);
                assert_eq!(launch.grid.blocks[0], units.min(H200));
                assert!(launch.grid.blocks[0].is_multiple_of(launch.grid.cluster));
                let shares_k = launch.grid.cluster > 1 || launch.x_rows < 128;
                assert!(!shares_k || (units <= H200 && k > TILE_K), "{launch:?}");
            }
        }
    }

    #[test]
    fn small_outputs_take_low_tiles_and_long_k_of_one_wave_is_split() {
        let first = |m, n, k| static_gemm(m, n, k, true, H200)[0].entry;
        assert_eq!(first(2048, 256, 768), "sm90_bf16_gemm_static_64x64");
        assert_eq!(first(2048, 512, 512), "sm90_bf16_gemm_static_64x128");
        assert_eq!(first(2048, 1024, 1024), "sm90_bf16_gemm_static_64x256");
        assert_eq!(first(2048, 1024, 123_200), "sm90_bf16_gemm_static_split2_128x256");
        assert_eq!(first(2048, 2048, 2048), "sm90_bf16_gemm_static_128x256");
    }

    #[test]
    fn sizes_that_the_copy_engine_cannot_move_have_no_kernel() {
        for (m, n, k) in [(0, 16, 16), (16, 8, 16), (16, 16, 24), (16, 16, 0)] {
            assert!(static_gemm(m, n, k, false, H200).is_empty(), "{m} {n} {k}");
        }
    }
}
