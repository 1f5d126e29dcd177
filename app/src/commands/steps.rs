//! The recorded steps: one of them at a time, in drift, distribution, heatmap and site together.

use egui::Key;
use loka_core::session::Command;

use super::{
    Doing, Scope,
    table::{NO_KEY, actions, shift},
};
use crate::state::recorded_steps;

actions! {
    /// The recorded steps, one at a time.
    StepAction {
        Previous: "Previous recorded step", "Look at the selected site as it was one recorded step before", shift(Key::Comma);
        Next: "Next recorded step", "Look at the selected site as it was one recorded step later", shift(Key::Period);
        Play: "Play the recorded steps", "Go through the selected site's recorded steps by themselves, or stop there", NO_KEY;
        Leave: "Leave the recorded steps", "Back to the statistics of the whole recording, which the plan rests on", NO_KEY;
    }
}

impl StepAction {
    pub(super) fn problem(self, scope: Scope<'_>) -> Option<String> {
        let cursor = &scope.view.steps;
        if self == Self::Leave {
            return (!cursor.is_on()).then(|| "no recorded step is looked at".to_owned());
        }
        match recorded_steps(scope.session, scope.view.site.as_ref()) {
            Err(why) => Some(why),
            Ok(steps) if self == Self::Previous && cursor.is_first(steps) => Some("it is the first".to_owned()),
            Ok(steps) if self == Self::Next && cursor.is_last(steps) => Some("it is the last".to_owned()),
            Ok(_) => None,
        }
    }

    pub(super) fn perform(self, doing: &mut Doing<'_>) -> Option<Command> {
        let steps = recorded_steps(doing.session, doing.view.site.as_ref()).unwrap_or_default();
        let cursor = &mut doing.view.steps;
        match self {
            Self::Previous => cursor.go(steps, false),
            Self::Next => cursor.go(steps, true),
            Self::Play => cursor.toggle_playing(steps),
            Self::Leave => cursor.leave(),
        }
        None
    }
}
