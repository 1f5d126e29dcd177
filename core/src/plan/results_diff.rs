//! Takes two sets of results and a policy, gives what moved between them, row by row and with the reason: kernels,
//! verdicts, errors beyond their intervals, latencies beyond theirs; and what the plan of each would choose.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::Serialize;

use super::{Changes, Decided, Got, NEAR_TIE, PlanError, build::mods_were_probed, changes};
use crate::{
    dispatch::{
        Bound, Candidates, Dispatch, Overrides, Policy, Totals, against, against_out_of_range, decided_by, dispatch,
    },
    format::short,
    model::{
        Estimate, Gemm, GemmShape, KernelId, Latency, LatencySource, Metric, ModSet, ResultRow, Results, Safety, Site,
        SiteId, SiteMods,
    },
};

/// Metrics that have intervals.
const METRICS: [Metric; 4] = [Metric::Mere, Metric::RelL2, Metric::BlockRelL2, Metric::LossCost];

/// Whether a kernel runs at a GEMM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Presence {
    /// The results do not have it.
    Absent,
    Unsupported,
    Supported,
}

impl Presence {
    fn of(row: Option<&ResultRow>) -> Self {
        match row {
            None => Self::Absent,
            Some(row) if row.supported => Self::Supported,
            Some(_) => Self::Unsupported,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::Unsupported => "unsupported",
            Self::Supported => "supported",
        }
    }
}

/// A latency and where it is from.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Timed {
    pub us: f64,
    pub lo_us: Option<f64>,
    pub hi_us: Option<f64>,
    pub source: LatencySource,
}

impl Timed {
    fn of(latency: &Latency) -> Option<Self> {
        let us = latency.latency_us?;
        Some(Self { us, lo_us: latency.latency_lo_us, hi_us: latency.latency_hi_us, source: latency.source })
    }
}

/// What moved at one kernel.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "what", rename_all = "lowercase")]
pub enum Moved {
    Kernel { before: Presence, after: Presence },
    Verdict { metric: Metric, before: Safety, after: Safety, error: [Option<Estimate>; 2] },
    Error { metric: Metric, before: Estimate, after: Estimate },
    Latency { before: Option<Timed>, after: Option<Timed> },
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RowChange {
    pub site: SiteId,
    pub gemm: Gemm,
    pub kernel: KernelId,
    pub mods: ModSet,
    #[serde(flatten)]
    pub moved: Moved,
    /// A sentence for a person.
    pub reason: String,
    /// The two measurements do not contradict each other, or differ by less than [`NEAR_TIE`].
    pub near_tie: bool,
}

/// A verdict that is another one now.
#[derive(Clone, Debug, PartialEq)]
pub struct Flip<'a> {
    pub row: &'a ResultRow,
    pub bound_before: Bound,
    pub bound: Bound,
    pub before: Safety,
    pub after: Safety,
    /// `None` also where it is a loss cost that means nothing.
    pub error_before: Option<Estimate>,
    pub error_after: Option<Estimate>,
    /// The two intervals overlap: the bound, or the end of the loss cost's range, is what lies between them.
    pub near_tie: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ResultsDiff {
    /// Of the results as a whole: trace, run, machine; one sentence each.
    pub whole: Vec<String>,
    pub added: Vec<SiteId>,
    pub removed: Vec<SiteId>,
    /// Sites of both whose shape is another.
    pub shapes: BTreeMap<SiteId, (GemmShape, GemmShape)>,
    /// In the second one's order, kernels that vanished last; at sites of both.
    pub rows: Vec<RowChange>,
    /// Rows in which nothing moved.
    pub num_unchanged: usize,
    /// Of the two plans under one policy.
    pub choices: Changes,
    pub before: Totals,
    pub after: Totals,
}

impl ResultsDiff {
    pub fn is_empty(&self) -> bool {
        let Changes { changes, .. } = &self.choices;
        let sites = self.added.is_empty() && self.removed.is_empty() && self.shapes.is_empty();
        self.whole.is_empty() && sites && self.rows.is_empty() && changes.is_empty()
    }

    pub fn count(&self, which: impl Fn(&Moved) -> bool) -> usize {
        self.rows.iter().filter(|change| which(&change.moved)).count()
    }

