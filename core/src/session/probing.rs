//! What runs: which sites a probe has to look at, its start, its rows, its end.

use std::{collections::BTreeSet, sync::Arc};

use crate::{
    engine::contexts,
    model::{ModKind, ResultRow, Site, SiteId, SiteMods},
};

use super::{Circumstances, CommandError, Effect, LogKind, NoticeKind, Origin, Run, Session, counted, engine_title};

impl Session {
    /// Sites that can be probed and lack rows under the mods in force.
    fn unprobed(&self) -> Vec<SiteId> {
        let set = self.sets.shown();
        let lacks = |at: usize| set.is_none_or(|set| !set.is_complete(at, &self.contexts[at]));
        self.usable().filter(|(at, _)| lacks(*at)).map(|(_, site)| site.id.clone()).collect()
    }

    /// With their numbers. What cannot be used is never probed, and so lacks nothing.
    fn usable(&self) -> impl Iterator<Item = (usize, &Site)> {
        let problems = self.trace.iter().flat_map(|trace| &trace.meta.problems);
        let broken: BTreeSet<&SiteId> = problems.map(|(site, _)| site).collect();
        self.sites().iter().enumerate().filter(move |(_, site)| !broken.contains(&site.id))
    }

    /// Probes what lacks rows; everything again when nothing does.
    pub(super) fn start_probe(&mut self) -> Result<Effect, CommandError> {
        let mut sites = self.unprobed();
        if sites.is_empty() {
            sites = self.usable().map(|(_, site)| site.id.clone()).collect();
        }
        self.probe(sites, None)
    }

    /// Some sites again, with more draws. Not beside another probe: one has the cores at a time, and what the
    /// other had still to find would be lost.
    pub(super) fn probe_more(&mut self, sites: Vec<SiteId>, max_draws: u64) -> Result<Vec<Effect>, CommandError> {
        let unknown = sites.iter().find(|site| self.trace.is_some() && self.index().at(site).is_none());
        if let Some(unknown) = unknown {
            return Err(CommandError::UnknownSite(unknown.clone()));
        }
        if self.is_running() || self.measuring.is_some() {
            return Err(CommandError::StillProbing);
        }
        if sites.is_empty() {
            return Ok(Vec::new());
        }
        self.probe(sites, Some(max_draws)).map(|effect| vec![effect])
    }

    /// The run gets its number here. There is nothing to see of it before `ProbeStarted`, so that an engine that fails to
    /// begin leaves what is shown as it is.
    fn probe(&mut self, sites: Vec<SiteId>, draws: Option<u64>) -> Result<Effect, CommandError> {
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
        Ok(Effect::Probe { run: self.next_run, mods: self.document.mods.clone(), sites, engine, draws })
    }

    /// Probes the sites that lack rows under the mods in force, unless they are on their way.
    pub(super) fn probe_if_needed(&mut self) -> Vec<Effect> {
        let under_way = self.run.as_ref().is_some_and(|run| run.mods == self.document.mods && run.running);
        let sites = if under_way { Vec::new() } else { self.unprobed() };
        if sites.is_empty() && self.trace.is_some() {
            // What runs now is of mods that are no longer asked for.
            let stale = self.is_running() && !under_way;
            return if stale { vec![Effect::Cancel] } else { Vec::new() };
        }
        if self.has_rows() && !self.engine_is_that_of_the_rows() {
            // Nobody asked for other rows than the ones that are shown, and undo finds them as they were.
            let (shown, title) = (self.shown_origin().device.clone(), engine_title(&self.engines.chosen));
            self.notices.tell(
                NoticeKind::Info,
                format!(
                    "Not probed on {shown} under these mods. Run probe does it by {title}, and sets its rows aside."
                ),
            );
            return if self.is_running() && !under_way { vec![Effect::Cancel] } else { Vec::new() };
        }
        match self.probe(sites, None) {
            Ok(effect) => vec![Effect::Cancel, effect],
            Err(error) => {
                if self.trace.is_some() {
                    self.notices.tell(NoticeKind::Warning, error.to_string());
                }
                Vec::new()
            }
        }
    }

    /// Whether a probe by the chosen engine adds to the rows that are shown, and sets none aside.
    pub fn engine_is_that_of_the_rows(&self) -> bool {
        self.engine_makes(self.shown_origin())
    }

    fn engine_makes(&self, origin: &Origin) -> bool {
        self.engines.chosen_status().is_some_and(|of| origin.is_of(of))
    }

    /// The rows to come are shown, and none of another engine beside them.
    pub(super) fn probe_started(&mut self, run: u64, mods: SiteMods, sites: Vec<SiteId>, by: Circumstances) {
        let origin = by.origin();
        let before = self.sets.shown_origin().clone();
        if before != origin && self.sets.num_rows(&before) > 0 {
            let Origin { engine, device } = before;
            let text = format!("Rows of {} ({device}) are set aside: engines are not mixed.", engine_title(&engine));
            self.notices.tell(NoticeKind::Warning, text);
        }
        // A cluster's rows are its nodes' engine's.
        let run_by = if self.engine_makes(&origin) { &self.engines.chosen } else { &*origin.engine };
        let (sites_text, title) = (counted(sites.len(), "site"), engine_title(run_by).to_owned());
        self.notices.record(LogKind::Run, format!("Probe of {sites_text} started on {title} ({})", origin.device));
        self.sets.describe(by);
        self.sets.show(origin.clone());
        self.run_contexts = contexts(self.sites(), &mods).into();
        self.run = Some(Run {
            id: run,
            mods,
            sites: sites.into(),
            origin,
            done: 0.0,
            seconds: 0.0,
            running: true,
            paused: false,
            cancelled: false,
            num_rows: 0,
        });
        self.revision += 1;
    }

