//! What one snapshot says against a plan, as the probability that it would say so if nothing were wrong.

use std::fmt;

use serde::Serialize;

use super::tail::t_upper;
use crate::{
    dispatch::{Policy, decided_by},
    model::{Estimate, Gemm, ResultRow, SiteId},
    numerics::special::t_two_sided,
};

/// What is held against the plan. Displays as `site:fprop error`, `site:fprop canary` or
/// `site: range of x`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum Test {
    /// The chosen kernel's error against the policy's bound.
    Error { site: SiteId, gemm: Gemm },
    /// What training itself saw of the chosen kernel's error, against what the plan predicted.
    /// Each rank sees batches of its own.
    Canary { site: SiteId, gemm: Gemm, rank: u64 },
    /// Largest magnitude of an operand that is cast to FP8, against the run that was planned: `x`, `w` or `dy`.
    Range { site: SiteId, operand: &'static str },
}

impl Test {
    pub fn site(&self) -> &SiteId {
        match self {
            Self::Error { site, .. } | Self::Canary { site, .. } | Self::Range { site, .. } => site,
        }
    }
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error { site, gemm } => write!(f, "{site}:{gemm} error"),
            Self::Canary { site, gemm, rank: 0 } => write!(f, "{site}:{gemm} canary"),
            Self::Canary { site, gemm, rank } => write!(f, "{site}:{gemm} canary of rank {rank}"),
            Self::Range { site, operand } => write!(f, "{site}: range of {operand}"),
        }
    }
}

/// One test at one snapshot.
#[derive(Clone, Debug, PartialEq)]
pub struct DriftEvidence {
    pub test: Test,
    /// That it would be as far off, were it within its limit.
    pub p: f64,
    pub found: f64,
    pub limit: f64,
    /// What `found` and `limit` are of.
    pub what: String,
}

/// A chosen kernel's row. `confidence`: of the row's intervals. `None`: nothing bounds it.
pub fn error_evidence(row: &ResultRow, policy: &Policy, loss: f64, confidence: f64) -> Option<DriftEvidence> {
    let (_, bound) = decided_by(row, policy, loss);
    let estimate = bound.metric.on_scale(row.metric(bound.metric)?);
    let draws = row.error.as_ref().map_or(2, |error| error.draws.max(2));
    let one = beyond(estimate, bound.limit, bound.metric.larger_is_better(), draws, confidence);
    // Of two bounds the worse is looked at: either may be off by chance.
    let bounds = if policy.max_bias.is_some() && row.gemm != Gemm::Fprop { 2.0 } else { 1.0 };
    Some(DriftEvidence {
        test: Test::Error { site: row.site.clone(), gemm: row.gemm },
        p: (one * bounds).min(1.0),
        found: estimate.value,
        limit: bound.limit,
        what: bound.metric.as_str().to_owned(),
    })
}

/// P that an estimate is as far beyond the limit as this one, where what it estimates is at the limit.
fn beyond(estimate: Estimate, limit: f64, larger_is_better: bool, draws: u64, confidence: f64) -> f64 {
    let degrees = (draws - 1) as usize;
    let over = if larger_is_better { limit - estimate.value } else { estimate.value - limit };
    // What is no number any more is as bad as it gets, and no matter of chance.
    if over.is_nan() || over == f64::INFINITY {
        return 0.0;
    }
    // The half of the interval that lies towards the limit.
    let half =
        if (over > 0.0) == larger_is_better { estimate.hi - estimate.value } else { estimate.value - estimate.lo };
    let deviation = half / t_two_sided(confidence, degrees);
    if deviation > 0.0 {
        t_upper(over / deviation, degrees as f64)
    } else if over > 0.0 {
        0.0
    } else {
        1.0
    }
}

