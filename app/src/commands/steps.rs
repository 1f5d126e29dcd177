//! The recorded steps: one of them at a time, in drift, distribution, heatmap and site together; and the run's checkpoints.

use egui::Key;
use loka_core::session::{Command, Looked, Session};

use super::{
    Doing, Scope,
    table::{NO_KEY, actions, shift},
};
use crate::state::{ViewState, recorded_steps};

actions! {
    /// The recorded steps, one at a time.
    StepAction {
        Previous: "Previous recorded step", "Look at the selected site as it was one recorded step before", shift(Key::Comma);
        Next: "Next recorded step", "Look at the selected site as it was one recorded step later", shift(Key::Period);
        Play: "Play the recorded steps", "Go through the selected site's recorded steps by themselves, or stop there", NO_KEY;
        PreviousCheckpoint: "Previous checkpoint", "Hold the open trace against the checkpoint of its run before the one it is held against", NO_KEY;
        NextCheckpoint: "Next checkpoint", "Hold the open trace against the checkpoint of its run after the one it is held against", NO_KEY;
        Leave: "Leave the recorded steps", "Back to the statistics of the whole recording, which the plan rests on", NO_KEY;
    }
}

impl StepAction {
    pub(super) fn problem(self, scope: Scope<'_>) -> Option<String> {
        let cursor = &scope.view.steps;
        if self == Self::Leave {
            return (!cursor.is_on()).then(|| "no recorded step is looked at".to_owned());
        }
        if matches!(self, Self::PreviousCheckpoint | Self::NextCheckpoint) {
            return self.checkpoint(scope.view, scope.session).err();
        }
        match recorded_steps(scope.session, scope.view.site.as_ref()) {
            Err(why) => Some(why),
            Ok(steps) if self == Self::Previous && cursor.is_first(steps) => Some("it is the first".to_owned()),
            Ok(steps) if self == Self::Next && cursor.is_last(steps) => Some("it is the last".to_owned()),
            Ok(_) => None,
        }
    }

    pub(super) fn perform(self, doing: &mut Doing<'_>) -> Option<Command> {
        if matches!(self, Self::PreviousCheckpoint | Self::NextCheckpoint) {
            let path = self.checkpoint(doing.view, doing.session).ok()?;
            doing.view.drift.compare_with(path.clone());
            return Some(Command::CompareTrace { path });
        }
        let steps = recorded_steps(doing.session, doing.view.site.as_ref()).unwrap_or_default();
        let cursor = &mut doing.view.steps;
        match self {
            Self::Previous => cursor.go(steps, false),
            Self::Next => cursor.go(steps, true),
            Self::Play => cursor.toggle_playing(steps),
            Self::Leave => cursor.leave(),
            Self::PreviousCheckpoint | Self::NextCheckpoint => {}
        }
        None
    }

    fn checkpoint(self, view: &ViewState, session: &Session) -> Result<String, String> {
        let known = matches!(session.inspections.checkpoints(), Some((_, Looked::Found(_))));
        let path = known.then(|| view.drift.next_checkpoint(session, self == Self::NextCheckpoint));
        path.ok_or("the run's checkpoints are not read yet: show Drift")?.ok_or_else(|| "there is none".to_owned())
    }
}
