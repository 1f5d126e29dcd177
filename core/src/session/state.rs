//! The session's state, and what is read of it.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{
    dispatch::{Document, Overrides},
    engine::{Feeds, SiteContext, contexts},
    export::Target,
    model::{Gemm, KernelId, ModSet, ResultRow, Results, Site, SiteId, SiteIndex, SiteMods, SiteRows},
    plan::{self, Plan},
    review::KeyRing,
    views::{Baseline, BaselinePlan, OpenedTrace, SeriesTable, Snapshot},
};

use super::{
    CommandError, ComparedResults, Effect, Engines, History, Inspections, Log, LogKind, Measuring, NoticeKind, Notices,
    Origin, Reviewing, rows::RowSets,
};

/// A probe under way or over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    pub id: u64,
    pub mods: SiteMods,
    /// The sites that it probes.
    pub sites: Arc<[SiteId]>,
    /// Who probes.
    pub origin: Origin,
    /// Share done, 0 to 1.
    pub done: f64,
    pub seconds: f64,
    pub running: bool,
    pub paused: bool,
    pub cancelled: bool,
    pub num_rows: usize,
}

impl Run {
    /// Seconds left, from the rate so far; `None` while there is nothing to go by.
    pub fn seconds_left(&self) -> Option<f64> {
        (self.running && self.done > 0.02).then(|| self.seconds * (1.0 - self.done) / self.done)
    }
}

/// The recorded series of all sites: a large trace is not read for them until somebody looks.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum SeriesState {
    #[default]
    NotAsked,
    Reading,
    Read(Arc<SeriesTable>),
    Failed(String),
}

/// Everything that views read.
#[derive(Default)]
pub struct Session {
    pub trace: Option<Arc<OpenedTrace>>,
    pub document: Document,
    pub engines: Engines,
    pub run: Option<Run>,
    /// Kernels being timed.
    pub measuring: Option<Measuring>,
    /// Why what is decided cannot be kept for now: it waits in memory, and nothing may be approved meanwhile.
    pub not_kept: Option<String>,
    /// Whose keys are whose: without a list a signature is genuine, and anybody's.
    pub keys: Option<Arc<KeyRing>>,
    /// What was told, and the log of every notice and run and file.
    pub notices: Notices,
    /// Distributions and series of the sites that were looked into.
    pub inspections: Inspections,
    /// The results file whose rows were taken last for the open trace.
    pub results_file: Option<String>,
    /// The baseline: a plan to compare with, and its file; without a name where it is no file.
    pub other_plan: Option<(String, Arc<BaselinePlan>)>,
    /// What else is known of it where results were compared.
    pub other_results: Option<Arc<ComparedResults>>,
    /// Of the open trace, once they were asked for.
    pub series: SeriesState,
    /// Marks, comments, signatures.
    pub reviewing: Reviewing,
    pub(super) history: History,
    pub(super) sets: RowSets,
    /// The last run of each engine that is not in use.
    pub(super) idle_runs: BTreeMap<Origin, Run>,
    /// What each site is probed under by the document, and by the run.
    pub(super) contexts: Arc<[SiteContext]>,
    pub(super) run_contexts: Arc<[SiteContext]>,
    /// What each site was probed under for the plan to compare with.
    pub(super) other_contexts: Arc<[SiteContext]>,
    pub(super) next_run: u64,
    /// Counts changes of anything that a view derives from.
    pub(super) revision: u64,
    /// How many of them were the document's, or of the plan to compare with: the rest were of rows.
    pub(super) num_decisions: u64,
    /// How many were of the plan to compare with alone: what is decided is the same after them.
    pub(super) num_comparisons: u64,
}

impl Session {
    pub(super) fn step(
        &mut self,
        step: impl FnOnce(&mut History, &Document) -> Option<Document>,
        nothing: CommandError,
    ) -> Result<Vec<Effect>, CommandError> {
        self.document = step(&mut self.history, &self.document).ok_or(nothing)?;
        self.contexts = contexts(self.sites(), &self.document.mods).into();
        self.decided();
        Ok(self.probe_if_needed())
    }

    pub(super) fn read_series(&mut self) -> Result<Vec<Effect>, CommandError> {
        let path = self.trace.as_ref().ok_or(CommandError::NoTrace)?.path.clone();
        if matches!(self.series, SeriesState::Reading | SeriesState::Read(_)) {
            return Ok(Vec::new());
        }
        self.series = SeriesState::Reading;
        Ok(vec![Effect::ReadSeries { path }])
    }

    /// What is said of a site is said of one that is there.
    pub(super) fn known_place(&self, site: Option<&SiteId>) -> Result<(), CommandError> {
        if self.trace.is_none() {
            return Err(CommandError::NoTrace);
        }
        match site {
            Some(site) if self.index().at(site).is_none() => Err(CommandError::UnknownSite(site.clone())),
            _ => Ok(()),
        }
    }

