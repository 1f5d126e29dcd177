//! What takes time on an engine.

use egui::Key;
use loka_core::session::{Command, ENGINES, Session};

use super::{
    Doing, Scope, no_trace,
    table::{NO_KEY, actions, key, shift},
};

actions! {
    /// What engines are asked to do.
    RunAction {
        RunOrPause: "Run or pause the probe", "Probe what lacks rows under the mods in force; while it runs, let it wait or go on", key(Key::Space);
        Cancel: "Cancel the run", "Stop the probe or the timing and keep its rows", shift(Key::Space);
        MeasureSpeeds: "Measure speeds", "Time every site's GEMMs on the GPU; measured latencies replace recorded and modelled ones", key(Key::T);
        ShowEngines: "Show engines", "List engines with their devices, drivers and libraries, and choose one", key(Key::E);
        FindEngines: "Look for engines again", "Look for devices, libraries and a Ray cluster that are there by now", NO_KEY;
    }
}

impl RunAction {
    pub(super) fn problem(self, scope: Scope<'_>) -> Option<String> {
        let session = scope.session;
        match self {
            Self::RunOrPause => no_trace(scope),
            Self::Cancel => (!session.is_running() && !session.is_measuring()).then(|| "nothing runs".to_owned()),
            Self::MeasureSpeeds => session.measure_problem(),
            Self::ShowEngines => None,
            Self::FindEngines => session.engines.looking.then(|| "they are looked for already".to_owned()),
        }
    }

    pub(super) fn perform(self, doing: &mut Doing<'_>) -> Option<Command> {
        match self {
            Self::RunOrPause if doing.session.is_running() => {
                Some(Command::PauseProbe { paused: !doing.session.is_paused() })
            }
            Self::RunOrPause => Some(Command::StartProbe),
            Self::Cancel => Some(Command::CancelProbe),
            Self::MeasureSpeeds => Some(Command::MeasureSpeeds),
            Self::FindEngines => Some(Command::FindEngines),
            Self::ShowEngines => {
                doing.view.engines = !doing.view.engines;
                None
            }
        }
    }
}

/// Rows of an engine that is gone can still be looked at.
pub(super) fn engine_problem(session: &Session, at: usize) -> Option<String> {
    let name = ENGINES.get(at)?;
    session.engines.problem(name).filter(|_| session.num_rows_of(name) == 0)
}
