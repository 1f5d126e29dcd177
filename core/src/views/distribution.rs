//! Takes one site's statistics; gives its distributions ready to draw: histogram, what every format can
//! hold after every scaling, shares that are lost, and features by how far they reach.
//!
//! # What is counted
//! An operand is taken as the GEMM that it leads reads it: the input and the weight along `k` (fprop), the
//! output gradient along `n` (dgrad). "Row" is a row of that: an example, or an output feature of the weight.
//! wgrad reads input and gradient the other way round, and dgrad the weight: their rows are other rows,
//! with other scales, and nothing here is said of them. Where all values share one scale it does not matter.
//!
//! Shares are of real values where the trace has some: the weight itself, or held-out rows, cast by
//! [`crate::numerics`] as the kernels cast them. A tensor's scale follows the recorded amax, not the rows'
//! own. Beside them stand the shares of the histogram for casts with one scale: of all values that were
//! recorded rather than of a few rows, but only to a power of two; a bin that a limit falls into is split along
//! the slope that the bins around it tell, and the number says that it is approximate.
//!
//! Where a trace has no histogram and no rows, both are drawn from the recorded mean, covariance and
//! quantiles by the sampler that the probe uses. [`Origin`] says so.

mod by_rank;
mod features;
mod histogram;
mod limits;
mod operand;
mod ranges;
mod shares;
mod values;

pub use crate::numerics::{FIRST_EXPONENT, NUM_EXPONENTS};
pub use by_rank::ByRank;
pub use features::{Band, Features, Outlier};
pub use histogram::Histogram;
pub(super) use histogram::Segment;
pub use limits::{Limits, Reach};
pub use operand::{Operand, Origin};
pub use ranges::{ScaledRange, Scales, Use};
pub use shares::Shares;

use serde::{Deserialize, Serialize};

use crate::{
    model::{Manifest, Site},
    trace::{Distribution, SiteStats},
};

use super::drift::{OperandDrift, SeriesView, operand_drifts, series_views};
use values::Values;

/// Everything that the views of distribution and drift show of one site. A part that the trace does not
/// have says why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Inspection {
    #[serde(with = "crate::model::as_text")]
    pub site: Site,
    pub run: String,
    /// The run's step at which the trace was written.
    pub step: u64,
    /// Input, weight, gradient.
    pub operands: Vec<OperandInspection>,
    pub series: Vec<SeriesView>,
    pub drifts: Vec<OperandDrift>,
}

/// One operand. `Err` is the reason, one line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OperandInspection {
    pub operand: Operand,
    /// The largest magnitude, and what it is of.
    pub amax: Result<(f64, Origin), String>,
    pub histogram: Result<Histogram, String>,
    /// In the order of the bars.
    pub ranges: Vec<ScaledRange>,
    pub features: Result<Features, String>,
    /// Where the trace is of several ranks.
    pub by_rank: Option<ByRank>,
}

impl Inspection {
    /// `manifest`: of the trace that `stats` came from.
    pub fn of(stats: &SiteStats, manifest: &Manifest) -> Self {
        let probs = &manifest.quantile_probs;
        let operands: Vec<OperandInspection> =
            Operand::ALL.into_iter().map(|operand| OperandInspection::of(stats, probs, operand)).collect();
        let series = series_views(stats);
        let drifts = operand_drifts(stats, probs, &operands);
        let (run, step) = (manifest.run.id.clone(), manifest.run.step);
        Self { site: stats.site.clone(), run, step, operands, series, drifts }
    }

    pub fn operand(&self, operand: Operand) -> Option<&OperandInspection> {
        self.operands.iter().find(|known| known.operand == operand)
    }

    pub fn drift(&self, operand: Operand) -> Option<&OperandDrift> {
        self.drifts.iter().find(|drift| drift.operand == operand)
    }

    pub fn series(&self, name: &str) -> Option<&SeriesView> {
        self.series.iter().find(|series| series.name == name)
    }
}

impl OperandInspection {
    fn of(stats: &SiteStats, probs: &[f64], operand: Operand) -> Self {
        let values = match Values::of(stats, probs, operand) {
            Ok(values) => values,
            Err(reason) => return Self::absent(operand, &reason),
        };
        let recorded = distribution_of(stats, operand);
        let histogram = histogram_of(stats, operand, &values);
        let amax = amax_of(stats, operand, &values);
        let ranges = ranges::all(&stats.site, operand, &values, &amax, &histogram);
        let features = match recorded {
            Some(recorded) => Features::recorded(recorded, probs),
            None => Features::of_rows(&values.matrix, values.origin),
        };
        Self { operand, amax, histogram: Ok(histogram), ranges, features, by_rank: by_rank(stats, operand) }
    }

    fn absent(operand: Operand, reason: &str) -> Self {
        let why = || reason.to_owned();
        let (amax, histogram, features) = (Err(why()), Err(why()), Err(why()));
        Self { operand, amax, histogram, ranges: Vec::new(), features, by_rank: None }
    }
}

/// A weight is the same on all of them.
fn by_rank(stats: &SiteStats, operand: Operand) -> Option<ByRank> {
    let ranks = stats.ranks.as_ref()?;
    let extremes = match operand {
        Operand::Input => Some(&ranks.input),
        Operand::GradOutput => ranks.grad_output.as_ref(),
        Operand::Weight => None,
    };
    extremes.map(|extremes| ByRank::of(&ranks.ranks, extremes))
}

/// Not of the weight: it is a matrix, not rows of a distribution.
pub(super) fn distribution_of(stats: &SiteStats, operand: Operand) -> Option<&Distribution> {
    match operand {
        Operand::Input => Some(&stats.input),
        Operand::GradOutput => stats.grad_output.as_ref(),
        Operand::Weight => None,
    }
}

/// The recorded one, or counted from the values where nothing was.
fn histogram_of(stats: &SiteStats, operand: Operand, values: &Values) -> Histogram {
    let recorded = match operand {
        Operand::Weight => stats.weight_hist.as_deref(),
        _ => distribution_of(stats, operand).and_then(|distribution| distribution.hist.as_deref()),
    };
    let recorded = recorded.and_then(|bins| Histogram::from_bins(bins, Origin::Recorded));
    recorded.unwrap_or_else(|| Histogram::count(&values.matrix.data, values.origin))
}

fn amax_of(stats: &SiteStats, operand: Operand, values: &Values) -> Result<(f64, Origin), String> {
    let recorded = match operand {
        Operand::Weight => stats.weight_amax,
        _ => distribution_of(stats, operand).and_then(|distribution| distribution.amax),
    };
    // The weight in the trace is the one that is probed: its own amax is the scale's.
    let recorded = recorded.filter(|_| values.origin != Origin::Snapshot).map(|amax| (amax, Origin::Recorded));
    let (amax, origin) =
        recorded.unwrap_or_else(|| (f64::from(crate::numerics::amax(&values.matrix.data)), values.origin));
    if amax.is_finite() { Ok((amax, origin)) } else { Err("the largest magnitude is not finite".to_owned()) }
}

#[cfg(test)]
pub(crate) mod tests;
