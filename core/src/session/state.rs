//! The session's state and its two entrances: commands and events.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    dispatch::{Override, Policy},
    model::{Gemm, KernelId, ModSet, ResultRow, Results, SiteId},
    plan,
};

use super::{
    Circumstances, Command, CommandError, Document, Effect, Engines, Event, History, Measuring, Notice, NoticeKind,
    OpenedTrace, Origin, PlanView, engine_title, rows::RowSets,
};

/// A probe under way or over.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    pub id: u64,
    pub mods: ModSet,
    /// Who probes.
    pub origin: Origin,
    /// Share done, 0 to 1.
    pub done: f64,
    pub seconds: f64,
    pub running: bool,
    pub cancelled: bool,
    pub num_rows: usize,
}

impl Run {
    /// Seconds left, from the rate so far; `None` while there is nothing to go by.
    pub fn seconds_left(&self) -> Option<f64> {
        (self.running && self.done > 0.02).then(|| self.seconds * (1.0 - self.done) / self.done)
    }
}

/// Everything that views read.
#[derive(Default)]
pub struct Session {
    pub trace: Option<OpenedTrace>,
    pub document: Document,
    pub engines: Engines,
    pub run: Option<Run>,
    /// Kernels being timed.
    pub measuring: Option<Measuring>,
    pub notices: Vec<Notice>,
    history: History,
    pub(super) sets: RowSets,
    /// The last run of each engine that is not in use.
    pub(super) idle_runs: BTreeMap<Origin, Run>,
    pub(super) next_run: u64,
    next_notice: u64,
    /// Counts changes of anything that a view derives from.
    pub(super) revision: u64,
    /// Which set of rows the last derivation saw.
    derived: Option<(u64, Arc<PlanView>)>,
}

impl Session {
    /// Carries a command out as far as state goes, and says what else is to be done.
    pub fn command(&mut self, command: Command) -> Result<Vec<Effect>, CommandError> {
        match command {
            Command::OpenTrace { path } => Ok(vec![Effect::Cancel, Effect::LoadTrace { path }]),
            Command::OpenResults { path } => Ok(vec![Effect::LoadResults { path }]),
            Command::FindEngines => Ok(self.find_engines()),
            Command::SelectEngine { name } => self.select_engine(&name),
            Command::MeasureSpeeds => self.measure_speeds(),
            Command::StartProbe => self.start_probe().map(|effect| vec![effect]),
            Command::CancelProbe => Ok(vec![Effect::Cancel]),
            Command::ToggleMod { kind } => {
                self.change(None, |document| document.mods = document.mods.toggled(kind));
                Ok(self.probe_if_needed())
            }
            Command::SetPolicy { policy } => self.set_policy(None, policy),
            Command::SetMaxError { value, gesture } => {
                self.set_policy(gesture, Policy { max_error: value, ..self.document.policy.clone() })
            }
            Command::SetMinSpeedup { value, gesture } => {
                self.set_policy(gesture, Policy { min_speedup: value, ..self.document.policy.clone() })
            }
            Command::SetOverride { site, gemm, kernel, reason } => self.set_override(site, gemm, kernel, reason),
            Command::ClearOverride { site, gemm } => {
                self.change(None, |document| drop(document.overrides.remove(&(site, gemm))));
                Ok(Vec::new())
            }
            Command::Undo => self.step(History::undo, CommandError::NothingToUndo),
            Command::Redo => self.step(History::redo, CommandError::NothingToRedo),
            Command::SaveResults { path } => {
                let results = Box::new(self.lasting_results()?);
                Ok(vec![Effect::WriteResults { path, results }])
            }
            Command::ExportPlan { path } => self.export_plan(path).map(|effect| vec![effect]),
            Command::DismissNotice { id } => {
                self.notices.retain(|notice| notice.id != id);
                Ok(Vec::new())
            }
        }
    }

    /// Takes what happened elsewhere. Events of an earlier run or trace change nothing.
    pub fn event(&mut self, event: Event) {
        let current = self.run.as_ref().map(|run| run.id);
        match event {
            Event::TraceOpened { trace } => self.opened(*trace),
            Event::TraceDigest { path, digest } => {
                if let Some(trace) = self.trace.as_mut().filter(|trace| trace.path == path) {
                    trace.meta.trace_digest = digest;
                }
            }
            Event::ResultsOpened { path, results } => self.take_results(&path, *results),
            Event::OpenFailed { message } | Event::WriteFailed { message } => self.notify(NoticeKind::Error, message),
            Event::EnginesFound { engines } => self.engines_found(engines),
            Event::EngineMemory { name, memory } => self.engine_memory(&name, memory),
            Event::EngineLost { name, reason } => self.engine_lost(&name, &reason),
            Event::Measured { run, latencies, done, seconds } => self.measured(run, latencies, done, seconds),
            Event::MeasureFinished { run, problem } => self.measure_finished(run, problem),
            Event::ProbeStarted { run, mods, by, .. } if run >= self.next_run => self.probe_started(run, mods, *by),
            Event::Rows { run, rows } if Some(run) == current => self.take_rows(rows),
            Event::Problem { run, site, reason } if Some(run) == current => self.take_problem(&site, &reason),
            Event::Progress { run, done, seconds } => {
                if let Some(state) = self.run.as_mut().filter(|state| state.id == run) {
                    (state.done, state.seconds) = (done.max(state.done), seconds);
                }
            }
            Event::ProbeFinished { run, cancelled, seconds } => self.probe_finished(run, cancelled, seconds),
            Event::Written { path, what } => self.notify(NoticeKind::Info, format!("{what} written: {path}")),
            Event::Rows { .. } | Event::Problem { .. } | Event::ProbeStarted { .. } => {}
        }
    }

