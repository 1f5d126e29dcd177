//! What is seen of the log and not of the session: when each line was first seen, and which kinds are hidden.

use std::collections::{BTreeSet, VecDeque};

use loka_core::session::{LOG_LINES, Log, LogEntry, LogKind};

/// Gives the seconds of the day in UTC; `None` where there is no clock.
pub type Clock = fn() -> Option<u64>;

#[derive(Clone, Debug, Default)]
pub struct LogState {
    /// In the order of the lines: a line's number and its time.
    stamps: VecDeque<(u64, String)>,
    last_seq: u64,
    pub hidden: BTreeSet<LogKind>,
}

impl LogState {
    /// Stamps the lines that came since. `since_start` stands in where there is no clock.
    pub fn stamp(&mut self, log: &Log, clock: Clock, since_start: f64) {
        if self.last_seq == log.last_seq() {
            return;
        }
        let now = clock().map_or_else(|| format!("+{since_start:.0} s"), time_of_day);
        let new = log.entries().iter().filter(|entry| entry.seq > self.last_seq);
        self.stamps.extend(new.map(|entry| (entry.seq, now.clone())));
        let from = self.stamps.len().saturating_sub(LOG_LINES);
        self.stamps.drain(..from);
        self.last_seq = log.last_seq();
    }

    /// When a line was written, `HH:MM:SS`.
    pub fn time_of(&self, seq: u64) -> &str {
        let at = self.stamps.binary_search_by_key(&seq, |(known, _)| *known);
        at.ok().and_then(|at| self.stamps.get(at)).map_or("", |(_, time)| time)
    }

    pub fn shows(&self, entry: &LogEntry) -> bool {
        !self.hidden.contains(&entry.kind)
    }
}

fn time_of_day(seconds: u64) -> String {
    let of_day = seconds % 86_400;
    format!("{:02}:{:02}:{:02}", of_day / 3600, of_day / 60 % 60, of_day % 60)
}

#[cfg(test)]
mod tests {
    use loka_core::session::{NoticeKind, Session};

    use super::*;

    #[test]
    fn a_line_keeps_the_time_at_which_it_came() {
        let (mut state, mut session) = (LogState::default(), Session::default());
        session.notify(NoticeKind::Info, "first".to_owned());
        state.stamp(session.log(), || Some(3_661), 0.0);
        session.notify(NoticeKind::Info, "second".to_owned());
        state.stamp(session.log(), || None, 7.4);
        assert_eq!((state.time_of(1), state.time_of(2), state.time_of(3)), ("01:01:01", "+7 s", ""));
    }
}
