//! Takes one row and a policy, gives the verdicts: is it safe, is it fast.

use crate::model::{Estimate, Gemm, Metric, Quadrant, ResultRow, Safety, SiteId, Speed};

use super::Policy;

/// What a row's error is held against.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bound {
    pub metric: Metric,
    pub limit: f64,
}

/// The policy's metric; or, for a forward GEMM under a loss budget, that GEMM's loss cost against
/// the budget of the whole model: a kernel that alone breaks it is unsafe, the rest is for the
/// optimiser. The bound is that of the site's group, where the policy has one. `loss`: the trace's loss value.
pub fn bound_of(policy: &Policy, site: &SiteId, gemm: Gemm, loss: f64) -> Bound {
    match policy.loss_budget {
        Some(share) if gemm == Gemm::Fprop => Bound { metric: Metric::LossCost, limit: share * loss },
        _ => {
            let limit = policy.group_of(site).map_or(policy.max_error, |group| group.max_error);
            Bound { metric: policy.metric, limit }
        }
    }
}

/// The bound on the bias that a policy may have beside it, of the backward GEMMs.
pub(super) fn bias_bound(policy: &Policy, gemm: Gemm) -> Option<Bound> {
    let limit = policy.max_bias.filter(|_| gemm != Gemm::Fprop)?;
    Some(Bound { metric: Metric::Bias, limit })
}

/// The row against all of its bounds, and the one that decides: of two that say the same the policy's metric.
pub fn decided_by(row: &ResultRow, policy: &Policy, loss: f64) -> (Safety, Bound) {
    let bound = bound_of(policy, &row.site, row.gemm, loss);
    // A figure that means nothing is no verdict either.
    let means_nothing = bound.metric == Metric::LossCost && row.loss_cost_means_nothing(loss);
    let safety = if means_nothing { Safety::Uncertain } else { bound.safety(row.metric(bound.metric)) };
    match bias_bound(policy, row.gemm).map(|bias| (bias.safety(row.metric(Metric::Bias)), bias)) {
        Some(worse) if worse.0 > safety => worse,
        _ => (safety, bound),
    }
}

impl Bound {
    pub fn safety(self, estimate: Option<Estimate>) -> Safety {
        let Some(estimate) = estimate else { return Safety::Uncertain };
        let estimate = self.metric.on_scale(estimate);
        // Of a ratio in dB the larger is better: the interval's other end decides.
        let (certain, at_best) = if self.metric.larger_is_better() {
            (estimate.lo >= self.limit, estimate.hi >= self.limit)
        } else {
            (estimate.hi <= self.limit, estimate.lo <= self.limit)
        };
        if estimate.lo.is_nan() || estimate.hi.is_nan() {
            Safety::Uncertain
        } else if certain {
            Safety::Safe
        } else if at_best {
            Safety::Uncertain
        } else {
            Safety::Unsafe
        }
    }
}

pub fn speed(speedup: Option<f64>, policy: &Policy) -> Speed {
    match speedup {
        Some(speedup) if speedup > policy.min_speedup => Speed::Fast,
        Some(_) => Speed::Slow,
        None => Speed::Unknown,
    }
}

/// Safety, speed and the quadrant of one row; slower than BF16 is never fast, whatever the policy allows. `loss` is the
/// trace's loss value (used under a loss budget only).
pub fn judge(row: &ResultRow, policy: &Policy, loss: f64) -> (Safety, Speed, Quadrant) {
    let (safety, _) = decided_by(row, policy, loss);
    let (speed, quadrant) = quadrant_of(safety, row.speedup(), policy);
    (safety, speed, if row.supported { quadrant } else { Quadrant::Unsupported })
}

