//! Who runs draws. Takes a site's statistics and the numerics of kernels; gives the error sums of one
//! draw at a time. Probe decides how many; an engine that is missing says why.

mod chain;
#[cfg(feature = "native")]
pub mod cluster;
mod control;
mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
#[cfg(all(feature = "raw", not(feature = "cuda")))]
#[path = "cuda/bare.rs"]
#[allow(dead_code, reason = "what is left out here uses the rest")]
pub mod cuda;
#[cfg(feature = "native")]
mod python;
mod registry;
mod static_scale;
mod status;
#[cfg(feature = "native")]
pub mod worker;

use std::sync::Arc;

use crate::{
    model::{Gemm, GemmNumerics, GemmShape, Kernel, KernelId, ModSet},
    numerics::DrawStats,
    stats::{SampleError, SamplerKind},
    trace::SiteStats,
};

pub use chain::{Feeds, SiteContext, context, contexts};
pub use control::Control;
#[cfg(feature = "native")]
pub use control::Stopwatch;
pub use cpu::CpuEngine;
pub use registry::{open, statuses};
pub use static_scale::StaticScales;
pub use status::{DeviceMemory, EngineStatus, LibraryStatus};

/// What an engine is; stamped on every row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineInfo {
    pub name: &'static str,
    pub device: String,
    pub driver: String,
    pub versions: String,
}

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum EngineError {
    #[error(transparent)]
    Sample(#[from] SampleError),
    #[error("no output gradients in the trace")]
    NoGradients,
    /// This engine cannot do that.
    #[error("{0}")]
    Unavailable(String),
    /// It could not be done this time; other work may go on.
    #[error("{0}")]
    Failed(String),
    /// The engine is gone for the rest of the process; rows that it gave stay good.
    #[error("{0}")]
    Lost(String),
}

/// How long to time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimeOptions {
    /// Samples kept of each kernel and sequence.
    pub samples: usize,
    /// Device time that one sample should take: it is repeated until it does.
    pub sample_us: f64,
    /// Algorithms of a library that are tried for each shape.
    pub algorithms: usize,
}

impl Default for TimeOptions {
    fn default() -> Self {
        Self { samples: 31, sample_us: 600.0, algorithms: 16 }
    }
}

/// Raw samples of one kernel at one GEMM, microseconds a run. Samples of the same index of different
/// kernels were taken one after the other.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timing {
    /// The bare GEMM, operands cast before.
    pub gemm_us: Vec<f64>,
    /// Both operands cast (training).
    pub latency_us: Vec<f64>,
    /// The weight already cast (inference); the same as `latency_us` where no operand is the weight.
    pub cached_us: Vec<f64>,
    /// Of a kernel with the site's tail inside: what the tail costs by itself behind the baseline's product. Else empty.
    pub tail_us: Vec<f64>,
    /// What ran: the library's algorithm, the casts' launches.
    pub note: String,
}

/// Who computes a kernel's GEMM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Backend {
    /// These numerics, whoever runs them: kernels that share one are measured once.
    Numerics(GemmNumerics),
    /// A library's own kernel, its casts included.
    Library(&'static str),
}

/// One draw by one way: its sums, or why a library refused.
pub type Drawn = Result<DrawStats, String>;

/// A kernel's samples, or why it has none.
pub type KernelTiming = (KernelId, Result<Timing, String>);

/// A block before the probed site, under its own mods.
#[derive(Clone, Debug)]
pub struct Feeder {
    pub stats: Arc<SiteStats>,
    pub mods: ModSet,
}

/// One site to probe under its set of mods.
#[derive(Clone, Debug)]
pub struct SiteJob {
    pub stats: Arc<SiteStats>,
    /// Sites that feed this one through a modified block, the earliest first: their rows are drawn
    /// and pushed through. Empty: the recorded input is what this site reads.
    pub upstream: Vec<Feeder>,
    pub quantile_probs: Arc<[f64]>,
    /// The site's own.
    pub mods: ModSet,
    pub sampler: SamplerKind,
    pub seed: u64,
    /// Of the left operands, for kernels that cast them by a scale known beforehand.
    pub scales: StaticScales,
}

impl SiteJob {
    /// With the static scales of what it says. `input_bound`: the largest magnitude of x, where the block before the
    /// site is known to hold it.
    #[must_use]
    pub fn with_scales(mut self, input_bound: Option<f64>) -> Self {
        self.scales = StaticScales::new(&self, input_bound);
        self
    }
}

/// Runs kernels' numerics on drawn tensors, and, on a GPU, times kernels.
pub trait Engine: Send + Sync {
    fn describe(&self) -> EngineInfo;

    /// Why a kernel's numerics cannot run here for that shape.
    fn supports(&self, kernel: &Kernel, gemm: Gemm, shape: GemmShape) -> Result<(), String>;

    /// Who computes that kernel's errors here.
    fn way(&self, kernel: &Kernel, gemm: Gemm) -> Backend {
        Backend::Numerics(kernel.numerics(gemm))
    }

    /// Prepares a site: samplers, cast weights.
    fn site(&self, job: SiteJob) -> Result<Box<dyn SiteEngine>, EngineError>;

    /// Times kernels at one GEMM, interleaved, so that a drift of the clocks meets all alike; or says why
    /// this engine cannot.
    fn time(
        &self,
        kernels: &[&'static Kernel],
        gemm: Gemm,
        shape: GemmShape,
        options: &TimeOptions,
    ) -> Result<Vec<KernelTiming>, EngineError>;

    /// Sites to work on at a time; 0: as many as the machine has cores.
    fn parallel_sites(&self) -> usize {
        0
    }

    /// True when a quick first pass over all sites is worth its repeated preparation.
    fn wants_first_look(&self) -> bool {
        true
    }

    /// Memory of the device, where it has its own.
    fn memory(&self) -> Option<DeviceMemory> {
        None
    }
}

/// A prepared site.
pub trait SiteEngine {
    /// One draw through every way of `ways`. The same (job, gemm, draw) gives the same sums, whatever was
    /// drawn before.
    fn draw(&mut self, gemm: Gemm, ways: &[Backend], draw: u64) -> Result<Vec<Drawn>, EngineError>;

    /// The same on the trace's held-out rows, all at once; `None` where there are none.
    fn heldout(&mut self, gemm: Gemm, ways: &[Backend]) -> Option<(u64, Vec<Drawn>)>;

    /// How inputs are drawn, for the results.
    fn sampler(&self) -> String;
}
