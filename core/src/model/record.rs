//! One row of a kernel database (`*.kernels.parquet`, docs/reference/results.md): a measured latency with its
//! circumstances.

use serde::{Deserialize, Serialize};

use super::{Gemm, GemmShape, KernelId};

/// Where a latency came from. Shown with every number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LatencySource {
    Measured,
    Recorded,
    Modelled,
    None,
}

impl LatencySource {
    pub const ALL: [Self; 4] = [Self::Measured, Self::Recorded, Self::Modelled, Self::None];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Recorded => "recorded",
            Self::Modelled => "modelled",
            Self::None => "none",
        }
    }
}

/// Latencies in microseconds. `None`: not measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KernelRecord {
    pub kernel: KernelId,
    pub gemm: Gemm,
    pub shape: GemmShape,
    pub gemm_us: Option<f64>,
    pub cast_us: Option<f64>,
    /// Both operands cast (training): median, p10, p90.
    pub latency_us: Option<f64>,
    pub latency_p10_us: Option<f64>,
    pub latency_p90_us: Option<f64>,
    /// The weight already cast (inference): median, p10, p90.
    pub latency_cached_us: Option<f64>,
    pub latency_cached_p10_us: Option<f64>,
    pub latency_cached_p90_us: Option<f64>,
    /// Of a kernel with the site's tail inside, whose other figures are of GEMM and tail together: the tail by a kernel
    /// of its own behind the baseline's GEMM, of the same run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tail_us: Option<f64>,
    pub supported: bool,
    pub reason: Option<String>,
    pub samples: i64,
    pub device: String,
    pub driver: String,
    pub versions: String,
    pub recorded_at: String,
    /// Microseconds a run, in the order in which they were taken; empty where only summaries were kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gemm_samples_us: Vec<f64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub latency_samples_us: Vec<f64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cached_samples_us: Vec<f64>,
    /// What ran: the library's algorithm, the casts' launches.
    #[serde(default)]
    pub note: String,
}

impl KernelRecord {
    /// The summary alone.
    pub fn without_samples(&self) -> Self {
        let (gemm_samples_us, latency_samples_us, cached_samples_us) = Default::default();
        Self { gemm_samples_us, latency_samples_us, cached_samples_us, ..self.clone() }
    }
}

impl KernelRecord {
    /// One that supports its GEMM and says nothing of it yet.
    pub fn blank(kernel: KernelId, gemm: Gemm, shape: GemmShape) -> Self {
        Self {
            kernel,
            gemm,
            shape,
            gemm_us: None,
            cast_us: None,
            latency_us: None,
            latency_p10_us: None,
            latency_p90_us: None,
            latency_cached_us: None,
            latency_cached_p10_us: None,
            latency_cached_p90_us: None,
            tail_us: None,
            supported: true,
            reason: None,
            samples: 0,
            device: String::new(),
            driver: String::new(),
            versions: String::new(),
            recorded_at: String::new(),
            gemm_samples_us: Vec::new(),
            latency_samples_us: Vec::new(),
            cached_samples_us: Vec::new(),
            note: String::new(),
        }
    }

    /// What was timed: no two records of one source have the same.
    pub fn key(&self) -> (&KernelId, Gemm, GemmShape) {
        (&self.kernel, self.gemm, self.shape)
    }

    /// The same for a sentence.
    pub fn place(&self) -> String {
        let GemmShape { m, k, n } = self.shape;
        format!("{} {} {m} x {k} x {n}", self.kernel, self.gemm)
    }

    /// The eight figures in the order of the contract's columns, `gemm_us` first.
    pub fn times(&self) -> [Option<f64>; 8] {
        [
            self.gemm_us,
            self.cast_us,
            self.latency_us,
            self.latency_p10_us,
            self.latency_p90_us,
            self.latency_cached_us,
            self.latency_cached_p10_us,
            self.latency_cached_p90_us,
        ]
    }
}
