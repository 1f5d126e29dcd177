//! Takes candidates and a policy, gives what speed-up each loss cost buys, along the optimiser's hull or as
//! the largest error of a policy moves: the curves to draw.

use crate::model::{Metric, ResultRow, Speed};

use super::{
    Candidates, Policy,
    chain::{Links, Unit},
    joint::Triple,
    judged::{Judged, Terms, elsewhere},
    knapsack::{HullWalk, Item},
    parallel,
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
    /// The largest noise share of a chosen low-precision kernel, of the GEMMs that have one; `None` while there is none.
    pub worst_noise: Option<f64>,
    /// GEMMs that leave the baseline.
    pub num_low_precision: usize,
    /// Forward GEMMs that leave it and whose loss cost nobody knows, or means nothing: they are not in the sums.
    pub num_cost_unknown: usize,
}

impl FrontierPoint {
    fn of(sum: &CurvePart, baseline_us: f64) -> Self {
        Self {
            speedup: baseline_us / sum.us,
            loss_cost: sum.loss_cost,
            loss_cost_hi: sum.loss_cost_hi,
            worst_error: sum.worst_error,
            worst_noise: sum.worst_noise,
            num_low_precision: sum.num_low_precision,
            num_cost_unknown: sum.num_cost_unknown,
        }
    }
}

/// From high precision everywhere forward to no limit at all, along the most efficient steps; the
/// backward GEMMs as the policy's error bound decides. Empty when no latency is known.
pub fn frontier(candidates: &Candidates, policy: &Policy, loss: f64) -> Vec<FrontierPoint> {
    frontier_in(candidates, policy, loss, policy.metric)
}

/// The same with the worst error in the metric `shown`.
pub fn frontier_in(candidates: &Candidates, policy: &Policy, loss: f64, shown: Metric) -> Vec<FrontierPoint> {
    // Whatever the policy, the curve is about a budget.
    let unlimited = Policy { loss_budget: Some(policy.loss_budget.unwrap_or(1.0)), ..policy.clone() };
    let terms = Terms { policy: &unlimited, loss, target: &candidates.target };
    let groups = candidates.groups.as_chunks::<3>().0;
    let links = Links::of(groups, terms.target.runtime(), None);
    let units = links.units(groups.len());
    let units = parallel::map(units.len(), |at| {
        UnitParts::of(&Unit::new(units.get(at), (groups, &[]), &links, (terms, None)), terms, shown)
    });
    let baseline_us: f64 = units.iter().map(|unit| unit.baseline_us).sum();
    if baseline_us == 0.0 {
        return Vec::new();
    }
    let (items, parts): (Vec<Vec<Item>>, Vec<Vec<CurvePart>>) =
        units.into_iter().map(|unit| (unit.items, unit.parts)).unzip();
    let walk = HullWalk::new(&items.iter().map(Vec::as_slice).collect::<Vec<_>>());
    let every = walk.steps.len().div_ceil(MAX_FRONTIER_POINTS - 1).max(1);
    // The start, then after every so many steps, the last of them included.
    let num_points = 1 + walk.steps.len().div_ceil(every);
    parallel::map_few(num_points, |range| {
        let mut picks = walk.start.clone();
        let mut taken = 0;
        let mut points = Vec::with_capacity(range.len());
        for at in range {
            let until = (at * every).min(walk.steps.len());
            walk.steps[taken..until].iter().for_each(|step| picks[step.group] = step.to);
            taken = until;
            points.push(point(&parts, &picks, shown, baseline_us));
        }
        points
    })
}

/// What the sites of one unit may get, and what each of it adds to a point.
struct UnitParts {
    baseline_us: f64,
    items: Vec<Item>,
    parts: Vec<CurvePart>,
}

impl UnitParts {
    fn of(unit: &Unit, unlimited: Terms<'_>, shown: Metric) -> Self {
        let part = |item: usize| CurvePart::of_unit(unit, item, unlimited, shown);
        Self {
            baseline_us: unit.baseline_us(),
            items: unit.items().to_vec(),
            parts: (0..unit.items().len()).map(part).collect(),
        }
    }
}

