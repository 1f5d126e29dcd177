//! Data ready to draw: the heatmap's grid, the quadrant's points. No view computes a number.

use std::collections::BTreeMap;

use crate::{
    dispatch::{Policy, bound_of, judge},
    model::{Estimate, Gemm, KernelId, LatencySource, Metric, Quadrant, ResultRow, Safety, Site, SiteId},
};

use super::Session;

/// One column of the heatmap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    pub gemm: Gemm,
    pub kernel: KernelId,
}

/// One cell: a value to colour, or why there is none.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    Value {
        estimate: Estimate,
        quadrant: Quadrant,
        chosen: bool,
    },
    /// Not supported or not measurable, with the reason.
    Missing {
        reason: String,
    },
    /// No row yet.
    Waiting,
}

/// Sites x (GEMM x kernel), in forward order and catalogue order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Heatmap {
    pub columns: Vec<Column>,
    pub sites: Vec<SiteId>,
    /// Row-major, `[sites][columns]`.
    pub cells: Vec<Cell>,
    /// Smallest and largest positive value, for the colour scale; `None` when there is none.
    pub range: Option<(f64, f64)>,
    /// The same over low-precision kernels alone: the high-precision ones would squeeze the rest into
    /// one colour.
    pub low_range: Option<(f64, f64)>,
    /// The policy's bound, when the shown metric is the policy's.
    pub bound: Option<f64>,
}

impl Heatmap {
    pub fn cell(&self, site: usize, column: usize) -> Option<&Cell> {
        self.cells.get(site * self.columns.len() + column)
    }

    /// `relative`: divided by BF16's value at the same GEMM.
    pub fn of(session: &mut Session, metric: Metric, gemm: Option<Gemm>, relative: bool) -> Self {
        let Some(trace) = session.trace.clone() else { return Self::default() };
        let plan = session.plan_view();
        let policy = session.document.policy.clone();
        let mods = session.document.mods.clone();
        let loss = trace.manifest().loss.value;
        let columns = columns_of(session, gemm);
        let mut heatmap =
            Self { bound: (!relative && metric == policy.metric).then_some(policy.max_error), ..Self::default() };
        for site in &trace.manifest().sites {
            for column in &columns {
                let chosen = plan.choice(&site.id, column.gemm).is_some_and(|choice| choice.kernel == column.kernel);
                let base = session.row(&site.id, column.gemm, &policy.baseline, &mods);
                let row = session.row(&site.id, column.gemm, &column.kernel, &mods);
                let cell = row.map_or(Cell::Waiting, |row| {
                    cell_of(row, metric, base.filter(|_| relative), &policy, loss, chosen)
                });
                if let Cell::Value { estimate, .. } = &cell
                    && estimate.value > 0.0
                    && estimate.value.is_finite()
                {
                    let (lo, hi) = heatmap.range.unwrap_or((estimate.value, estimate.value));
                    heatmap.range = Some((lo.min(estimate.value), hi.max(estimate.value)));
                    if is_low(&column.kernel) {
                        let (lo, hi) = heatmap.low_range.unwrap_or((estimate.value, estimate.value));
                        heatmap.low_range = Some((lo.min(estimate.value), hi.max(estimate.value)));
                    }
                }
                heatmap.cells.push(cell);
            }
            heatmap.sites.push(site.id.clone());
        }
        heatmap.columns = columns;
        heatmap
    }
}

fn is_low(kernel: &KernelId) -> bool {
    crate::model::kernel(kernel.as_str()).is_some_and(|kernel| !kernel.high_precision())
}

/// The kernels that have rows, once a GEMM, in catalogue order.
fn columns_of(session: &Session, gemm: Option<Gemm>) -> Vec<Column> {
    let seen: std::collections::BTreeSet<&KernelId> = session.rows().map(|row| &row.kernel).collect();
    let known = crate::model::catalogue().iter().map(crate::model::Kernel::id).filter(|kernel| seen.contains(kernel));
    let kernels: Vec<KernelId> = known.collect();
    let gemms = Gemm::ALL.into_iter().filter(|of| gemm.is_none_or(|only| only == *of));
    gemms.flat_map(|gemm| kernels.iter().map(move |kernel| Column { gemm, kernel: kernel.clone() })).collect()
}

fn cell_of(
    row: &ResultRow,
    metric: Metric,
    base: Option<&ResultRow>,
    policy: &Policy,
    loss: f64,
    chosen: bool,
) -> Cell {
    let missing = |reason: &str| Cell::Missing { reason: reason.to_owned() };
    if !row.supported {
        return missing(row.reason.as_deref().unwrap_or("not supported"));
    }
    let Some(mut estimate) = row.metric(metric) else {
        return missing(row.reason.as_deref().unwrap_or(match metric {
            Metric::BlockRelL2 => "no tail follows this GEMM's output",
            Metric::LossCost => "only fprop with recorded gradients has a loss cost",
            _ => "not measured",
        }));
    };
    if let Some(base) = base.and_then(|base| base.metric(metric)).filter(|base| base.value > 0.0) {
        estimate = Estimate::new(estimate.value / base.value, estimate.lo / base.value, estimate.hi / base.value);
    }
    let (_, _, quadrant) = judge(row, policy, loss);
    Cell::Value { estimate, quadrant, chosen }
}

/// One row in the quadrant view.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    pub site: SiteId,
    pub gemm: Gemm,
    pub kernel: KernelId,
    pub speedup: f64,
    pub error: Estimate,
    pub quadrant: Quadrant,
    pub source: LatencySource,
    pub chosen: bool,
}

