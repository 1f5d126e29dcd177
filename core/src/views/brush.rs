//! What was brushed: takes an area of the quadrant or of the heatmap, gives the rows in it as a set that stays as it is
//! while the policy changes, and of a set its sums: time, what is saved, loss cost, noise, verdicts, and the worst row.

use std::collections::BTreeMap;

use crate::{
    dispatch::{bound_of, judge},
    model::{Estimate, Gemm, KernelId, LatencySource, Metric, Quadrant, ResultRow},
    views::{PlanTable, PlanView, QuadrantView, Snapshot},
};

use super::{Grid, ShownColumn, draws_to_ask, standings::low};

/// One kernel at one GEMM of one site; the kernel by its number in the set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BrushedRow {
    pub site: u32,
    pub gemm: Gemm,
    pub kernel: u16,
}

/// A set of rows, each once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BrushedRows {
    kernels: Vec<KernelId>,
    /// Sorted.
    rows: Vec<BrushedRow>,
}

impl BrushedRows {
    /// The quadrant's points in the box between two corners, which are places on its axes.
    pub fn of_points(view: &QuadrantView, a: [f32; 2], b: [f32; 2]) -> Self {
        let within = view.nearby.within(&view.points, a, b).map(|number| {
            let point = &view.points[number];
            BrushedRow { site: point.site, gemm: point.gemm, kernel: point.kernel }
        });
        Self::sorted(view.kernels.clone(), within.collect())
    }

    /// The heatmap's cells of some sites at some columns: of each the kernel that it shows.
    pub fn of_cells(sites: impl IntoIterator<Item = u32>, grid: &Grid, columns: &[ShownColumn]) -> Self {
        let mut set = Self::default();
        let kernels: Vec<Option<u16>> = grid.columns.iter().map(|column| set.number(&column.kernel)).collect();
        let rows = sites.into_iter().flat_map(|site| {
            let (_, marks) = grid.row(site as usize);
            let kernels = &kernels;
            columns.iter().filter_map(move |column| {
                let kernel = kernels.get(column.kernel_at(marks)).copied().flatten()?;
                Some(BrushedRow { site, gemm: column.gemm, kernel })
            })
        });
        let rows = rows.collect();
        Self::sorted(set.kernels, rows)
    }

    fn sorted(kernels: Vec<KernelId>, mut rows: Vec<BrushedRow>) -> Self {
        rows.sort_unstable();
        rows.dedup();
        Self { kernels, rows }
    }

    fn number(&mut self, kernel: &KernelId) -> Option<u16> {
        let known = self.kernels.iter().position(|of| of == kernel);
        let number = known.unwrap_or_else(|| {
            self.kernels.push(kernel.clone());
            self.kernels.len() - 1
        });
        u16::try_from(number).ok()
    }

