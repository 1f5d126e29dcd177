//! Takes rows as recorded and under the mods in force, gives what the mods change: sums of the plan, the
//! median change of errors, and verdicts that flip, at modified sites and at those that they feed.
//!
//! Gradients stay as they were recorded: what a mod does to them shows only in training.

use crate::{
    dispatch::{Totals, dispatch, judge},
    model::{Estimate, Gemm, KernelId, Metric, ResultRow, Safety, SiteId},
    mods::applying,
    views::{PlanView, Snapshot},
};

/// What a plan costs, with tails.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sums {
    pub totals: Totals,
    /// Of the forward GEMMs' tails; always modelled.
    pub tail_us: f64,
}

/// Verdicts that changed from before to after.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flips {
    pub to_safe: usize,
    pub to_unsafe: usize,
    /// To or from uncertain.
    pub other: usize,
    pub same: usize,
}

/// The median of after over before, and of how many.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    pub median: f64,
    pub num: usize,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModsEffect {
    pub before: Sums,
    pub after: Sums,
    /// At sites that a mod changes.
    pub here: Flips,
    /// At sites that none changes, and whose inputs or prices are others nevertheless.
    pub downstream: Flips,
    /// Kernel by kernel in low precision, in the policy's metric.
    pub error: Option<Ratio>,
    pub block_error: Option<Ratio>,
    /// Sites whose rows under the mods are still to come.
    pub num_waiting: usize,
    pub num_sites: usize,
    /// Rows without mods are not there, so that nothing can be compared.
    pub lacks_before: bool,
}

impl ModsEffect {
    /// `None`: no mod is on.
    pub fn of(snapshot: &Snapshot, plan: &PlanView) -> Option<Self> {
        if snapshot.document.mods.is_empty() {
            return None;
        }
        let num_sites = snapshot.sites().len();
        let num_waiting = snapshot.rows.iter().filter(|rows| rows.is_none()).count();
        let lacks_before = snapshot.before.iter().all(Option::is_none);
        let mut effect = Self { num_waiting, num_sites, lacks_before, ..Self::default() };
        effect.after.totals = plan.decided.as_ref().map(|decided| decided.totals).unwrap_or_default();
        let before = decided_before(snapshot);
        effect.before.totals = before.as_ref().map(|(totals, _)| *totals).unwrap_or_default();
        let mut ratios = Ratios::default();
        for (at, site) in snapshot.sites().iter().enumerate() {
            let touched = !applying(snapshot.mods_of(at), site).is_empty();
            let flips = if touched { &mut effect.here } else { &mut effect.downstream };
            for gemm in Gemm::ALL {
                compare(snapshot, at, gemm, flips, &mut ratios);
            }
            let tail = |row: Option<&ResultRow>| row.and_then(|row| row.latency.tail_us).unwrap_or(0.0);
            let chosen = plan.pick_at(at, Gemm::Fprop).map(|choice| &choice.kernel);
            effect.after.tail_us += tail(chosen.and_then(|kernel| snapshot.row(at, Gemm::Fprop, kernel)));
            let was = before.as_ref().and_then(|(_, kernels)| kernels.get(at));
            let rows = snapshot.rows_before(at, Gemm::Fprop);
            effect.before.tail_us += tail(rows.iter().find(|row| Some(&row.kernel) == was));
        }
        (effect.error, effect.block_error) = (median(ratios.error), median(ratios.block));
        Some(effect)
    }
}

/// Totals and forward kernels of the model as recorded, under the same policy and overrides.
fn decided_before(snapshot: &Snapshot) -> Option<(Totals, Vec<KernelId>)> {
    let (candidates, policy) = (snapshot.candidates_before(), &snapshot.document.policy);
    let mut ready = candidates.ready(&snapshot.document.overrides, &policy.baseline);
    // A kernel that a mod makes possible does not run without it.
    ready.retain(|(site, gemm), wanted| {
        let row = snapshot.index.at(site).and_then(|at| snapshot.row_before(at, *gemm, &wanted.kernel));
        row.is_none_or(|row| row.supported)
    });
    let decided = dispatch(&candidates, policy, &ready, snapshot.loss()).ok()?;
    let forward = decided.choices.iter().step_by(3).map(|choice| choice.kernel.clone());
    Some((decided.totals, forward.collect()))
}

