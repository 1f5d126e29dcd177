//! Who runs draws. Takes a site's statistics and the numerics of kernels; gives the error sums of one
//! draw at a time. Probe decides how many; an engine that is missing says why.

mod chain;
mod cpu;

use std::sync::Arc;

use crate::{
    model::{Gemm, GemmNumerics, GemmShape, Kernel, KernelRecord, ModSet},
    numerics::DrawStats,
    stats::{SampleError, SamplerKind},
    trace::SiteStats,
};

pub use chain::upstream;
pub use cpu::CpuEngine;

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
    #[error("{0}")]
    Unavailable(String),
}

/// One site to probe under one set of mods.
#[derive(Clone, Debug)]
pub struct SiteJob {
    pub stats: Arc<SiteStats>,
    /// Sites that feed this one through a modified block, the earliest first: their rows are drawn
    /// and pushed through. Empty: the recorded input is what this site reads.
    pub upstream: Vec<Arc<SiteStats>>,
    pub quantile_probs: Arc<[f64]>,
    pub mods: ModSet,
    pub sampler: SamplerKind,
    pub seed: u64,
}

/// Runs kernels' numerics on drawn tensors, and, on a GPU, times kernels.
pub trait Engine: Send + Sync {
    fn describe(&self) -> EngineInfo;

    /// Why a kernel's numerics cannot run here for that shape.
    fn supports(&self, kernel: &Kernel, gemm: Gemm, shape: GemmShape) -> Result<(), String>;

    /// Prepares a site: samplers, cast weights.
    fn site(&self, job: SiteJob) -> Result<Box<dyn SiteEngine>, EngineError>;

    /// Measures a kernel's latency, or says why this engine cannot.
    fn time(&self, kernel: &Kernel, gemm: Gemm, shape: GemmShape) -> Result<KernelRecord, EngineError>;
}

/// A prepared site.
pub trait SiteEngine {
    /// One draw through every numerics of `numerics`. The same (job, gemm, draw) gives the same sums,
    /// whatever was drawn before.
    fn draw(&mut self, gemm: Gemm, numerics: &[GemmNumerics], draw: u64) -> Result<Vec<DrawStats>, EngineError>;

    /// The same on the trace's held-out rows, all at once; `None` where there are none.
    fn heldout(&mut self, gemm: Gemm, numerics: &[GemmNumerics]) -> Option<(u64, Vec<DrawStats>)>;

    /// How inputs are drawn, for the results.
    fn sampler(&self) -> String;
}
