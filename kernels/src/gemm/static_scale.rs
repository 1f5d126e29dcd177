//! Takes a product's sizes; gives the GEMMs that read x in BF16 and cast it on its way in with a scale known
//! beforehand (`cu/common/static_gemm.cuh`), the one expected to be fastest first, and how each is launched.

use super::{GemmShape, THREADS, TILE_K, Y_BOX};
use crate::Grid;

/// Columns of x, BF16, in one load: a stage takes two.
pub const X_BOX_COLUMNS: u32 = TILE_K / 2;

/// One way of cutting the work, with its expected time on an H200 in microseconds:
/// `waves * (stages of k a block * stage_us + tile_us) + launch_us`. Only their order matters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct StaticTiling {
    pub entry: &'static str,
    /// Of a tile: 128, or 64 where the two warpgroups take every other stage of k.
    pub rows: u32,
    pub columns: u32,
    /// Of both rings.
    pub stages: u32,
    /// Blocks of a cluster that share a tile, each with its part of k.
    pub splits: u32,
    stage_us: f64,
    tile_us: f64,
    launch_us: f64,
}

/// Rows, columns, stages and splits as the kernel's file has them.
pub(super) const STATIC_TILINGS: [StaticTiling; 7] = [
    tiling("sm90_bf16_gemm_static_128x128", [128, 128, 4, 1], [0.55, 1.5, 2.0]),
    tiling("sm90_bf16_gemm_static_128x256", [128, 256, 3, 1], [0.80, 2.0, 2.0]),
    tiling("sm90_bf16_gemm_static_64x128", [64, 128, 6, 1], [0.25, 1.2, 2.0]),
    tiling("sm90_bf16_gemm_static_64x256", [64, 256, 4, 1], [0.45, 2.0, 2.0]),
    tiling("sm90_bf16_gemm_static_64x64", [64, 64, 8, 1], [0.20, 0.8, 2.0]),
    tiling("sm90_bf16_gemm_static_split2_128x128", [128, 128, 4, 2], [0.55, 2.0, 2.5]),
    tiling("sm90_bf16_gemm_static_split2_128x256", [128, 256, 3, 2], [0.80, 2.5, 2.5]),
];

const fn tiling(
    entry: &'static str,
    [rows, columns, stages, splits]: [u32; 4],
    [stage_us, tile_us, launch_us]: [f64; 3],
) -> StaticTiling {
    StaticTiling { entry, rows, columns, stages, splits, stage_us, tile_us, launch_us }
}

pub(super) const AHEAD_TILINGS: [AheadTiling; 2] = [
    ahead("sm90_bf16_gemm_ahead_128x192", [192, 4], [0.586, 2.292, 2.2]),
    ahead("sm90_bf16_gemm_ahead_2x128x128", [128, 6], [0.399, 0.425, 4.2]),
];

/// One kernel at one product: all that a launch needs but the addresses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StaticLaunch {
    pub entry: &'static str,
    pub grid: Grid,
    pub shape: GemmShape,
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
        let waves = f64::from(units.div_ceil(multiprocessors));
        let of_block = f64::from(stages.div_ceil(self.splits));
        let line = Grid::line(units.min(multiprocessors), THREADS);
        Some(StaticLaunch {
            entry: self.entry,
            grid: Grid { shared_bytes: self.shared_bytes(), cluster: self.splits, programmatic: true, ..line },
            shape: GemmShape { m, n, k, tiles_down, tiles_across, group, x_scale_step: 0, w_scale_step },
            x_rows: self.rows,
            w_rows: self.columns,
            expected_us: waves * (of_block * self.stage_us + self.tile_us) + self.launch_us,
        })
    }

    /// The rings of x and w with two barriers a stage each, two boxes of y a warp, the columns' scales for both
    /// warpgroups.
    pub(super) fn shared_bytes(&self) -> u32 {
        let boxes = 8 * 2 * Y_BOX[0] * Y_BOX[1] * 2;
        self.stages * ((2 * self.rows + self.columns) * TILE_K + 32) + boxes + 2 * 4 * self.columns
    }
}

/// Every kernel for x `[m, k]` in BF16 and w `[n, k]` in E4M3 with a scale a row, or one, on a GPU with so many
/// multiprocessors, the one expected to be fastest first. None where sizes are 0, or n or k no multiple of 16.
pub fn static_gemm(m: u32, n: u32, k: u32, w_scaled_by_rows: bool, multiprocessors: u32) -> Vec<StaticLaunch> {
    if m == 0 || n == 0 || k == 0 || n % 16 != 0 || k % 16 != 0 {
        return Vec::new();
    }
    let step = u32::from(w_scaled_by_rows);
    let launches = STATIC_TILINGS.iter().filter_map(|tiling| tiling.launch([m, n, k], step, multiprocessors.max(1)));
    let mut launches: Vec<StaticLaunch> = launches.collect();
    launches.sort_by(|a, b| a.expected_us.total_cmp(&b.expected_us));
    launches
}
