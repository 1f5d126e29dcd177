//! Takes a kernel, a GEMM and its shape, gives what has to be computed and moved.

use crate::model::{Format, Gemm, GemmShape, Kernel};

/// What one GEMM with its casts costs the device, before any fitted rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work {
    pub mega_flop: f64,
    /// MB that the GEMM itself reads and writes, each operand once.
    pub gemm_mb: f64,
    /// MB that its casts read and write, transposed copies included.
    pub cast_mb: f64,
    /// The same where the weight was cast before.
    pub cached_mb: f64,
    /// MB that the site's tail by itself reads and writes.
    pub tail_mb: f64,
    /// Operations that the busiest multiprocessor's share costs all of them: tiles run in waves, and the
    /// last wave takes as long as a full one.
    pub wave_mega_flop: f64,
    /// log2 of the output's rows, the reduced length and the output's columns: what makes two GEMMs near.
    pub place: [f64; 3],
}

/// Multiprocessors of an H100 or H200, which every recorded database is of.
const MULTIPROCESSORS: usize = 132;

/// Output tiles that libraries use on Hopper.
const TILES: [(usize, usize); 3] = [(128, 128), (128, 256), (256, 128)];

/// The least share of the reduction that is worth a multiprocessor of its own.
const SPLIT_AT_LEAST: usize = 512;

/// The fewest operations, over tile shapes, that waves of tiles occupy. An output of fewer tiles than
/// multiprocessors splits a long reduction among them.
fn wave_mega_flop(rows: usize, reduced: usize, cols: usize) -> f64 {
    let occupied = |(high, wide): (usize, usize)| {
        let tiles = rows.div_ceil(high) * cols.div_ceil(wide);
        let splits = (MULTIPROCESSORS / tiles.max(1)).min(reduced / SPLIT_AT_LEAST).max(1);
        let waves = (tiles * splits).div_ceil(MULTIPROCESSORS);
        (waves * MULTIPROCESSORS) as f64 * 2.0 * (high * wide) as f64 * reduced as f64 / splits as f64
    };
    TILES.into_iter().map(occupied).fold(f64::INFINITY, f64::min) / 1e6
}

fn element_bytes(format: Format) -> f64 {
    match format {
        Format::F32 | Format::Tf32 => 4.0,
        Format::Bf16 => 2.0,
        Format::E4m3 | Format::E5m2 => 1.0,
    }
}

/// Bytes an element that casting moves: read BF16, write FP8, and where the GEMM reduces over the
/// other dimension than the tensor is stored along, one more read and write for the copy: FP8
/// tensor cores on Hopper read both operands K-major only (gpu.md), BF16 ones take either.
fn cast_bytes(format: Format, transposed: bool) -> f64 {
    match format {
        Format::E4m3 | Format::E5m2 => 3.0 + if transposed { 2.0 } else { 0.0 },
        Format::Bf16 | Format::F32 | Format::Tf32 => 0.0,
    }
}

