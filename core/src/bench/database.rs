//! Takes records of timed kernels, gives the one of a (kernel, GEMM, shape).

use crate::model::{Gemm, GemmShape, KernelId, KernelRecord};

use super::source;

/// One source of latencies: one device, one set of versions, one way of timing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KernelDb {
    /// The file's name without `.kernels.parquet`.
    pub name: String,
    pub records: Vec<KernelRecord>,
}

impl KernelDb {
    /// The databases that ship with LoKA (assets/kernels), without reading a file; the one to prefer first.
    pub fn builtin() -> Vec<Self> {
        let all = [
            Self { name: "h200-native-cuda-graphs".to_owned(), records: source::native_graphs() },
            Self { name: "h200-loka-cuda-graphs".to_owned(), records: source::own_graphs() },
            Self { name: "h200-cublaslt-cuda-graphs".to_owned(), records: source::cublaslt_graphs() },
            Self { name: "h200-pytorch-2.11-eager".to_owned(), records: source::pytorch_eager() },
            Self { name: "h200-torch-2.11-cuda-graphs".to_owned(), records: source::torch_graphs() },
            // Last: of what is in the others too it has fewer shapes.
            Self { name: "h200-libraries-cuda-graphs".to_owned(), records: source::library_graphs() },
        ];
        all.into_iter().filter(|database| !database.records.is_empty()).collect()
    }

    pub fn lookup(&self, kernel: &KernelId, gemm: Gemm, shape: GemmShape) -> Option<&KernelRecord> {
        self.records.iter().find(|record| record.kernel == *kernel && record.gemm == gemm && record.shape == shape)
    }
}

/// What a kernel is compared with, the first of these that its source has: BF16 of its own library, else cuBLASLt's.
pub(super) fn baselines_of(kernel: &KernelId) -> [KernelId; 2] {
    [KernelId::new(&format!("{}/bf16", kernel.library())), crate::model::baseline_kernel()]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Those that were timed from PyTorch.
    fn older() -> Vec<KernelDb> {
        KernelDb::builtin()
            .into_iter()
            .filter(|database| {
                !["native", "loka", "-torch-", "libraries"].iter().any(|name| database.name.contains(name))
            })
            .collect()
    }

    #[test]
    fn builtin_records_repeat_their_sources() {
        let dbs = older();
        let counts: Vec<usize> = dbs.iter().map(|db| db.records.len()).collect();
        assert_eq!(counts, [27 * 3, 27 * 4]);

        let shape = GemmShape { m: 2048, k: 256, n: 768 };
        let rowwise = dbs[0].lookup(&KernelId::new("cublaslt/fp8-rowwise+fast"), Gemm::Fprop, shape).unwrap();
        assert_eq!(rowwise.latency_us, Some(9.684000164270401));
        assert_eq!(rowwise.latency_cached_us, Some(7.75733341773351));
        assert_eq!(rowwise.cast_us, Some(3.3226668213804564 + 2.0653333825369677));

        let blockwise = dbs[1].lookup(&KernelId::new("pytorch/fp8-blockwise"), Gemm::Fprop, shape).unwrap();
        assert!(!blockwise.supported);
        assert_eq!(blockwise.reason.as_deref(), Some("scale_b must have shape 4 x 6 Float elements, got [2, 6]"));
    }

    #[test]
    fn tensorwise_under_graphs_has_a_bare_gemm_only() {
        let dbs = older();
        let tensorwise = KernelId::new("cublaslt/fp8-tensorwise+fast");
        for record in dbs[0].records.iter().filter(|record| record.kernel == tensorwise) {
            assert!(record.gemm_us.is_some() && record.latency_us.is_none() && record.cast_us.is_none());
        }
    }

    #[test]
    fn a_kernel_is_compared_with_bf16_of_its_own_library() {
        let dbs = older();
        let baseline = |db: &KernelDb, name: &str| {
            let has = |id: &KernelId| db.records.iter().any(|record| record.kernel == *id);
            baselines_of(&KernelId::new(name)).into_iter().find(has).map(|id| id.to_string())
        };
        assert_eq!(baseline(&dbs[1], "pytorch/fp8-blockwise").as_deref(), Some("pytorch/bf16"));
        assert_eq!(baseline(&dbs[0], "loka/fp8-rowwise").as_deref(), Some("cublaslt/bf16"));
    }
}