/// Of a kernel that runs.
pub fn quadrant_of(safety: Safety, speedup: Option<f64>, policy: &Policy) -> (Speed, Quadrant) {
    let speed = match speed(speedup, policy) {
        Speed::Fast if speedup.is_some_and(|speedup| speedup <= 1.0) => Speed::Slow,
        speed => speed,
    };
    let quadrant = match (safety, speed) {
        (Safety::Uncertain, _) => Quadrant::Uncertain,
        (Safety::Safe, Speed::Unknown) => Quadrant::SafeUnknown,
        (Safety::Unsafe, Speed::Unknown) => Quadrant::UnsafeUnknown,
        (Safety::Safe, Speed::Fast) => Quadrant::SafeFast,
        (Safety::Safe, Speed::Slow) => Quadrant::SafeSlow,
        (Safety::Unsafe, Speed::Fast) => Quadrant::UnsafeFast,
        (Safety::Unsafe, Speed::Slow) => Quadrant::UnsafeSlow,
    };
    (speed, quadrant)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dispatch::testing::row;

    #[test]
    fn the_interval_decides() {
        let bound = Bound { metric: Metric::Mere, limit: 0.2 };
        let safety = |lo, hi| bound.safety(Some(Estimate::new(0.2, lo, hi)));
        assert_eq!(safety(0.1, 0.2), Safety::Safe);
        assert_eq!(safety(0.1, 0.21), Safety::Uncertain);
        assert_eq!(safety(0.2, 0.3), Safety::Uncertain);
        assert_eq!(safety(0.21, 0.3), Safety::Unsafe);
        assert_eq!(safety(0.1, f64::INFINITY), Safety::Uncertain);
        assert_eq!(safety(f64::NAN, 0.1), Safety::Uncertain);
        assert_eq!(bound.safety(None), Safety::Uncertain);
    }

    #[test]
    fn decibels_are_better_when_larger() {
        let bound = Bound { metric: Metric::SqnrDb, limit: 30.0 };
        assert_eq!(bound.safety(Some(Estimate::new(33.0, 31.0, 35.0))), Safety::Safe);
        assert_eq!(bound.safety(Some(Estimate::new(30.0, 29.0, 31.0))), Safety::Uncertain);
        assert_eq!(bound.safety(Some(Estimate::new(20.0, 19.0, 21.0))), Safety::Unsafe);
    }

    /// A threshold below 1x lets low precision run at that price; it is not called fast.
    #[test]
    fn slower_than_bf16_is_never_fast() {
        let policy = Policy { min_speedup: 0.5, ..Policy::paper() };
        let of = |speedup| judge(&row("s", Gemm::Fprop, "te/current", 0.1, Some(speedup), 0.0), &policy, 0.5);
        assert_eq!((of(0.8).1, of(0.8).2), (Speed::Slow, Quadrant::SafeSlow));
        assert_eq!((of(1.2).1, of(1.2).2), (Speed::Fast, Quadrant::SafeFast));
    }

    #[test]
    fn a_bias_may_point_either_way() {
        let bound = Bound { metric: Metric::Bias, limit: 0.01 };
        let safety = |lo, hi| bound.safety(Some(Estimate::new(0.5 * (lo + hi), lo, hi)));
        assert_eq!(safety(-0.009, 0.002), Safety::Safe);
        assert_eq!(safety(-0.011, 0.002), Safety::Uncertain);
        assert_eq!(safety(-0.03, -0.02), Safety::Unsafe);
        assert_eq!(safety(0.02, 0.03), Safety::Unsafe);
        assert_eq!(safety(f64::NEG_INFINITY, f64::INFINITY), Safety::Uncertain);
    }

    #[test]
    fn balanced_holds_the_backward_to_noise_and_bias_and_the_forward_to_its_loss() {
        let policy = Policy::balanced();
        let of = |gemm, noise: Option<f64>, bias: f64| {
            let mut row = row("s", gemm, "te/current", 9.0, Some(2.0), 0.9e-4);
            let error = row.error.as_mut().unwrap();
            error.noise = noise.map(|share| crate::model::NoiseShare {
                share: Estimate::exact(share),
                basis: crate::model::NoiseBasis::Independent,
                steps: None,
            });
            error.bias = Some(Estimate::exact(bias));
            decided_by(&row, &policy, 0.5)
        };
        assert_eq!(of(Gemm::Fprop, None, 0.5).0, Safety::Safe, "a forward's bias is in its loss cost");
        assert_eq!(of(Gemm::Dgrad, Some(0.009), -0.009).0, Safety::Safe);
        assert_eq!(of(Gemm::Wgrad, Some(0.011), -0.009).0, Safety::Unsafe);
        assert_eq!(of(Gemm::Wgrad, None, 0.0).0, Safety::Uncertain, "what nobody knows is not safe");
        let (safety, bound) = of(Gemm::Wgrad, Some(0.009), -0.011);
        assert_eq!((safety, bound), (Safety::Unsafe, Bound { metric: Metric::Bias, limit: 0.01 }));
    }

    #[test]
    fn a_cost_beyond_a_tenth_of_the_loss_is_no_verdict() {
        let policy = Policy::loss_budget();
        let safety = |cost| judge(&row("s", Gemm::Fprop, "te/current", 0.1, Some(2.0), cost), &policy, 0.5).0;
        assert_eq!(safety(0.04), Safety::Unsafe);
        assert_eq!(safety(0.06), Safety::Uncertain);
    }

    /// What BF16 is charged is nothing, in and out of range, with every draw; what a kernel is that errs as much as a BF16 out
    /// of range, nobody knows.
    #[test]
    fn bf16_is_safe_whatever_its_own_cost() {
        let policy = Policy::loss_budget();
        let safety = |kernel, cost| {
            let mut rows = vec![
                row("s", Gemm::Fprop, "cublaslt/bf16", 0.1, Some(1.0), 7.0),
                row("s", Gemm::Fprop, kernel, 0.1, Some(2.0), cost),
            ];
            crate::model::charge_excess(&mut rows);
            [&rows[0], &rows[1]].map(|row| judge(row, &policy, 0.5).0)
        };
        assert_eq!(safety("te/current", 6.0), [Safety::Safe, Safety::Uncertain]);
        assert_eq!(safety("cublaslt/tf32", 6.0), [Safety::Safe, Safety::Safe]);
        assert_eq!(safety("te/current", 9.0), [Safety::Safe, Safety::Uncertain]);
    }

    #[test]
    fn quadrants() {
        let policy = Policy::paper();
        let quadrant = |mere, speedup| judge(&row("s", Gemm::Fprop, "te/current", mere, speedup, 0.0), &policy, 0.5).2;
        assert_eq!(quadrant(0.1, Some(1.2)), Quadrant::SafeFast);
        assert_eq!(quadrant(0.1, Some(1.05)), Quadrant::SafeSlow);
        assert_eq!(quadrant(0.4, Some(1.2)), Quadrant::UnsafeFast);
        assert_eq!(quadrant(0.4, Some(0.9)), Quadrant::UnsafeSlow);
        assert_eq!(quadrant(0.1, None), Quadrant::SafeUnknown);
        assert_eq!(quadrant(0.4, None), Quadrant::UnsafeUnknown);
        let mut unsupported = row("s", Gemm::Fprop, "te/current", 0.1, Some(1.2), 0.0);
        unsupported.supported = false;
        assert_eq!(judge(&unsupported, &policy, 0.5).2, Quadrant::Unsupported);
    }

    #[test]
    fn a_loss_budget_bounds_forward_by_cost_and_backward_by_error() {
        let policy = Policy::loss_budget();
        let safety = |gemm, mere, cost| judge(&row("s", gemm, "te/current", mere, Some(2.0), cost), &policy, 0.5).0;
        assert_eq!(safety(Gemm::Fprop, 9.0, 0.9e-4), Safety::Safe);
        assert_eq!(safety(Gemm::Fprop, 9.0, 2e-4), Safety::Unsafe);
        assert_eq!(safety(Gemm::Dgrad, 0.9, 0.0), Safety::Unsafe);
        assert_eq!(safety(Gemm::Dgrad, 0.01, 0.0), Safety::Safe);
    }
}