/// The largest magnitude of an operand now, against the run that was planned, each by recorded step. Beyond `factor`
/// either way it counts: what grew may saturate, what shrank may be flushed to zero. `usual`: how far such a value moves
/// from step to step, in octaves, for runs of too few steps to say. `None`: one of the two was not recorded.
pub fn range_evidence(
    (site, operand): (&SiteId, &'static str),
    [before, now]: [&[f32]; 2],
    factor: f64,
    usual: f64,
) -> Option<DriftEvidence> {
    let [before, now] = [before, now].map(|values| Octaves::of(values, usual));
    let (before, now) = (before?, now?);
    let change = now.mean - before.mean;
    let deviation = before.deviation.hypot(now.deviation).max(LEAST_DEVIATION);
    let degrees = (before.degrees + now.degrees).max(1.0);
    let over = change.abs() - factor.log2();
    let p = if change.is_nan() { 0.0 } else { t_upper(over / deviation, degrees) };
    let test = Test::Range { site: site.clone(), operand };
    Some(DriftEvidence { test, p, found: change.exp2(), limit: factor, what: format!("amax of {operand}, times") })
}

/// Of the mean over a run, in octaves: runs differ by more than their steps say.
const LEAST_DEVIATION: f64 = 0.02;

/// Steps from which on a run says how far its own values move.
const ENOUGH_STEPS: usize = 4;

struct Octaves {
    mean: f64,
    /// Of the mean.
    deviation: f64,
    degrees: f64,
}

impl Octaves {
    /// `None` of an operand that was never seen. A value that is no number makes the mean none.
    fn of(values: &[f32], usual: f64) -> Option<Self> {
        let octaves: Vec<f64> =
            values.iter().filter(|value| **value != 0.0).map(|value| f64::from(*value).log2()).collect();
        let count = octaves.len();
        if count == 0 {
            return None;
        }
        let mean = octaves.iter().sum::<f64>() / count as f64;
        if count < ENOUGH_STEPS {
            return Some(Self { mean, deviation: usual / (count as f64).sqrt(), degrees: 8.0 });
        }
        // From step to step: a trend within the run is no noise, and steps that follow each other are alike.
        let squares = octaves.windows(2).map(|pair| (pair[1] - pair[0]).powi(2)).sum::<f64>();
        let by_steps = (0.5 * squares / (count - 1) as f64).sqrt();
        let squares = octaves.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
        let by_spread = (squares / (count - 1) as f64).sqrt();
        let deviation = by_steps.max(by_spread) / (count as f64).sqrt();
        Some(Self { mean, deviation, degrees: (count - 1) as f64 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dispatch::testing::row;

    #[test]
    fn an_error_within_its_bound_is_no_evidence() {
        let policy = Policy::paper();
        let p = |error: f64| {
            let row = row("a", Gemm::Fprop, "cublaslt/fp8-rowwise", error, Some(2.0), 0.0);
            error_evidence(&row, &policy, 0.5, 0.95).unwrap().p
        };
        // 10 % wide at 95 %, eight draws: t of 2.36 there.
        assert!(p(0.1) > 0.999_99 && (p(0.2) - 0.5).abs() < 1e-9, "{} {}", p(0.1), p(0.2));
        assert!((p(0.2 / 0.9) - 0.025).abs() < 1e-3, "its lower end is at the bound: {}", p(0.2 / 0.9));
        assert!(p(0.8) < 1e-5, "{}", p(0.8));
        assert_eq!(p(f64::NAN), 0.0);
        assert_eq!(p(f64::INFINITY), 0.0);
    }

    #[test]
    fn a_range_that_doubled_is_told_from_one_that_moves_anyway() {
        let site = SiteId::new("a");
        let p = |before: &[f32], now: &[f32]| range_evidence((&site, "x"), [before, now], 1.5, 0.3).unwrap().p;
        let noisy =
            |level: f32| -> Vec<f32> { (0..16).map(|at| level * (1.0 + 0.1 * ((at * 7 % 5) as f32 - 2.0))).collect() };
        assert!(p(&noisy(3.0), &noisy(3.3)) > 0.99);
        assert!(p(&noisy(3.0), &noisy(6.0)) < 1e-4, "{}", p(&noisy(3.0), &noisy(6.0)));
        assert!(p(&noisy(3.0), &noisy(1.4)) < 1e-4);
        assert_eq!(p(&noisy(3.0), &[f32::NAN]), 0.0);
        assert!(range_evidence((&site, "x"), [&[], &[1.0]], 1.5, 0.3).is_none());
        // One value each says little by itself.
        assert!(p(&[1.0], &[2.0]) > 0.05);
    }
}