    fn start_probe(&mut self) -> Result<Effect, CommandError> {
        if self.trace.is_none() {
            return Err(CommandError::NoTrace);
        }
        let engine = self.engines.chosen.clone();
        if let Some(reason) = self.engines.problem(&engine) {
            return Err(CommandError::EngineMissing { name: engine_title(&engine).to_owned(), reason });
        }
        // One piece of work at a time has the device.
        self.measuring = None;
        self.next_run += 1;
        Ok(Effect::Probe { run: self.next_run, mods: self.document.mods.clone(), engine })
    }

    /// The rows to come are shown, and none of another engine beside them.
    fn probe_started(&mut self, run: u64, mods: ModSet, by: Circumstances) {
        let origin = by.origin();
        let before = self.sets.shown_origin().clone();
        if before != origin && self.sets.num_rows(&before) > 0 {
            let Origin { engine, device } = before;
            let text = format!("Rows of {} ({device}) are set aside: engines are not mixed.", engine_title(&engine));
            self.notify(NoticeKind::Warning, text);
        }
        self.sets.describe(by);
        self.sets.show(origin.clone());
        let (done, seconds, num_rows) = (0.0, 0.0, 0);
        self.run = Some(Run { id: run, mods, origin, done, seconds, running: true, cancelled: false, num_rows });
        self.revision += 1;
    }

    fn probe_finished(&mut self, run: u64, cancelled: bool, seconds: f64) {
        let Some(state) = self.run.as_mut().filter(|state| state.id == run) else { return };
        // A run whose engine was lost ended then.
        let cancelled = cancelled || state.cancelled;
        (state.running, state.cancelled, state.seconds) = (false, cancelled, seconds);
        if !cancelled {
            let (origin, mods) = (state.origin.clone(), state.mods.clone());
            self.sets.complete(&origin, mods);
        }
    }

    /// Probes under the mods in force unless their rows are there or on their way.
    pub(super) fn probe_if_needed(&mut self) -> Vec<Effect> {
        let mods = &self.document.mods;
        let under_way = self.run.as_ref().is_some_and(|run| run.mods == *mods && run.running);
        let complete = self.sets.shown().is_some_and(|set| set.complete.contains(mods));
        if under_way || complete {
            return Vec::new();
        }
        match self.start_probe() {
            Ok(effect) => vec![Effect::Cancel, effect],
            Err(error) => {
                if self.trace.is_some() {
                    self.notify(NoticeKind::Warning, error.to_string());
                }
                Vec::new()
            }
        }
    }

    fn set_policy(&mut self, gesture: Option<u64>, policy: Policy) -> Result<Vec<Effect>, CommandError> {
        policy.validate()?;
        self.change(gesture, |document| document.policy = policy);
        Ok(Vec::new())
    }

    fn set_override(
        &mut self,
        site: SiteId,
        gemm: Gemm,
        kernel: KernelId,
        reason: String,
    ) -> Result<Vec<Effect>, CommandError> {
        let trace = self.trace.as_ref().ok_or(CommandError::NoTrace)?;
        if !trace.manifest().sites.iter().any(|known| known.id == site) {
            return Err(CommandError::UnknownSite(site));
        }
        match self.row(&site, gemm, &kernel, &self.document.mods) {
            Some(row) if row.supported => {}
            Some(row) => {
                let reason = row.reason.clone().unwrap_or_default();
                return Err(CommandError::Unsupported { site, gemm, kernel, reason });
            }
            None => return Err(CommandError::NotProbed { site, gemm, kernel }),
        }
        self.change(None, |document| drop(document.overrides.insert((site, gemm), Override { kernel, reason })));
        Ok(Vec::new())
    }

    fn step(
        &mut self,
        step: impl FnOnce(&mut History, &Document) -> Option<Document>,
        nothing: CommandError,
    ) -> Result<Vec<Effect>, CommandError> {
        self.document = step(&mut self.history, &self.document).ok_or(nothing)?;
        self.revision += 1;
        Ok(self.probe_if_needed())
    }

