//! Takes candidates and a policy, gives what speed-up each loss cost buys: the curve to draw.

use crate::model::{Metric, ResultRow};

use super::{
    Candidates, Policy,
    joint::{SiteOptions, Triple},
    judged::{Judged, loss_cost_hi},
    knapsack::HullWalk,
    select,
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
    let baseline_us: f64 = judged.iter().filter_map(|group| group.reference_us).sum();
    if baseline_us == 0.0 {
        return Vec::new();
    }
    let (mut items, mut parts) = (Vec::new(), Vec::new());
    for site in judged.as_chunks::<3>().0 {
        let triples = SiteOptions::new(site, [None; 3], &unlimited).by_forward();
        items.push(select::items(&triples, site, &unlimited));
        parts.push(triples.iter().map(|triple| Part::of(triple, site, &unlimited)).collect::<Vec<_>>());
    }
    let walk = HullWalk::new(&items);
    let mut picks = walk.start.clone();
    let every = walk.steps.len().div_ceil(MAX_FRONTIER_POINTS - 1).max(1);
    let mut points = vec![point(&parts, &picks, policy.metric, baseline_us)];
    for (taken, step) in walk.steps.iter().enumerate() {
        picks[step.group] = step.to;
        if (taken + 1).is_multiple_of(every) || taken + 1 == walk.steps.len() {
            points.push(point(&parts, &picks, policy.metric, baseline_us));
        }
    }
    points
}

/// What one site adds to a point.
struct Part {
    us: f64,
    loss_cost: f64,
    loss_cost_hi: f64,
    worst_error: Option<f64>,
    num_low_precision: usize,
}

impl Part {
    fn of(triple: &Triple, judged: &[Judged; 3], policy: &Policy) -> Self {
        // A GEMM that no time is known for is not part of the curve.
        let timed = |at: &usize| judged[*at].reference_us.is_some();
        let forward = triple.rows[0].or_else(|| judged[0].group.row(&policy.baseline)).filter(|_| timed(&0));
        let low: Vec<&ResultRow> = (0..3).filter(timed).filter_map(|at| triple.rows[at]).collect();
        let errors = low.iter().map(|row| row.metric(policy.metric).map(|error| error.value));
        Self {
            us: triple.us,
            loss_cost: forward.and_then(|row| row.metric(Metric::LossCost)).map_or(0.0, |cost| cost.value),
            loss_cost_hi: forward.and_then(loss_cost_hi).unwrap_or(0.0),
            worst_error: errors.fold(None, |worst, error| worse(policy.metric, worst, error)),
            num_low_precision: low.len(),
        }
    }
}

fn worse(metric: Metric, a: Option<f64>, b: Option<f64>) -> Option<f64> {
    match (a, b.filter(|value| value.is_finite())) {
        (Some(a), Some(b)) if metric == Metric::SqnrDb => Some(a.min(b)),
        (Some(a), Some(b)) => Some(a.max(b)),
        (a, b) => a.or(b),
    }
}

/// Summed anew at each point: 200 sums are cheap, and rounding does not pile up.
fn point(sites: &[Vec<Part>], picks: &[usize], metric: Metric, baseline_us: f64) -> FrontierPoint {
    let mut sum = Part { us: 0.0, loss_cost: 0.0, loss_cost_hi: 0.0, worst_error: None, num_low_precision: 0 };
    for part in sites.iter().zip(picks).map(|(parts, pick)| &parts[*pick]) {
        sum.us += part.us;
        sum.loss_cost += part.loss_cost;
        sum.loss_cost_hi += part.loss_cost_hi;
        sum.worst_error = worse(metric, sum.worst_error, part.worst_error);
        sum.num_low_precision += part.num_low_precision;
    }
    FrontierPoint {
        speedup: baseline_us / sum.us,
        loss_cost: sum.loss_cost,
        loss_cost_hi: sum.loss_cost_hi,
        worst_error: sum.worst_error,
        num_low_precision: sum.num_low_precision,
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
