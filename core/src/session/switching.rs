//! Choosing an engine, losing one, timing kernels on one.
//!
//! Rows of two engines are never mixed: a switch shows another set, and the one before keeps its rows and its run. An
//! engine that failed for good is lost for the rest of the process; the session and its rows are not.

use crate::engine::{DeviceMemory, EngineStatus, contexts};

use super::{
    Command, CommandError, Effect, LogKind, MeasuredLatency, Measuring, NoticeAction, NoticeKind, Origin, Session,
    engine_title,
};

impl Session {
    /// What is listed stays until the answer; an engine that is not in it counts as still looked for.
    pub(super) fn find_engines(&mut self) -> Vec<Effect> {
        self.engines.looking = true;
        vec![Effect::FindEngines]
    }

    /// What was found replaces what was listed. The choice stays; a better engine is offered, not taken:
    /// rows under a reader's eyes do not change by themselves.
    pub(super) fn engines_found(&mut self, engines: Vec<EngineStatus>) {
        let known = std::mem::replace(&mut self.engines.listed, engines);
        self.engines.looking = self.engines.listed.iter().any(EngineStatus::is_looked_for);
        // What is looked for again is there until it is not found.
        for status in self.engines.listed.iter_mut().filter(|status| status.is_looked_for()) {
            if let Some(before) = known.iter().find(|before| before.name == status.name && before.problem.is_none()) {
                *status = before.clone();
            }
        }
        // A lost engine stays lost, whatever a later look says.
        for name in self.engines.lost.clone() {
            let reason = known.iter().find(|status| status.name == name).and_then(|status| status.problem.clone());
            self.mark(&name, reason);
        }
        // A GPU that was not there at the last look is offered: engines that take longer to find are told later.
        let was_usable = |name: &str| known.iter().any(|status| status.name == name && status.problem.is_none());
        let usable = self.engines.listed.iter().find(|status| status.problem.is_none());
        let is_better = |status: &&EngineStatus| status.name == "cuda" && !was_usable(&status.name);
        if let Some(better) = usable.filter(|status| status.name != self.engines.chosen).filter(is_better) {
            let (name, text) = (better.name.clone(), format!("Found {}: it probes and times kernels.", better.device));
            self.offer_engine(NoticeKind::Info, text, &name);
        }
        self.show_chosen_if_empty();
    }

    fn mark(&mut self, name: &str, problem: Option<String>) {
        if let Some(status) = self.engines.listed.iter_mut().find(|status| status.name == name) {
            status.problem = problem;
        }
    }

    /// Before the first rows, those of the chosen engine are awaited.
    pub(super) fn show_chosen_if_empty(&mut self) {
        if !self.has_rows()
            && let Some(origin) = self.engines.origin(&self.engines.chosen)
        {
            self.sets.show(origin);
        }
    }

    /// Switches live: the engine's own rows are shown at once, and what they lack is probed. Refused where it cannot
    /// work and has no rows to be shown.
    pub(super) fn select_engine(&mut self, name: &str) -> Result<Vec<Effect>, CommandError> {
        let origin = self.engines.origin(name);
        let has_rows = origin.as_ref().is_some_and(|origin| self.sets.num_rows(origin) > 0);
        let problem = self.engines.problem(name);
        if let Some(reason) = problem.clone().filter(|_| !has_rows) {
            return Err(CommandError::EngineMissing { name: engine_title(name).to_owned(), reason });
        }
        let Some(origin) = origin else { return Ok(Vec::new()) };
        if self.engines.chosen == name && *self.sets.shown_origin() == origin {
            return Ok(Vec::new());
        }
        // Whoever has chosen needs no offer of an engine.
        self.notices.withdraw(|offer| matches!(offer, Command::SelectEngine { .. }));
        let mut effects = self.stop_all();
        self.engines.chosen = name.to_owned();
        self.run = self.idle_runs.remove(&origin);
        if let Some(run) = &self.run {
            // Its last rows may still be on their way.
            self.run_contexts = contexts(self.sites(), &run.mods).into();
        }
        self.sets.show(origin);
        self.revision += 1;
        // Rows of an engine that is gone can be read, not added to.
        if problem.is_none() {
            // Where something ran, a `Cancel` is among them already.
            effects.extend(self.probe_if_needed().into_iter().filter(|effect| *effect != Effect::Cancel));
        }
        Ok(effects)
    }

    /// Ends what runs, and keeps a run beside the rows that it gave. It does not go on when its engine is chosen again:
    /// another run probes what is lacking by then.
    fn stop_all(&mut self) -> Vec<Effect> {
        let busy = self.is_running() || self.measuring.take().is_some();
        if let Some(mut run) = self.run.take() {
            run.cancelled |= run.running;
            run.running = false;
            self.idle_runs.insert(run.origin.clone(), run);
        }
        if busy { vec![Effect::Cancel] } else { Vec::new() }
    }