    /// Both.
    #[must_use]
    pub fn with(&self, other: &Self) -> Self {
        let mut set = self.clone();
        let numbers: Vec<Option<u16>> = other.kernels.iter().map(|kernel| set.number(kernel)).collect();
        let added = other.rows.iter().filter_map(|row| {
            let kernel = numbers.get(usize::from(row.kernel)).copied().flatten()?;
            Some(BrushedRow { kernel, ..*row })
        });
        let rows = set.rows.iter().copied().chain(added).collect();
        Self::sorted(set.kernels, rows)
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub fn rows(&self) -> &[BrushedRow] {
        &self.rows
    }

    pub fn kernel(&self, row: &BrushedRow) -> Option<&KernelId> {
        self.kernels.get(usize::from(row.kernel))
    }

    /// A row of that GEMM is in it.
    pub fn holds(&self, site: u32, gemm: Gemm) -> bool {
        let at = self.rows.partition_point(|row| (row.site, row.gemm) < (site, gemm));
        self.rows.get(at).is_some_and(|row| (row.site, row.gemm) == (site, gemm))
    }

    /// By number, in forward order.
    pub fn sites(&self) -> Vec<u32> {
        let mut sites: Vec<u32> = self.rows.iter().map(|row| row.site).collect();
        sites.dedup();
        sites
    }

    /// Site number and GEMM, in forward order.
    pub fn gemms(&self) -> Vec<(u32, Gemm)> {
        let mut gemms: Vec<(u32, Gemm)> = self.rows.iter().map(|row| (row.site, row.gemm)).collect();
        gemms.dedup();
        gemms
    }
}

/// The row of a set that errs most in the policy's metric, or in what its GEMM is bounded by.
#[derive(Clone, Debug, PartialEq)]
pub struct WorstRow {
    pub at: usize,
    pub gemm: Gemm,
    pub kernel: KernelId,
    pub metric: Metric,
    pub error: Estimate,
}

/// Sums over a set of rows. Times are of a step, in microseconds, with every call counted; what is saved is credited GEMM
/// by GEMM as in the plan's table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BrushTotals {
    pub num_sites: usize,
    pub num_gemms: usize,
    pub num_rows: usize,
    /// GEMMs that the plan runs in low precision.
    pub num_low: usize,
    /// Set by hand.
    pub num_overrides: usize,
    /// In the policy's baseline; and of all GEMMs of the model that run.
    pub baseline_us: f64,
    pub step_us: f64,
    pub saved_us: f64,
    pub all_saved_us: f64,
    /// GEMMs of the set whose time is not known: they are in no sum of times.
    pub num_untimed: usize,
    /// Where the baseline's latencies came from, by [`LatencySource`] in the order measured, recorded, modelled.
    pub sources: [usize; 3],
    pub num_forward: usize,
    /// Of the forward GEMMs' chosen kernels, in units of the loss; `None`: none of them has one.
    pub loss_cost: Option<Estimate>,
    pub num_cost_out_of_range: usize,
    /// What the policy allows the whole plan.
    pub budget: Option<f64>,
    /// Backward GEMMs that the plan runs in low precision.
    pub num_backward_low: usize,
    /// The largest noise share of a backward GEMM's chosen kernel in low precision.
    pub noise: Option<WorstRow>,
    /// Rows under each verdict, in the order of [`Quadrant::BEST_FIRST`]. High precision has none.
    pub verdicts: [usize; 8],
    pub num_high: usize,
    /// Rows that were not probed yet.
    pub num_waiting: usize,
    pub worst: Option<WorstRow>,
    /// To ask for at its sites, so that its verdicts may be expected to stand; `None`: nothing there has draws.
    pub draws_to_ask: Option<u64>,
}

impl BrushTotals {
    pub fn of(snapshot: &Snapshot, plan: &PlanView, table: &PlanTable, set: &BrushedRows) -> Self {
        let (policy, loss) = (&snapshot.document.policy, snapshot.loss());
        let gemms = set.gemms();
        let mut totals = Self {
            num_sites: set.sites().len(),
            num_gemms: gemms.len(),
            num_rows: set.rows().len(),
            budget: policy.loss_budget.filter(|_| loss > 0.0).map(|share| share * loss),
            ..Self::default()
        };
        for at in 0..snapshot.sites().len() {
            for gemm in Gemm::ALL {
                let Some(us) = reference_us(snapshot, at, gemm).map(|(us, _)| us) else { continue };
                let calls = snapshot.sites()[at].calls as f64;
                totals.step_us += calls * us;
                totals.all_saved_us += calls * saved_us(table, at, gemm);
            }
        }
        for (site, gemm) in gemms {
            totals.add_gemm(snapshot, plan, table, site as usize, gemm);
            totals.add_draws(snapshot, site as usize, gemm);
        }
        let mut worst: Option<(f64, WorstRow)> = None;
        let mut low: BTreeMap<u16, bool> = BTreeMap::new();
        for of in set.rows() {
            let (at, Some(kernel)) = (of.site as usize, set.kernel(of)) else { continue };
            let is_low = *low.entry(of.kernel).or_insert_with(|| kernel.is_low_precision());
            let Some(row) = snapshot.row(at, of.gemm, kernel) else {
                totals.num_waiting += 1;
                continue;
            };
            if !is_low {
                totals.num_high += 1;
                continue;
            }
            totals.verdicts[if row.supported { judge(row, policy, loss).2 } else { Quadrant::Unsupported }.rank()] += 1;
            let bound = bound_of(policy, &row.site, row.gemm, loss);
            let Some(error) = row.figure(bound.metric, loss).filter(|_| row.supported && bound.limit > 0.0) else {
                continue;
            };
            // Against its own bound: a plan may bound forward and backward by different metrics.
            let badness = beyond(bound.metric, error.value, bound.limit);
            if badness.is_finite() && worst.as_ref().is_none_or(|(most, _)| badness > *most) {
                worst = Some((badness, worst_row(at, row, bound.metric, error)));
            }
        }
        totals.worst = worst.map(|(_, row)| row);
        totals
    }

