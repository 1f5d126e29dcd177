//! Takes one judged row, gives what would change its verdict: more draws, another threshold, fewer
//! microseconds, and how far a good verdict is from turning.
//!
//! **Draws.** An interval over n draws has the half-width `h(n) = t(n - 1) s / sqrt(n)`, with s the scatter
//! from draw to draw. Taking s and the value as they are now, and t as no smaller with more draws (it falls
//! from 2.13 at 16 to 1.96, so that the answer errs on the side of too many), the half-width after n' draws
//! is `h sqrt(n / n')`. The verdict stands as soon as that is at most the distance d from the value to the
//! threshold:
//!
//! ```text
//! n' = n (h / d)^2
//! ```
//!
//! It is an expectation: the value moves too, by about h. Where d is so small that n' is beyond
//! [`MOST_DRAWS`] more, the honest answer is that the value sits on the threshold. A loss cost outside its range is no
//! value to hold against anything, after any number of draws.

use crate::{
    dispatch::{Bound, Policy},
    model::{Estimate, Latency, Metric, ResultRow, Safety},
};

/// Beyond so many more draws nothing is promised.
pub const MOST_DRAWS: u64 = 10_000;

/// What would change both verdicts of one row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outlook {
    pub bound: Bound,
    pub error: ErrorOutlook,
    pub speed: SpeedOutlook,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ErrorOutlook {
    /// No error is known in the bound's metric.
    Unknown,
    /// `end`: the interval's end nearest to the threshold; `margin`: how far it is from it, as a share of
    /// the threshold.
    Safe { end: f64, margin: f64 },
    /// `leans`: what the value alone would be.
    Uncertain { leans: Safety, more: MoreDraws },
    /// A loss cost outside its range: uncertain, and more draws change nothing about it.
    MeansNothing,
    /// `safe_from`: a policy with this threshold would call it safe; `None`: no threshold would.
    Unsafe { safe_from: Option<f64> },
}

/// Draws until the interval clears the threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoreDraws {
    /// Further ones, and with those taken.
    Expected { more: u64, total: u64 },
    /// More than [`MOST_DRAWS`].
    OnThreshold,
    /// One draw has no interval to go by.
    TooFew,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SpeedOutlook {
    /// No latency is known.
    Unknown,
    /// It could take so much longer and still be fast.
    Fast { spare_us: f64 },
    /// It would be fast below `needed_us`.
    Slow { latency_us: f64, needed_us: f64, part: SlowPart },
}

/// What has to shrink.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SlowPart {
    /// The bare GEMM would do.
    Casts { from_us: f64, to_us: f64 },
    /// It is too slow even with no cast at all.
    Gemm { from_us: f64, to_us: f64 },
    /// The latency is known as a whole only.
    Unsplit,
}

impl Outlook {
    /// `loss`: the trace's.
    pub fn of(row: &ResultRow, bound: Bound, policy: &Policy, loss: f64) -> Self {
        let (error, speed) = (error_outlook(row, bound, loss), speed_outlook(&row.latency, policy.min_speedup));
        Self { bound, error, speed }
    }
}

fn error_outlook(row: &ResultRow, bound: Bound, loss: f64) -> ErrorOutlook {
    if bound.metric == Metric::LossCost && row.loss_cost_means_nothing(loss) {
        return ErrorOutlook::MeansNothing;
    }
    let Some(estimate) = row.metric(bound.metric) else { return ErrorOutlook::Unknown };
    let draws = row.error.as_ref().map_or(0, |error| error.draws);
    let estimate = bound.metric.on_scale(estimate);
    let end = bound.metric.worse_end(estimate);
    match bound.safety(Some(estimate)) {
        Safety::Safe => ErrorOutlook::Safe { end, margin: (bound.limit - end).abs() / bound.limit.abs() },
        Safety::Unsafe => ErrorOutlook::Unsafe { safe_from: Some(end).filter(|end| end.is_finite()) },
        Safety::Uncertain => {
            let below = estimate.value <= bound.limit;
            let leans = if below == bound.metric.larger_is_better() { Safety::Unsafe } else { Safety::Safe };
            ErrorOutlook::Uncertain { leans, more: further_draws(estimate, bound.limit, draws) }
        }
    }
}

