//! Takes shapes; gives the kernels that sample inputs on the device and measure errors there, the
//! geometry of their launches, and the constants and structures that both sides share.
//!
//! Matrices are row-major and FP32 unless an argument says otherwise. What a kernel computes is written
//! at the top of its file, beside the place in core/src that it agrees with.
//!
//! Kernels that add up take `partials`, scratch of [`partials_bytes`], and `counter`, one u32 that is
//! zero before and after the launch. The order of their additions follows from the launch alone, which
//! follows from the shape alone: the same bits on every GPU.

mod list;

use crate::LaunchGrid;

pub use list::PROBING;

/// Relative errors beyond this are counted, not summed; as in core/src/numerics/error_stats.rs.
pub const TAIL_START: f32 = 2.0;
/// One relative error in so many goes into the histogram.
pub const HISTOGRAM_STRIDE: usize = 7;
/// 16 bins an octave from 2^-48 to 2^16, and one beyond.
pub const HISTOGRAM_BINS: usize = 1025;
/// Normals of `fill_normal` come in chunks of so many,
pub const NORMALS_OF_CHUNK: u64 = 64;
/// from so many blocks of the generator.
pub const BLOCKS_OF_CHUNK: u64 = 16;
/// Steps that one launch of `tail_rows` applies.
pub const TAIL_MAX_STEPS: usize = 12;
/// The row of `tail_rows` lives in shared memory: 227 KiB a block on sm_90a and sm_100a.
pub const TAIL_MAX_FEATURES: u32 = 57_000;

/// Eight blocks on each of an H200's multiprocessors; on every GPU, so that sums have one order.
const MOST_BLOCKS: u64 = 8 * 132;
const THREADS: u32 = 256;
const WARPS: u64 = THREADS as u64 / 32;
/// Columns that a warp takes at once.
const STRETCH: u64 = 128;
/// Longer stretches of `row_amax` are a block's work.
const AMAX_OF_A_WARP: u32 = 1024;

/// How a scale is looked up: core's `Granularity`. The number is the kernels' `mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ScaleMode {
    None = 0,
    Tensor = 1,
    Row = 2,
    Block1x128 = 3,
    Block128x128 = 4,
}

/// What a code is. The number is the kernels' `format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum CodeFormat {
    E4m3 = 0,
    E5m2 = 1,
    Bf16 = 2,
    /// FP32, or TF32 on its grid.
    F32 = 3,
}

/// What `tail_rows` reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum TailSource {
    F32 = 0,
    F64 = 1,
    Bf16 = 2,
}

/// What one step of `tail_rows` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum TailOpcode {
    /// Adds `beta`.
    Bias = 0,
    LayerNorm = 1,
    RmsNorm = 2,
    BlockNorm = 3,
    Swish = 4,
    HardSwish = 5,
    Relu = 6,
    Sigmoid = 7,
    Tanh = 8,
    Gelu = 9,
}

/// One step of `tail_rows`. Addresses are the device's, FP32 `[features]`, 0 for none.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub struct TailStep {
    pub op: TailOpcode,
    /// Block norm's block.
    pub block: u32,
    pub eps: f32,
    pub padding: u32,
    pub gamma: u64,
    /// Layer norm's offset, or the bias.
    pub beta: u64,
}

impl TailStep {
    /// An operation without parameters.
    pub const fn of(op: TailOpcode) -> Self {
        Self { op, block: 0, eps: 0.0, padding: 0, gamma: 0, beta: 0 }
    }
}

/// The last argument of `tail_rows`, by value.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub struct TailSteps {
    count: u32,
    padding: u32,
    step: [TailStep; TAIL_MAX_STEPS],
}

impl TailSteps {
    /// `None` with more than [`TAIL_MAX_STEPS`].
    pub fn new(steps: &[TailStep]) -> Option<Self> {
        // The rest is never read.
        let mut step = [TailStep::of(TailOpcode::Relu); TAIL_MAX_STEPS];
        step.get_mut(..steps.len())?.copy_from_slice(steps);
        Some(Self { count: u32::try_from(steps.len()).ok()?, padding: 0, step })
    }
}

