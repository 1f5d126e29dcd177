//! Takes candidates and a policy, gives what speed-up each loss cost buys: the curve to draw.

use crate::model::{KernelId, Metric};

use super::{
    Candidates, Policy,
    knapsack::{HullWalk, Item},
    select::{Judged, loss_cost_hi, options},
};

/// More are not told apart on a screen.
pub const MAX_FRONTIER_POINTS: usize = 200;

/// All GEMMs at once with the forward ones at one loss budget.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FrontierPoint {
    pub speedup: f64,
    /// Summed loss cost of the forward GEMMs, value and upper ends.
    pub loss_cost: f64,
    pub loss_cost_hi: f64,
    /// The largest error of a chosen low-precision kernel in the policy's metric, forward and
    /// backward (the smallest ratio for `sqnr_db`); `None` while there is none.
    pub worst_error: Option<f64>,
    /// GEMMs that leave the baseline.
    pub num_low_precision: usize,
}

/// From high precision everywhere forward to no limit at all, along the most efficient steps; the
/// backward GEMMs as the policy's error bound decides. Empty when no latency is known.
pub fn frontier(candidates: &Candidates, policy: &Policy, loss: f64) -> Vec<FrontierPoint> {
    // Whatever the policy, the curve is about a budget.
    let unlimited = Policy { loss_budget: Some(policy.loss_budget.unwrap_or(1.0)), ..policy.clone() };
    let judged: Vec<Judged> = candidates.groups.iter().map(|group| Judged::new(group, &unlimited, loss)).collect();
    let mut state = Walker::new(&unlimited);
    let (mut groups, mut rows) = (Vec::new(), Vec::new());
    for group in judged.iter().filter(|group| group.reference_us.is_some()) {
        if group.budgeted {
            let (items, meaning) = options(group, &unlimited);
            groups.push(items);
            rows.push((group, meaning));
        } else {
            state.add_backward(group);
        }
    }
    let walk = HullWalk::new(&groups);
    state.baseline_us += groups.iter().filter_map(|items| items.first()).map(|stay| stay.time).sum::<f64>();
    if state.baseline_us == 0.0 {
        return Vec::new();
    }
    let mut picks = walk.start.clone();
    let every = walk.steps.len().div_ceil(MAX_FRONTIER_POINTS - 1).max(1);
    let mut points = vec![state.point(&groups, &rows, &picks)];
    for (taken, step) in walk.steps.iter().enumerate() {
        picks[step.group] = step.to;
        if (taken + 1).is_multiple_of(every) || taken + 1 == walk.steps.len() {
            points.push(state.point(&groups, &rows, &picks));
        }
    }
    points
}

type Forward<'j, 'c, 'a> = (&'j Judged<'c, 'a>, Vec<Option<&'a crate::model::ResultRow>>);

/// The backward GEMMs' share, fixed along the curve.
struct Walker {
    metric: Metric,
    baseline: KernelId,
    baseline_us: f64,
    backward_us: f64,
    backward_worst: Option<f64>,
    backward_low: usize,
}

impl Walker {
    fn new(policy: &Policy) -> Self {
        let baseline = policy.baseline.clone();
        Self {
            metric: policy.metric,
            baseline,
            baseline_us: 0.0,
            backward_us: 0.0,
            backward_worst: None,
            backward_low: 0,
        }
    }

    fn add_backward(&mut self, group: &Judged) {
        let reference = group.reference_us.unwrap_or(0.0);
        self.baseline_us += reference;
        let admissible = group.admissible();
        let Some(best) = admissible.first() else {
            self.backward_us += reference;
            return;
        };
        self.backward_us += reference / best.row.speedup().unwrap_or(1.0);
        self.backward_low += 1;
        self.backward_worst = self.worse(self.backward_worst, best.row.metric(self.metric).map(|error| error.value));
    }

