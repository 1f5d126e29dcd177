//! Takes records that this process timed on this machine, gives latencies that come before any database's.

use std::collections::HashMap;

use crate::model::{Gemm, GemmShape, KernelId, KernelRecord, Latency, LatencySource, baseline_kernel};

use super::latency::with_tail;

/// Records by kernel, GEMM and shape; later ones replace earlier ones.
#[derive(Clone, Debug, Default)]
pub(super) struct Measured(HashMap<(KernelId, Gemm, GemmShape), KernelRecord>);

/// True for records of one run on one device: only these may be compared.
fn same_run(a: &KernelRecord, b: &KernelRecord) -> bool {
    (&a.recorded_at, &a.device, &a.driver, &a.versions) == (&b.recorded_at, &b.device, &b.driver, &b.versions)
}

impl Measured {
    pub(super) fn add(&mut self, records: &[KernelRecord]) {
        let keyed = records.iter().map(|r| ((r.kernel.clone(), r.gemm, r.shape), r.without_samples()));
        self.0.extend(keyed);
    }

    /// `None`: not measured, so that a database may answer.
    pub(super) fn latency(&self, kernel: &KernelId, gemm: Gemm, shape: GemmShape) -> Option<Latency> {
        let record = self.0.get(&(kernel.clone(), gemm, shape))?;
        let circumstances = format!("{}, driver {}, {}", record.device, record.driver, record.versions);
        let baseline = with_tail(kernel, self.baseline(record), record.tail_us);
        let note = match (record.supported, record.latency_us) {
            (false, _) => {
                let reason = record.reason.as_deref().unwrap_or("no reason was given");
                format!("does not run there: {reason} ({circumstances})")
            }
            (true, None) => format!("only the bare GEMM was measured, without casts ({circumstances})"),
            (true, Some(_)) if baseline.is_none() => {
                format!("measured here on {circumstances}; BF16 was not measured beside it")
            }
            (true, Some(_)) => format!("measured here on {circumstances}"),
        };
        Some(Latency {
            latency_us: record.latency_us,
            latency_lo_us: record.latency_p10_us,
            latency_hi_us: record.latency_p90_us,
            gemm_us: record.gemm_us,
            cast_us: record.cast_us,
            cached_us: record.latency_cached_us,
            baseline_us: baseline,
            tail_us: record.tail_us,
            source: if record.latency_us.is_some() { LatencySource::Measured } else { LatencySource::None },
            note: note.into(),
        })
    }

    /// BF16 of the same run: the library's own, else cuBLASLt's.
    fn baseline(&self, record: &KernelRecord) -> Option<f64> {
        let own = KernelId::new(&format!("{}/bf16", record.kernel.library()));
        let at = |id: KernelId| self.0.get(&(id, record.gemm, record.shape)).filter(|base| same_run(base, record));
        [own, baseline_kernel()].into_iter().find_map(at).and_then(|base| base.latency_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::{KernelDb, Latencies};

    fn record(kernel: &str, us: f64, recorded_at: &str) -> KernelRecord {
        let database = KernelDb::builtin().remove(0);
        KernelRecord {
            kernel: KernelId::new(kernel),
            gemm: Gemm::Fprop,
            shape: GemmShape { m: 2048, k: 512, n: 512 },
            latency_us: Some(us),
            device: "Test GPU".to_owned(),
            recorded_at: recorded_at.to_owned(),
            supported: true,
            ..database.records[0].clone()
        }
    }

    fn at(latencies: &Latencies, kernel: &str, k: usize) -> Latency {
        latencies.latency(&KernelId::new(kernel), Gemm::Fprop, GemmShape { m: 2048, k, n: 512 })
    }

    #[test]
    fn measured_comes_first_at_its_own_shape_alone() {
        let fast = "cublaslt/fp8-rowwise+fast";
        let run = [record(fast, 5.0, "now"), record("cublaslt/bf16", 8.0, "now")];
        let latencies = Latencies::builtin().with_measured(&run);
        let measured = at(&latencies, fast, 512);
        assert_eq!((measured.source, measured.speedup()), (LatencySource::Measured, Some(1.6)));
        assert!(measured.note.starts_with("measured here on Test GPU, driver "), "{}", measured.note);
        assert_eq!(at(&latencies, "cublaslt/bf16", 512).speedup(), Some(1.0));
        assert_eq!(at(&latencies, fast, 640), at(&Latencies::builtin(), fast, 640));
    }

    #[test]
    fn a_recorded_baseline_is_never_mixed_in() {
        let fast = "cublaslt/fp8-rowwise+fast";
        let alone = Latencies::builtin().with_measured(&[record(fast, 5.0, "now")]);
        assert_eq!((at(&alone, fast, 512).baseline_us, at(&alone, fast, 512).latency_us), (None, Some(5.0)));
        let runs = [record(fast, 5.0, "now"), record("cublaslt/bf16", 8.0, "before")];
        let two = Latencies::builtin().with_measured(&runs);
        assert_eq!(at(&two, fast, 512).speedup(), None, "another run is another source");
        // What was not measured keeps its own source whole.
        let eager = at(&two, "pytorch/fp8-rowwise+fast", 512);
        assert_eq!(eager.source, LatencySource::Recorded);
        assert_eq!(eager.baseline_us, at(&Latencies::builtin(), "pytorch/bf16", 512).latency_us);
    }

    #[test]
    fn what_does_not_run_here_says_why() {
        let mut refused = record("cublaslt/fp8-blockwise", 1.0, "now");
        (refused.supported, refused.latency_us, refused.reason) = (false, None, Some("no algorithm".to_owned()));
        let latencies = Latencies::builtin().with_measured(&[refused]);
        let latency = at(&latencies, "cublaslt/fp8-blockwise", 512);
        assert_eq!((latency.source, latency.latency_us), (LatencySource::None, None));
        assert!(latency.note.starts_with("does not run there: no algorithm (Test GPU"), "{}", latency.note);
    }
}
