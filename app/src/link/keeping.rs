//! Takes what the session of an open trace is told, keeps it in the journal beside the trace; gives back what an
//! earlier process left there.

use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use loka_core::{
    journal::{self, Journal, Restored},
    report::counted,
    session::{Command, Event, NoticeKind, OpenedTrace, Saved, shared::By},
};

/// What the thread that opens a trace found of its journal.
pub(super) enum Found {
    /// None is kept, or it is new.
    Nothing,
    Left(Box<Saved>),
}

/// The journal of the open trace, if one is kept.
#[derive(Default)]
pub(super) struct Keeping {
    on: bool,
    journal: Option<Journal>,
    arriving: Arriving,
}

/// A journal on its way from the thread that opened it.
#[derive(Clone, Default)]
pub(super) struct Arriving(Arc<Mutex<Option<Journal>>>);

impl Arriving {
    /// Opens the journal of a trace; lines for the person go to `warn`.
    pub fn open(&self, opened: &OpenedTrace, digest: &str, warn: impl Fn(String)) -> Found {
        let place = journal::beside(Path::new(&opened.path));
        let (journal, restored, told) = match Journal::open(&place, digest) {
            Ok(found) => found,
            Err(error) => {
                warn(format!("What you decide here is not kept: {error}"));
                return Found::Nothing;
            }
        };
        told.into_iter().for_each(warn);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(journal);
        restored.map_or(Found::Nothing, |restored| Found::Left(Box::new(taken_up(restored, opened))))
    }

    fn take(&self) -> Option<Journal> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// The trace may have another path today than when its journal was kept.
fn taken_up(restored: Restored, opened: &OpenedTrace) -> Saved {
    let Restored { mut ordered, num_commands } = restored;
    let session = &mut ordered.session;
    if let Some(trace) = session.trace.as_mut().map(Arc::make_mut) {
        (trace.path, trace.name) = (opened.path.clone(), opened.name.clone());
    }
    let rows = session.rows().count();
    if num_commands > 0 || rows > 0 {
        let (rows, commands) = (counted(rows, "row", "rows"), counted(num_commands as usize, "command", "commands"));
        session.notify(NoticeKind::Info, format!("Taken up where it was left: {rows}, {commands}"));
    }
    ordered.save()
}

impl Keeping {
    pub fn on() -> Self {
        Self { on: true, ..Self::default() }
    }

    /// For the thread that opens a trace; `None`: nothing is kept.
    pub fn arriving(&self) -> Option<Arriving> {
        self.on.then(|| self.arriving.clone())
    }

    /// Another trace is open from now on, or this one's digest is known: its journal, if there is one.
    pub fn arrived(&mut self, new_trace: bool) {
        if new_trace {
            self.journal = None;
        }
        if let Some(journal) = self.arriving.take() {
            self.journal = Some(journal);
        }
    }

    pub fn command(&mut self, by: &By, command: &Command) {
        if let Some(journal) = &mut self.journal {
            journal.command(by, command);
        }
    }

    pub fn event(&mut self, event: &Event) {
        if let Some(journal) = &mut self.journal {
            journal.event(event);
        }
    }

    pub fn wants_checkpoint(&self) -> bool {
        self.journal.as_ref().is_some_and(Journal::wants_checkpoint)
    }

    pub fn checkpoint(&mut self, saved: Saved) {
        if let Some(journal) = &mut self.journal {
            journal.checkpoint(saved);
        }
    }

    /// Waits until all of it is on the disk.
    pub fn flush(&self) {
        if let Some(journal) = &self.journal {
            journal.flush();
        }
    }

    /// The journal broke: one line, once.
    pub fn take_problem(&mut self) -> Option<String> {
        let problem = self.journal.as_ref()?.take_problem()?;
        self.journal = None;
        Some(problem)
    }
}
