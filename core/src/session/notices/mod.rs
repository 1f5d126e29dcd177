//! What the person is told: lines that stay until dismissed, with what can be done about them, and the log of all.

mod log;

pub use log::{LOG_LINES, Log, LogEntry, LogKind};

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

/// The lines that stand, and the log.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Notices {
    standing: Vec<Notice>,
    log: Log,
    last_id: u64,
}

/// The lines that stand, the oldest first.
impl std::ops::Deref for Notices {
    type Target = [Notice];

    fn deref(&self) -> &[Notice] {
        &self.standing
    }
}

impl Notices {
    /// As they were saved.
    pub(super) fn restored(standing: Vec<Notice>, log: Log, last_id: u64) -> Self {
        Self { standing, log, last_id }
    }

    pub fn log(&self) -> &Log {
        &self.log
    }

    pub(super) fn last_id(&self) -> u64 {
        self.last_id
    }

    pub fn tell(&mut self, kind: NoticeKind, text: String) {
        self.put(kind, kind.into(), text, None);
    }

    /// The same, which the log files under another word.
    pub(super) fn tell_filed(&mut self, kind: NoticeKind, filed: LogKind, text: String) {
        self.put(kind, filed, text, None);
    }

    /// The same, with something to be done about it.
    pub(super) fn offer(&mut self, kind: NoticeKind, text: String, action: NoticeAction) {
        self.put(kind, kind.into(), text, Some(action));
    }

    /// A line of the log that needs nobody's attention.
    pub(super) fn record(&mut self, kind: LogKind, text: String) {
        self.log.add(kind, text);
    }

    fn put(&mut self, kind: NoticeKind, filed: LogKind, text: String, action: Option<NoticeAction>) {
        self.log.add(filed, text.clone());
        self.last_id += 1;
        self.standing.push(Notice { id: self.last_id, kind, text, action });
    }

    pub(super) fn dismiss(&mut self, id: u64) {
        self.standing.retain(|notice| notice.id != id);
    }

    pub(super) fn dismiss_all(&mut self) {
        self.standing.clear();
    }

    /// Forgets the oldest of those that stand.
    pub(crate) fn keep(&mut self, most: usize) {
        self.standing.drain(..self.standing.len().saturating_sub(most));
    }

    /// Offers that are out of date go.
    pub(super) fn withdraw(&mut self, offers: impl Fn(&Command) -> bool) {
        self.standing.retain(|notice| !notice.action.as_ref().is_some_and(|action| offers(&action.command)));
    }

    pub(super) fn clear_log(&mut self) {
        self.log.clear();
    }
}
