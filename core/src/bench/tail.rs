//! Takes the operations after a linear, gives what they cost in bytes moved. Always modelled.

/// Read + write bandwidth of an H200, 4.3 TB/s (gpu.md).
pub const COPY_BYTES_PER_US: f64 = 4.3e6;

/// Launch of one elementwise kernel under CUDA graphs: what the fit to the recorded casts gives, one launch for both
/// operands (a test holds it to that fit).
pub const TAIL_LAUNCH_US: f64 = 2.0;

const BF16_BYTES: f64 = 2.0;

fn pass_us(tensors: f64, m: usize, n: usize) -> f64 {
    TAIL_LAUNCH_US + tensors * BF16_BYTES * m as f64 * n as f64 / COPY_BYTES_PER_US
}

/// A residual reads a second tensor; everything else reads one and writes one.
fn tensors_moved(op: &str) -> f64 {
    if op == "residual" { 3.0 } else { 2.0 }
}

/// Bias, norm and activation as a model without fusion runs them: one pass over `[m, n]` in BF16
/// for the bias and for each operation.
pub fn tail_us(ops: &[&str], bias: bool, m: usize, n: usize) -> f64 {
    let bias_us = if bias { pass_us(2.0, m, n) } else { 0.0 };
    bias_us + ops.iter().map(|op| pass_us(tensors_moved(op), m, n)).sum::<f64>()
}

/// The same with whatever fits in the GEMM's epilogue fused into it. The bias, activations and a
/// block norm need only the output tile and cost no pass; a layer or RMS norm needs the whole row,
/// so from the first one on everything is a pass (LoKA §IV: why BlockNorm).
pub fn tail_fused_us(ops: &[&str], m: usize, n: usize) -> f64 {
    let in_tile =
        |op: &&&str| matches!(**op, "block_norm" | "swish" | "hard_swish" | "relu" | "sigmoid" | "tanh" | "gelu");
    let fused = ops.iter().take_while(in_tile).count();
    ops[fused..].iter().map(|op| pass_us(tensors_moved(op), m, n)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        bench::Latencies,
        model::{Gemm, KernelId},
    };

    #[test]
    fn every_unfused_operation_is_one_pass() {
        let pass = TAIL_LAUNCH_US + 4.0 * 8192.0 * 512.0 / COPY_BYTES_PER_US;
        assert_eq!(tail_us(&[], false, 8192, 512), 0.0);
        assert!((tail_us(&["layer_norm", "swish"], true, 8192, 512) - 3.0 * pass).abs() < 1e-9);
        assert!((tail_us(&["layer_norm", "swish"], false, 8192, 512) - 2.0 * pass).abs() < 1e-9);
        assert!(tail_us(&["residual"], false, 8192, 512) > pass);
    }

    #[test]
    fn only_block_norm_lets_the_tail_into_the_epilogue() {
        assert_eq!(tail_fused_us(&["block_norm", "hard_swish"], 8192, 512), 0.0);
        assert!(
            (tail_fused_us(&["layer_norm", "swish"], 64, 64) - tail_us(&["layer_norm", "swish"], false, 64, 64)).abs()
                < 1e-9
        );
    }

    #[test]
    fn launch_is_that_of_the_recorded_casts() {
        let latencies = Latencies::builtin();
        let casts =
            latencies.fits(&KernelId::new("cublaslt/fp8-rowwise+fast"), Gemm::Fprop).unwrap().cast.as_ref().unwrap();
        assert!((casts.launch_us - TAIL_LAUNCH_US).abs() < 0.3, "{casts:?}");
    }
}
