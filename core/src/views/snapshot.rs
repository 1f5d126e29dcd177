//! Everything that views are derived from, as it was at one moment: cheap to take, free to be read on
//! another thread while the session goes on.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{
    dispatch::{Candidates, Document, Group, GroupRows, JudgedBefore, JudgedRows, Target},
    model::{Gemm, KernelId, Manifest, ModSet, ResultRow, ResultsMeta, Site, SiteIndex, SiteRows},
};

use super::Baseline;

/// An opened trace, without its tensors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OpenedTrace {
    pub path: String,
    pub name: String,
    pub meta: ResultsMeta,
}

impl OpenedTrace {
    pub fn manifest(&self) -> &Manifest {
        &self.meta.manifest
    }
}

/// One moment of a session with an open trace.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Of the session, when it was taken.
    pub revision: u64,
    /// Goes up when rows come or another trace or engine is shown, not when a person decides something.
    pub rows_revision: u64,
    pub trace: Arc<OpenedTrace>,
    pub index: Arc<SiteIndex>,
    pub document: Document,
    /// By site: rows under the mods in force; `None` before the first.
    pub rows: Vec<Option<Arc<SiteRows>>>,
    /// By site: rows of the model as recorded, for before and after. Empty where no mod is on.
    pub before: Vec<Option<Arc<SiteRows>>>,
    /// Goes up with everything but the baseline: what is decided and drawn without one is the same.
    pub decided_revision: u64,
    /// What a person compares with.
    pub baseline: Option<Arc<Baseline>>,
}

impl Snapshot {
    /// Only what it is compared with may be another. Of two traces one opened after the other, revisions differ.
    pub fn is_decided_as(&self, other: &Self) -> bool {
        self.decided_revision == other.decided_revision
            && self.rows_revision == other.rows_revision
            && Arc::ptr_eq(&self.index, &other.index)
    }

    /// Whatever a person has decided since: the rows of every site, under its mods and as recorded, are the same ones.
    pub(super) fn has_rows_of(&self, other: &Self) -> bool {
        let all = |a: &[Option<Arc<SiteRows>>], b: &[Option<Arc<SiteRows>>]| {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_same(a.as_ref(), b.as_ref()))
        };
        Arc::ptr_eq(&self.index, &other.index) && all(&self.rows, &other.rows) && all(&self.before, &other.before)
    }

    /// The same of one site, under its mods.
    pub(super) fn has_rows_of_at(&self, other: &Self, at: usize) -> bool {
        let [ours, theirs] = [self, other].map(|of| of.rows.get(at).and_then(Option::as_ref));
        is_same(ours, theirs)
    }

    pub fn sites(&self) -> &[Site] {
        &self.trace.manifest().sites
    }

    pub fn loss(&self) -> f64 {
        self.trace.manifest().loss.value
    }

    pub fn has_rows(&self) -> bool {
        self.rows.iter().any(Option::is_some)
    }

    /// Rows of one GEMM, sorted by kernel.
    pub fn rows_of(&self, at: usize, gemm: Gemm) -> &[ResultRow] {
        self.rows.get(at).and_then(Option::as_ref).map_or(&[], |rows| rows.of(gemm))
    }

    /// The same without any mod.
    pub fn rows_before(&self, at: usize, gemm: Gemm) -> &[ResultRow] {
        let rows = if self.before.is_empty() { &self.rows } else { &self.before };
        rows.get(at).and_then(Option::as_ref).map_or(&[], |rows| rows.of(gemm))
    }

    pub fn row(&self, at: usize, gemm: Gemm, kernel: &KernelId) -> Option<&ResultRow> {
        self.rows.get(at)?.as_ref()?.get(gemm, kernel)
    }

    /// The place of a kernel's row among those of its GEMM.
    pub fn place_of(&self, at: usize, gemm: Gemm, kernel: &KernelId) -> Option<usize> {
        self.rows.get(at)?.as_ref()?.place_of(gemm, kernel)
    }

    /// Of the model as recorded, without any mod.
    pub fn row_before(&self, at: usize, gemm: Gemm, kernel: &KernelId) -> Option<&ResultRow> {
        let rows = if self.before.is_empty() { &self.rows } else { &self.before };
        rows.get(at)?.as_ref()?.get(gemm, kernel)
    }

    /// The kernels to choose from at every GEMM.
    pub fn candidates(&self) -> Candidates<'_> {
        self.candidates_of(Self::rows_of)
    }

    /// Every row under the policy in force.
    pub(crate) fn judged(&self) -> JudgedRows {
        self.judged_after(None)
    }

    /// The same after another moment's.
    pub(super) fn judged_after(&self, earlier: Option<(&Self, &JudgedRows)>) -> JudgedRows {
        let policy = &self.document.policy;
        let earlier = earlier
            .filter(|(then, _)| Arc::ptr_eq(&self.trace, &then.trace) && policy.asks_like(&then.document.policy));
        let same = earlier.map(|(then, _)| move |at: usize| self.has_rows_of_at(then, at));
        let some = same.as_ref().filter(|same| !(0..self.sites().len()).all(same));
        let some = some.map(|same| same as &(dyn Fn(usize) -> bool + Sync));
        let before = earlier.map(|(_, rows)| JudgedBefore { rows, same: some });
        JudgedRows::of(self.sites(), (policy, self.loss()), |at, gemm| self.rows_of(at, gemm).iter(), before)
    }

    /// The kernels to choose from at one site.
    pub(crate) fn groups_at(&self, at: usize) -> [Group<'_>; 3] {
        let (meta, site) = (&self.trace.meta, &self.sites()[at]);
        let problem = meta.problems.iter().find(|(of, _)| *of == site.id).map(|(_, problem)| problem.as_str());
        Gemm::ALL.map(|gemm| Group::new(site, gemm, GroupRows::Lying(self.rows_of(at, gemm)), problem))
    }

    /// The same as if no mod were on.
    pub fn candidates_before(&self) -> Candidates<'_> {
        self.candidates_of(Self::rows_before)
    }

    fn candidates_of<'a>(&'a self, rows: fn(&'a Self, usize, Gemm) -> &'a [ResultRow]) -> Candidates<'a> {
        let mut places = 0..;
        Candidates::of(&self.trace.meta, self.document.runtime, |_, gemm| {
            let at = places.next().unwrap_or(usize::MAX) / Gemm::ALL.len();
            GroupRows::Lying(rows(self, at, gemm))
        })
    }

    /// Where the plan will run, and what sites take there.
    pub fn target(&self) -> Target {
        Target::of(&self.trace.meta, self.document.runtime)
    }

    /// The mods in force at a site.
    pub fn mods_of(&self, at: usize) -> &ModSet {
        self.document.mods.of(&self.index.ids()[at])
    }
}

fn is_same(a: Option<&Arc<SiteRows>>, b: Option<&Arc<SiteRows>>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => Arc::ptr_eq(a, b),
        (a, b) => a.is_none() && b.is_none(),
    }
}
