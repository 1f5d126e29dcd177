//! Takes what timing printed (assets/kernels/source, embedded), gives kernel records.

use serde::Deserialize;

use crate::model::{Gemm, GemmShape, KernelId, KernelRecord};

use super::compact::from_csv;

const PYTORCH: &str = include_str!("../../../assets/kernels/source/h200-pytorch-2.11-lrm-gemm.json");
const NATIVE: &str = include_str!("../../../assets/kernels/source/h200-native-cuda-graphs.csv");
const OWN: &str = include_str!("../../../assets/kernels/source/h200-loka-cuda-graphs.csv");
const TORCH: &str = include_str!("../../../assets/kernels/source/h200-torch-2.11-cuda-graphs.csv");
const LIBRARIES: &str = include_str!("../../../assets/kernels/source/h200-libraries-cuda-graphs.csv");
const GRAPHS: &str = include_str!("../../../assets/kernels/source/h200-lrm-gemm-cuda-graphs.json");

/// One shape of `lrm_gemm.py`: eager launches, compiled quantisers. `*_e2e` casts both operands.
#[derive(Deserialize)]
struct EagerShape {
    #[serde(rename = "M")]
    m: usize,
    #[serde(rename = "K")]
    k: usize,
    #[serde(rename = "N")]
    n: usize,
    bf16: f64,
    tw_gemm: f64,
    tw_e2e: f64,
    tw_q: f64,
    rw_gemm: f64,
    rw_e2e: f64,
    bw_gemm: Option<f64>,
    bw_e2e: Option<f64>,
    bw_err: Option<String>,
}

/// One shape of `graph_gemm.py`: CUDA graphs, a one-pass rowwise cast.
#[derive(Deserialize)]
struct GraphShape {
    #[serde(rename = "M")]
    m: usize,
    #[serde(rename = "K")]
    k: usize,
    #[serde(rename = "N")]
    n: usize,
    bf16: f64,
    tw: f64,
    rw: f64,
    cast_x_rw: f64,
    cast_w_rw: f64,
    rw_seq_both: f64,
    rw_seq_x: f64,
}

/// The embedded files are checked by the tests below, so a broken one cannot ship; were it to,
/// an empty database says "no latency was recorded" rather than stopping the program.
fn parse<T: for<'de> Deserialize<'de>>(json: &str) -> Vec<T> {
    serde_json::from_str(json).unwrap_or_default()
}

fn blank(kernel: &str, shape: GemmShape, versions: &str, samples: i64) -> KernelRecord {
    KernelRecord {
        samples,
        device: "NVIDIA H200".to_owned(),
        driver: "580".to_owned(),
        versions: versions.to_owned(),
        ..KernelRecord::blank(KernelId::new(kernel), Gemm::Fprop, shape)
    }
}

/// BF16 needs no cast: its latency is the GEMM's, cached or not.
fn bf16(blank: KernelRecord, us: f64) -> KernelRecord {
    KernelRecord { gemm_us: Some(us), cast_us: Some(0.0), latency_us: Some(us), latency_cached_us: Some(us), ..blank }
}

/// LoKA's own engine, all three GEMMs; none while the file has only its header.
pub(super) fn native_graphs() -> Vec<KernelRecord> {
    from_csv(NATIVE).unwrap_or_default()
}

/// LoKA's own kernels, all three GEMMs, with cuBLASLt's BF16 of the same run.
pub(super) fn own_graphs() -> Vec<KernelRecord> {
    from_csv(OWN).unwrap_or_default()
}

/// PyTorch's kernels forward and TorchAO's in all three directions, by the library worker, with cuBLASLt's BF16 of the same runs.
pub(super) fn torch_graphs() -> Vec<KernelRecord> {
    from_csv(TORCH).unwrap_or_default()
}

/// DeepGEMM, FBGEMM and Transformer Engine by the library worker, with BF16 and some native kernels of the same run.
pub(super) fn library_graphs() -> Vec<KernelRecord> {
    from_csv(LIBRARIES).unwrap_or_default()
}

pub(super) fn pytorch_eager() -> Vec<KernelRecord> {
    parse::<EagerShape>(PYTORCH).into_iter().flat_map(eager_records).collect()
}

fn eager_records(row: EagerShape) -> [KernelRecord; 4] {
    let shape = GemmShape { m: row.m, k: row.k, n: row.n };
    let blank = |name| blank(name, shape, "PyTorch 2.11, eager, compiled casts", 0);
    let timed = |name, gemm_us, cast_us, latency_us| KernelRecord { gemm_us, cast_us, latency_us, ..blank(name) };
    let mut blockwise = timed("pytorch/fp8-blockwise", row.bw_gemm, None, row.bw_e2e);
    if row.bw_e2e.is_none() {
        // The script did not try a k or n that is not whole blocks.
        let blocks = [("k", row.k), ("n", row.n)].into_iter().find(|(_, size)| !size.is_multiple_of(128));
        let not_tried = blocks.map(|(name, size)| format!("{name} = {size} is not a multiple of 128"));
        blockwise.supported = false;
        blockwise.reason = row.bw_err.or(not_tried);
    }
    [
        bf16(blank("pytorch/bf16"), row.bf16),
        timed("pytorch/fp8-tensorwise+fast", Some(row.tw_gemm), Some(row.tw_q), Some(row.tw_e2e)),
        timed("pytorch/fp8-rowwise+fast", Some(row.rw_gemm), None, Some(row.rw_e2e)),
        blockwise,
    ]
}

pub(super) fn cublaslt_graphs() -> Vec<KernelRecord> {
    parse::<GraphShape>(GRAPHS).into_iter().flat_map(|row| graph_records(&row)).collect()
}

fn graph_records(row: &GraphShape) -> [KernelRecord; 3] {
    let shape = GemmShape { m: row.m, k: row.k, n: row.n };
    let versions = "PyTorch 2.11, cuBLASLt 13.1, CUDA graphs, Triton one-pass rowwise cast";
    let blank = |name| blank(name, shape, versions, 15);
    [
        bf16(blank("cublaslt/bf16"), row.bf16),
        // No tensorwise cast was timed under graphs: a bare GEMM, and no latency made up from parts.
        KernelRecord { gemm_us: Some(row.tw), ..blank("cublaslt/fp8-tensorwise+fast") },
        KernelRecord {
            gemm_us: Some(row.rw),
            cast_us: Some(row.cast_x_rw + row.cast_w_rw),
            latency_us: Some(row.rw_seq_both),
            latency_cached_us: Some(row.rw_seq_x),
            ..blank("cublaslt/fp8-rowwise+fast")
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn embedded_sources_parse() {
        assert_eq!(serde_json::from_str::<Vec<EagerShape>>(PYTORCH).unwrap().len(), 27);
        assert_eq!(serde_json::from_str::<Vec<GraphShape>>(GRAPHS).unwrap().len(), 27);
    }

    #[test]
    fn the_native_source_is_whole() {
        let records = from_csv(NATIVE).unwrap();
        let lines = NATIVE.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).count();
        assert_eq!(records.len(), lines - 1);
    }

    #[test]
    fn unsupported_always_has_a_reason() {
        let records = pytorch_eager();
        let unsupported: Vec<_> = records.iter().filter(|record| !record.supported).collect();
        assert_eq!(unsupported.len(), 4);
        assert!(unsupported.iter().all(|record| record.reason.is_some()));
    }
}
