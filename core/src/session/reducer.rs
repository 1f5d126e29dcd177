//! The one way in: what a command or an event changes, an arm a line. What a part can do by itself is that part's;
//! what takes several of them (a probe, an opened file) is in `probing.rs`, `opening.rs`, `comparing.rs`.
//!
//! A command can be refused; an event cannot, since it has happened: what is of no use any more is dropped, and what went
//! wrong becomes a notice.

use std::sync::Arc;

use crate::{dispatch::Policy, session::shared::CommandContext};

use super::{Command, CommandError, Effect, Event, FileKind, History, LogKind, NoticeKind, SeriesState, Session};

/// What is to be done elsewhere, in this order; or why nothing was done at all.
type Outcome = Result<Vec<Effect>, CommandError>;

impl Session {
    /// Carries a command out as far as state goes, and says what else is to be done. By the program: see
    /// [`Self::command_by`].
    pub fn command(&mut self, command: Command) -> Outcome {
        self.command_by(&CommandContext::program(), 0, command)
    }

    /// The same by somebody who may or may not, at a place in the order.
    ///
    /// `seq` is the place that it takes unless it is refused: by that a later command is known to be made without having
    /// seen this one. Whoever follows another's session calls this too, and leaves the effects, which were carried out
    /// there.
    pub fn command_by(&mut self, by: &CommandContext, seq: u64, command: Command) -> Outcome {
        let (name, role, needs) = (&by.author.name, by.author.role, command.needs());
        if role < needs {
            return Err(CommandError::NotAllowed { name: name.clone(), role, needs });
        }
        if let Some(problem) = self.not_kept.as_ref().filter(|_| command.binds()) {
            return Err(CommandError::NotKept(problem.clone()));
        }
        self.reviewing.no_conflict(by, &command)?;
        // A document can hold an override for every GEMM: only commands that decide pay for a copy of it.
        let decides = command.decides().then(|| (command.clone(), self.document.clone()));
        let effects = self.carry_out(by, command)?;
        // The documents say whether something was decided: an undo can change anything, a bound set to what it was nothing.
        if let Some((command, before)) = decides.filter(|(_, before)| *before != self.document) {
            self.reviewing.decided_by(by, seq, &command, (&before, &self.document), &mut self.notices);
        }
        Ok(effects)
    }

    fn carry_out(&mut self, by: &CommandContext, command: Command) -> Outcome {
        match command {
            // The open trace stays until the other was read; only what runs is stopped, so that it ends with its own trace.
            Command::OpenTrace { path } => Ok(vec![Effect::Cancel, Effect::LoadTrace { path }]),
            Command::OpenResults { path } => Ok(vec![Effect::LoadResults { path }]),
            // One command for whatever is compared with: results become a plan once they are read.
            Command::OpenPlan { path } if FileKind::of_name(&path) == Some(FileKind::Results) => {
                Ok(vec![Effect::CompareResults { path }])
            }
            Command::OpenPlan { path } => Ok(vec![Effect::LoadPlan { path }]),
            Command::ClosePlan => Ok(self.compare_with(None)),
            Command::SetBaseline { of } => self.set_baseline(of, by.at),
            Command::ReadSeries => self.read_series(),
            Command::Identify { path } => Ok(vec![Effect::Identify { path }]),
            Command::InspectSite { site } => self.inspect(site, None),
            Command::InspectOther { path, site } => self.inspect(site, Some(path)),
            Command::CompareTrace { path } => self.compare_trace(path),
            Command::ReadCheckpoints { followed } => self.read_checkpoints(*followed),

            Command::FindEngines => Ok(self.find_engines()),
            Command::SelectEngine { name } => self.select_engine(&name),
            Command::MeasureSpeeds => self.measure_speeds(),
            Command::StartProbe => self.start_probe().map(|effect| vec![effect]),
            Command::CancelProbe => Ok(vec![Effect::Cancel]),
            Command::ProbeMore { site, max_draws } => self.probe_more(vec![site], max_draws),
            Command::ProbeSites { sites, max_draws } => self.probe_more(sites, max_draws),
            Command::PauseProbe { paused } => self.pause(paused),

            Command::ToggleMod { kind } => Ok(self.toggle_mod(kind)),
            Command::SetMod { kind, on, sites } => self.set_mod(kind, on, &sites),
            Command::SetPolicy { policy } => self.set_policy(None, policy),
            Command::SetRuntime { runtime } => Ok(self.set_runtime(runtime)),
            // One bound of the policy as it is here: two windows may move two of them at a time.
            Command::SetMaxError { value, gesture } => {
                self.set_policy(own(by, gesture), Policy { max_error: value, ..self.document.policy.clone() })
            }
            Command::SetMinSpeedup { value, gesture } => {
                self.set_policy(own(by, gesture), Policy { min_speedup: value, ..self.document.policy.clone() })
            }
            Command::SetOverride { site, gemm, kernel, reason } => self.set_override(site, gemm, kernel, reason),
            Command::SetOverrides { at, kernel, reason } => self.set_overrides(at, kernel, &reason),
            Command::ClearOverride { site, gemm } => Ok(self.clear_overrides(&[(site, gemm)])),
            Command::ClearOverrides { at } => Ok(self.clear_overrides(&at)),
            // Steps are the session's: whoever may decide undoes the last one, also somebody else's.
            Command::Undo => self.step(History::undo, CommandError::NothingToUndo),
            Command::Redo => self.step(History::redo, CommandError::NothingToRedo),

            Command::Mark { site, state, of } => {
                self.known_place(site.as_ref())?;
                self.reviewing.set_mark(by, site, state, of, &mut self.notices)
            }
            Command::Comment { site, gemm, reply_to, text } => {
                self.known_place(site.as_ref())?;
                self.reviewing.comment(by, site, gemm, reply_to, text)
            }
            Command::Resolve { comment, resolved } => self.reviewing.resolve(by, comment, resolved),
            Command::Look { site, of } => {
                self.known_place(Some(&site))?;
                self.reviewing.look(by, &site, of)
            }
            // Made of what this session decided: nobody sends a plan to be signed.
            Command::RequestApproval { note } => {
                let plan = self.plan_now()?;
                self.reviewing.request_approval(by, note, plan, &self.document, &mut self.notices)
            }
            Command::WithdrawRequest => self.reviewing.withdraw_request(by, &mut self.notices),
            // Two commands, since the secret key stays where it is: one gives what is to be signed, the other takes what was.
            Command::Sign { path, note } => self.reviewing.sign(by, path, note),
            Command::Approve { approval } => self.reviewing.approve(by, *approval, &mut self.notices),

            // What is to be written goes along with the effect: decisions made meanwhile do not change the file.
            Command::SaveResults { path } => self.save_results(path),
            Command::ExportPlan { path } => self.export_plan(path).map(|effect| vec![effect]),
            Command::ExportTo { path, target } => self.export_to(path, target),
            Command::ExportReport { path } => self.export_report(path),
            Command::DismissNotice { id } => {
                self.notices.dismiss(id);
                Ok(Vec::new())
            }
            Command::DismissNotices => {
                self.notices.dismiss_all();
                Ok(Vec::new())
            }
            Command::ClearLog => {
                self.notices.clear_log();
                Ok(Vec::new())
            }
        }
    }