    /// Told once, whatever else failed by it. The choice stays until a person takes the engine that is offered.
    pub(super) fn engine_lost(&mut self, name: &str, reason: &str) {
        if self.engines.is_lost(name) {
            return;
        }
        self.engines.lost.push(name.to_owned());
        self.mark(name, Some(reason.to_owned()));
        if let Some(run) = self.run.as_mut().filter(|run| run.running && &*run.origin.engine == name) {
            (run.running, run.cancelled) = (false, true);
        }
        if self.measuring.as_ref().is_some_and(|measuring| &*measuring.origin.engine == name) {
            self.measuring = None;
        }
        let rows = match self.engines.origin(name).map_or(0, |origin| self.sets.num_rows(&origin)) {
            0 => "It gave no rows yet.".to_owned(),
            rows => format!("Its {rows} finished rows are kept."),
        };
        let text = format!("{} stopped working: {reason}. {rows}", engine_title(name));
        self.offer_engine(NoticeKind::Error, text, "cpu");
        self.revision += 1;
    }

    fn offer_engine(&mut self, kind: NoticeKind, text: String, name: &str) {
        let action = NoticeAction {
            text: format!("Use the {} engine", engine_title(name)),
            command: Command::SelectEngine { name: name.to_owned() },
        };
        self.notices.offer(kind, text, action);
    }

    /// Comes again and again while an engine works, and no revision is counted: nothing is derived from it.
    pub(super) fn engine_memory(&mut self, name: &str, memory: DeviceMemory) {
        if let Some(status) = self.engines.listed.iter_mut().find(|status| status.name == name) {
            status.memory = Some(memory);
        }
    }

    /// Why kernels cannot be timed now; `None`: they can.
    pub fn measure_problem(&self) -> Option<String> {
        if self.trace.is_none() {
            return Some(CommandError::NoTrace.to_string());
        }
        let chosen = &self.engines.chosen;
        // It emulates kernels: how long that takes says nothing of them.
        if chosen == "cpu" {
            let why = self.engines.problem("cuda");
            return Some(match why {
                Some(why) => format!("the CPU engine cannot time kernels, and CUDA is missing: {why}"),
                None => "the CPU engine cannot time kernels: choose the CUDA engine".to_owned(),
            });
        }
        if chosen == "cluster" {
            return Some("a cluster times no kernels from here: loka.ray.bench does".to_owned());
        }
        let busy = self.is_running().then(|| "the probe has the device: wait for its end or cancel it".to_owned());
        self.engines.problem(chosen).or(busy)
    }

    /// Times all kernels anew. Its number is of the same count as those of probes, so that what an earlier piece of work
    /// still has to say is known to be out of date.
    pub(super) fn measure_speeds(&mut self) -> Result<Vec<Effect>, CommandError> {
        if let Some(reason) = self.measure_problem() {
            return Err(CommandError::CannotMeasure(reason));
        }
        let name = self.engines.chosen.clone();
        let origin = self.engines.origin(&name).unwrap_or_default();
        let mut effects = if self.measuring.is_some() { vec![Effect::Cancel] } else { Vec::new() };
        self.next_run += 1;
        let id = self.next_run;
        self.measuring = Some(Measuring { id, origin, done: 0.0, seconds: 0.0 });
        let of = self.engines.chosen_status().map_or_else(|| name.clone(), |status| status.device.clone());
        self.notices.record(LogKind::Run, format!("Timing of kernels started on {of}"));
        effects.push(Effect::Measure { run: id, engine: name });
        Ok(effects)
    }

    pub(super) fn measured(&mut self, run: u64, latencies: Vec<MeasuredLatency>, done: f64, seconds: f64) {
        let Some(measuring) = self.measuring.as_mut().filter(|measuring| measuring.id == run) else { return };
        (measuring.done, measuring.seconds) = (done.max(measuring.done), seconds);
        let origin = measuring.origin.clone();
        // A report without latencies moves the bar, for which no view is made anew.
        if !latencies.is_empty() {
            self.sets.measure(&origin, latencies);
            self.revision += 1;
        }
    }

    /// Latencies that were measured before the end stay.
    pub(super) fn measure_finished(&mut self, run: u64, problem: Option<String>) {
        let Some(ended) = self.measuring.take_if(|measuring| measuring.id == run) else { return };
        let (share, seconds) = ((100.0 * ended.done).round(), ended.seconds);
        self.notices.record(LogKind::Run, format!("Timing of kernels ended at {share} % after {seconds:.1} s"));
        if let Some(problem) = problem {
            self.notices.tell(NoticeKind::Error, format!("Speeds were not all measured: {problem}"));
        }
    }

    pub fn is_measuring(&self) -> bool {
        self.measuring.is_some()
    }

    /// Whose rows are shown.
    pub fn shown_origin(&self) -> &Origin {
        self.sets.shown_origin()
    }

    /// How many rows an engine of this machine gave for the open trace.
    pub fn num_rows_of(&self, engine: &str) -> usize {
        self.engines.origin(engine).map_or(0, |origin| self.sets.num_rows(&origin))
    }
}

#[cfg(test)]
mod tests;
