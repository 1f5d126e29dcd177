//! Takes candidates and a policy, gives the curve that it is one point of: what each threshold of it buys, and costs.

use crate::model::Metric;

use super::{Candidates, FrontierPoint, Policy, frontier_in, limits_of, sweep};

/// Thresholds of a curve whose policy bounds every GEMM's error.
const MAX_LIMITS: usize = 24;

/// What a frontier costs, on the axis that goes up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FrontierAxis {
    /// The summed loss cost's upper end, which is what a budget bounds.
    #[default]
    LossCost,
    /// The largest error of any GEMM in low precision, in the metric of the policy in force.
    WorstError,
    /// The largest noise share of any GEMM in low precision: what the backward costs, as the loss cost is the forward's.
    WorstNoise,
}

impl FrontierAxis {
    pub const ALL: [Self; 3] = [Self::LossCost, Self::WorstError, Self::WorstNoise];

    /// What costs are in, under a policy of the metric `own`.
    pub fn metric(self, own: Metric) -> Metric {
        match self {
            Self::LossCost => Metric::LossCost,
            Self::WorstError => own,
            Self::WorstNoise => Metric::NoiseShare,
        }
    }

    /// What is written along the axis.
    pub fn label(self, own: Metric) -> String {
        let metric = self.metric(own);
        let label = match self {
            Self::LossCost => "Summed loss cost, upper end".to_owned(),
            Self::WorstError | Self::WorstNoise => format!("Worst {}", metric.label()),
        };
        if metric.is_log() { format!("{label} (log)") } else { label }
    }

    #[must_use]
    pub fn next(self) -> Self {
        let at = Self::ALL.iter().position(|of| *of == self).unwrap_or(0);
        Self::ALL[(at + 1) % Self::ALL.len()]
    }

    /// `None`: nothing is lost, or nobody knows.
    pub fn cost(self, point: &FrontierPoint) -> Option<f64> {
        let cost = match self {
            Self::LossCost => Some(point.loss_cost_hi),
            Self::WorstError => point.worst_error,
            Self::WorstNoise => point.worst_noise,
        };
        cost.filter(|cost| cost.is_finite() && *cost > 0.0)
    }
}

/// One threshold and what it gives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CurvePoint {
    /// The largest error, or the share of the loss that may be spent.
    pub threshold: f64,
    pub totals: FrontierPoint,
}

/// One policy as its threshold moves.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// The policy with the threshold that it has now.
    pub policy: Policy,
    pub points: Vec<CurvePoint>,
}

impl Curve {
    /// The policy, and what its threshold is in.
    pub fn name(&self) -> String {
        let by = if self.policy.loss_budget.is_some() { "budget" } else { self.policy.metric.label() };
        format!("{}, by its {by}", self.policy.name)
    }

    /// What is adopted with that point; the policy's other numbers stay.
    pub fn policy_at(&self, point: usize) -> Option<Policy> {
        let threshold = self.points.get(point)?.threshold;
        let policy = self.policy.clone();
        Some(if policy.loss_budget.is_some() {
            Policy { loss_budget: Some(threshold), ..policy }
        } else {
            Policy { max_error: threshold, ..policy }
        })
    }

    /// `shown`: the metric of the worst error. No points where no latency is known.
    pub fn new(policy: Policy, candidates: &Candidates, loss: f64, shown: Metric) -> Self {
        let points = if policy.loss_budget.is_some() {
            let hull = frontier_in(candidates, &policy, loss, shown);
            // Without a loss there is nothing that a budget could be a share of.
            let hull = hull.into_iter().filter(|_| loss > 0.0);
            hull.map(|totals| CurvePoint { threshold: totals.loss_cost_hi / loss, totals }).collect()
        } else {
            let limits = limits_of(candidates, &policy, MAX_LIMITS);
            let totals = sweep(candidates, &policy, loss, shown, &limits);
            limits.into_iter().zip(totals).map(|(threshold, totals)| CurvePoint { threshold, totals }).collect()
        };
        Self { policy, points: rising(points) }
    }

    /// True where the curve of `policy` would have the same points.
    pub fn serves(&self, policy: &Policy) -> bool {
        let without = |policy: &Policy| {
            if policy.loss_budget.is_some() {
                Policy { loss_budget: Some(0.0), name: String::new(), ..policy.clone() }
            } else {
                Policy { max_error: 0.0, name: String::new(), ..policy.clone() }
            }
        };
        without(&self.policy) == without(policy)
    }
}

/// A laxer threshold that buys no speed is left out: a policy that takes kernels slower than BF16 pays for them twice, and
/// nobody would choose that point.
fn rising(points: Vec<CurvePoint>) -> Vec<CurvePoint> {
    let mut kept: Vec<CurvePoint> = Vec::with_capacity(points.len());
    for point in points {
        if kept.last().is_none_or(|last| point.totals.speedup >= last.totals.speedup * (1.0 - 1e-9)) {
            kept.push(point);
        }
    }
    kept
}

/// One policy a built-in kind: the one in force for its own kind, the built-in for the others.
pub fn policies_beside(now: &Policy) -> Vec<Policy> {
    let alike = |a: &Policy, b: &Policy| a.metric == b.metric && a.loss_budget.is_some() == b.loss_budget.is_some();
    let builtin = Policy::BUILTIN.iter().filter_map(|name| Policy::builtin(name).ok());
    let mut all: Vec<Policy> = builtin.map(|of| if alike(&of, now) { now.clone() } else { of }).collect();
    if !all.contains(now) {
        all.push(now.clone());
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_built_in_policy_has_a_curve_whichever_is_in_force() {
        for name in Policy::BUILTIN {
            let now = Policy { max_error: 0.0123, name: "ours".to_owned(), ..Policy::builtin(name).unwrap() };
            let beside: Vec<String> = policies_beside(&now).into_iter().map(|of| of.name).collect();
            let expected: Vec<&str> = Policy::BUILTIN.iter().map(|of| if *of == name { "ours" } else { of }).collect();
            assert_eq!(beside, expected);
        }
    }

    #[test]
    fn a_policy_unlike_all_of_them_comes_last() {
        let now = Policy { metric: Metric::SqnrDb, name: "ours".to_owned(), ..Policy::paper() };
        let beside: Vec<String> = policies_beside(&now).into_iter().map(|of| of.name).collect();
        assert_eq!(beside.split_last(), Some((&"ours".to_owned(), &Policy::BUILTIN.map(str::to_owned)[..])));
    }
}
