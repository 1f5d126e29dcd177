//! Lines for the person, with what can be done about them.

use serde::{Deserialize, Serialize};

use super::Command;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NoticeKind {
    Info,
    Warning,
    Error,
}

/// What a notice offers to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NoticeAction {
    /// The button's text.
    pub text: String,
    pub command: Command,
}

/// One line for the person, kept until dismissed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Notice {
    pub id: u64,
    pub kind: NoticeKind,
    pub text: String,
    pub action: Option<NoticeAction>,
}

impl Notice {
    /// True when its offer is out of date once an engine was chosen.
    pub(super) fn offers_engine(&self) -> bool {
        self.action.as_ref().is_some_and(|action| matches!(action.command, Command::SelectEngine { .. }))
    }
}
