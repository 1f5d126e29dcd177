//! What was found when other results of the same sites were compared.

use serde::{Deserialize, Serialize};

use crate::{
    model::{Estimate, Gemm, KernelId, Metric, Safety, SiteId, SiteMods},
    plan::Flip,
};

/// A verdict that is another one here than in the other results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Flipped {
    pub site: SiteId,
    pub gemm: Gemm,
    pub kernel: KernelId,
    pub metric: Metric,
    /// In the other results.
    pub before: Safety,
    pub after: Safety,
    /// `None` also where it is a loss cost that means nothing.
    pub error_before: Option<Estimate>,
    pub error_after: Option<Estimate>,
    /// The two intervals overlap.
    pub near_tie: bool,
}

impl From<Flip<'_>> for Flipped {
    fn from(flip: Flip<'_>) -> Self {
        let Flip { row, bound, before, after, error_before, error_after, near_tie, .. } = flip;
        let (site, gemm, kernel, metric) = (row.site.clone(), row.gemm, row.kernel.clone(), bound.metric);
        Self { site, gemm, kernel, metric, before, after, error_before, error_after, near_tie }
    }
}

/// What was found when other results were compared; their plan is [`super::Session::other_plan`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ComparedResults {
    /// In forward order.
    pub flips: Vec<Flipped>,
    /// Of the session then.
    pub(super) mods: SiteMods,
    pub(super) num_rows: usize,
}
