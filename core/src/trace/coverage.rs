//! Takes a site's tensor names; gives which parts of the format the trace has of it. Reads no data.

use std::fmt;

use super::header::Tensors;
use crate::model::SiteId;

/// How a covariance is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CovarianceKind {
    Full,
    /// Factor and diagonal.
    Factor {
        rank: usize,
    },
}

impl fmt::Display for CovarianceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("full"),
            Self::Factor { rank } => write!(f, "rank {rank}"),
        }
    }
}

/// How a weight is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightKind {
    Snapshot,
    MatrixNormal,
}

impl fmt::Display for WeightKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Snapshot => "snapshot",
            Self::MatrixNormal => "matrix normal",
        })
    }
}

/// Which parts of a site the trace holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// `None`: the site has no covariance of its input, and is unusable.
    pub covariance: Option<CovarianceKind>,
    pub grad_covariance: Option<CovarianceKind>,
    /// `None`: the site has no weight, and is unusable, or the file is a shard whose weights another has.
    pub weight: Option<WeightKind>,
    /// Of the input; the copula needs them.
    pub quantiles: bool,
    pub grad_quantiles: bool,
    /// Without it: no dgrad, wgrad or loss cost.
    pub grad_output: bool,
    pub cross_cov: bool,
    /// Held-out rows of the input, and of the output's gradient.
    pub heldout_rows: usize,
    pub heldout_grad_rows: usize,
    /// Sorted, without `step`.
    pub series: Vec<String>,
}

impl Coverage {
    pub(super) fn of(site: &SiteId, tensors: &Tensors) -> Self {
        let find = |tensor: &str| tensors.get(&format!("{site}/{tensor}"));
        let has = |tensor: &str| find(tensor).is_some();
        let rows = |tensor: &str| find(tensor).and_then(|tensor| tensor.shape.first().copied()).unwrap_or(0);
        let covariance = |part: &str| {
            if has(&format!("{part}.cov")) {
                return Some(CovarianceKind::Full);
            }
            let factor = find(&format!("{part}.cov_factor"))?;
            Some(CovarianceKind::Factor { rank: factor.shape.get(1).copied().unwrap_or(0) })
        };
        let weight = match (has("weight"), has("weight.mean") || has("weight.mean_left")) {
            (true, _) => Some(WeightKind::Snapshot),
            (false, true) => Some(WeightKind::MatrixNormal),
            (false, false) => None,
        };
        Self {
            covariance: covariance("input"),
            grad_covariance: covariance("grad_output"),
            weight,
            quantiles: has("input.quantiles"),
            grad_quantiles: has("grad_output.quantiles"),
            grad_output: under(site, "grad_output.", tensors).next().is_some(),
            cross_cov: has("cross_cov") || has("cross_cov_left"),
            heldout_rows: rows("sample.input"),
            heldout_grad_rows: rows("sample.grad_output"),
            series: series_names(site, tensors),
        }
    }
}

/// The ends of the names that begin with `site/prefix`.
pub(super) fn under<'a>(site: &SiteId, prefix: &str, tensors: &'a Tensors) -> impl Iterator<Item = &'a str> {
    let start = format!("{site}/{prefix}");
    let length = start.len();
    let range = tensors.range(start.clone()..).map(|(name, _)| name.as_str());
    range.take_while(move |name| name.starts_with(&start)).map(move |name| &name[length..])
}

pub(super) fn series_names(site: &SiteId, tensors: &Tensors) -> Vec<String> {
    under(site, "series.", tensors).filter(|name| *name != "step").map(str::to_owned).collect()
}
