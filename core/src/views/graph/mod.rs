//! The model's forward chain: takes a snapshot with its plan, gives what a box a site shows (its time, the verdicts of its
//! three GEMMs, which run in FP8, the casts that they share) and who feeds whom, as recorded. What is folded of it and
//! where boxes stand are [`GraphItems`] and [`GraphLayout`].

mod items;
mod layout;

pub use items::{BandCounts, Bracket, GraphEdge, GraphItem, GraphItemKind, GraphItems, auto_depth};
pub use layout::GraphLayout;

use std::{collections::HashSet, sync::Arc};

use crate::{
    dispatch::{ChoiceSource, Operand, shared_casts},
    model::{Gemm, KernelId, Quadrant, SiteId},
    views::{PlanTable, PlanView, SiteVerdict, Snapshot},
};

use super::Flags;

/// One of a site's three GEMMs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GraphGemm {
    /// False of one that the plan's runtime, or training, never asks for.
    pub runs: bool,
    /// The best that low precision offers it; `None`: nothing is known yet.
    pub verdict: Option<Quadrant>,
    /// The plan runs it in low precision.
    pub is_low: bool,
    pub by_hand: bool,
}

/// What a site's box shows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GraphSite {
    pub gemms: [GraphGemm; 3],
    /// A step's time of the GEMMs that run, every call counted: in the policy's baseline, and as planned with what is
    /// shared and handed on. Sums over those whose time is known.
    pub baseline_us: f64,
    pub planned_us: f64,
    /// GEMMs that run and whose time is not known.
    pub num_untimed: u32,
    /// Mods in force here.
    pub num_mods: u32,
    /// By operand: two GEMMs read one cast of it.
    pub shared: [bool; 3],
    /// The recording has a problem here.
    pub is_broken: bool,
}

/// One site reads another's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Feed {
    pub from: u32,
    pub to: u32,
    /// The output is handed on as FP8 codes.
    pub codes: bool,
}

/// All sites in forward order, and the feeds between them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Graph {
    pub sites: Vec<GraphSite>,
    /// Sorted by who feeds.
    pub feeds: Vec<Feed>,
    /// The same sorted by who is fed.
    fed: Vec<Feed>,
    pub baseline_us: f64,
    pub planned_us: f64,
    pub num_untimed: usize,
}

/// What a graph is made of.
#[derive(Clone, Debug)]
pub struct GraphBasis {
    pub snapshot: Arc<Snapshot>,
    pub plan: Arc<PlanView>,
    pub table: Arc<PlanTable>,
    pub verdicts: Arc<Vec<SiteVerdict>>,
}

impl GraphBasis {
    fn verdict(&self, at: usize) -> SiteVerdict {
        self.verdicts.get(at).copied().unwrap_or_default()
    }

    fn saved_us(&self, at: usize) -> [Option<f64>; 3] {
        Gemm::ALL.map(|gemm| self.table.lines.get(3 * at + gemm as usize).and_then(|line| line.saved_us))
    }

    /// Of the same rows, sites and mods, timed against the same: what differs is what was decided.
    fn is_comparable(&self, other: &Self) -> bool {
        let (ours, theirs) = (&self.snapshot, &other.snapshot);
        let (now, then) = (&ours.document, &theirs.document);
        Arc::ptr_eq(&ours.trace, &theirs.trace)
            && ours.has_rows_of(theirs)
            && now.policy.baseline == then.policy.baseline
            && now.runtime == then.runtime
            && now.mods == then.mods
    }

    fn picks(&self, at: usize) -> [Option<(&KernelId, ChoiceSource)>; 3] {
        Gemm::ALL.map(|gemm| self.plan.pick_at(at, gemm).map(|pick| (&pick.kernel, pick.source)))
    }

    /// The site's box shows the same.
    fn is_same_at(&self, other: &Self, at: usize) -> bool {
        self.picks(at) == other.picks(at)
            && self.verdict(at) == other.verdict(at)
            && self.saved_us(at) == other.saved_us(at)
    }
}