/// The totals of a policy without a loss budget at each of `limits` for its largest error, as [`super::dispatch`]
/// would choose without overrides, and without the sentences that it writes. Empty when no latency is known.
/// `shown`: the metric of the worst error.
pub fn sweep(candidates: &Candidates, policy: &Policy, loss: f64, shown: Metric, limits: &[f64]) -> Vec<FrontierPoint> {
    let groups = candidates.groups.as_chunks::<3>().0;
    let links = Links::of(groups, candidates.target.runtime(), None);
    let units = links.units(groups.len());
    let at = |limit: &f64| {
        let policy = Policy { max_error: *limit, loss_budget: None, ..policy.clone() };
        let terms = Terms { policy: &policy, loss, target: &candidates.target };
        let (mut sum, mut all_us) = (CurvePart::default(), 0.0);
        for at in 0..units.len() {
            let unit = Unit::new(units.get(at), (groups, &[]), &links, (terms, None));
            all_us += unit.baseline_us();
            sum.add(&CurvePart::of_unit(&unit, 0, terms, shown), shown);
        }
        (sum.us > 0.0 && all_us > 0.0).then(|| FrontierPoint::of(&sum, all_us))
    };
    limits.iter().filter_map(at).collect()
}

/// Limits at which a sweep is worth looking at: `max` of them at most, from one that lets nothing through to
/// one that lets everything, spread evenly over the kernels that a limit decides about. Readable numbers.
pub fn limits_of(candidates: &Candidates, policy: &Policy, max: usize) -> Vec<f64> {
    let larger_is_better = policy.metric.larger_is_better();
    let fast = |row: &ResultRow, reference: Option<&str>| {
        let low = row.kernel != policy.baseline && row.supported;
        low && super::judge::speed(row.speedup(), policy) == Speed::Fast && elsewhere(row, reference).is_none()
    };
    let rows = candidates.groups.iter().flat_map(|group| {
        let reference = group.row(&policy.baseline).and_then(|row| row.latency.device());
        group.rows.iter().filter(move |row| fast(row, reference))
    });
    let ends = rows.filter_map(|row| row.metric(policy.metric)).map(|error| policy.metric.worse_end(error));
    let mut ends: Vec<f64> = ends.filter(|end| end.is_finite() && *end > 0.0).collect();
    ends.sort_by(f64::total_cmp);
    let (Some(first), Some(last)) = (ends.first().copied(), ends.last().copied()) else { return Vec::new() };
    let nothing = if larger_is_better { last * 1.1 } else { first * 0.9 };
    let steps = max.saturating_sub(2).clamp(1, ends.len());
    let evenly = (0..=steps).map(|step| ends[step * (ends.len() - 1) / steps]);
    let mut limits: Vec<f64> = evenly.chain([nothing]).map(|end| rounded_past(end, larger_is_better)).collect();
    limits.sort_by(|a, b| if larger_is_better { b.total_cmp(a) } else { a.total_cmp(b) });
    limits.dedup();
    limits
}

/// Three digits, towards the side that lets the value itself through.
fn rounded_past(value: f64, down: bool) -> f64 {
    let place = value.log10().floor() as i32 - 2;
    // Through text: 67 x 1e-3 is not .067.
    let at = |steps: f64| format!("{steps}e{place}").parse().unwrap_or(value);
    let nearest = (value / 10f64.powi(place)).round();
    match (down, at(nearest)) {
        (true, limit) if limit > value => at(nearest - 1.0),
        (false, limit) if limit < value => at(nearest + 1.0),
        (_, limit) => limit,
    }
}

/// What one site adds to a point.
#[derive(Default)]
struct CurvePart {
    us: f64,
    loss_cost: f64,
    loss_cost_hi: f64,
    worst_error: Option<f64>,
    worst_noise: Option<f64>,
    num_low_precision: usize,
    num_cost_unknown: usize,
}

impl CurvePart {
    fn of_unit(unit: &Unit, item: usize, terms: Terms<'_>, shown: Metric) -> Self {
        let mut sum = Self::default();
        for ((_, judged), picked) in unit.sites().zip(unit.picked(Some(item))) {
            let extra_us = picked.link.and_then(|link| link.store?.beside_us).unwrap_or(0.0);
            let part = Self::of(&picked.triple, judged, terms, shown);
            let calls = judged[0].group.site.calls as f64;
            sum.add(&Self { us: calls * part.us + extra_us, ..part }, shown);
        }
        sum
    }

