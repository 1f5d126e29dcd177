//! Puts inputs into one order: takes commands and events, gives numbered steps and what is to be done; takes
//! steps, and becomes what gave them.

use std::collections::BTreeMap;

use crate::session::{Command, CommandError, Effect, Event, SavedSession, Session};

use super::{CommandContext, SequencedInput, SessionInput};

/// Authors whose last command is remembered: a window that was away for longer joins anew.
const HEARD: usize = 4096;

/// A session and the number of its last input.
#[derive(Default)]
pub struct SequencedSession {
    pub session: Session,
    seq: u64,
    /// The last command of each author that was answered.
    heard: BTreeMap<u64, u64>,
}

/// What became of a command.
#[derive(Debug, PartialEq)]
pub enum CommandOutcome {
    Done(Box<SequencedInput>, Vec<Effect>),
    /// It was answered before: its author sent it again.
    Known,
}

/// A step that does not follow the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("step {found} does not follow step {last}")]
pub struct OutOfOrder {
    pub last: u64,
    pub found: u64,
}

impl SequencedSession {
    /// Goes on from a saved session, whose last input was number `seq`.
    pub fn of(mut saved: SavedSession, seq: u64) -> Self {
        let heard = std::mem::take(&mut saved.head.heard);
        Self { session: Session::restored(saved), seq, heard }
    }

    /// Of the last input.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    pub fn save(&self) -> SavedSession {
        let mut saved = self.session.save();
        saved.head.heard.clone_from(&self.heard);
        saved
    }

    /// The number of the author's last command that was answered; 0: none.
    pub fn heard(&self, author: u64) -> u64 {
        self.heard.get(&author).copied().unwrap_or_default()
    }

    /// A refused command has no place in the order, and is answered all the same.
    pub fn command(&mut self, by: CommandContext, command: Command) -> Result<CommandOutcome, CommandError> {
        // The program counts nothing: it never sends again.
        if by.author.key != 0 && by.number <= self.heard(by.author.key) {
            return Ok(CommandOutcome::Known);
        }
        self.hear(&by);
        let effects = self.session.command_by(&by, self.seq + 1, command.clone())?;
        let step = self.next(SessionInput::Command { by, command });
        Ok(CommandOutcome::Done(Box::new(step), effects))
    }

    /// An event that nobody follows: without the copy that a step is.
    pub fn apply(&mut self, event: Event) {
        self.seq += 1;
        self.session.event(event);
    }

    pub fn event(&mut self, event: Event) -> SequencedInput {
        self.apply(event.clone());
        SequencedInput { seq: self.seq, input: SessionInput::Event(Box::new(event)) }
    }

    /// Takes a step that another gave, without doing what it asked for: that was done there.
    pub fn follow(&mut self, step: SequencedInput) -> Result<(), OutOfOrder> {
        if step.seq != self.seq + 1 {
            return Err(OutOfOrder { last: self.seq, found: step.seq });
        }
        self.seq = step.seq;
        match step.input {
            SessionInput::Command { by, command } => {
                self.hear(&by);
                // It was carried out there, so it is here.
                drop(self.session.command_by(&by, self.seq, command));
            }
            SessionInput::Event(event) => self.session.event(*event),
        }
        Ok(())
    }

    /// The author's commands up to that one were answered, in an earlier process.
    pub fn remember(&mut self, author: u64, number: u64) {
        let known = self.heard.entry(author).or_default();
        *known = number.max(*known);
    }

    fn hear(&mut self, by: &CommandContext) {
        let key = by.author.key;
        if key == 0 {
            return;
        }
        self.heard.insert(key, by.number);
        if self.heard.len() > HEARD
            && let Some(other) = self.heard.keys().copied().find(|of| *of != key)
        {
            self.heard.remove(&other);
        }
    }

    fn next(&mut self, input: SessionInput) -> SequencedInput {
        self.seq += 1;
        SequencedInput { seq: self.seq, input }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        dispatch::testing::{results, row},
        model::Gemm,
        session::shared::Author,
    };

    fn opened() -> SequencedSession {
        let rows = vec![row("a", Gemm::Fprop, "cublaslt/bf16", 0.1, None, 0.0)];
        let mut ordered = SequencedSession::default();
        let results = Box::new(results(&["a"], rows).into());
        ordered.event(Event::ResultsOpened { path: "r.parquet".to_owned(), results });
        ordered
    }

    fn anna(number: u64) -> CommandContext {
        CommandContext { author: Author::new(7, "Anna"), number, ..CommandContext::default() }
    }

    #[test]
    fn who_follows_is_the_same() {
        let (mut first, mut second) = (SequencedSession::default(), SequencedSession::default());
        let mut steps = Vec::new();
        let results = Box::new(results(&["a"], vec![row("a", Gemm::Fprop, "cublaslt/bf16", 0.1, None, 0.0)]).into());
        steps.push(first.event(Event::ResultsOpened { path: "r.parquet".to_owned(), results }));
        let pull = Command::SetMaxError { value: 0.3, gesture: None };
        for (number, command) in [(1, pull), (2, Command::Undo), (3, Command::Redo)] {
            let Ok(CommandOutcome::Done(step, _)) = first.command(anna(number), command) else { panic!("not done") };
            steps.push(*step);
        }
        for step in steps {
            second.follow(step).unwrap();
        }
        assert_eq!(second.save().digest(), first.save().digest());
        assert_eq!((second.seq(), second.heard(7)), (4, 3));
        let again = SequencedInput {
            seq: 4,
            input: SessionInput::Event(Box::new(Event::OpenFailed { message: String::new() })),
        };
        assert_eq!(second.follow(again), Err(OutOfOrder { last: 4, found: 4 }));
    }

    #[test]
    fn a_command_sent_again_is_done_once() {
        let mut ordered = opened();
        let pull = Command::SetMaxError { value: 0.3, gesture: None };
        assert!(matches!(ordered.command(anna(1), pull.clone()), Ok(CommandOutcome::Done(..))));
        assert_eq!(ordered.command(anna(1), pull), Ok(CommandOutcome::Known));
        assert_eq!(ordered.seq(), 2);
    }

    #[test]
    fn a_refused_command_has_no_place() {
        let mut ordered = opened();
        assert_eq!(ordered.command(anna(1), Command::Undo), Err(CommandError::NothingToUndo));
        assert_eq!((ordered.seq(), ordered.heard(7)), (1, 1));
        let worse = Command::SetMaxError { value: f64::NAN, gesture: None };
        assert!(ordered.command(anna(2), worse).is_err());
    }
}
