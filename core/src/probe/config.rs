//! What to probe and how long.

use std::sync::Arc;

use crate::{
    model::{Gemm, Kernel, Latency, Metric, ModSet, Site, SiteMods, catalogue},
    stats::SamplerKind,
};

/// Draws continue while an interval straddles one of these.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Threshold {
    pub metric: Metric,
    pub bound: f64,
}

/// The latency of a kernel at a site under its own mods.
pub type LatencyOf = Arc<dyn Fn(&Kernel, Gemm, &Site, &ModSet) -> Latency + Send + Sync>;

#[derive(Clone)]
pub struct ProbeConfig {
    pub kernels: Vec<&'static Kernel>,
    /// In force at each site: a row follows its site's own, and those of the blocks that feed it.
    pub mods: SiteMods,
    pub min_draws: u64,
    pub max_draws: u64,
    pub confidence: f64,
    pub seed: u64,
    pub sampler: SamplerKind,
    /// Those of the built-in policies, so that one probe serves all of them.
    pub thresholds: Vec<Threshold>,
    /// Threads to use; 0: as many as the machine has.
    pub threads: usize,
    pub latency: LatencyOf,
}

impl Default for ProbeConfig {
    fn default() -> Self {
        Self {
            kernels: catalogue().iter().collect(),
            mods: SiteMods::none(),
            min_draws: 16,
            max_draws: 64,
            confidence: 0.95,
            seed: 0,
            sampler: SamplerKind::default(),
            thresholds: vec![
                Threshold { metric: Metric::Mere, bound: 0.2 },
                Threshold { metric: Metric::RelL2, bound: 0.05 },
                Threshold { metric: Metric::NoiseShare, bound: 0.01 },
                Threshold { metric: Metric::Bias, bound: 0.01 },
            ],
            threads: 0,
            latency: Arc::new(|_, _, _, _| Latency::unknown("no latency was asked for")),
        }
    }
}