    pub fn num_near_ties(&self) -> usize {
        let choices = self.choices.changes.iter().filter(|change| change.near_tie).count();
        choices + self.rows.iter().filter(|change| change.near_tie).count()
    }
}

/// Both are planned under `policy` and `mods`: their choices differ by what was measured alone.
pub fn diff_results(
    before: &Results,
    after: &Results,
    policy: &Policy,
    mods: &SiteMods,
) -> Result<ResultsDiff, PlanError> {
    let (old, new) = (planned(before, policy, mods)?, planned(after, policy, mods)?);
    let mut choices = changes(&decided(before, &old, policy, mods), &decided(after, &new, policy, mods));
    let (mut rows, mut num_unchanged) = (Vec::new(), 0);
    let bounds = Interval::of(before, after, policy);
    for (was, is) in pairs(before, after) {
        let found = bounds.changes(was, is);
        num_unchanged += usize::from(found.is_empty());
        rows.extend(found);
    }
    let (added, removed) = (std::mem::take(&mut choices.added), std::mem::take(&mut choices.removed));
    let (whole, shapes, before, after) = (whole(before, after), shapes(before, after), old.totals, new.totals);
    Ok(ResultsDiff { whole, added, removed, shapes, rows, num_unchanged, choices, before, after })
}

/// What a plan of these results would choose, without its digests: those take longer than choosing.
fn planned(results: &Results, policy: &Policy, mods: &SiteMods) -> Result<Dispatch, PlanError> {
    policy.validate()?;
    mods_were_probed(results, mods)?;
    let candidates = Candidates::new(results, mods);
    Ok(dispatch(&candidates, policy, &Overrides::new(), results.meta.manifest.loss.value)?)
}

fn decided<'a>(results: &'a Results, found: &'a Dispatch, policy: &'a Policy, mods: &'a SiteMods) -> Decided<'a> {
    let sites = &results.meta.manifest.sites;
    let ids = || sites.iter().map(|site| &site.id);
    let gemms = ids().flat_map(|id| Gemm::ALL.map(|gemm| (id, gemm)));
    Decided {
        policy,
        mods: ids().map(|id| (id, mods.of(id))).filter(|(_, set)| !set.is_empty()).collect(),
        chains: found.chains.iter().filter_map(|(at, chain)| Some((&sites.get(*at)?.id, chain))).collect(),
        picks: gemms
            .zip(&found.choices)
            .map(|((id, gemm), choice)| Got::of(id, gemm, (&choice.kernel, choice.source)))
            .collect(),
        choice: Box::new(|at| found.choices.get(at)),
    }
}

/// Verdicts of the kernels that both have at a GEMM, under the mods in force there; in the second one's order.
pub fn flips<'a>(before: &'a Results, after: &'a Results, policy: &Policy, mods: &SiteMods) -> Vec<Flip<'a>> {
    let bounds = Interval::of(before, after, policy);
    let both = pairs(before, after).into_iter().filter_map(|(was, is)| Some((was?, is?)));
    let both = both.filter(|(_, is)| is.mods == *mods.of(&is.site));
    both.filter_map(|(was, is)| bounds.flip(was, is)).collect()
}

type Pair<'a> = (Option<&'a ResultRow>, Option<&'a ResultRow>);

/// Rows of the sites of both: each of the second with its counterpart, then those that it lacks.
fn pairs<'a>(before: &'a Results, after: &'a Results) -> Vec<Pair<'a>> {
    let sites = |results: &'a Results| results.meta.manifest.sites.iter().map(|site| &site.id);
    let of_before: HashSet<&SiteId> = sites(before).collect();
    let both: HashSet<&SiteId> = sites(after).filter(|site| of_before.contains(site)).collect();
    let rows = |results: &'a Results| results.rows.iter().filter(|row| both.contains(&row.site));
    // Most are of two probes of one trace, row by row: no map of a quarter of a million rows is needed.
    if rows(before).map(key).eq(rows(after).map(key)) {
        return rows(before).zip(rows(after)).map(|(was, is)| (Some(was), Some(is))).collect();
    }
    let old: HashMap<_, &ResultRow> = rows(before).map(|row| (key(row), row)).collect();
    let new: HashSet<_> = rows(after).map(key).collect();
    let kept = rows(after).map(|row| (old.get(&key(row)).copied(), Some(row)));
    kept.chain(rows(before).filter(|row| !new.contains(&key(row))).map(|row| (Some(row), None))).collect()
}

fn key(row: &ResultRow) -> (&SiteId, Gemm, &KernelId, &ModSet) {
    (&row.site, row.gemm, &row.kernel, &row.mods)
}

struct Interval<'a> {
    policy: &'a Policy,
    /// Of the two traces.
    losses: [f64; 2],
}

