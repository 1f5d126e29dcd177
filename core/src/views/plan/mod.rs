//! The plan as a table: takes a snapshot and its choices, gives one line a GEMM with the time it saves, what
//! warns, and what differs from pure Dispatch and from another plan. Made once a revision.

mod compared;
mod groups;
mod saved;
mod warnings;

pub use compared::Comparison;
pub use groups::{PlanGroup, PlanGroupBy};
pub(super) use saved::Saved;
pub use warnings::WarningGroup;

use std::collections::BTreeMap;

use crate::{
    dispatch::{Bound, Chain, ChoiceSource, JudgedRows, Pick, bound_of, parallel},
    format::Term,
    model::{Estimate, Gemm, LatencySource, Metric, Quadrant, Safety},
    views::{PlanView, Snapshot, plan_view::Earlier},
};

use super::Versus;

/// What of a line can be filtered for. Bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(u8);

impl Flags {
    /// Set by hand.
    pub const OVERRIDE: Self = Self(1);
    /// A warning names it, or it has no latency.
    pub const WARNS: Self = Self(2);
    /// The best that low precision offers is too close to the threshold to call.
    pub const UNCERTAIN: Self = Self(4);
    /// Another kernel than in what the plan is compared with: the other plan, else pure Dispatch.
    pub const CHANGED: Self = Self(8);
    /// In low precision.
    pub const LOW: Self = Self(16);
    /// Its x arrives as codes.
    pub const READS_CODES: Self = Self(32);
    /// It hands its output on as codes.
    pub const STORES_CODES: Self = Self(64);
    /// In low precision, and its error is a loss cost outside its range, which means nothing: it has no margin.
    pub const OUT_OF_RANGE: Self = Self(128);

    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    fn set(&mut self, other: Self, on: bool) {
        self.0 = if on { self.0 | other.0 } else { self.0 & !other.0 };
    }
}

/// One GEMM's choice in the table; its words are in the plan.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlanLine {
    /// The site's number in the trace.
    pub at: usize,
    pub gemm: Gemm,
    /// Against the baseline, with its part of what the site's GEMMs save together ([`Saved`]); the lines add up to the totals.
    /// `None`: no time is known.
    pub saved_us: Option<f64>,
    /// By its own row, with half of what each shared cast saves, and what codes save a forward GEMM.
    pub alone_us: Option<f64>,
    /// Of all that is saved.
    pub share: Option<f64>,
    /// The chosen kernel's, in the metric of its bound.
    pub error: Option<Estimate>,
    pub bound: Bound,
    /// How far the interval's end is from the bound, as a share of it; below 0: beyond.
    pub margin: Option<f64>,
    pub verdict: Quadrant,
    /// Of the chosen kernel's latency; `None`: it has no row.
    pub source: Option<LatencySource>,
    pub flags: Flags,
}

/// What the table can be sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PlanColumn {
    /// Most saved first.
    #[default]
    Saved,
    /// In the model's forward order.
    Site,
    Kernel,
    /// The smallest margin first.
    Margin,
    /// What differs most from a baseline first, more or less; what is not in it last.
    Versus,
}

impl PlanColumn {
    pub const ALL: [Self; 5] = [Self::Saved, Self::Site, Self::Kernel, Self::Margin, Self::Versus];

