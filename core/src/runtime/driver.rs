//! The driver of a session: takes commands of its clients and reports of its executor, gives each its place, keeps it, has
//! carried out what the session asks for, and does by itself what everybody expects of an opened file.

use std::sync::Arc;

use crate::{
    model::Moment,
    review::KeyRing,
    session::{
        Command, CommandError, Effect, Event, FileKind, NoticeKind, SavedSession, Session,
        shared::{Author, CommandContext, CommandOutcome, SequencedInput, SequencedSession},
    },
    trace::Trace,
};

use super::{Applied, Executor, Journaling, OpenQueue, Report, applied::Pending};

pub struct Driver {
    ordered: SequencedSession,
    executor: Box<dyn Executor>,
    /// Of the open trace, if one is kept.
    journal: Option<Box<dyn Journaling>>,
    opening: OpenQueue,
    /// The results file that the executor looks after.
    watched: Option<String>,
    clock: fn() -> Moment,
    /// In whose name the driver does what nobody asked for.
    author: Author,
    /// Whose keys are whose.
    keys: Option<Arc<KeyRing>>,
    /// Inputs since they were taken; `None`: nobody follows.
    steps: Option<Vec<SequencedInput>>,
}

impl Driver {
    /// Engines are looked for at once. `clock` dates commands.
    pub fn new(executor: Box<dyn Executor>, clock: fn() -> Moment) -> Self {
        Self::begin(executor, clock, None)
    }

    /// The same, with every input collected for [`Self::take_steps`].
    pub fn followed(executor: Box<dyn Executor>, clock: fn() -> Moment) -> Self {
        Self::begin(executor, clock, Some(Vec::new()))
    }

    fn begin(executor: Box<dyn Executor>, clock: fn() -> Moment, steps: Option<Vec<SequencedInput>>) -> Self {
        let mut driver = Self {
            ordered: SequencedSession::default(),
            executor,
            journal: None,
            opening: OpenQueue::default(),
            watched: None,
            clock,
            author: Author::program(),
            keys: None,
            steps,
        };
        driver.ask(Command::FindEngines);
        driver
    }

    /// The session is this person's.
    #[must_use]
    pub fn with_author(mut self, author: Author) -> Self {
        self.set_author(author);
        self
    }

    /// Signatures count by this list.
    #[must_use]
    pub fn with_keys(mut self, keys: Option<Arc<KeyRing>>) -> Self {
        self.keys = keys;
        self
    }

    pub fn set_author(&mut self, author: Author) {
        self.author = author;
    }

    pub fn session(&self) -> &Session {
        &self.ordered.session
    }

    /// The session with its numbers.
    pub fn ordered(&self) -> &SequencedSession {
        &self.ordered
    }

    pub fn author(&self) -> &Author {
        &self.author
    }

    pub fn busy(&self) -> Option<String> {
        self.executor.busy()
    }

    pub fn trace(&self) -> Option<Trace> {
        self.executor.trace()
    }

    /// The inputs since the last call, in their order. What is told to others has to be [flushed](Self::flush) first.
    pub fn take_steps(&mut self) -> Vec<SequencedInput> {
        self.steps.as_mut().map(std::mem::take).unwrap_or_default()
    }

    pub fn num_steps(&self) -> usize {
        self.steps.as_ref().map_or(0, Vec::len)
    }

    /// Returns when every input so far is kept.
    pub fn flush(&self) {
        if let Some(journal) = &self.journal {
            journal.flush();
        }
    }

    /// A client's command. One that was answered before changes nothing.
    pub fn command(&mut self, by: CommandContext, command: Command) -> Result<(), CommandError> {
        let CommandOutcome::Done(step, effects) = self.ordered.command(by, command)? else { return Ok(()) };
        if let (Some(journal), Some((by, command))) = (&mut self.journal, step.command()) {
            journal.command(by, command);
        }
        if let Some(steps) = &mut self.steps {
            steps.push(*step);
        }
        self.settle();
        effects.into_iter().for_each(|effect| self.executor.run(effect));
        Ok(())
    }

    /// The command of whoever the session belongs to; why it is refused is a notice.
    pub fn ask(&mut self, command: Command) {
        let (author, at) = (self.author.clone(), (self.clock)());
        let number = self.ordered.heard(author.key) + 1;
        match self.command(CommandContext { author, number, seen: 0, at }, command) {
            // A key pressed once too often is no error.
            Ok(()) | Err(CommandError::NothingToUndo | CommandError::NothingToRedo) => {}
            Err(error) => self.notify(NoticeKind::Error, error.to_string()),
        }
    }

    /// Opens several files, the trace among them first.
    pub fn open(&mut self, paths: Vec<String>) {
        for question in self.opening.add(paths) {
            self.ask(question);
        }
        self.open_next();
    }