/// See the module's head. The upper half is taken: the lower one may be cut off at zero.
pub fn further_draws(estimate: Estimate, limit: f64, draws: u64) -> MoreDraws {
    let half = estimate.hi - estimate.value;
    if draws < 2 || !half.is_finite() {
        return MoreDraws::TooFew;
    }
    let ratio = half / (estimate.value - limit).abs();
    let total = (draws as f64 * ratio * ratio).ceil();
    let more = (total - draws as f64).max(1.0);
    if more.is_nan() || more > MOST_DRAWS as f64 {
        return MoreDraws::OnThreshold;
    }
    MoreDraws::Expected { more: more as u64, total: draws + more as u64 }
}

fn speed_outlook(latency: &Latency, min_speedup: f64) -> SpeedOutlook {
    let (Some(latency_us), Some(baseline_us)) = (latency.latency_us, latency.baseline_us) else {
        return SpeedOutlook::Unknown;
    };
    let needed_us = baseline_us / min_speedup;
    if latency_us < needed_us {
        return SpeedOutlook::Fast { spare_us: needed_us - latency_us };
    }
    let part = match Parts::of(latency) {
        None => SlowPart::Unsplit,
        Some(parts) if parts.gemm_us < needed_us => {
            SlowPart::Casts { from_us: parts.casts_us, to_us: needed_us - parts.gemm_us }
        }
        Some(parts) => SlowPart::Gemm { from_us: parts.gemm_us, to_us: needed_us },
    };
    SpeedOutlook::Slow { latency_us, needed_us, part }
}

/// A latency in two: the bare GEMM, and what there is beyond it. They add up to the latency, which medians of
/// parts need not: launches overlap.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parts {
    pub gemm_us: f64,
    pub casts_us: f64,
}

impl Parts {
    pub fn of(latency: &Latency) -> Option<Self> {
        let (all, gemm_us) = (latency.latency_us?, latency.gemm_us?);
        let gemm_us = gemm_us.clamp(0.0, all);
        Some(Self { gemm_us, casts_us: all - gemm_us })
    }
}

/// How many draws to ask for so that these rows' verdicts may be expected to stand: a quarter more than
/// expected, since the value moves too; four times as many where one sits on the threshold; twice as many
/// where all stand already, or no draw decides, and a person wants to see closer. `loss`: the trace's.
pub fn draws_to_ask<'a>(rows: impl Iterator<Item = &'a ResultRow>, bound: Bound, loss: f64) -> Option<u64> {
    let mut most_taken = 0;
    let mut wanted = None;
    for row in rows.filter(|row| row.supported) {
        let Some(taken) = row.error.as_ref().map(|error| error.draws) else { continue };
        most_taken = most_taken.max(taken);
        wanted = wanted.max(match error_outlook(row, bound, loss) {
            ErrorOutlook::Uncertain { more: MoreDraws::Expected { total, .. }, .. } => Some(total + total / 4),
            ErrorOutlook::Uncertain { .. } => Some(4 * taken.max(16)),
            _ => None,
        });
    }
    let asked = wanted.unwrap_or(2 * most_taken).max(most_taken + 8);
    (most_taken > 0).then(|| asked.next_multiple_of(8).min(MOST_DRAWS.max(most_taken + 8)))
}

/// The sampler against the rows that it was not fitted on, in one metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Faithful {
    pub metric: Metric,
    pub sampled: Estimate,
    pub heldout: f64,
    pub rows: u64,
    /// How far the two may lie apart by chance.
    pub chance: f64,
    pub differs: bool,
}

impl Faithful {
    /// The held-out rows are one batch, with a scatter of its own: that of a draw, `h sqrt(n)`, where they
    /// are at least as many as a draw has. The mean over n draws is known to h, so that the two differ by
    /// at most `h sqrt(n + 1)` at the interval's confidence if the sampler is faithful.
    pub fn of(row: &ResultRow) -> Vec<Self> {
        let (Some(error), Some(fidelity)) = (&row.error, row.fidelity) else { return Vec::new() };
        let both =
            [(Metric::RelL2, error.rel_l2, fidelity.heldout_rel_l2), (Metric::Mere, error.mere, fidelity.heldout_mere)];
        let of = |(metric, sampled, heldout): (Metric, Estimate, f64)| {
            let chance = (sampled.hi - sampled.value) * (error.draws as f64 + 1.0).sqrt();
            let differs = (heldout - sampled.value).abs() > chance;
            Self { metric, sampled, heldout, rows: fidelity.rows, chance, differs }
        };
        both.map(of).to_vec()
    }
}
