//! What happened in this session, line by line: takes lines, keeps the latest of them, gives each a number.
//! No clock: whoever shows a line stamps it.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::NoticeKind;

/// Lines that are kept; the oldest go first.
pub const LOG_LINES: usize = 2000;

/// What a line is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum LogKind {
    Info,
    Warning,
    Error,
    /// A probe or a timing: its start, its end.
    Run,
    /// Something was opened or written.
    File,
    /// A version of the plan: asked for, signed, changed.
    Review,
}

impl LogKind {
    pub const ALL: [Self; 6] = [Self::Run, Self::File, Self::Review, Self::Info, Self::Warning, Self::Error];

    /// As the log names it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Info => "Info",
            Self::Warning => "Note",
            Self::Error => "Error",
            Self::Run => "Run",
            Self::File => "File",
            Self::Review => "Review",
        }
    }
}

impl From<NoticeKind> for LogKind {
    fn from(kind: NoticeKind) -> Self {
        match kind {
            NoticeKind::Info => Self::Info,
            NoticeKind::Warning => Self::Warning,
            NoticeKind::Error => Self::Error,
        }
    }
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogEntry {
    /// Counts from 1, never used twice.
    pub seq: u64,
    pub kind: LogKind,
    pub text: String,
}

/// The latest [`LOG_LINES`] lines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Log {
    entries: VecDeque<LogEntry>,
    last_seq: u64,
}

impl Log {
    pub(super) fn add(&mut self, kind: LogKind, text: String) {
        self.last_seq += 1;
        self.entries.push_back(LogEntry { seq: self.last_seq, kind, text });
        if self.entries.len() > LOG_LINES {
            self.entries.pop_front();
        }
    }

    /// Oldest first.
    pub fn entries(&self) -> &VecDeque<LogEntry> {
        &self.entries
    }

    /// Of the newest line ever written, also when it was cleared.
    pub fn last_seq(&self) -> u64 {
        self.last_seq
    }

    pub(super) fn clear(&mut self) {
        self.entries.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_lines_go_and_numbers_stay() {
        let mut log = Log::default();
        (0..LOG_LINES + 3).for_each(|at| log.add(LogKind::Run, at.to_string()));
        assert_eq!(log.entries().len(), LOG_LINES);
        assert_eq!(log.entries()[0].seq, 4);
        log.clear();
        log.add(LogKind::File, "after".to_owned());
        assert_eq!((log.entries().len(), log.last_seq()), (1, LOG_LINES as u64 + 4));
    }

    #[test]
    fn every_notice_is_in_the_log_after_it_was_dismissed() {
        let mut session = crate::session::Session::default();
        session.notify(NoticeKind::Error, "it broke".to_owned());
        let id = session.notices[0].id;
        session.command(crate::session::Command::DismissNotice { id }).unwrap();
        let line = &session.log().entries()[0];
        assert_eq!((line.kind, line.text.as_str()), (LogKind::Error, "it broke"));
    }
}