impl<'p> Interval<'p> {
    fn of(before: &Results, after: &Results, policy: &'p Policy) -> Self {
        Self { policy, losses: [before, after].map(|results| results.meta.manifest.loss.value) }
    }

    fn changes(&self, was: Option<&ResultRow>, is: Option<&ResultRow>) -> Vec<RowChange> {
        let Some(row) = is.or(was) else { return Vec::new() };
        let mut found = Vec::new();
        let mut tell = |moved, reason: String, near_tie| {
            let (site, gemm, kernel, mods) = (row.site.clone(), row.gemm, row.kernel.clone(), row.mods.clone());
            let reason = if near_tie { format!("{reason} (a near tie)") } else { reason };
            found.push(RowChange { site, gemm, kernel, mods, moved, reason, near_tie });
        };
        let (before, after) = (Presence::of(was), Presence::of(is));
        if before != after {
            tell(Moved::Kernel { before, after }, presence(was, is), false);
        }
        let (Some(was), Some(is)) = (was.filter(|row| row.supported), is.filter(|row| row.supported)) else {
            return found;
        };
        if let Some(flip) = self.flip(was, is) {
            let [loss_before, loss_after] = self.losses;
            let old = told(was, loss_before, (flip.bound_before, flip.error_before));
            let new = told(is, loss_after, (flip.bound, flip.error_after));
            let (metric, error) = (flip.bound.metric, [flip.error_before, flip.error_after]);
            let moved = Moved::Verdict { metric, before: flip.before, after: flip.after, error };
            tell(moved, format!("{new} instead of {old}"), flip.near_tie);
        }
        for (metric, before, after) in self.errors(was, is) {
            let reason = format!("{} {} instead of {}", metric.label(), interval(after), interval(before));
            tell(Moved::Error { metric, before, after }, reason, false);
        }
        if let Some((before, after, reason, near_tie)) = latency(&was.latency, &is.latency) {
            tell(Moved::Latency { before, after }, reason, near_tie);
        }
        found
    }

    fn flip<'a>(&self, was: &'a ResultRow, is: &'a ResultRow) -> Option<Flip<'a>> {
        if !was.supported || !is.supported {
            return None;
        }
        let [loss_before, loss_after] = self.losses;
        let (before, bound_before) = decided_by(was, self.policy, loss_before);
        let (after, bound) = decided_by(is, self.policy, loss_after);
        let (error_before, error_after) =
            (was.figure(bound_before.metric, loss_before), is.figure(bound.metric, loss_after));
        let by_cost = bound.metric == Metric::LossCost && bound_before.metric == Metric::LossCost;
        let both = match error_before.zip(error_after) {
            // One that is in range and one that is not may be the same, measured twice.
            None if by_cost => measured_cost(was).zip(measured_cost(is)),
            both => both,
        };
        let near_tie = both.is_some_and(|(was, is)| overlap(was, is));
        (before != after).then_some(Flip {
            row: is,
            bound_before,
            bound,
            before,
            after,
            error_before,
            error_after,
            near_tie,
        })
    }

    /// Those whose intervals have nothing in common. A figure that means nothing has not moved.
    fn errors(&self, was: &ResultRow, is: &ResultRow) -> impl Iterator<Item = (Metric, Estimate, Estimate)> {
        let [before, after] = self.losses;
        let both = METRICS.map(|metric| Some((metric, was.figure(metric, before)?, is.figure(metric, after)?)));
        both.into_iter().flatten().filter(|(_, was, is)| !overlap(*was, *is))
    }
}

/// The loss cost that its range is asked of.
fn measured_cost(row: &ResultRow) -> Option<Estimate> {
    row.error.as_ref()?.loss_cost
}