/// Points with both an error in the policy's metric and a speed-up; the count of rows without a
/// latency is said beside them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QuadrantView {
    pub points: Vec<Point>,
    pub num_without_latency: usize,
}

impl QuadrantView {
    /// High-precision kernels are left out: they are what the others are compared with.
    pub fn of(session: &mut Session, gemm: Option<Gemm>) -> Self {
        let Some(trace) = session.trace.clone() else { return Self::default() };
        let plan = session.plan_view();
        let policy = &session.document.policy;
        let mut view = Self::default();
        let asked = |row: &&ResultRow| {
            let low = crate::model::kernel(row.kernel.as_str()).is_none_or(|kernel| !kernel.high_precision());
            row.mods == session.document.mods && low && row.supported && gemm.is_none_or(|only| only == row.gemm)
        };
        for row in session.rows().filter(asked) {
            let Some(error) = row.metric(policy.metric) else { continue };
            let Some(speedup) = row.speedup() else {
                view.num_without_latency += 1;
                continue;
            };
            let (_, _, quadrant) = judge(row, policy, trace.manifest().loss.value);
            let chosen = plan.choice(&row.site, row.gemm).is_some_and(|choice| choice.kernel == row.kernel);
            let source = row.latency.source;
            let (site, gemm, kernel) = (row.site.clone(), row.gemm, row.kernel.clone());
            view.points.push(Point { site, gemm, kernel, speedup, error, quadrant, source, chosen });
        }
        view
    }
}

/// A site's verdict for the list: the best that low precision offers over its GEMMs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SiteVerdict {
    /// GEMMs with a kernel that is safe and fast, safe but not fast, uncertain, and none.
    pub num_safe_fast: usize,
    pub num_safe: usize,
    pub num_uncertain: usize,
    pub num_unsafe: usize,
    pub num_overrides: usize,
}

impl SiteVerdict {
    pub fn of(session: &Session, site: &Site) -> Self {
        let mut verdict = Self::default();
        let (policy, mods) = (&session.document.policy, &session.document.mods);
        let loss = session.trace.as_ref().map_or(0.0, |trace| trace.manifest().loss.value);
        for gemm in Gemm::ALL {
            let rows = session.rows_of(&site.id, gemm, mods);
            let low = rows.iter().filter(|row| {
                row.supported
                    && crate::model::kernel(row.kernel.as_str()).is_some_and(|kernel| !kernel.high_precision())
            });
            let judged: Vec<_> = low.map(|row| judge(row, policy, loss)).collect();
            if judged.is_empty() {
                continue;
            }
            let any = |test: &dyn Fn(&(Safety, crate::model::Speed, Quadrant)) -> bool| judged.iter().any(test);
            if any(&|(.., quadrant)| *quadrant == Quadrant::SafeFast) {
                verdict.num_safe_fast += 1;
            } else if any(&|(safety, ..)| *safety == Safety::Safe) {
                verdict.num_safe += 1;
            } else if any(&|(safety, ..)| *safety == Safety::Uncertain) {
                verdict.num_uncertain += 1;
            } else {
                verdict.num_unsafe += 1;
            }
            verdict.num_overrides += usize::from(session.document.overrides.contains_key(&(site.id.clone(), gemm)));
        }
        verdict
    }
}

/// The bound that one GEMM is held to under the policy in force.
pub fn bound(session: &Session, gemm: Gemm) -> (Metric, f64) {
    let loss = session.trace.as_ref().map_or(0.0, |trace| trace.manifest().loss.value);
    let bound = bound_of(&session.document.policy, gemm, loss);
    (bound.metric, bound.limit)
}

/// The site and GEMM to look at first: the one that errs most in the policy's metric even in its
/// best low-precision kernel. `None` before the first rows.
pub fn worst_gemm(session: &Session) -> Option<(SiteId, Gemm)> {
    let metric = session.document.policy.metric;
    // Of decibels the smaller is the worse.
    let badness = |value: f64| if metric == Metric::SqnrDb { -value } else { value };
    let mut worst: Option<(f64, SiteId, Gemm)> = None;
    for site in &session.trace.as_ref()?.manifest().sites {
        for gemm in Gemm::ALL {
            let rows = session.rows_of(&site.id, gemm, &session.document.mods);
            let low = rows.iter().filter(|row| row.supported && is_low(&row.kernel));
            let errors = low.filter_map(|row| row.metric(metric)).map(|estimate| badness(estimate.value));
            let Some(best) = errors.min_by(f64::total_cmp) else { continue };
            if worst.as_ref().is_none_or(|(known, ..)| best > *known) {
                worst = Some((best, site.id.clone(), gemm));
            }
        }
    }
    worst.map(|(_, site, gemm)| (site, gemm))
}

/// How many of the plan's chosen kernels have a latency that was measured, recorded, modelled, or none.
pub fn sources_of_plan(session: &mut Session) -> BTreeMap<LatencySource, usize> {
    let plan = session.plan_view();
    let mut counts = BTreeMap::new();
    let Some(trace) = &session.trace else { return counts };
    for site in &trace.manifest().sites {
        for gemm in Gemm::ALL {
            let choice = plan.choice(&site.id, gemm);
            let row = choice.and_then(|choice| session.row(&site.id, gemm, &choice.kernel, &session.document.mods));
            if let Some(row) = row {
                *counts.entry(row.latency.source).or_default() += 1;
            }
        }
    }
    counts
}
