//! What each site costs a step under the plan, in time and in loss: takes a snapshot, its plan and the plan's table, gives
//! a line a site, of the same figures as the table's lines.

use std::cmp::Ordering;

use crate::{
    model::{Estimate, Gemm, LatencySource},
    views::{PlanTable, PlanView, Snapshot, plan::Flags},
};

/// One site. A GEMM without a time is in none of the three sums.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SiteCost {
    /// Its number in the trace.
    pub at: usize,
    /// Its GEMMs by the policy's baseline; `None`: none of them has a time.
    pub baseline_us: Option<f64>,
    /// The same as planned.
    pub planned_us: Option<f64>,
    pub saved_us: Option<f64>,
    /// Of `baseline_us` over all sites.
    pub share: Option<f64>,
    /// GEMMs that run and have no time.
    pub num_untimed: usize,
    /// The least certain of the times that are in the sums.
    pub source: LatencySource,
    /// Of the forward kernel that the plan has, beyond BF16's, in units of the loss.
    pub loss_cost: Option<Estimate>,
    /// GEMMs in low precision.
    pub num_low: usize,
}

/// What sites can be ranked by; the most expensive first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CostOrder {
    /// As planned.
    Time,
    Saved,
    Loss,
}

impl SiteCost {
    /// In forward order.
    pub fn of_all(snapshot: &Snapshot, plan: &PlanView, table: &PlanTable) -> Vec<Self> {
        let mut all: Vec<Self> = (0..snapshot.sites().len()).map(|at| Self::none(snapshot, plan, at)).collect();
        for line in &table.lines {
            let (Some(cost), Some(site)) = (all.get_mut(line.at), snapshot.sites().get(line.at)) else { continue };
            if !site.runs(line.gemm) {
                continue;
            }
            cost.num_low += usize::from(line.flags.has(Flags::LOW));
            let row = snapshot.row(line.at, line.gemm, &snapshot.document.policy.baseline);
            let reference = row.and_then(|row| row.latency.latency_us).filter(|us| *us > 0.0 && us.is_finite());
            let (Some(reference), Some(saved), Some(row)) = (reference, line.saved_us, row) else {
                cost.num_untimed += 1;
                continue;
            };
            let chosen = plan.pick_at(line.at, line.gemm);
            let chosen = chosen.and_then(|choice| snapshot.row(line.at, line.gemm, &choice.kernel));
            let source = chosen.map_or(row.latency.source, |chosen| weaker(chosen.latency.source, row.latency.source));
            cost.add(reference, saved, source);
        }
        let sum: f64 = all.iter().filter_map(|cost| cost.baseline_us).sum();
        all.iter_mut().for_each(|cost| cost.share = cost.baseline_us.filter(|_| sum > 0.0).map(|us| us / sum));
        all
    }

    fn none(snapshot: &Snapshot, plan: &PlanView, at: usize) -> Self {
        let chosen = plan.pick_at(at, Gemm::Fprop).and_then(|choice| snapshot.row(at, Gemm::Fprop, &choice.kernel));
        Self {
            at,
            baseline_us: None,
            planned_us: None,
            saved_us: None,
            share: None,
            num_untimed: 0,
            source: LatencySource::None,
            loss_cost: chosen.and_then(|row| row.charged_loss_cost(snapshot.loss())),
            num_low: 0,
        }
    }

    fn add(&mut self, reference_us: f64, saved_us: f64, source: LatencySource) {
        let plus = |sum: Option<f64>, us: f64| Some(sum.unwrap_or(0.0) + us);
        self.source = if self.baseline_us.is_none() { source } else { weaker(self.source, source) };
        self.baseline_us = plus(self.baseline_us, reference_us);
        self.planned_us = plus(self.planned_us, reference_us - saved_us);
        self.saved_us = plus(self.saved_us, saved_us);
    }