    fn add_gemm(&mut self, snapshot: &Snapshot, plan: &PlanView, table: &PlanTable, at: usize, gemm: Gemm) {
        let calls = snapshot.sites().get(at).map_or(1.0, |site| site.calls as f64);
        match reference_us(snapshot, at, gemm) {
            Some((us, source)) => {
                self.baseline_us += calls * us;
                self.saved_us += calls * saved_us(table, at, gemm);
                let by_source = [LatencySource::Measured, LatencySource::Recorded, LatencySource::Modelled];
                if let Some(of) = by_source.iter().position(|of| *of == source) {
                    self.sources[of] += 1;
                }
            }
            None if runs(snapshot, at, gemm) => self.num_untimed += 1,
            None => {}
        }
        self.num_forward += usize::from(gemm == Gemm::Fprop);
        let Some(choice) = plan.pick_at(at, gemm) else { return };
        self.num_overrides += usize::from(choice.source == crate::dispatch::ChoiceSource::Override);
        let low = choice.kernel.is_low_precision();
        self.num_low += usize::from(low);
        self.num_backward_low += usize::from(low && gemm != Gemm::Fprop);
        let Some(row) = snapshot.row(at, gemm, &choice.kernel) else { return };
        if gemm == Gemm::Fprop {
            let loss = snapshot.loss();
            match row.charged_loss_cost(loss) {
                Some(cost) => {
                    let sum = self.loss_cost.unwrap_or(Estimate::exact(0.0));
                    let (value, lo, hi) = (sum.value + cost.value, sum.lo + cost.lo, sum.hi + cost.hi.max(0.0));
                    self.loss_cost = Some(Estimate::new(value, lo, hi));
                }
                None => self.num_cost_out_of_range += usize::from(row.is_loss_cost_out_of_range(loss)),
            }
        } else if low
            && let Some(noise) = row.metric(Metric::NoiseShare)
            && self.noise.as_ref().is_none_or(|known| noise.value > known.error.value)
        {
            self.noise = Some(worst_row(at, row, Metric::NoiseShare, noise));
        }
    }

    fn add_draws(&mut self, snapshot: &Snapshot, at: usize, gemm: Gemm) {
        let Some(site) = snapshot.sites().get(at) else { return };
        let loss = snapshot.loss();
        let bound = bound_of(&snapshot.document.policy, &site.id, gemm, loss);
        let wanted = draws_to_ask(low(snapshot.rows_of(at, gemm)), bound, loss);
        self.draws_to_ask = self.draws_to_ask.max(wanted);
    }

    /// Rows under a verdict.
    pub fn num(&self, quadrant: Quadrant) -> usize {
        self.verdicts[quadrant.rank()]
    }

    /// Of the time of all GEMMs; `None` while no time is known.
    pub fn time_share(&self) -> Option<f64> {
        (self.step_us > 0.0).then(|| self.baseline_us / self.step_us)
    }
}

/// How many times the bound, or of decibels how far below it: larger is worse.
fn beyond(metric: Metric, error: f64, limit: f64) -> f64 {
    if metric.larger_is_better() { limit - error } else { error / limit }
}

fn worst_row(at: usize, row: &ResultRow, metric: Metric, error: Estimate) -> WorstRow {
    WorstRow { at, gemm: row.gemm, kernel: row.kernel.clone(), metric, error }
}

fn runs(snapshot: &Snapshot, at: usize, gemm: Gemm) -> bool {
    snapshot.sites().get(at).is_some_and(|site| site.runs(gemm)) && snapshot.document.runtime.runs(gemm)
}

/// The baseline's time of one call of a GEMM that runs.
fn reference_us(snapshot: &Snapshot, at: usize, gemm: Gemm) -> Option<(f64, LatencySource)> {
    let row = snapshot.row(at, gemm, &snapshot.document.policy.baseline).filter(|_| runs(snapshot, at, gemm))?;
    let us = row.latency.latency_us.filter(|us| *us > 0.0 && us.is_finite())?;
    Some((us, row.latency.source))
}

