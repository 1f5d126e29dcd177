//! What a driver needs of its process: somebody who carries effects out, and somebody who keeps what was decided.

use crate::{
    session::{Command, Effect, Event, SavedSession, shared::CommandContext},
    trace::Trace,
    views::OpenedTrace,
};

/// Carries effects out.
pub trait Executor {
    /// Starts an effect and returns at once.
    fn run(&mut self, effect: Effect);

    /// The next thing that came of one, if any.
    fn poll(&mut self) -> Option<Report>;

    /// What is under way besides a probe ("Opening …"), for the status line.
    fn busy(&self) -> Option<String> {
        None
    }

    /// The results that an earlier probe of this trace left beside it, if there is such a file. Whether they are of this
    /// very trace is known when they are read.
    fn results_beside(&self, trace: &str) -> Option<String> {
        let _ = trace;
        None
    }

    /// The open trace, for questions beside the session; `None`: it is not here.
    fn trace(&self) -> Option<Trace> {
        None
    }
}

/// What came of an effect.
pub enum Report {
    Event(Box<Event>),
    /// The same, and the open trace's journal, which begins with it.
    Journaled {
        event: Box<Event>,
        journal: Box<dyn Journaling>,
    },
    /// What an earlier process left of the trace that was to be opened, and the journal that goes on.
    Restored {
        saved: Box<SavedSession>,
        journal: Box<dyn Journaling>,
    },
}

impl From<Event> for Report {
    fn from(event: Event) -> Self {
        Self::Event(Box::new(event))
    }
}

impl Report {
    pub fn opened(trace: OpenedTrace) -> Self {
        Self::from(Event::TraceOpened { trace: Box::new(trace) })
    }

    /// The event of it, if it is one.
    pub fn event(self) -> Option<Event> {
        match self {
            Self::Event(event) | Self::Journaled { event, .. } => Some(*event),
            Self::Restored { .. } => None,
        }
    }
}

/// Keeps a session's inputs for a later process.
pub trait Journaling: Send {
    /// A command that was carried out.
    fn command(&mut self, by: &CommandContext, command: &Command);

    /// An event that is about to be applied.
    fn event(&mut self, event: &Event);

    /// The session has to be kept whole before its next input.
    fn wants_checkpoint(&self) -> bool;

    fn checkpoint(&mut self, saved: SavedSession);

    /// Returns when everything so far is kept, or cannot be for now.
    fn flush(&self);

    /// Why nothing can be kept for now. What was told meanwhile waits, and is kept as soon as it can be.
    fn problem(&self) -> Option<String>;
}

/// Keeps nothing. `problem`: why that is none of what was wanted.
#[derive(Clone, Debug, Default)]
pub struct NoJournal {
    pub problem: Option<String>,
}

impl Journaling for NoJournal {
    fn command(&mut self, _: &CommandContext, _: &Command) {}

    fn event(&mut self, _: &Event) {}

    fn wants_checkpoint(&self) -> bool {
        false
    }

    fn checkpoint(&mut self, _: SavedSession) {}

    fn flush(&self) {}

    fn problem(&self) -> Option<String> {
        self.problem.clone()
    }
}