    pub(super) fn save_results(&self, path: String) -> Result<Vec<Effect>, CommandError> {
        let results = Box::new(self.lasting_results()?);
        Ok(vec![Effect::WriteResults { path, results }])
    }

    pub(super) fn export_plan(&mut self, path: String) -> Result<Effect, CommandError> {
        let plan = Box::new(self.plan_for_file()?);
        Ok(Effect::WritePlan { path, plan })
    }

    pub(super) fn export_to(&self, path: String, target: Target) -> Result<Vec<Effect>, CommandError> {
        let plan = Box::new(self.plan_for_file()?);
        Ok(vec![Effect::WriteExport { path, plan, target }])
    }

    pub(super) fn export_report(&self, path: String) -> Result<Vec<Effect>, CommandError> {
        let plan = Box::new(self.plan_for_file()?);
        let results = Box::new(self.lasting_results()?);
        Ok(vec![Effect::WriteReport { path, plan, results, keys: self.keys.clone() }])
    }

    /// As it was approved where it was, else as it stands.
    pub fn plan_for_file(&self) -> Result<Plan, CommandError> {
        let asks = self.document.policy.approval.is_some();
        self.reviewing.plan_for_file(|| self.plan_now(), asks, self.keys.as_deref())
    }

    /// As it stands, without a date.
    pub fn plan_now(&self) -> Result<Plan, CommandError> {
        self.plan_set_by(&self.document.overrides)
    }

    /// As if nothing had been set by hand.
    pub fn plan_of_policy(&self) -> Result<Plan, CommandError> {
        self.plan_set_by(&Overrides::new())
    }

    fn plan_set_by(&self, overrides: &Overrides) -> Result<Plan, CommandError> {
        let results = self.lasting_results()?;
        let Document { policy, runtime, mods, .. } = &self.document;
        if !results.rows.iter().any(|row| row.mods == *mods.of(&row.site)) {
            return Err(CommandError::NoRows);
        }
        let name = &results.meta.manifest.model.name;
        let built = plan::build_for(*runtime, &results, policy, mods, overrides, (name, ""));
        Ok(built.map_err(|error| CommandError::Plan(error.to_string()))?.plan)
    }

    pub(super) fn compare_with(&mut self, plan: Option<(String, Arc<BaselinePlan>)>) -> Vec<Effect> {
        (self.other_plan, self.other_results) = (plan, None);
        self.sets.forget_compared();
        self.other_contexts = self.contexts_of_other();
        self.decided();
        self.num_comparisons += 1;
        Vec::new()
    }

    pub(super) fn contexts_of_other(&self) -> Arc<[SiteContext]> {
        match self.other_plan.as_ref().map(|(_, plan)| plan.mods()) {
            None => Arc::default(),
            Some(mods) if mods == self.document.mods => self.contexts.clone(),
            Some(mods) => contexts(self.sites(), &mods).into(),
        }
    }

    /// The plan to compare with, and the rows behind it as far as they are here.
    fn baseline(&self) -> Option<Baseline> {
        let (path, plan) = self.other_plan.as_ref()?;
        let (sites, mods) = (self.index().ids(), &self.document.mods);
        let of_results = self.other_results.is_some();
        let set = if of_results { self.sets.compared() } else { self.sets.shown() };
        let none = SiteContext::default();
        let rows = |at: usize| {
            let context = if of_results { &none } else { self.other_contexts.get(at)? };
            set?.rows_of(at, context).cloned()
        };
        let other_mods = plan.mods();
        let other_mods = sites.iter().any(|site| other_mods.of(site) != mods.of(site));
        Some(Baseline {
            name: super::comparing::baseline_name(path, plan, of_results),
            plan: plan.clone(),
            rows: (0..sites.len()).map(rows).collect(),
            by_kernel: of_results || other_mods,
            of_results,
        })
    }

    /// Changes the document; what it was can be undone.
    pub(super) fn change(&mut self, gesture: Option<u64>, change: impl FnOnce(&mut Document)) {
        let mods = self.document.mods.clone();
        if self.history.change(&mut self.document, gesture, change) {
            // A threshold that is dragged moves no site's context.
            if self.document.mods != mods {
                self.contexts = contexts(self.sites(), &self.document.mods).into();
            }
            self.decided();
        }
    }

    fn decided(&mut self) {
        self.revision += 1;
        self.num_decisions += 1;
    }

    /// The line stands in every window until what was decided is kept.
    pub(super) fn keeping(&mut self, problem: Option<String>) {
        let line = match &problem {
            Some(reason) => format!("Changes cannot be kept for now: {reason}"),
            None => "Changes are kept again".to_owned(),
        };
        self.notices.record(LogKind::File, line);
        self.not_kept = problem;
    }

    /// One line for the person.
    pub fn notify(&mut self, kind: NoticeKind, text: String) {
        self.notices.tell(kind, text);
    }

    pub fn log(&self) -> &Log {
        self.notices.log()
    }

    pub fn can_undo(&self) -> bool {
        self.history.can_undo()
    }

    pub fn can_redo(&self) -> bool {
        self.history.can_redo()
    }

