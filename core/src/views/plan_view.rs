//! The plan as it stands, made anew when rows, policy, mods or overrides change.

use std::sync::{Arc, OnceLock};

use crate::{
    dispatch::{Before, Chain, Choice, JudgedRows, Pick, Selection, select, told_alone, told_together},
    model::{Gemm, SiteId, SiteIndex},
    plan::{Decided, Got},
};

use super::Snapshot;

/// Choices and totals for the views, and why they cannot be made when they can't.
#[derive(Clone, Debug, Default)]
pub struct PlanView {
    pub decided: Option<Selection>,
    pub problem: Option<String>,
    /// Overrides that have no row yet (a probe under new mods is still running).
    pub num_waiting_overrides: usize,
    index: Arc<SiteIndex>,
    /// By site: what somebody has asked for.
    told: Vec<OnceLock<Box<[Choice; 3]>>>,
}

/// What has been told of it makes no difference.
impl PartialEq for PlanView {
    fn eq(&self, other: &Self) -> bool {
        (&self.decided, &self.problem, self.num_waiting_overrides)
            == (&other.decided, &other.problem, other.num_waiting_overrides)
    }
}

/// What was decided before, and of what.
#[derive(Clone, Copy)]
pub(super) struct Earlier<'e> {
    pub snapshot: &'e Snapshot,
    pub judged: &'e JudgedRows,
    pub plan: &'e PlanView,
}

impl PlanView {
    pub fn of(snapshot: &Snapshot) -> Self {
        Self::of_judged(snapshot, &snapshot.judged(), None)
    }

    /// `judged`: the snapshot's rows. `earlier`: what was decided before; what would be decided as then is kept.
    pub(super) fn of_judged(snapshot: &Snapshot, judged: &JudgedRows, earlier: Option<Earlier>) -> Self {
        let candidates = snapshot.candidates();
        let (document, loss) = (&snapshot.document, snapshot.loss());
        let ready = candidates.ready(&document.overrides, &document.policy.baseline);
        let earlier = earlier.filter(|earlier| earlier.decides_like(snapshot));
        let is_same = |at: usize| {
            earlier.is_some_and(|of| snapshot.has_rows_of_at(of.snapshot, at) && judged.are_judged_as(of.judged, at))
        };
        let selection = earlier.and_then(|earlier| earlier.plan.decided.as_ref());
        let before = selection.map(|selection| Before { selection, is_same: &is_same });
        let decided = select(&candidates, (&document.policy, loss), &ready, (judged, before.as_ref()));
        let (decided, problem) = match decided {
            Ok(decided) => (Some(decided), None),
            Err(error) => (None, Some(error.to_string())),
        };
        Self {
            index: snapshot.index.clone(),
            num_waiting_overrides: document.overrides.len() - ready.len(),
            told: vec![OnceLock::new(); snapshot.sites().len()],
            decided,
            problem,
        }
    }

    pub fn pick(&self, site: &SiteId, gemm: Gemm) -> Option<&Pick> {
        self.pick_at(self.index.at(site)?, gemm)
    }

    /// By the site's number.
    pub fn pick_at(&self, at: usize, gemm: Gemm) -> Option<&Pick> {
        self.decided.as_ref()?.pick(at, gemm)
    }

    /// What a site takes or hands on as codes, by its number.
    pub fn chain_at(&self, at: usize) -> Option<&Chain> {
        self.decided.as_ref()?.chains.get(&at)
    }

    /// The choice as a plan has it, with its words. `snapshot`: what was decided of.
    pub fn choice_at(&self, snapshot: &Snapshot, at: usize, gemm: Gemm) -> Option<&Choice> {
        let (site, told) = (self.decided.as_ref()?.sites.get(at)?, self.told.get(at)?);
        if told.get().is_none() {
            let found = match site.unit.alone {
                true => told_alone_at(snapshot, at, site.unit.item).map(|choices| (at, choices)).into_iter().collect(),
                false => self.told_together(snapshot),
            };
            for (at, choices) in found {
                // Whoever asked at the same time has the same.
                self.told.get(at)?.get_or_init(|| Box::new(choices));
            }
        }
        told.get().map(|choices| &choices[gemm as usize])
    }

    /// To be compared with another, at all sites. `snapshot`: what was decided of.
    pub(super) fn compared<'a>(&'a self, snapshot: &'a Snapshot) -> Option<Decided<'a>> {
        self.compared_at(snapshot, (0..snapshot.sites().len()).collect())
    }

    /// The same at some of them, by their numbers.
    pub(super) fn compared_at<'a>(&'a self, snapshot: &'a Snapshot, places: Vec<usize>) -> Option<Decided<'a>> {
        let (sites, selection) = (snapshot.sites(), self.decided.as_ref()?);
        let got = |at: usize, gemm: Gemm| {
            let pick = selection.pick(at, gemm)?;
            Some(Got::of(&sites[at].id, gemm, (&pick.kernel, pick.source)))
        };
        let picks = places.iter().flat_map(|at| Gemm::ALL.map(|gemm| got(*at, gemm)));
        let mods = &snapshot.document.mods;
        let modified = if mods.is_empty() { &[] } else { sites };
        let modified = modified.iter().map(|site| (&site.id, mods.of(&site.id)));
        Some(Decided {
            policy: &snapshot.document.policy,
            mods: modified.filter(|(_, mods)| !mods.is_empty()).collect(),
            chains: selection.chains.iter().filter_map(|(at, chain)| Some((&sites.get(*at)?.id, chain))).collect(),
            picks: picks.collect::<Option<_>>()?,
            choice: Box::new(move |at| self.choice_at(snapshot, places[at / 3], Gemm::ALL[at % 3])),
        })
    }

    fn told_together(&self, snapshot: &Snapshot) -> Vec<(usize, [Choice; 3])> {
        let Some(selection) = &self.decided else { return Vec::new() };
        let candidates = snapshot.candidates();
        let policy = &snapshot.document.policy;
        let ready = candidates.ready(&snapshot.document.overrides, &policy.baseline);
        told_together(&candidates, (policy, snapshot.loss()), &ready, selection)
    }
}

fn told_alone_at(snapshot: &Snapshot, at: usize, item: Option<usize>) -> Option<[Choice; 3]> {
    let (groups, document) = (snapshot.groups_at(at), &snapshot.document);
    let wanted = Gemm::ALL.map(|gemm| {
        let wanted = document.overrides.get(&(snapshot.sites()[at].id.clone(), gemm));
        wanted.filter(|wanted| groups[gemm as usize].can_have(wanted, &document.policy.baseline))
    });
    told_alone(&groups, wanted, (&document.policy, snapshot.loss(), &snapshot.target()), item)
}

impl Earlier<'_> {
    /// Where the same rows are judged alike, the same is decided.
    pub(super) fn decides_like(&self, snapshot: &Snapshot) -> bool {
        let (then, now) = (&self.snapshot.document, &snapshot.document);
        then.policy.decides_like(&now.policy)
            && then.runtime == now.runtime
            && Arc::ptr_eq(&self.snapshot.trace, &snapshot.trace)
            && Arc::ptr_eq(&self.snapshot.index, &snapshot.index)
    }
}