/// What `error_metrics` leaves: core's `DrawStats` without the histogram.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
pub struct ErrorSums {
    pub sum_error_squares: f64,
    pub sum_ref_squares: f64,
    pub sum_relative_body: f64,
    pub max_abs: f64,
    /// Outputs with ref != 0.
    pub elements: u64,
    pub zeros: u64,
    pub tail_count: u64,
    pub sum_error_ref: f64,
}

/// The CUDA side asserts the same numbers.
const _: () = assert!(size_of::<TailStep>() == 32 && size_of::<TailSteps>() == 392 && size_of::<ErrorSums>() == 64);

/// So many blocks in x, at most [`MOST_BLOCKS`]: they stride over the rest.
fn strided(wanted: u64, threads: u32) -> LaunchGrid {
    LaunchGrid::line(wanted.min(MOST_BLOCKS) as u32, threads)
}

/// The same with at least one block: something must write the sums, even those of nothing.
fn summing(wanted: u64) -> LaunchGrid {
    strided(wanted.max(1), THREADS)
}

/// One thread for four elements.
fn quads(count: u64) -> u64 {
    count.div_ceil(4 * u64::from(THREADS))
}

/// One warp for each stretch of 128 columns of each row. `rows` times stretches is below 2^32.
fn stretches(rows: u32, cols: u32) -> u64 {
    (u64::from(rows) * u64::from(cols).div_ceil(STRETCH)).div_ceil(WARPS)
}

/// Of `count_flushed`, `f64_to_f32`, `round_bf16` and `round_tf32` over `count` elements.
pub fn elements(count: u64) -> LaunchGrid {
    strided(quads(count), THREADS)
}

/// Of `add_mean`, `add_scaled_noise`, `copula_map` and `quantize` over `[rows, cols]`; of `to_f64` with
/// its width as `cols` and of `gather_columns` with its count.
pub fn rows_of(rows: u32, cols: u32) -> LaunchGrid {
    strided(stretches(rows, cols), THREADS)
}

/// Of `fill_normal`.
pub fn fill_normal(count: u64) -> LaunchGrid {
    // A thread fills 16.
    strided(count.div_ceil(NORMALS_OF_CHUNK).div_ceil(u64::from(THREADS) / 4), THREADS)
}

/// Blocks of the generator that `fill_normal` uses up: the next call's `first_block` is so much further.
pub fn blocks_used(count: u64) -> u64 {
    count.div_ceil(NORMALS_OF_CHUNK) * BLOCKS_OF_CHUNK
}

/// Of `transpose_f32` from `[rows, cols]`.
pub fn transpose_f32(rows: u32, cols: u32) -> LaunchGrid {
    LaunchGrid { blocks: [cols.div_ceil(32), rows.div_ceil(32).min(65_535), 1], ..LaunchGrid::line(1, THREADS) }
}

/// Stretches of `row_amax`: there is always one.
pub fn amax_stretches(cols: u32, stretch: u32) -> u32 {
    cols.div_ceil(stretch.max(1)).max(1)
}

/// Of `row_amax`.
pub fn row_amax(rows: u32, cols: u32, stretch: u32) -> LaunchGrid {
    let tasks = u64::from(rows) * u64::from(amax_stretches(cols, stretch));
    strided(if stretch.min(cols) <= AMAX_OF_A_WARP { tasks.div_ceil(WARPS) } else { tasks }, THREADS)
}

/// Of `scales_from_amax`.
pub fn scales_from_amax(rows: u32, stretches: u32, mode: ScaleMode) -> LaunchGrid {
    match mode {
        ScaleMode::None => LaunchGrid::line(0, THREADS),
        ScaleMode::Tensor => LaunchGrid::line(1, 1024),
        ScaleMode::Row | ScaleMode::Block1x128 => {
            strided((u64::from(rows) * u64::from(stretches)).div_ceil(u64::from(THREADS)), THREADS)
        }
        ScaleMode::Block128x128 => strided(blocked_scales(rows, stretches).div_ceil(WARPS), THREADS),
    }
}