    /// Takes what happened elsewhere. Events of an earlier run or trace change nothing.
    pub fn event(&mut self, event: Event) {
        let current = self.run.as_ref().map(|run| run.id);
        match event {
            Event::TraceOpened { trace } => self.opened(*trace),
            Event::TraceDigest { path, digest } => self.digested(&path, digest),
            Event::ResultsOpened { path, results } => self.take_results(&path, *results),
            Event::SeriesRead { path, table } if self.trace.as_ref().is_some_and(|trace| trace.path == path) => {
                self.series = match table {
                    Ok(table) => SeriesState::Read(Arc::from(table)),
                    Err(reason) => SeriesState::Failed(reason),
                };
            }
            Event::PlanOpened { path, plan } => self.take_plan(path, plan),
            Event::ResultsCompared { path, results } => self.compare_results(path, *results),
            // Whoever asked goes on with it: the session changes only when it is opened.
            Event::Identified { .. } | Event::Signed { approval: Ok(_) } => {}
            Event::Signed { approval: Err(line) } => self.notices.tell(NoticeKind::Error, line),
            Event::FileChanged { path, change } => self.file_changed(&path, change),
            Event::OpenFailed { message } | Event::WriteFailed { message } => {
                self.notices.tell(NoticeKind::Error, message);
            }
            Event::Notice { kind, message } => self.notices.tell(kind, message),
            Event::EnginesFound { engines } => self.engines_found(engines),
            Event::EngineMemory { name, memory } => self.engine_memory(&name, memory),
            Event::EngineLost { name, reason } => self.engine_lost(&name, &reason),
            Event::Measured { run, latencies, done, seconds } => self.measured(run, latencies, done, seconds),
            Event::MeasureFinished { run, problem } => self.measure_finished(run, problem),
            // Another run was asked for before this one began: then its rows are not awaited.
            Event::ProbeStarted { run, mods, sites, by } if run >= self.next_run => {
                self.probe_started(run, mods, sites, *by);
            }
            Event::Rows { run, rows } if Some(run) == current => self.take_probed(rows),
            Event::Problem { run, site, reason } if Some(run) == current => self.take_problem(&site, &reason),
            // No revision is counted: nothing is derived from a bar, which only ever goes forward.
            Event::Progress { run, done, seconds } => {
                if let Some(state) = self.run.as_mut().filter(|state| state.id == run) {
                    (state.done, state.seconds) = (done.max(state.done), seconds);
                }
            }
            Event::ProbeFinished { run, cancelled, seconds } => self.probe_finished(run, cancelled, seconds),
            Event::SiteInspected { trace, other, site, outcome } => self.inspected(&trace, other, site, outcome),
            Event::TraceCompared { trace, path, outcome } => self.trace_compared(&trace, path, outcome),
            Event::CheckpointsRead { trace, outcome } => self.checkpoints_read(&trace, outcome),
            Event::Keeping { problem } => self.keeping(problem),
            Event::KeysKnown { keys } => self.keys = keys,
            Event::Written { path, what } => {
                self.notices.tell_filed(NoticeKind::Info, LogKind::File, format!("{what} written: {path}"));
            }
            // Of a run that another replaced, or of a trace that is no longer open.
            Event::Rows { .. } | Event::Problem { .. } | Event::ProbeStarted { .. } | Event::SeriesRead { .. } => {}
        }
    }
}

/// Every window counts its gestures from 1: two windows' drags, one after the other, are no one step.
fn own(by: &CommandContext, gesture: Option<u64>) -> Option<u64> {
    gesture.map(|of| of ^ by.author.key)
}