impl Work {
    pub fn of(kernel: &Kernel, gemm: Gemm, shape: GemmShape) -> Self {
        let numerics = kernel.numerics(gemm);
        let (rows, reduced, cols) = shape.rows_reduced_cols(gemm);
        let (a, b, out) = (rows as f64 * reduced as f64, reduced as f64 * cols as f64, rows as f64 * cols as f64);
        // x and dy are stored [m, .] and W [n, k]: dgrad reads W along n, wgrad both operands along m.
        let (a_transposed, b_transposed) = match gemm {
            Gemm::Fprop => (false, false),
            Gemm::Dgrad => (false, true),
            Gemm::Wgrad => (true, true),
        };
        let [a_format, b_format] = [numerics.a.format, numerics.b.format];
        // A kernel with the tail inside keeps its sums to itself and stores what the tail gives, in BF16.
        let stored = if kernel.has_tail() { Format::Bf16 } else { numerics.output };
        let gemm_bytes = a * element_bytes(a_format) + b * element_bytes(b_format) + out * element_bytes(stored);
        // Cast on its way in, x crosses memory once, as BF16 instead of as codes.
        let a_cast = if kernel.casts_on_the_way() {
            a * (element_bytes(Format::Bf16) - element_bytes(a_format))
        } else {
            a * cast_bytes(a_format, a_transposed)
        };
        let b_cast = b * cast_bytes(b_format, b_transposed);
        let cached = if gemm == Gemm::Wgrad { a_cast + b_cast } else { a_cast };
        Self {
            mega_flop: shape.flop() / 1e6,
            gemm_mb: gemm_bytes / 1e6,
            cast_mb: (a_cast + b_cast) / 1e6,
            cached_mb: cached / 1e6,
            tail_mb: 2.0 * out * element_bytes(Format::Bf16) / 1e6,
            wave_mega_flop: wave_mega_flop(rows, reduced, cols),
            place: [rows, reduced, cols].map(|size| (size.max(1) as f64).log2()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::kernel;

    #[test]
    fn backward_directions_pay_for_transposed_copies() {
        let shape = GemmShape { m: 1000, k: 100, n: 10 };
        let rowwise = kernel("cublaslt/fp8-rowwise+fast").unwrap();
        let cast = |gemm| Work::of(rowwise, gemm, shape).cast_mb * 1e6;
        assert_eq!(cast(Gemm::Fprop), 3.0 * (100_000.0 + 1000.0));
        assert_eq!(cast(Gemm::Dgrad), 3.0 * 10_000.0 + 5.0 * 1000.0);
        assert_eq!(cast(Gemm::Wgrad), 5.0 * (10_000.0 + 100_000.0));
    }

    #[test]
    fn a_static_scale_reads_x_once_and_casts_the_weight_alone() {
        let shape = GemmShape { m: 1000, k: 100, n: 512 };
        let of = |name: &str, gemm| Work::of(kernel(name).unwrap(), gemm, shape);
        let (fprop, dgrad) = (of("loka/fp8-static+fast", Gemm::Fprop), of("loka/fp8-static+fast", Gemm::Dgrad));
        assert_eq!(fprop.gemm_mb, (100_000.0 + 51_200.0 + 2.0 * 512_000.0) / 1e6);
        assert_eq!((fprop.cast_mb, fprop.cached_mb), ((100_000.0 + 3.0 * 51_200.0) / 1e6, 0.1));
        assert_eq!((dgrad.cast_mb, dgrad.cached_mb), ((512_000.0 + 5.0 * 51_200.0) / 1e6, 0.512));
        let block = of("loka/fp8-block+fast", Gemm::Fprop);
        assert_eq!((block.gemm_mb, block.cast_mb, block.tail_mb), (fprop.gemm_mb, fprop.cast_mb, 2.048));
        let rowwise = of("cublaslt/fp8-rowwise", Gemm::Wgrad);
        assert_eq!(rowwise.cached_mb, rowwise.cast_mb, "wgrad has no weight");
    }

    #[test]
    fn waves_are_whole_and_long_reductions_are_split() {
        // 132 tiles of 128 x 256 fill the device once; one row more needs a second wave.
        let full = wave_mega_flop(128 * 132, 64, 256);
        assert!((full - 2.0 * (128.0 * 132.0) * 64.0 * 256.0 / 1e6).abs() < 1e-9);
        assert!(wave_mega_flop(128 * 132 + 1, 64, 256) > 1.4 * full);
        // Half the multiprocessors would idle on 64 tiles, were the reduction not split.
        let split = wave_mega_flop(2048, 8192, 1024);
        assert!(split < 1.1 * 2.0 * 2048.0 * 8192.0 * 1024.0 / 1e6, "{split}");
    }

    #[test]
    fn bf16_casts_nothing() {
        let shape = GemmShape { m: 64, k: 32, n: 16 };
        let work = Work::of(kernel("pytorch/bf16").unwrap(), Gemm::Wgrad, shape);
        assert_eq!(work.cast_mb, 0.0);
        assert_eq!(work.mega_flop, 2.0 * 64.0 * 32.0 * 16.0 / 1e6);
        assert_eq!(work.gemm_mb, 2.0 * (16.0 * 64.0 + 64.0 * 32.0 + 16.0 * 32.0) / 1e6);
    }
}