    pub(super) fn probe_finished(&mut self, run: u64, cancelled: bool, seconds: f64) {
        let Some(state) = self.run.as_mut().filter(|state| state.id == run) else { return };
        // A run whose engine was lost ended then.
        let cancelled = cancelled || state.cancelled;
        let was_running = state.running;
        (state.running, state.paused, state.cancelled, state.seconds) = (false, false, cancelled, seconds);
        let rows = counted(state.num_rows, "row");
        if was_running {
            let ended = if cancelled { "cancelled" } else { "finished" };
            self.notices.record(LogKind::Run, format!("Probe {ended} after {seconds:.1} s with {rows}"));
        }
        // Its sites still lack rows: the next probe has them among its own.
        if cancelled {
            return;
        }
        let (origin, sites, index) = (state.origin.clone(), state.sites.clone(), self.sets.index.clone());
        let contexts = self.run_contexts.clone();
        let probed = sites.iter().filter_map(|site| index.at(site)).map(|at| (at, contexts[at].clone()));
        self.sets.complete(&origin, probed);
    }

    pub(super) fn pause(&mut self, paused: bool) -> Result<Vec<Effect>, CommandError> {
        let run = self.run.as_mut().filter(|run| run.running).ok_or(CommandError::NothingRuns)?;
        run.paused = paused;
        Ok(vec![Effect::Pause { paused }])
    }

    /// Rows of the run under way.
    pub(super) fn take_probed(&mut self, mut rows: Vec<ResultRow>) {
        let contexts = self.run_contexts.clone();
        rows.retain(|row| !self.knows_better(row));
        self.sets.take(rows, |at, _| contexts[at].clone());
        if let Some(run) = &mut self.run {
            run.num_rows = self.sets.num_rows(&run.origin);
        }
        self.revision += 1;
    }

    /// A probe begins every site anew with the same draws: until it has taken as many as are known, its rows
    /// say less than the ones they would replace.
    fn knows_better(&self, row: &ResultRow) -> bool {
        let origin = Origin::of_row(row);
        let at = self.index().at(&row.site);
        let Some(known) = at.and_then(|at| self.sets.row(&origin, at, &self.run_contexts[at], row)) else {
            return false;
        };
        let alike = known.seed == row.seed && known.sampler == row.sampler && known.shape == row.shape;
        match (&known.error, &row.error) {
            (Some(known), Some(error)) => alike && known.draws > error.draws,
            _ => false,
        }
    }

    /// Kept with the trace: no probe of what lacks rows asks for that site again, whichever engine is chosen.
    pub(super) fn take_problem(&mut self, site: &SiteId, reason: &str) {
        if let Some(trace) = self.trace.as_mut().map(Arc::make_mut)
            && !trace.meta.problems.iter().any(|(known, _)| known == site)
        {
            trace.meta.problems.push((site.clone(), reason.to_owned()));
            self.notices.tell(NoticeKind::Warning, format!("{site} cannot be used: {reason}"));
        }
        self.revision += 1;
    }

    /// Other mods are other numbers: the rows that they lack are probed at once, or the person is told why not.
    pub(super) fn change_mods(&mut self, change: impl FnOnce(&SiteMods) -> SiteMods) -> Vec<Effect> {
        self.change(None, |document| document.mods = change(&document.mods));
        self.probe_if_needed()
    }

    /// Off where it is on everywhere, else on everywhere.
    pub(super) fn toggle_mod(&mut self, kind: ModKind) -> Vec<Effect> {
        let mods = &self.document.mods;
        let all = self.sites().iter().all(|site| mods.of(&site.id).contains(kind)) && mods.of_others().contains(kind);
        self.change_mods(|mods| mods.with(kind, !all, None))
    }

    pub(super) fn set_mod(&mut self, kind: ModKind, on: bool, sites: &[SiteId]) -> Result<Vec<Effect>, CommandError> {
        if let Some(unknown) = sites.iter().find(|site| self.index().at(site).is_none()) {
            return Err(CommandError::UnknownSite(unknown.clone()));
        }
        Ok(self.change_mods(|mods| mods.with(kind, on, Some(sites))))
    }

    /// Sites could be probed that have no rows under the mods in force.
    pub fn lacks_rows(&self) -> bool {
        !self.unprobed().is_empty()
    }

    pub fn is_running(&self) -> bool {
        self.run.as_ref().is_some_and(|run| run.running)
    }

    pub fn is_paused(&self) -> bool {
        self.run.as_ref().is_some_and(|run| run.running && run.paused)
    }
}