    fn worse(&self, a: Option<f64>, b: Option<f64>) -> Option<f64> {
        match (a, b.filter(|value| value.is_finite())) {
            (Some(a), Some(b)) if self.metric == Metric::SqnrDb => Some(a.min(b)),
            (Some(a), Some(b)) => Some(a.max(b)),
            (a, b) => a.or(b),
        }
    }

    /// Summed anew at each point: 200 sums are cheap, and rounding does not pile up.
    fn point(&self, groups: &[Vec<Item>], rows: &[Forward], picks: &[usize]) -> FrontierPoint {
        let mut planned_us = self.backward_us;
        let (mut loss_cost, mut loss_cost_sum_hi) = (0.0, 0.0);
        let (mut worst_error, mut num_low_precision) = (self.backward_worst, self.backward_low);
        for ((items, (group, meaning)), pick) in groups.iter().zip(rows).zip(picks) {
            planned_us += items[*pick].time;
            let row = meaning[*pick].or_else(|| group.group.row(&self.baseline));
            loss_cost += row.and_then(|row| row.metric(Metric::LossCost)).map_or(0.0, |cost| cost.value);
            loss_cost_sum_hi += row.and_then(loss_cost_hi).unwrap_or(0.0);
            if let Some(low) = meaning[*pick] {
                num_low_precision += 1;
                worst_error = self.worse(worst_error, low.metric(self.metric).map(|error| error.value));
            }
        }
        FrontierPoint {
            speedup: self.baseline_us / planned_us,
            loss_cost,
            loss_cost_hi: loss_cost_sum_hi,
            worst_error,
            num_low_precision,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        dispatch::{
            Overrides, SiteMods, dispatch,
            testing::{Dice, results, row},
        },
        model::{Gemm, Results},
    };

    fn many(sites: usize) -> Results {
        let mut dice = Dice::new(3);
        let names: Vec<String> = (0..sites).map(|site| format!("s{site}")).collect();
        let mut rows = Vec::new();
        for name in &names {
            for kernel in ["te/current", "fbgemm/rowwise", "torchao/rowwise"] {
                rows.push(row(name, Gemm::Fprop, kernel, 0.1, Some(0.8 + dice.unit()), 1e-6 * dice.unit()));
                rows.push(row(name, Gemm::Dgrad, kernel, 0.06 * dice.unit(), Some(1.2), 0.0));
            }
        }
        results(&names.iter().map(String::as_str).collect::<Vec<_>>(), rows)
    }

    #[test]
    fn rises_with_falling_returns_and_is_ready_to_draw() {
        let results = many(300);
        let candidates = Candidates::new(&results, &SiteMods::default());
        let points = frontier(&candidates, &Policy::rel_l2(), 0.5);
        assert!(points.len() > 100 && points.len() <= MAX_FRONTIER_POINTS, "{}", points.len());
        assert_eq!(points[0].loss_cost_hi, 0.0);
        for pair in points.windows(2) {
            assert!(pair[1].speedup > pair[0].speedup && pair[1].loss_cost_hi > pair[0].loss_cost_hi);
        }
    }

    #[test]
    fn the_optimum_for_a_points_cost_is_at_least_as_fast() {
        let results = many(40);
        let candidates = Candidates::new(&results, &SiteMods::default());
        for point in frontier(&candidates, &Policy::loss_budget(), 0.5).iter().step_by(7) {
            let policy = Policy { loss_budget: Some(point.loss_cost_hi / 0.5), ..Policy::loss_budget() };
            let best = dispatch(&candidates, &policy, &Overrides::new(), 0.5).unwrap();
            assert!(
                (best.totals.speedup.unwrap() - point.speedup).abs() < 1e-9,
                "a hull vertex is optimal at its own cost"
            );
        }
    }

    #[test]
    fn nothing_known_draws_nothing() {
        let mut results = many(2);
        results.rows.clear();
        assert!(frontier(&Candidates::new(&results, &SiteMods::default()), &Policy::paper(), 0.5).is_empty());
    }
}
