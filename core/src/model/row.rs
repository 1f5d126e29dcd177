//! One row of the results (`*.results.parquet`, docs/reference/results.md) and the file's circumstances.

use serde::{Deserialize, Serialize};

use super::{
    Estimate, Gemm, GemmShape, KernelId, LatencySource, Manifest, Metric, ModSet, SiteId, SiteTimes, StaticScale,
};

/// Errors of one GEMM's output over all draws so far.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ErrorSummary {
    pub draws: u64,
    /// Elements with ref = 0, left out of the relative errors.
    pub zeros_skipped: u64,
    pub mere: Estimate,
    pub rel_l2: Estimate,
    pub sqnr_db: f64,
    pub median_rel: f64,
    pub max_abs: f64,
    /// After bias, tail and the next cast; `None` without a tail.
    pub block_rel_l2: Option<Estimate>,
    /// In units of the loss; `None` without gradients, and for dgrad and wgrad.
    pub loss_cost: Option<Estimate>,
}

impl ErrorSummary {
    /// The metric with its interval; metrics that have none come as a point.
    pub fn metric(&self, metric: Metric) -> Option<Estimate> {
        match metric {
            Metric::Mere => Some(self.mere),
            Metric::RelL2 => Some(self.rel_l2),
            Metric::SqnrDb => Some(Estimate::exact(self.sqnr_db)),
            Metric::MedianRel => Some(Estimate::exact(self.median_rel)),
            Metric::MaxAbs => Some(Estimate::exact(self.max_abs)),
            Metric::BlockRelL2 => self.block_rel_l2,
            Metric::LossCost => self.loss_cost,
        }
    }
}

/// Microseconds, with where they came from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Casts included, both operands.
    pub latency_us: Option<f64>,
    pub latency_lo_us: Option<f64>,
    pub latency_hi_us: Option<f64>,
    pub gemm_us: Option<f64>,
    pub cast_us: Option<f64>,
    /// `latency_us` with the weight already cast. Of a kernel with a static scale x is BF16 here and in
    /// `latency_us`, and already codes in `gemm_us`.
    pub cached_us: Option<f64>,
    /// `cublaslt/bf16` from the same source.
    pub baseline_us: Option<f64>,
    /// Bias, norm and activation after fprop, from the bytes they move. Always modelled.
    pub tail_us: Option<f64>,
    pub source: LatencySource,
    /// Device, versions and, when modelled, the fit's error: one line for a tooltip.
    pub note: String,
}

impl Latency {
    pub fn unknown(note: &str) -> Self {
        Self {
            latency_us: None,
            latency_lo_us: None,
            latency_hi_us: None,
            gemm_us: None,
            cast_us: None,
            cached_us: None,
            baseline_us: None,
            tail_us: None,
            source: LatencySource::None,
            note: note.to_owned(),
        }
    }

    /// `baseline_us / latency_us`.
    pub fn speedup(&self) -> Option<f64> {
        match (self.baseline_us, self.latency_us) {
            (Some(baseline), Some(latency)) if latency > 0.0 => Some(baseline / latency),
            _ => None,
        }
    }
}

/// The same kernel on the trace's held-out rows instead of sampled ones: how faithful the sampler is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fidelity {
    pub rows: u64,
    pub heldout_rel_l2: f64,
    pub heldout_mere: f64,
}

/// Error and speed of one kernel at one GEMM of one site under one set of mods.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResultRow {
    pub site: SiteId,
    pub gemm: Gemm,
    pub kernel: KernelId,
    pub mods: ModSet,
    pub shape: GemmShape,
    pub supported: bool,
    /// Why it is not supported or has no error.
    pub reason: Option<String>,
    pub error: Option<ErrorSummary>,
    pub latency: Latency,
    pub fidelity: Option<Fidelity>,
    /// Of x at fprop and of dy at dgrad and wgrad; `None` where the kernel finds its scales itself.
    pub static_scale: Option<StaticScale>,
    /// Share of the left operand's elements that are not zero and that its cast to FP8 makes zero, the mean over draws.
    pub flushed: Option<f64>,
    /// How inputs were drawn: `gaussian`, `copula`, or `through <site>` behind a modified block.
    pub sampler: String,
    pub engine: String,
    pub device: String,
    pub seed: u64,
}

impl ResultRow {
    pub fn metric(&self, metric: Metric) -> Option<Estimate> {
        self.error.as_ref().and_then(|error| error.metric(metric))
    }

    pub fn speedup(&self) -> Option<f64> {
        self.latency.speedup()
    }
}

/// The Parquet metadata key `loka.results`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResultsMeta {
    /// `sha256:` + hex of the trace file's bytes.
    pub trace_digest: String,
    #[serde(with = "super::as_text")]
    pub manifest: Manifest,
    pub engine: String,
    pub device: String,
    pub driver: String,
    pub versions: String,
    /// RFC 3339, UTC.
    pub time: String,
    pub seed: u64,
    pub confidence: f64,
    /// Sites of the trace that could not be probed, and why.
    pub problems: Vec<(SiteId, String)>,
    /// What whole sites take where they were timed; Dispatch goes by these before it adds up GEMMs.
    #[serde(default)]
    pub site_times: Option<SiteTimes>,
}

/// A whole results file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    pub meta: ResultsMeta,
    pub rows: Vec<ResultRow>,
}