fn told(row: &ResultRow, loss: f64, (bound, error): (Bound, Option<Estimate>)) -> String {
    let out_of_range = bound.metric == Metric::LossCost && row.loss_cost_means_nothing(loss);
    match measured_cost(row).filter(|_| out_of_range) {
        Some(cost) => against_out_of_range(cost),
        None => against(bound, error),
    }
}

fn presence(was: Option<&ResultRow>, is: Option<&ResultRow>) -> String {
    let why = |row: &ResultRow| row.reason.as_deref().unwrap_or("no reason was given").to_owned();
    match (was, is) {
        (_, Some(is)) if !is.supported => format!("it does not run there: {}", why(is)),
        (Some(was), Some(_)) => format!("it runs there now; before: {}", why(was)),
        (None, Some(_)) => "the results before do not have it".to_owned(),
        (_, None) => "the results after do not have it".to_owned(),
    }
}

/// An interval that has no ends has everything in it.
fn overlap(a: Estimate, b: Estimate) -> bool {
    !(a.hi < b.lo || b.hi < a.lo)
}

fn interval(of: Estimate) -> String {
    format!("{} ({} to {})", short(of.value), short(of.lo), short(of.hi))
}

/// Beyond both intervals; where one has none, by more than a near tie.
fn latency(was: &Latency, is: &Latency) -> Option<(Option<Timed>, Option<Timed>, String, bool)> {
    let (before, after) = (Timed::of(was), Timed::of(is));
    let words = |timed: Timed| format!("{} us ({})", short(timed.us), timed.source.as_str());
    let (old, new) = match (before, after) {
        (None, None) => return None,
        (None, Some(new)) => return Some((before, after, format!("{}, unknown before", words(new)), false)),
        (Some(old), None) => return Some((before, after, format!("unknown, {} before", words(old)), false)),
        (Some(old), Some(new)) => (old, new),
    };
    let ends = |timed: Timed| Some(Estimate::new(timed.us, timed.lo_us?, timed.hi_us?));
    let near = (new.us / old.us - 1.0).abs() < NEAR_TIE;
    let moved = match (ends(old), ends(new)) {
        (Some(old), Some(new)) => !overlap(old, new),
        _ => !near && new.us.to_bits() != old.us.to_bits(),
    };
    let times = if old.us > 0.0 { format!(", {:.2} times as long", new.us / old.us) } else { String::new() };
    moved.then(|| (before, after, format!("{} instead of {}{times}", words(new), words(old)), near))
}

fn shapes(before: &Results, after: &Results) -> BTreeMap<SiteId, (GemmShape, GemmShape)> {
    let shape = |site: &Site| GemmShape { m: site.m, k: site.k, n: site.n };
    let old: HashMap<&SiteId, GemmShape> =
        before.meta.manifest.sites.iter().map(|site| (&site.id, shape(site))).collect();
    let both = after.meta.manifest.sites.iter().filter_map(|site| Some((site, *old.get(&site.id)?)));
    let others = both.filter(|(site, was)| shape(site) != *was);
    others.map(|(site, was)| (site.id.clone(), (was, shape(site)))).collect()
}

fn whole(before: &Results, after: &Results) -> Vec<String> {
    let (old, new) = (&before.meta, &after.meta);
    let mut lines = Vec::new();
    let mut compare = |what: &str, was: String, is: String| {
        if was != is {
            let named = |text: String| if text.is_empty() { "none".to_owned() } else { text };
            lines.push(format!("{what}: {} instead of {}", named(is), named(was)));
        }
    };
    let run = |results: &Results| {
        let run = &results.meta.manifest.run;
        format!("{}, step {}", run.id, run.step)
    };
    compare("another trace", old.trace_digest.clone(), new.trace_digest.clone());
    compare("another run", run(before), run(after));
    compare("model", old.manifest.model.name.clone(), new.manifest.model.name.clone());
    compare("loss", old.manifest.loss.value.to_string(), new.manifest.loss.value.to_string());
    compare("engine", old.engine.clone(), new.engine.clone());
    compare("device", old.device.clone(), new.device.clone());
    compare("driver", old.driver.clone(), new.driver.clone());
    compare("versions", old.versions.clone(), new.versions.clone());
    compare("confidence of the intervals", old.confidence.to_string(), new.confidence.to_string());
    lines
}

#[cfg(test)]
mod tests;
