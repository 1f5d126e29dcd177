//! Several files opened together: takes their paths, gives commands one after the other. The trace goes first;
//! its rows and plans wait until it is there and its digest is known, which is how they are matched to it.

use std::collections::VecDeque;

use crate::session::{Command, Event, FileKind, Session};

#[derive(Debug, Default)]
pub struct OpenQueue {
    /// Files whose names do not say what they are.
    inspecting: Vec<String>,
    ready: VecDeque<(FileKind, String)>,
    /// Sent, and not answered yet.
    awaited: Option<FileKind>,
    /// The trace waits for its rows before it is probed.
    probe_after: bool,
}

impl OpenQueue {
    /// Takes files; gives what has to be asked about them first.
    pub fn add(&mut self, paths: Vec<String>) -> Vec<Command> {
        let mut questions = Vec::new();
        for path in paths {
            match FileKind::of_name(&path) {
                Some(kind) => self.put(kind, path),
                None => {
                    self.inspecting.push(path.clone());
                    questions.push(Command::Identify { path });
                }
            }
        }
        questions
    }

    fn put(&mut self, kind: FileKind, path: String) {
        let at = self.ready.partition_point(|(other, _)| *other <= kind);
        self.ready.insert(at, (kind, path));
    }

    /// What an event means for the files that wait. A line about a file that is not ours.
    pub fn event(&mut self, event: &Event) -> Option<String> {
        match event {
            Event::Identified { path, kind } => return self.inspected(path, kind),
            Event::TraceOpened { .. } => self.answered(FileKind::Trace),
            Event::ResultsOpened { .. } => self.answered(FileKind::Results),
            Event::PlanOpened { .. } => self.answered(FileKind::Plan),
            // Which file failed is not said: nothing is waited for any longer.
            Event::OpenFailed { .. } => {
                self.awaited = None;
                self.inspecting.clear();
            }
            _ => {}
        }
        None
    }

    /// A file of that kind is there.
    pub fn answered(&mut self, kind: FileKind) {
        self.awaited = self.awaited.filter(|awaited| *awaited != kind);
    }

    fn inspected(&mut self, path: &str, kind: &Result<FileKind, String>) -> Option<String> {
        // Asked by somebody else, or twice.
        let at = self.inspecting.iter().position(|known| known == path)?;
        self.inspecting.remove(at);
        match kind {
            Ok(kind) => {
                self.put(*kind, path.to_owned());
                None
            }
            Err(line) => Some(line.clone()),
        }
    }

    /// The next file to open, when the one before is there.
    pub fn next(&mut self, session: &Session) -> Option<Command> {
        if self.awaited.is_some() || !self.inspecting.is_empty() {
            return None;
        }
        let kind = self.ready.front()?.0;
        let digest_pending = session.trace.as_ref().is_some_and(|trace| trace.meta.trace_digest.is_empty());
        if kind != FileKind::Trace && digest_pending {
            return None;
        }
        let (kind, path) = self.ready.pop_front()?;
        // A key is no file that is opened: nothing waits for it.
        self.awaited = Some(kind).filter(|kind| *kind != FileKind::Key);
        Some(match kind {
            FileKind::Trace => Command::OpenTrace { path },
            FileKind::Results => Command::OpenResults { path },
            FileKind::Plan => Command::OpenPlan { path },
            FileKind::Key => Command::Sign { path, note: String::new() },
        })
    }

    /// True when a trace that was just opened has no rows on their way from a file.
    pub fn may_probe(&mut self) -> bool {
        self.probe_after = self.has_results();
        !self.probe_after
    }

    /// Rows that nobody named, to be opened before anything is probed.
    pub fn expect_results(&mut self, path: String) {
        self.put(FileKind::Results, path);
        self.probe_after = true;
    }

    /// True once, when the rows that a probe waited for came, or did not.
    pub fn take_probe(&mut self) -> bool {
        !self.has_results() && std::mem::take(&mut self.probe_after)
    }

    fn has_results(&self) -> bool {
        let waits = self.ready.iter().any(|(kind, _)| *kind == FileKind::Results);
        waits || self.awaited == Some(FileKind::Results)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn failed() -> Event {
        Event::OpenFailed { message: "no".to_owned() }
    }

    #[test]
    fn the_trace_goes_first_whatever_the_order() {
        let (mut opening, session) = (OpenQueue::default(), Session::default());
        let asked = opening.add(paths(&["b.plan.json", "a.results.parquet", "a.trace.safetensors"]));
        assert!(asked.is_empty());
        assert_eq!(opening.next(&session), Some(Command::OpenTrace { path: "a.trace.safetensors".to_owned() }));
        assert_eq!(opening.next(&session), None, "one at a time");
        opening.event(&failed());
        assert_eq!(opening.next(&session), Some(Command::OpenResults { path: "a.results.parquet".to_owned() }));
        opening.event(&failed());
        assert_eq!(opening.next(&session), Some(Command::OpenPlan { path: "b.plan.json".to_owned() }));
    }

    #[test]
    fn a_name_that_says_nothing_is_asked_about_first() {
        let (mut opening, session) = (OpenQueue::default(), Session::default());
        let asked = opening.add(paths(&["a.results.parquet", "weights.bin"]));
        assert_eq!(asked, [Command::Identify { path: "weights.bin".to_owned() }]);
        assert_eq!(opening.next(&session), None, "it could be the trace of these results");
        let kind = Err("weights.bin looks like a Python pickle".to_owned());
        let line = opening.event(&Event::Identified { path: "weights.bin".to_owned(), kind });
        assert_eq!(line.as_deref(), Some("weights.bin looks like a Python pickle"));
        assert!(matches!(opening.next(&session), Some(Command::OpenResults { .. })));
    }

    #[test]
    fn a_probe_waits_for_rows_from_a_file() {
        let (mut opening, session) = (OpenQueue::default(), Session::default());
        assert!(opening.may_probe() && !opening.take_probe());
        opening.add(paths(&["a.results.parquet"]));
        assert!(!opening.may_probe() && !opening.take_probe());
        opening.next(&session);
        assert!(!opening.take_probe(), "they are on their way");
        opening.event(&failed());
        assert!(opening.take_probe() && !opening.take_probe());
    }
}