impl Graph {
    /// `last`: the graph of before, from which what shows the same is taken.
    pub fn of(basis: &GraphBasis, last: Option<(&GraphBasis, &Self)>) -> Self {
        let (snapshot, plan) = (&*basis.snapshot, &*basis.plan);
        let count = snapshot.sites().len();
        let last = last.filter(|(then, of)| of.sites.len() == count && basis.is_comparable(then));
        let broken: HashSet<&SiteId> = snapshot.trace.meta.problems.iter().map(|(site, _)| site).collect();
        let made = |at: usize| match last {
            Some((then, graph)) if basis.is_same_at(then, at) => graph.sites[at],
            _ => GraphSite { is_broken: broken.contains(&snapshot.sites()[at].id), ..site(basis, at) },
        };
        let sites: Vec<GraphSite> = (0..count).map(made).collect();
        let codes = |from: u32, to: u32| {
            let of = plan.chain_at(to as usize).and_then(|chain| chain.from.as_ref());
            of.is_some_and(|id| *id == snapshot.sites()[from as usize].id)
        };
        let mut feeds: Vec<Feed> = match last {
            Some((_, graph)) => graph.feeds.clone(),
            None => {
                let all = snapshot.sites().iter().enumerate().flat_map(|(from, site)| {
                    let to = site.feeds.iter().filter_map(|id| snapshot.index.at(id));
                    to.map(move |to| Feed { from: from as u32, to: to as u32, codes: false })
                });
                all.collect()
            }
        };
        feeds.iter_mut().for_each(|feed| feed.codes = codes(feed.from, feed.to));
        if last.is_none() {
            feeds.sort_unstable();
            feeds.dedup_by_key(|feed| (feed.from, feed.to));
        }
        let mut fed = feeds.clone();
        fed.sort_unstable_by_key(|feed| (feed.to, feed.from));
        Self {
            baseline_us: sites.iter().map(|site| site.baseline_us).sum(),
            planned_us: sites.iter().map(|site| site.planned_us).sum(),
            num_untimed: sites.iter().map(|site| site.num_untimed as usize).sum(),
            sites,
            feeds,
            fed,
        }
    }

    /// Whom a site feeds.
    pub fn from(&self, site: u32) -> &[Feed] {
        range(&self.feeds, site, |feed| feed.from)
    }

    /// Who feeds a site.
    pub fn to(&self, site: u32) -> &[Feed] {
        range(&self.fed, site, |feed| feed.to)
    }

    /// Feeds by which codes are handed on.
    pub fn num_codes(&self) -> usize {
        self.feeds.iter().filter(|feed| feed.codes).count()
    }
}

fn range(feeds: &[Feed], site: u32, of: impl Fn(&Feed) -> u32) -> &[Feed] {
    let from = feeds.partition_point(|feed| of(feed) < site);
    let count = feeds[from..].partition_point(|feed| of(feed) == site);
    &feeds[from..from + count]
}

fn site(basis: &GraphBasis, at: usize) -> GraphSite {
    let GraphBasis { snapshot, plan, table, .. } = basis;
    let (site, document) = (&snapshot.sites()[at], &snapshot.document);
    let verdict = basis.verdict(at);
    let calls = site.calls as f64;
    let reference = |gemm| {
        let row = snapshot.row(at, gemm, &document.policy.baseline)?;
        row.latency.latency_us.filter(|us| *us > 0.0 && us.is_finite())
    };
    let mut of = GraphSite { num_mods: snapshot.mods_of(at).0.len() as u32, ..GraphSite::default() };
    for gemm in Gemm::ALL {
        let runs = site.runs(gemm) && document.runtime.runs(gemm);
        let line = table.lines.get(3 * at + gemm as usize);
        let choice = plan.pick_at(at, gemm);
        of.gemms[gemm as usize] = GraphGemm {
            runs,
            verdict: verdict.gemms[gemm as usize],
            is_low: runs && line.is_some_and(|line| line.flags.has(Flags::LOW)),
            by_hand: choice.is_some_and(|choice| choice.source == ChoiceSource::Override),
        };
        match (runs, reference(gemm)) {
            (false, _) => {}
            (true, None) => of.num_untimed += 1,
            (true, Some(us)) => {
                let saved = line.and_then(|line| line.saved_us).unwrap_or(0.0);
                of.baseline_us += calls * us;
                of.planned_us += calls * (us - saved);
            }
        }
    }
    let chosen = |gemm: Gemm| snapshot.row(at, gemm, &plan.pick_at(at, gemm)?.kernel);
    for cast in shared_casts(Gemm::ALL.map(chosen), Gemm::ALL.map(reference)) {
        if let Some(operand) = Operand::ALL.iter().position(|of| *of == cast.operand) {
            of.shared[operand] = true;
        }
    }
    of
}

#[cfg(test)]
mod tests;