    /// The more expensive first, what is not known last. A cost that the draws do not tell apart from another's is
    /// ranked by its upper end.
    pub fn compare(&self, other: &Self, by: CostOrder) -> Ordering {
        let value = |of: &Self| match by {
            CostOrder::Time => of.planned_us,
            CostOrder::Saved => of.saved_us,
            CostOrder::Loss => of.loss_cost.map(|cost| cost.value),
        };
        let of = |cost: &Self| value(cost).unwrap_or(f64::NEG_INFINITY);
        let upper = |cost: &Self| cost.loss_cost.map_or(f64::NEG_INFINITY, |cost| cost.hi);
        let ties = if by == CostOrder::Loss { upper(other).total_cmp(&upper(self)) } else { Ordering::Equal };
        of(other).total_cmp(&of(self)).then(ties).then(self.at.cmp(&other.at))
    }
}

/// Of two origins the one that says less.
fn weaker(a: LatencySource, b: LatencySource) -> LatencySource {
    let rank = |source| LatencySource::ALL.iter().position(|of| *of == source);
    if rank(a) >= rank(b) { a } else { b }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        dispatch::testing::{results, row},
        session::{Event, Session},
        views::{ViewQuery, Views},
    };

    const LOW: &str = "cublaslt/fp8-rowwise+fast";

    fn views() -> Views {
        let rows = vec![
            row("a", Gemm::Fprop, LOW, 0.1, Some(1.5), 3e-5),
            row("a", Gemm::Dgrad, LOW, 0.9, Some(1.5), 0.0),
            row("b", Gemm::Fprop, LOW, 0.1, Some(2.0), 1e-5),
            row("b", Gemm::Wgrad, LOW, 0.1, None, 0.0),
        ];
        let baselines = ["a", "b"].into_iter().flat_map(|site| {
            [Gemm::Fprop, Gemm::Dgrad].map(|gemm| row(site, gemm, "cublaslt/bf16", 0.01, Some(1.0), 0.0))
        });
        let rows = rows.into_iter().chain(baselines).collect();
        let mut session = Session::by_paper();
        session
            .event(Event::ResultsOpened { path: "r".to_owned(), results: Box::new(results(&["a", "b"], rows).into()) });
        let snapshot = session.snapshot().unwrap();
        let question = ViewQuery { metric: crate::model::Metric::Mere, gemm: None, relative: false, versus: false };
        Views::of(&snapshot, question, &Views::default())
    }

    #[test]
    fn lines_of_a_site_add_up_to_the_tables_own_sum() {
        let views = views();
        let all = SiteCost::of_all(views.snapshot.as_ref().unwrap(), &views.plan, &views.table);
        let saved: f64 = all.iter().filter_map(|cost| cost.saved_us).sum();
        assert!((saved - views.table.saved_us).abs() < 1e-9, "{saved} {}", views.table.saved_us);
        for cost in &all {
            let (baseline, planned) = (cost.baseline_us.unwrap(), cost.planned_us.unwrap());
            assert!((baseline - planned - cost.saved_us.unwrap()).abs() < 1e-9);
        }
        assert!((all.iter().filter_map(|cost| cost.share).sum::<f64>() - 1.0).abs() < 1e-9);
        assert_eq!((all[0].num_low, all[1].num_low), (1, 1), "an unsafe kernel is not taken");
        assert_eq!((all[0].num_untimed, all[1].num_untimed), (0, 0), "BF16 was timed everywhere");
    }

    #[test]
    fn the_most_expensive_comes_first_and_the_unknown_last() {
        let views = views();
        let mut all = SiteCost::of_all(views.snapshot.as_ref().unwrap(), &views.plan, &views.table);
        let order = |all: &mut Vec<SiteCost>, by| -> Vec<usize> {
            all.sort_by(|a, b| a.compare(b, by));
            all.iter().map(|cost| cost.at).collect()
        };
        assert_eq!(order(&mut all, CostOrder::Loss), [0, 1]);
        assert_eq!(order(&mut all, CostOrder::Saved), [1, 0]);
        assert_eq!(order(&mut all, CostOrder::Time), [0, 1]);
        all[0].planned_us = None;
        assert_eq!(order(&mut all, CostOrder::Time), [1, 0]);
    }

    #[test]
    fn of_two_origins_the_one_that_says_less() {
        assert_eq!(weaker(LatencySource::Measured, LatencySource::Modelled), LatencySource::Modelled);
        assert_eq!(weaker(LatencySource::Recorded, LatencySource::Measured), LatencySource::Recorded);
    }
}