fn saved_us(table: &PlanTable, at: usize, gemm: Gemm) -> f64 {
    table.lines.get(3 * at + gemm as usize).and_then(|line| line.saved_us).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        dispatch::testing::{row, unsupported},
        model::SiteId,
        session::Command,
        views::{
            Filter, Views,
            tests::{opened, views},
        },
    };

    const FAST: &str = "cublaslt/fp8-rowwise+fast";
    const OTHER: &str = "te/current";
    const BF16: &str = "cublaslt/bf16";

    fn made() -> Views {
        let rows = vec![
            row("a", Gemm::Fprop, FAST, 0.1, Some(2.0), 1e-7),
            row("a", Gemm::Fprop, OTHER, 0.4, Some(1.5), 1e-7),
            row("a", Gemm::Dgrad, FAST, 0.3, Some(1.5), 0.0),
            row("b", Gemm::Fprop, FAST, 0.15, Some(1.25), 3e-7),
            unsupported("b", Gemm::Wgrad, FAST, "k = 7"),
        ];
        views(&opened(rows, &["a", "b"]))
    }

    fn totals(views: &Views, set: &BrushedRows) -> BrushTotals {
        BrushTotals::of(views.snapshot.as_ref().unwrap(), &views.plan, &views.table, set)
    }

    /// Cells of kernels, a column each.
    fn cells<const N: usize>(views: &Views, sites: &[u32], wanted: [(Gemm, &str); N]) -> BrushedRows {
        let all = ShownColumn::all(&views.grid, &Filter::default(), |_| true);
        let is_wanted = |column: &ShownColumn| {
            let kernel = &views.grid.columns[column.kernels[0]].kernel;
            wanted.iter().any(|(gemm, name)| (*gemm, *name) == (column.gemm, kernel.as_str()))
        };
        let columns: Vec<ShownColumn> = all.into_iter().filter(is_wanted).collect();
        assert_eq!(columns.len(), N);
        BrushedRows::of_cells(sites.iter().copied(), &views.grid, &columns)
    }

    #[test]
    fn a_box_holds_the_points_that_a_look_at_all_finds() {
        let views = made();
        let view = &views.quadrant;
        let all = BrushedRows::of_points(view, [-9.0, -9.0], [9.0, 9.0]);
        assert_eq!(all.rows().len(), view.points.len());
        assert_eq!((all.sites(), all.gemms().len()), (vec![0, 1], 3));
        assert!(all.holds(0, Gemm::Dgrad) && all.holds(1, Gemm::Fprop) && !all.holds(1, Gemm::Dgrad));
        let first = view.points[0].at;
        let one = BrushedRows::of_points(view, first, first);
        assert_eq!(one.rows().len(), 1);
        assert!(BrushedRows::of_points(view, [8.0, 8.0], [9.0, 9.0]).is_empty());
        assert_eq!(one.with(&all), all.with(&one), "what is added to what makes no difference");
        assert_eq!(one.with(&all).rows().len(), all.rows().len(), "each once");
    }

    #[test]
    fn sums_are_those_of_the_plan_s_table() {
        let views = made();
        let all = BrushedRows::of_points(&views.quadrant, [-9.0, -9.0], [9.0, 9.0]);
        let sums = totals(&views, &all);
        assert_eq!((sums.num_sites, sums.num_gemms, sums.num_rows), (2, 3, 4));
        // 100 us each of three GEMMs, and of six in the model.
        assert!((sums.baseline_us - 300.0).abs() < 1e-9 && (sums.step_us - 600.0).abs() < 1e-9);
        assert_eq!(sums.time_share(), Some(0.5));
        assert_eq!((sums.num_forward, sums.num_backward_low, &sums.noise), (2, 0, &None));
        assert!((sums.saved_us - (50.0 + 20.0)).abs() < 1e-9, "{}", sums.saved_us);
        assert!((sums.all_saved_us - views.table.saved_us).abs() < 1e-9);
        assert_eq!((sums.num_low, sums.num_untimed, sums.sources), (2, 0, [0, 3, 0]), "recorded");
        let cost = sums.loss_cost.unwrap();
        let known = views.plan.decided.as_ref().unwrap().totals.loss_cost.unwrap();
        assert!((cost.value - known).abs() < 1e-18, "both forward GEMMs are in it: {cost:?}");
        assert_eq!((sums.num(Quadrant::SafeFast), sums.num(Quadrant::UnsafeFast)), (2, 2));
        let worst = sums.worst.unwrap();
        assert_eq!((worst.at, worst.gemm, worst.kernel.as_str()), (0, Gemm::Fprop, OTHER));
    }

    #[test]
    fn a_loss_cost_outside_its_range_is_not_the_worst() {
        let costs = |kernel: &str, cost: f64| row("a", Gemm::Fprop, kernel, 0.1, Some(1.5), cost);
        let mut session = opened(vec![costs(FAST, 0.06), costs(OTHER, 0.04)], &["a"]);
        session.command(Command::SetPolicy { policy: crate::dispatch::Policy::loss_budget() }).unwrap();
        let views = views(&session);
        let sums = totals(&views, &cells(&views, &[0], [(Gemm::Fprop, FAST), (Gemm::Fprop, OTHER)]));
        assert_eq!((sums.num(Quadrant::Uncertain), sums.num(Quadrant::UnsafeFast)), (1, 1));
        assert_eq!(sums.worst.unwrap().kernel.as_str(), OTHER);
    }

    #[test]
    fn cells_are_counted_whatever_they_hold() {
        let views = made();
        let set = cells(&views, &[0, 1], [(Gemm::Fprop, BF16), (Gemm::Fprop, FAST), (Gemm::Wgrad, FAST)]);
        let sums = totals(&views, &set);
        assert_eq!((sums.num_sites, sums.num_gemms, sums.num_rows), (2, 4, 6));
        // BF16 twice, wgrad of `a` is not probed, of `b` refused.
        assert_eq!((sums.num_high, sums.num_waiting, sums.num(Quadrant::Unsupported)), (2, 1, 1));
        let nothing = totals(&views, &BrushedRows::default());
        assert_eq!((nothing.num_rows, nothing.baseline_us, nothing.worst), (0, 0.0, None));
    }

    #[test]
    fn of_kernels_that_compute_the_same_a_cell_holds_the_one_that_it_shows() {
        let rows = vec![
            row("a", Gemm::Fprop, FAST, 0.1, Some(0.9), 0.0),
            row("a", Gemm::Fprop, "fbgemm/rowwise", 0.1, Some(0.8), 0.0),
            row("b", Gemm::Fprop, FAST, 0.1, Some(0.7), 0.0),
            row("b", Gemm::Fprop, "fbgemm/rowwise", 0.1, Some(0.8), 0.0),
        ];
        let views = views(&opened(rows, &["a", "b"]));
        let columns = ShownColumn::all(&views.grid, &Filter::default(), |_| false);
        let closed = columns.into_iter().find(ShownColumn::is_closed).unwrap();
        let set = BrushedRows::of_cells([0, 1], &views.grid, &[closed]);
        let kernels: Vec<&str> = set.rows().iter().filter_map(|row| set.kernel(row)).map(KernelId::as_str).collect();
        assert_eq!(kernels, [FAST, "fbgemm/rowwise"], "a's and b's");
    }

    #[test]
    fn a_site_that_runs_twice_counts_twice() {
        let rows = vec![row("a", Gemm::Fprop, FAST, 0.1, Some(2.0), 0.0)];
        let mut results = crate::dispatch::testing::results(&["a", "b"], rows);
        results.meta.manifest.sites[0].calls = 2;
        let mut session = crate::session::Session::by_paper();
        let path = "made.results.parquet".to_owned();
        session.event(crate::session::Event::ResultsOpened { path, results: Box::new(results.into()) });
        let views = views(&session);
        let sums = totals(&views, &cells(&views, &[0], [(Gemm::Fprop, FAST)]));
        assert!((sums.baseline_us - 200.0).abs() < 1e-9 && (sums.saved_us - 100.0).abs() < 1e-9);
        assert!((sums.step_us - 900.0).abs() < 1e-9, "{}", sums.step_us);
    }

    #[test]
    fn choices_by_hand_are_counted() {
        let rows = vec![row("a", Gemm::Fprop, FAST, 0.1, Some(2.0), 0.0)];
        let mut session = opened(rows, &["a", "b"]);
        let at = vec![(SiteId::new("a"), Gemm::Fprop)];
        let (kernel, reason) = (KernelId::new(BF16), "a test".to_owned());
        session.command(Command::SetOverrides { at, kernel, reason }).unwrap();
        let views = views(&session);
        let sums = totals(&views, &cells(&views, &[0, 1], [(Gemm::Fprop, FAST)]));
        assert_eq!((sums.num_overrides, sums.num_low, sums.saved_us), (1, 0, 0.0));
    }
}