    fn of(triple: &Triple, judged: &[Judged; 3], terms: Terms<'_>, shown: Metric) -> Self {
        // A GEMM that no time is known for is not part of the curve.
        let timed = |at: &usize| triple.timed.is_some() || judged[*at].reference_us.is_some();
        let forward = triple.rows[0].or_else(|| judged[0].group.row(&terms.policy.baseline)).filter(|_| timed(&0));
        let low: Vec<&ResultRow> = (0..3).filter(timed).filter_map(|at| triple.rows[at]).collect();
        let errors = low.iter().map(|row| row.metric(shown).map(|error| shown.on_scale(error).value));
        let noise = low.iter().map(|row| row.metric(Metric::NoiseShare).map(|share| share.value));
        let charged = |row: &ResultRow| row.charged_loss_cost(terms.loss);
        let cost = forward.and_then(charged);
        let forward_low = triple.rows[0].filter(|_| timed(&0));
        Self {
            us: triple.us,
            loss_cost: cost.map_or(0.0, |cost| cost.value),
            loss_cost_hi: cost.map_or(0.0, |cost| cost.hi.max(0.0)),
            worst_error: errors.fold(None, |worst, error| worse(shown, worst, error)),
            worst_noise: noise.fold(None, |worst, share| worse(Metric::NoiseShare, worst, share)),
            num_low_precision: low.len(),
            num_cost_unknown: usize::from(forward_low.is_some_and(|row| charged(row).is_none())),
        }
    }

    fn add(&mut self, other: &Self, shown: Metric) {
        self.us += other.us;
        self.loss_cost += other.loss_cost;
        self.loss_cost_hi += other.loss_cost_hi;
        self.worst_error = worse(shown, self.worst_error, other.worst_error);
        self.worst_noise = worse(Metric::NoiseShare, self.worst_noise, other.worst_noise);
        self.num_low_precision += other.num_low_precision;
        self.num_cost_unknown += other.num_cost_unknown;
    }
}

fn worse(metric: Metric, a: Option<f64>, b: Option<f64>) -> Option<f64> {
    metric.worst(a.into_iter().chain(b.filter(|value| value.is_finite())))
}

/// Summed anew at each point: 200 sums are cheap, and rounding does not pile up.
fn point(sites: &[Vec<CurvePart>], picks: &[usize], shown: Metric, baseline_us: f64) -> FrontierPoint {
    let mut sum = CurvePart::default();
    for part in sites.iter().zip(picks).map(|(parts, pick)| &parts[*pick]) {
        sum.add(part, shown);
    }
    FrontierPoint::of(&sum, baseline_us)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        dispatch::{
            Overrides, dispatch,
            testing::{Dice, results, row},
        },
        model::{Gemm, Results, SiteMods},
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
    fn a_sweep_is_what_dispatch_would_choose() {
        let results = many(40);
        let candidates = Candidates::new(&results, &SiteMods::default());
        let policy = Policy::rel_l2();
        let limits = limits_of(&candidates, &policy, 24);
        assert!(limits.len() > 10 && limits.len() <= 24, "{limits:?}");
        let points = sweep(&candidates, &policy, 0.5, policy.metric, &limits);
        assert_eq!(points.len(), limits.len());
        assert_eq!((points[0].num_low_precision, points[0].speedup), (0, 1.0), "the first lets nothing through");
        for (limit, point) in limits.iter().zip(&points) {
            let policy = Policy { max_error: *limit, ..policy.clone() };
            let totals = dispatch(&candidates, &policy, &Overrides::new(), 0.5).unwrap().totals;
            assert!((totals.speedup.unwrap() - point.speedup).abs() < 1e-9, "{limit}");
            assert!((totals.loss_cost_hi.unwrap_or(0.0) - point.loss_cost_hi).abs() < 1e-12, "{limit}");
        }
        let most = points.last().unwrap();
        let open = sweep(&candidates, &policy, 0.5, policy.metric, &[1e6])[0];
        assert_eq!(*most, open, "the last lets everything through");
    }

    #[test]
    fn limits_are_readable_and_let_their_own_value_through() {
        assert_eq!(rounded_past(0.066_71, false), 0.0668);
        assert_eq!(rounded_past(0.2, false), 0.2);
        assert_eq!(rounded_past(27.36, true), 27.3);
        let above = 0.1 * 1.1;
        assert!(above > 0.11 && rounded_past(above, false) == 0.111, "a last bit too large still is let through");
    }

    #[test]
    fn nothing_known_draws_nothing() {
        let mut results = many(2);
        results.rows.clear();
        let candidates = Candidates::new(&results, &SiteMods::default());
        assert!(frontier(&candidates, &Policy::paper(), 0.5).is_empty());
        assert!(limits_of(&candidates, &Policy::paper(), 24).is_empty());
        assert!(sweep(&candidates, &Policy::paper(), 0.5, Metric::Mere, &[0.1]).is_empty());
    }
}
