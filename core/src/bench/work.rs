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
        let gemm_bytes =
            a * element_bytes(a_format) + b * element_bytes(b_format) + out * element_bytes(numerics.output);
        let cast = a * cast_bytes(a_format, a_transposed) + b * cast_bytes(b_format, b_transposed);
        Self { mega_flop: shape.flop() / 1e6, gemm_mb: gemm_bytes / 1e6, cast_mb: cast / 1e6 }
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
    fn bf16_casts_nothing() {
        let shape = GemmShape { m: 64, k: 32, n: 16 };
        let work = Work::of(kernel("pytorch/bf16").unwrap(), Gemm::Wgrad, shape);
        assert_eq!(work.cast_mb, 0.0);
        assert_eq!(work.mega_flop, 2.0 * 64.0 * 32.0 * 16.0 / 1e6);
        assert_eq!(work.gemm_mb, 2.0 * (16.0 * 64.0 + 64.0 * 32.0 + 16.0 * 32.0) / 1e6);
    }
}