/// Entries of `scales_from_amax`'s `blocked`: `[ceil(rows / 128)][stretches rounded up to 4]`.
pub fn blocked_scales(rows: u32, stretches: u32) -> u64 {
    u64::from(rows.div_ceil(128)) * u64::from(stretches).next_multiple_of(4)
}

/// Of `error_metrics`.
pub fn error_metrics(count: u64) -> LaunchGrid {
    summing(quads(count))
}

/// Of `block_distance`.
pub fn block_distance(rows: u32, cols: u32) -> LaunchGrid {
    summing(stretches(rows, cols))
}

/// Of `sum_squares`.
pub fn sum_squares(count: u64) -> LaunchGrid {
    summing(quads(count))
}

/// Of `loss_rows`.
pub fn loss_rows(rows: u32) -> LaunchGrid {
    summing(u64::from(rows))
}

/// Scratch for the partial sums of any kernel on `grid`: up to seven FP64 a block.
pub fn partials_bytes(grid: LaunchGrid) -> u64 {
    u64::from(grid.blocks[0]) * 7 * 8
}

/// Enough `partials` for every shape.
pub const MOST_PARTIALS_BYTES: u64 = MOST_BLOCKS * 7 * 8;

/// Of `tail_rows`; `None` beyond [`TAIL_MAX_FEATURES`]. On sm_89 a block has 99 KiB: compare
/// `shared_bytes` with what the device allows.
pub fn tail_rows(rows: u32, features: u32) -> Option<LaunchGrid> {
    if features > TAIL_MAX_FEATURES {
        return None;
    }
    // Eight elements a thread, until there are 512 threads.
    let threads = features.div_ceil(8).next_multiple_of(32).clamp(32, 512);
    Some(LaunchGrid { shared_bytes: 4 * features, ..LaunchGrid::line(rows, threads) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::find;

    fn defines(entry: &str, name: &str, value: impl std::fmt::Display) {
        let kernel = find(entry).expect("listed");
        let texts = kernel.headers.iter().map(|header| header.text).chain([kernel.source]);
        let line = format!(" {name} = {value};");
        assert!(texts.into_iter().any(|text| text.contains(&line)), "{entry}:{line}");
    }

    #[test]
    fn both_sides_have_the_same_constants() {
        defines("error_metrics", "TAIL_START", format!("{TAIL_START:.1}f"));
        defines("error_metrics", "HISTOGRAM_STRIDE", HISTOGRAM_STRIDE);
        defines("error_metrics", "HISTOGRAM_BINS", HISTOGRAM_BINS);
        defines("fill_normal", "CHUNK", NORMALS_OF_CHUNK);
        defines("fill_normal", "BLOCKS_OF_CHUNK", BLOCKS_OF_CHUNK);
        defines("quantize", "STRETCH", STRETCH);
        defines("row_amax", "OF_A_WARP", AMAX_OF_A_WARP);
        defines("tail_rows", "MOST_STEPS", TAIL_MAX_STEPS);
    }

    #[test]
    fn both_sides_number_alike() {
        use {CodeFormat as F, ScaleMode as M, TailOpcode as O, TailSource as S};
        for (name, mode) in [("NONE", M::None), ("TENSOR", M::Tensor), ("ROW", M::Row), ("BLOCK_1X128", M::Block1x128)]
        {
            defines("quantize", &format!("MODE_{name}"), mode as u32);
        }
        defines("quantize", "MODE_BLOCK_128X128", M::Block128x128 as u32);
        for (name, format) in [("E4M3", F::E4m3), ("E5M2", F::E5m2), ("BF16", F::Bf16), ("F32", F::F32)] {
            defines("block_distance", &format!("FORMAT_{name}"), format as u32);
        }
        defines("tail_rows", "SOURCE_F32", S::F32 as u32);
        defines("tail_rows", "SOURCE_F64", S::F64 as u32);
        for (name, op) in [
            ("BIAS", O::Bias),
            ("LAYER_NORM", O::LayerNorm),
            ("RMS_NORM", O::RmsNorm),
            ("BLOCK_NORM", O::BlockNorm),
            ("SWISH", O::Swish),
            ("HARD_SWISH", O::HardSwish),
            ("RELU", O::Relu),
            ("SIGMOID", O::Sigmoid),
            ("TANH", O::Tanh),
            ("GELU", O::Gelu),
        ] {
            defines("tail_rows", &format!("OP_{name}"), op as u32);
        }
    }

    #[test]
    fn launches() {
        assert!(elements(0).is_empty() && rows_of(0, 64).is_empty() && rows_of(64, 0).is_empty());
        assert_eq!(elements(1025), LaunchGrid::line(2, 256));
        assert_eq!(elements(1 << 40), LaunchGrid::line(1056, 256));
        assert_eq!(rows_of(3, 129), LaunchGrid::line(1, 256));
        assert_eq!(rows_of(4, 300), LaunchGrid::line(2, 256));
        assert_eq!(rows_of(2048, 123_200), LaunchGrid::line(1056, 256));
        assert_eq!(fill_normal(64 * 64), LaunchGrid::line(1, 256));
        assert_eq!(fill_normal(64 * 64 + 1), LaunchGrid::line(2, 256));
        assert_eq!(transpose_f32(2048, 123_200).blocks, [3850, 64, 1]);
        assert_eq!(transpose_f32(1 << 22, 1).blocks, [1, 65_535, 1]);
        assert_eq!(error_metrics(0), LaunchGrid::line(1, 256));
        assert_eq!(loss_rows(48), LaunchGrid::line(48, 256));
    }

    #[test]
    fn launches_of_scales() {
        assert_eq!((amax_stretches(0, 128), amax_stretches(128, 128), amax_stretches(129, 128)), (1, 1, 2));
        assert_eq!(amax_stretches(500, 4096), 1);
        assert_eq!(row_amax(48, 4096, 128), LaunchGrid::line(48 * 32 / 8, 256));
        assert_eq!(row_amax(48, 4096, 4096), LaunchGrid::line(48, 256));
        assert_eq!(row_amax(48, 1024, 4096), LaunchGrid::line(6, 256));
        assert!(scales_from_amax(48, 1, ScaleMode::None).is_empty());
        assert_eq!(scales_from_amax(48, 1, ScaleMode::Tensor), LaunchGrid::line(1, 1024));
        assert_eq!(scales_from_amax(257, 1, ScaleMode::Row), LaunchGrid::line(2, 256));
        assert_eq!(blocked_scales(257, 5), 24);
        assert_eq!(scales_from_amax(257, 5, ScaleMode::Block128x128), LaunchGrid::line(3, 256));
    }

    #[test]
    fn rows_of_a_tail_fit_a_block() {
        let grid = tail_rows(48, TAIL_MAX_FEATURES).expect("the longest row");
        // The kernel's own 272 bytes come on top.
        assert!(grid.shared_bytes + 272 <= 227 * 1024 && grid.threads == 512);
        assert_eq!(tail_rows(48, TAIL_MAX_FEATURES + 1), None);
        assert_eq!(tail_rows(5, 300), Some(LaunchGrid { shared_bytes: 1200, ..LaunchGrid::line(5, 64) }));
        assert!(TailSteps::new(&[TailStep::of(TailOpcode::Relu); TAIL_MAX_STEPS]).is_some());
        assert_eq!(TailSteps::new(&[TailStep::of(TailOpcode::Relu); TAIL_MAX_STEPS + 1]), None);
    }

    #[test]
    fn partials_and_blocks_of_the_generator() {
        assert_eq!(partials_bytes(error_metrics(1 << 40)), MOST_PARTIALS_BYTES);
        assert_eq!((blocks_used(0), blocks_used(1), blocks_used(64), blocks_used(65)), (0, 16, 16, 32));
    }
}