#[derive(Default)]
struct Ratios {
    error: Vec<f64>,
    block: Vec<f64>,
}

/// The same kernel before and after.
fn compare(snapshot: &Snapshot, at: usize, gemm: Gemm, flips: &mut Flips, ratios: &mut Ratios) {
    let (policy, loss) = (&snapshot.document.policy, snapshot.loss());
    let low = |row: &&ResultRow| row.supported && row.kernel.is_low_precision();
    for after in snapshot.rows_of(at, gemm).iter().filter(low) {
        let was = snapshot.rows_before(at, gemm).iter().filter(low).find(|row| row.kernel == after.kernel);
        let Some(before) = was else { continue };
        match (judge(before, policy, loss).0, judge(after, policy, loss).0) {
            (was, is) if was == is => flips.same += 1,
            (Safety::Unsafe, Safety::Safe) => flips.to_safe += 1,
            (Safety::Safe, Safety::Unsafe) => flips.to_unsafe += 1,
            _ => flips.other += 1,
        }
        let ratio = |metric| Some(after.figure(metric, loss)?.value / before.figure(metric, loss)?.value);
        ratios.error.extend(ratio(policy.metric).filter(|ratio| ratio.is_finite()));
        ratios.block.extend(ratio(Metric::BlockRelL2).filter(|ratio| ratio.is_finite()));
    }
}

fn median(mut values: Vec<f64>) -> Option<Ratio> {
    let num = values.len();
    let middle = num.checked_sub(1)? / 2;
    let (_, median, _) = values.select_nth_unstable_by(middle, f64::total_cmp);
    Some(Ratio { median: *median, num })
}

/// One kernel at one GEMM of one site, before and after.
#[derive(Clone, Debug, PartialEq)]
pub struct SiteChange {
    /// The policy's metric, the block's, the loss cost's.
    pub errors: Vec<(Metric, Option<Estimate>, Option<Estimate>)>,
    /// The loss cost is outside its range, means nothing, and is none of the errors.
    pub is_out_of_range: (bool, bool),
    /// With the casts, and with the tail where one follows.
    pub latency_us: (Option<f64>, Option<f64>),
    pub tail_us: (Option<f64>, Option<f64>),
    pub safety: (Option<Safety>, Option<Safety>),
    /// The site's rows under the mods are still to come.
    pub waits: bool,
}

/// `metric`: the one that is looked at. `None`: no row either way.
pub fn site_change(
    snapshot: &Snapshot,
    id: &SiteId,
    gemm: Gemm,
    kernel: &KernelId,
    metric: Metric,
) -> Option<SiteChange> {
    let at = snapshot.index.at(id)?;
    let (before, after) = (snapshot.row_before(at, gemm, kernel), snapshot.row(at, gemm, kernel));
    before.or(after)?;
    let loss = snapshot.loss();
    let of = |row: Option<&ResultRow>, metric| row.and_then(|row| row.figure(metric, loss));
    let is_out_of_range = |row: Option<&ResultRow>| row.is_some_and(|row| row.loss_cost_means_nothing(loss));
    let mut metrics = vec![metric];
    metrics.extend([Metric::BlockRelL2, Metric::LossCost].into_iter().filter(|of| *of != metric));
    let safety = |row: Option<&ResultRow>| row.map(|row| judge(row, &snapshot.document.policy, loss).0);
    let latency = |row: Option<&ResultRow>| row.and_then(|row| row.latency.latency_us);
    let tail = |row: Option<&ResultRow>| row.and_then(|row| row.latency.tail_us);
    Some(SiteChange {
        errors: metrics.into_iter().map(|metric| (metric, of(before, metric), of(after, metric))).collect(),
        is_out_of_range: (is_out_of_range(before), is_out_of_range(after)),
        latency_us: (latency(before), latency(after)),
        tail_us: (tail(before), tail(after)),
        safety: (safety(before), safety(after)),
        waits: after.is_none(),
    })
}