    /// Goes up with every change that a view could show.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// How many of the changes were somebody's decisions: the rest were of rows.
    pub fn num_decisions(&self) -> u64 {
        self.num_decisions
    }

    /// The open trace's sites, in forward order.
    pub fn sites(&self) -> &[Site] {
        self.trace.as_ref().map_or(&[], |trace| &trace.manifest().sites)
    }

    pub fn site(&self, id: &SiteId) -> Option<&Site> {
        self.sites().get(self.index().at(id)?)
    }

    /// Numbers of the open trace's sites.
    pub fn index(&self) -> &Arc<SiteIndex> {
        &self.sets.index
    }

    /// A site's rows under the mods in force.
    pub fn site_rows(&self, id: &SiteId) -> Option<&Arc<SiteRows>> {
        let at = self.index().at(id)?;
        self.sets.shown()?.rows_of(at, self.contexts.get(at)?)
    }

    /// Under the mods in force.
    pub fn row(&self, site: &SiteId, gemm: Gemm, kernel: &KernelId) -> Option<&ResultRow> {
        self.site_rows(site)?.get(gemm, kernel)
    }

    /// Of the model as recorded, without any mod.
    pub fn row_before(&self, site: &SiteId, gemm: Gemm, kernel: &KernelId) -> Option<&ResultRow> {
        let at = self.index().at(site)?;
        self.sets.shown()?.rows_of(at, &SiteContext::default())?.get(gemm, kernel)
    }

    /// The rows that are shown: all of one engine and device, whatever their mods.
    pub fn rows(&self) -> impl Iterator<Item = &ResultRow> {
        self.sets.rows().map(|(_, row)| row)
    }

    /// Of the open trace.
    pub fn trace_path(&self) -> Option<&str> {
        self.trace.as_ref().map(|trace| trace.path.as_str())
    }

    pub fn has_rows(&self) -> bool {
        self.sets.num_rows(self.sets.shown_origin()) > 0
    }

    /// Results for a file: they name their trace by its digest.
    fn lasting_results(&self) -> Result<Results, CommandError> {
        let results = self.results().ok_or(CommandError::NoTrace)?;
        if results.meta.trace_digest.is_empty() { Err(CommandError::DigestPending) } else { Ok(results) }
    }

    /// The shown rows with their circumstances, as a results file holds them: those of one engine.
    pub fn results(&self) -> Option<Results> {
        let meta = self.trace.as_ref()?.meta.clone();
        let by = self.sets.shown().and_then(|set| set.circumstances.clone());
        let meta = by.map_or_else(|| meta.clone(), |by| by.stamp(meta.clone()));
        Some(Results { meta, rows: self.lasting_rows() })
    }

    /// Rows that a file can hold: it names a site's own mods alone, so of rows that differ by the mods of
    /// other sites it keeps those in force, and else those of the same mods everywhere.
    fn lasting_rows(&self) -> Vec<ResultRow> {
        let (index, feeds) = (self.index(), Feeds::new(self.sites()));
        let mut uniform: BTreeMap<ModSet, Vec<SiteContext>> = BTreeMap::new();
        let mut keeps = |at: usize, context: &SiteContext| {
            let now = self.contexts.get(at);
            if now.is_some_and(|now| now == context) {
                return true;
            }
            let of = uniform
                .entry(context.own.clone())
                .or_insert_with(|| feeds.contexts(&SiteMods::from(context.own.clone())));
            of.get(at) == Some(context) && now.is_none_or(|now| now.own != context.own)
        };
        let rows = self.sets.rows().filter(|(context, row)| index.at(&row.site).is_some_and(|at| keeps(at, context)));
        rows.map(|(_, row)| row.clone()).collect()
    }

    /// Everything that views derive from; `None` before a trace.
    pub fn snapshot(&self) -> Option<Arc<Snapshot>> {
        let trace = self.trace.clone()?;
        let set = self.sets.shown();
        let of = |contexts: &[SiteContext]| -> Vec<Option<Arc<SiteRows>>> {
            let sites = contexts.iter().enumerate();
            sites.map(|(at, context)| set.and_then(|set| set.rows_of(at, context).cloned())).collect()
        };
        let recorded = |mods: &SiteMods| {
            if mods.is_empty() { Vec::new() } else { vec![SiteContext::default(); self.sites().len()] }
        };
        Some(Arc::new(Snapshot {
            revision: self.revision,
            rows_revision: self.revision - self.num_decisions,
            trace,
            index: self.index().clone(),
            document: self.document.clone(),
            rows: of(&self.contexts),
            before: of(&recorded(&self.document.mods)),
            decided_revision: self.revision - self.num_comparisons,
            baseline: self.baseline().map(Arc::new),
        }))
    }
}

#[cfg(test)]
impl Session {
    /// Under the policy whose metric the rows of tests have.
    pub(crate) fn by_paper() -> Self {
        Self {
            document: Document { policy: crate::dispatch::Policy::paper(), ..Document::default() },
            ..Self::default()
        }
    }
}
