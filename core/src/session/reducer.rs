//! The one way in: what a command or an event changes, an arm a line. What a part can do by itself is that part's;
//! what takes several of them (a probe, an opened file) is in `probing.rs`, `opening.rs`, `comparing.rs`.

use std::sync::Arc;

use crate::{dispatch::Policy, session::shared::CommandContext};

use super::{Command, CommandError, Effect, Event, FileKind, History, LogKind, NoticeKind, SeriesState, Session};

type Outcome = Result<Vec<Effect>, CommandError>;

impl Session {
    /// Carries a command out as far as state goes, and says what else is to be done. By the program: see
    /// [`Self::command_by`].
    pub fn command(&mut self, command: Command) -> Outcome {
        self.command_by(&CommandContext::program(), 0, command)
    }

    /// The same by somebody who may or may not, at a place in the order.
    pub fn command_by(&mut self, by: &CommandContext, seq: u64, command: Command) -> Outcome {
        let (name, role, needs) = (&by.author.name, by.author.role, command.needs());
        if role < needs {
            return Err(CommandError::NotAllowed { name: name.clone(), role, needs });
        }
        if let Some(problem) = self.not_kept.as_ref().filter(|_| command.binds()) {
            return Err(CommandError::NotKept(problem.clone()));
        }
        self.reviewing.no_conflict(by, &command)?;
        let decides = command.decides().then(|| (command.clone(), self.document.clone()));
        let effects = self.carry_out(by, command)?;
        if let Some((command, before)) = decides.filter(|(_, before)| *before != self.document) {
            self.reviewing.decided_by(by, seq, &command, (&before, &self.document), &mut self.notices);
        }
        Ok(effects)
    }

    fn carry_out(&mut self, by: &CommandContext, command: Command) -> Outcome {
        match command {
            Command::OpenTrace { path } => Ok(vec![Effect::Cancel, Effect::LoadTrace { path }]),
            Command::OpenResults { path } => Ok(vec![Effect::LoadResults { path }]),
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
            Command::SetMaxError { value, gesture } => {
                self.set_policy(gesture, Policy { max_error: value, ..self.document.policy.clone() })
            }
            Command::SetMinSpeedup { value, gesture } => {
                self.set_policy(gesture, Policy { min_speedup: value, ..self.document.policy.clone() })
            }
            Command::SetOverride { site, gemm, kernel, reason } => self.set_override(site, gemm, kernel, reason),
            Command::SetOverrides { at, kernel, reason } => self.set_overrides(at, kernel, &reason),
            Command::ClearOverride { site, gemm } => Ok(self.clear_overrides(&[(site, gemm)])),
            Command::ClearOverrides { at } => Ok(self.clear_overrides(&at)),
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
            Command::RequestApproval { note } => {
                let plan = self.plan_now()?;
                self.reviewing.request_approval(by, note, plan, &self.document, &mut self.notices)
            }
            Command::WithdrawRequest => self.reviewing.withdraw_request(by, &mut self.notices),
            Command::Sign { path, note } => self.reviewing.sign(by, path, note),
            Command::Approve { approval } => self.reviewing.approve(by, *approval, &mut self.notices),

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
            Event::ProbeStarted { run, mods, sites, by } if run >= self.next_run => {
                self.probe_started(run, mods, sites, *by);
            }
            Event::Rows { run, rows } if Some(run) == current => self.take_probed(rows),
            Event::Problem { run, site, reason } if Some(run) == current => self.take_problem(&site, &reason),
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
            Event::Rows { .. } | Event::Problem { .. } | Event::ProbeStarted { .. } | Event::SeriesRead { .. } => {}
        }
    }
}