    /// What a client did itself, which has no place in the order.
    pub fn note(&mut self, event: Event) {
        self.ordered.session.event(event);
    }

    /// Forgets the oldest notices.
    pub fn keep_notices(&mut self, most: usize) {
        self.ordered.session.notices.keep(most);
    }

    /// Applies the next report, if there is one.
    pub fn poll(&mut self) -> Option<Applied> {
        let Some(report) = self.executor.poll() else {
            return self.unasked().map(|event| self.event(event));
        };
        Some(match report {
            Report::Event(event) => {
                if matches!(*event, Event::TraceOpened { .. }) {
                    // It was the one before's.
                    self.journal = None;
                }
                self.event(*event)
            }
            Report::Journaled { event, journal } => {
                self.journal = Some(journal);
                self.event(*event)
            }
            Report::Restored { saved, journal } => {
                self.journal = Some(journal);
                self.restore(*saved)
            }
        })
    }

    fn notify(&mut self, kind: NoticeKind, message: String) {
        self.event(Event::Notice { kind, message });
    }

    /// What the session does not know yet of what it runs on.
    fn unasked(&self) -> Option<Event> {
        let problem = self.journal.as_ref().and_then(|journal| journal.problem());
        if self.session().not_kept != problem {
            return Some(Event::Keeping { problem });
        }
        // A session that is restored knows nobody's keys.
        let known = self.session().trace.is_none() || self.session().keys == self.keys;
        (!known).then(|| Event::KeysKnown { keys: self.keys.clone() })
    }

    fn event(&mut self, event: Event) -> Applied {
        if let Some(journal) = &mut self.journal {
            journal.event(&event);
        }
        let opened = matches!(event, Event::TraceOpened { .. });
        let pending = Pending::of(&event, self.session());
        let not_ours = self.opening.event(&event);
        match &mut self.steps {
            Some(steps) => steps.push(self.ordered.event(event)),
            None => self.ordered.apply(event),
        }
        self.settle();
        let applied = pending.applied(self.session());
        if let Some(line) = not_ours {
            self.notify(NoticeKind::Error, line);
        }
        if opened {
            self.begin_probe();
        }
        self.open_next();
        applied
    }

    /// What an earlier process left takes the place of the session.
    fn restore(&mut self, saved: SavedSession) -> Applied {
        let before = std::mem::take(&mut self.ordered);
        self.ordered = SequencedSession::of(saved, before.seq() + 1);
        let session = std::mem::take(&mut self.ordered.session).in_place_of(&before.session);
        let same_trace = session.trace_path() == before.session.trace_path();
        self.ordered.session = session;
        // Those that were found while the journal was read.
        self.ordered.session.engines = before.session.engines;
        // Steps before it lead nowhere any longer.
        self.steps.iter_mut().for_each(Vec::clear);
        self.opening.answered(FileKind::Trace);
        self.settle();
        self.begin_probe();
        self.open_next();
        Applied::Replaced { same_trace }
    }

    /// After every input: the journal has what it needs, and the file that is open is watched.
    fn settle(&mut self) {
        if let Some(journal) = self.journal.as_mut().filter(|journal| journal.wants_checkpoint()) {
            journal.checkpoint(self.ordered.save());
        }
        let file = &self.ordered.session.results_file;
        if self.watched != *file {
            self.watched.clone_from(file);
            self.executor.run(Effect::Watch { path: self.watched.clone() });
        }
    }

    fn open_next(&mut self) {
        while let Some(command) = self.opening.next(&self.ordered.session) {
            self.ask(command);
        }
        if self.opening.take_probe() {
            self.probe_the_rest();
        }
    }

    /// A trace that was just opened is probed, unless rows are to come first. Without an engine that is no error: its
    /// distributions can be read.
    fn begin_probe(&mut self) {
        if !self.session().lacks_rows() || !self.opening.may_probe() {
            return;
        }
        let beside = self.session().trace_path().and_then(|path| self.executor.results_beside(path));
        if let Some(results) = beside.filter(|_| !self.session().has_rows()) {
            self.opening.expect_results(results);
            return;
        }
        let engines = &self.session().engines;
        match engines.problem(&engines.chosen) {
            None => self.ask(Command::StartProbe),
            Some(reason) => self.notify(NoticeKind::Info, format!("There are no rows yet: {reason}")),
        }
    }

    /// Rows came from a file: what they lack is probed, unless that would set them aside.
    fn probe_the_rest(&mut self) {
        let session = self.session();
        let adds = session.engine_is_that_of_the_rows() || !session.has_rows();
        if session.trace.is_some() && session.lacks_rows() && adds {
            self.ask(Command::StartProbe);
        }
    }
}

#[cfg(test)]
mod tests;