    fn export_plan(&mut self, path: String) -> Result<Effect, CommandError> {
        let results = self.lasting_results()?;
        if !results.rows.iter().any(|row| row.mods == self.document.mods) {
            return Err(CommandError::NoRows);
        }
        let Document { policy, mods, overrides } = &self.document;
        let name = &results.meta.manifest.model.name;
        let built = plan::build(&results, policy, &mods.clone().into(), overrides, name, "");
        let plan = Box::new(built.map_err(|error| CommandError::Plan(error.to_string()))?.plan);
        Ok(Effect::WritePlan { path, plan })
    }

    /// Changes the document; what it was can be undone.
    fn change(&mut self, gesture: Option<u64>, change: impl FnOnce(&mut Document)) {
        let before = self.document.clone();
        change(&mut self.document);
        if self.document != before {
            self.history.note(&before, gesture);
            self.revision += 1;
        }
    }

    fn opened(&mut self, trace: OpenedTrace) {
        for (site, reason) in &trace.meta.problems {
            self.notify(NoticeKind::Warning, format!("{site} cannot be used: {reason}"));
        }
        self.trace = Some(trace);
        self.sets.clear();
        self.idle_runs.clear();
        (self.run, self.measuring) = (None, None);
        self.show_chosen_if_empty();
        self.document.overrides.clear();
        self.history = History::default();
        self.revision += 1;
    }

    fn take_results(&mut self, path: &str, results: Results) {
        match &self.trace {
            Some(trace) if trace.meta.trace_digest.is_empty() => {
                return self.notify(NoticeKind::Warning, CommandError::DigestPending.to_string());
            }
            Some(trace) if trace.meta.trace_digest != results.meta.trace_digest => {
                return self.notify(NoticeKind::Error, format!("these results are of another trace: {path}"));
            }
            Some(_) => {}
            None => {
                let name = results.meta.manifest.model.name.clone();
                self.opened(OpenedTrace { path: path.to_owned(), name, meta: results.meta.clone() });
            }
        }
        let circumstances = Circumstances::from(&results.meta);
        let origin = circumstances.origin();
        if self.sets.num_rows(&origin) == 0 {
            self.sets.describe(circumstances);
        }
        for row in &results.rows {
            self.sets.complete(&origin, row.mods.clone());
        }
        self.take_rows(results.rows);
        self.sets.show(origin);
    }

    fn take_rows(&mut self, rows: Vec<ResultRow>) {
        self.sets.take(rows);
        if let Some(run) = &mut self.run {
            run.num_rows = self.sets.num_rows(&run.origin);
        }
        self.revision += 1;
    }

    fn take_problem(&mut self, site: &SiteId, reason: &str) {
        if let Some(trace) = &mut self.trace
            && !trace.meta.problems.iter().any(|(known, _)| known == site)
        {
            trace.meta.problems.push((site.clone(), reason.to_owned()));
            self.notify(NoticeKind::Warning, format!("{site} cannot be used: {reason}"));
        }
        self.revision += 1;
    }

    pub fn notify(&mut self, kind: NoticeKind, text: String) {
        self.next_notice += 1;
        self.notices.push(Notice { id: self.next_notice, kind, text, action: None });
    }

    pub fn can_undo(&self) -> bool {
        self.history.can_undo()
    }

    pub fn can_redo(&self) -> bool {
        self.history.can_redo()
    }

    pub fn is_running(&self) -> bool {
        self.run.as_ref().is_some_and(|run| run.running)
    }

    /// Goes up with every change that a view could show.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    pub fn row(&self, site: &SiteId, gemm: Gemm, kernel: &KernelId, mods: &ModSet) -> Option<&ResultRow> {
        self.sets.shown()?.rows.get(&(site.clone(), gemm, kernel.clone(), mods.clone()))
    }

    /// Rows of one site and GEMM under `mods`, sorted by kernel.
    pub fn rows_of(&self, site: &SiteId, gemm: Gemm, mods: &ModSet) -> Vec<&ResultRow> {
        let from = (site.clone(), gemm, KernelId::new(""), ModSet::none());
        let rows = self.sets.shown().into_iter().flat_map(|set| set.rows.range(from.clone()..));
        let same = rows.take_while(|((of, at, ..), _)| of == site && *at == gemm);
        same.filter(|((.., of), _)| of == mods).map(|(_, row)| row).collect()
    }

    /// The rows that are shown: all of one engine and device.
    pub fn rows(&self) -> impl Iterator<Item = &ResultRow> {
        self.sets.rows().map(|(_, row)| row)
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
        Some(Results { meta, rows: self.rows().cloned().collect() })
    }

    /// Choices, totals and frontier for the document and rows of now. Kept until something changes.
    pub fn plan_view(&mut self) -> Arc<PlanView> {
        if let Some((revision, view)) = &self.derived
            && *revision == self.revision
        {
            return view.clone();
        }
        let view = self.results().map(|results| PlanView::of(&results, &self.document)).unwrap_or_default();
        let view = Arc::new(view);
        self.derived = Some((self.revision, view.clone()));
        view
    }
}