    /// What stands in the column.
    pub fn term(self) -> Term {
        match self {
            Self::Saved => Term::Saved,
            Self::Site => Term::Site,
            Self::Kernel => Term::Kernel,
            Self::Margin => Term::Margin,
            Self::Versus => Term::Versus,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlanTable {
    /// In forward order, three a site.
    pub lines: Vec<PlanLine>,
    /// Places in `lines`, most saved first; without a time last.
    by_saved: Vec<u32>,
    pub saved_us: f64,
    pub num_low: usize,
    pub num_uncertain: usize,
    pub warnings: Vec<WarningGroup>,
    /// With overrides only: without them every plan is pure Dispatch's.
    pub dispatch: Option<Comparison>,
    /// With another plan only.
    pub other: Option<Comparison>,
}

impl PlanTable {
    /// `earlier`: what was decided before, and its table.
    pub(super) fn of(
        (snapshot, judged): (&Snapshot, &JudgedRows),
        plan: &PlanView,
        earlier: Option<(Earlier, &Self)>,
    ) -> Self {
        let Some(decided) = &plan.decided else { return Self::default() };
        let policy = &snapshot.document.policy;
        // Of two bounds on a bias a line does not say which it is of.
        let earlier = earlier
            .filter(|(then, _)| policy.asks_like(&then.snapshot.document.policy) && policy.metric != Metric::Bias);
        let kept = |at: usize| {
            let (then, table) = earlier?;
            let lines = table.lines.get(3 * at..3 * at + 3)?;
            then.plan.decided.as_ref().filter(|then| decided.is_kept_from(then, at)).map(|_| lines)
        };
        let dispatch = compared::with_dispatch((snapshot, judged), plan);
        let made = |at: usize| {
            let Saved { credited, alone } = Saved::at(snapshot, plan, at);
            Gemm::ALL.into_iter().filter_map(move |gemm| {
                let saved = (credited[gemm as usize], alone[gemm as usize]);
                let mut line = line((snapshot, judged), (at, gemm), plan.pick_at(at, gemm)?, saved);
                let chain = plan.chain_at(at).filter(|_| gemm == Gemm::Fprop);
                line.flags.set(Flags::READS_CODES, chain.is_some_and(Chain::reads_codes));
                line.flags.set(Flags::STORES_CODES, chain.is_some_and(Chain::stores_codes));
                Some(line)
            })
        };
        let of_sites = |sites: std::ops::Range<usize>| {
            let mut lines = Vec::with_capacity(3 * sites.len());
            for at in sites {
                match kept(at) {
                    Some(kept) => lines.extend(kept.iter().map(|line| line.again(snapshot))),
                    None => lines.extend(made(at)),
                }
            }
            lines
        };
        let mut lines = parallel::map_ranges(snapshot.sites().len(), of_sites);
        for at in decided.warnings.iter().filter_map(|warning| warning.at) {
            lines[at].flags.set(Flags::WARNS, true);
        }
        let saved_us: f64 = lines.iter().filter_map(|line| line.saved_us).sum();
        if saved_us > 0.0 {
            lines.iter_mut().for_each(|line| line.share = line.saved_us.map(|us| us / saved_us));
        }
        let count = |flag: Flags| lines.iter().filter(|line| line.flags.has(flag)).count();
        let (num_low, num_uncertain) = (count(Flags::LOW), count(Flags::UNCERTAIN));
        let warnings = warnings::grouped(snapshot, plan, &lines);
        let by_saved = by_saved(&lines, earlier.map(|(_, table)| &table.by_saved[..]));
        let table = Self { lines, by_saved, saved_us, num_low, num_uncertain, warnings, dispatch, other: None };
        table.against(snapshot, plan)
    }

    /// The same table compared with the snapshot's baseline.
    pub(super) fn against(mut self, snapshot: &Snapshot, plan: &PlanView) -> Self {
        self.other = compared::with_other(snapshot, plan);
        self.lines.iter_mut().for_each(|line| line.flags.set(Flags::CHANGED, false));
        if let Some(compared) = self.other.as_ref().or(self.dispatch.as_ref()) {
            for change in &compared.changes.changes {
                if let Some(at) = snapshot.index.at(&change.site) {
                    self.lines[3 * at + change.gemm as usize].flags.set(Flags::CHANGED, true);
                }
            }
        }
        self
    }

    /// How many of the chosen kernels have a latency of which source.
    pub(super) fn sources(&self) -> BTreeMap<LatencySource, usize> {
        let count = |of: LatencySource| (of, self.lines.iter().filter(|line| line.source == Some(of)).count());
        LatencySource::ALL.into_iter().map(count).filter(|(_, count)| *count > 0).collect()
    }

    /// Places in `lines`: those that `keep` keeps, in the order asked for.
    pub fn order(
        &self,
        plan: &PlanView,
        versus: Option<&Versus>,
        (by, reversed): (PlanColumn, bool),
        keep: impl Fn(&PlanLine) -> bool,
    ) -> Vec<u32> {
        let kept = self.by_saved.iter().copied().filter(|at| keep(&self.lines[*at as usize]));
        let mut order: Vec<u32> = kept.collect();
        let kernel = |at: u32| {
            let line = &self.lines[at as usize];
            plan.pick_at(line.at, line.gemm).map(|choice| &choice.kernel)
        };
        let margin = |at: u32| self.lines[at as usize].margin.unwrap_or(f64::INFINITY);
        let change = |at: u32| {
            let line = &self.lines[at as usize];
            let then = versus.and_then(|versus| versus.line(line.at, line.gemm));
            then.and_then(|then| then.delta_us).map_or(f64::NEG_INFINITY, f64::abs)
        };
        match by {
            PlanColumn::Saved => {}
            PlanColumn::Versus => order.sort_by(|a, b| change(*b).total_cmp(&change(*a))),
            PlanColumn::Site => order.sort_unstable(),
            PlanColumn::Kernel => order.sort_by(|a, b| kernel(*a).cmp(&kernel(*b))),
            PlanColumn::Margin => order.sort_by(|a, b| margin(*a).total_cmp(&margin(*b))),
        }
        if reversed {
            order.reverse();
        }
        order
    }
}

/// `last`: an order from before, which is nearly that of now.
fn by_saved(lines: &[PlanLine], last: Option<&[u32]>) -> Vec<u32> {
    // What is compared lies beside what is moved: a line of the table is more than a cache line.
    let with = |at: u32| (lines[at as usize].saved_us.unwrap_or(f64::NEG_INFINITY), at);
    let mut order: Vec<(f64, u32)> = match last.filter(|last| last.len() == lines.len()) {
        Some(last) => last.iter().map(|at| with(*at)).collect(),
        None => (0..lines.len() as u32).map(with).collect(),
    };
    order.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    order.into_iter().map(|(_, at)| at).collect()
}

fn line(
    (snapshot, judged): (&Snapshot, &JudgedRows),
    (at, gemm): (usize, Gemm),
    choice: &Pick,
    (saved_us, alone_us): (Option<f64>, Option<f64>),
) -> PlanLine {
    let (policy, loss) = (&snapshot.document.policy, snapshot.loss());
    let place = snapshot.place_of(at, gemm, &choice.kernel);
    let row = place.and_then(|place| snapshot.rows_of(at, gemm).get(place));
    let judged_row = place.and_then(|place| judged.at(at, gemm).get(place));
    let own = bound_of(policy, &snapshot.sites()[at].id, gemm, loss);
    let bound = judged_row.map_or(own, |row| row.bound(policy, gemm, own));
    // In the policy's metric it is beside the verdict; the row itself is then not read.
    let error = match judged_row.filter(|_| bound.metric == policy.metric) {
        Some(judged) => judged.error,
        None => row.and_then(|row| row.metric(bound.metric)),
    };
    let low = choice.kernel.is_low_precision();
    let mut flags = Flags::default();
    flags.set(Flags::OVERRIDE, choice.source == ChoiceSource::Override);
    flags.set(Flags::WARNS, saved_us.is_none());
    flags.set(Flags::LOW, low);
    flags.set(Flags::UNCERTAIN, !low && best_is_uncertain(judged, at, gemm));
    let means_nothing = || row.is_some_and(|row| row.loss_cost_means_nothing(loss));
    flags.set(Flags::OUT_OF_RANGE, low && bound.metric == Metric::LossCost && means_nothing());
    PlanLine {
        at,
        gemm,
        saved_us,
        alone_us,
        share: None,
        error,
        bound,
        margin: margin((bound, flags), error),
        verdict: judged_row.map_or(Quadrant::Uncertain, |row| row.quadrant),
        source: judged_row.map(|row| row.source),
        flags,
    }
}

impl PlanLine {
    /// The same held against the limits of now.
    fn again(&self, snapshot: &Snapshot) -> Self {
        let own = bound_of(&snapshot.document.policy, &snapshot.sites()[self.at].id, self.gemm, snapshot.loss());
        // What bounds a bias is as it was.
        let bound = if self.bound.metric == own.metric { own } else { self.bound };
        let mut flags = self.flags;
        flags.set(Flags::WARNS, self.saved_us.is_none());
        Self { share: None, bound, margin: margin((bound, flags), self.error), flags, ..*self }
    }
}

fn margin((bound, flags): (Bound, Flags), error: Option<Estimate>) -> Option<f64> {
    let metric = bound.metric;
    let error = error.filter(|_| flags.has(Flags::LOW) && !flags.has(Flags::OUT_OF_RANGE))?;
    let room = metric.badness(bound.limit) - metric.badness(metric.worse_end(metric.on_scale(error)));
    Some(room / bound.limit.abs())
}

/// Nothing in low precision is safe here, but something may be.
fn best_is_uncertain(judged: &JudgedRows, at: usize, gemm: Gemm) -> bool {
    let mut uncertain = false;
    for row in judged.low(at, gemm) {
        match row.safety {
            Safety::Safe => return false,
            Safety::Uncertain => uncertain = true,
            Safety::Unsafe => {}
        }
    }
    uncertain
}

#[cfg(test)]
mod tests;
