//! What a session is told, by whom, in which place of the order.

use serde::{Deserialize, Serialize};

use crate::{
    model::Moment,
    review::Role,
    session::{Command, Event},
};

/// Who asked for something.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Author {
    /// One a window, drawn at random by it; 0: the program itself.
    pub key: u64,
    /// As the person calls themselves, or as the server's list of people has it.
    pub name: String,
    /// What they may do; where there is no list of people, everybody owns the session.
    pub role: Role,
}

impl Author {
    /// Somebody who may do everything.
    pub fn new(key: u64, name: &str) -> Self {
        Self { key, name: name.to_owned(), role: Role::Owner }
    }

    /// The program: what it does unasked, as probing a trace that was just opened.
    pub fn program() -> Self {
        Self::new(0, "LoKA")
    }
}

/// Who asked for something, when, and knowing what.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandContext {
    pub author: Author,
    /// Counts the author's commands, from 1: one that is sent again after a lost connection is known by it.
    pub number: u64,
    /// The last step that the author had seen: what others did after it must not be undone unseen. 0: there are no
    /// others.
    pub seen: u64,
    /// By the clock of whoever puts inputs in order.
    pub at: Moment,
}

impl CommandContext {
    /// What the program does unasked.
    pub fn program() -> Self {
        Self { author: Author::program(), ..Self::default() }
    }

    /// The author's command of that number, by an unknown clock.
    pub fn numbered(author: Author, number: u64) -> Self {
        Self { author, number, ..Self::default() }
    }

    /// The only window of its session.
    pub fn alone(author: Author, at: Moment) -> Self {
        Self { author, at, ..Self::default() }
    }
}

/// Anything that changes a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(clippy::large_enum_variant, reason = "most inputs are commands: boxing them would cost each an allocation")]
pub enum SessionInput {
    Command { by: CommandContext, command: Command },
    Event(Box<Event>),
}

impl SessionInput {
    /// Says nothing that a later process would want to know.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Command { command, .. } => command.is_per_window(),
            Self::Event(event) => event.is_transient(),
        }
    }
}

/// An input in its place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SequencedInput {
    /// Counts from 1, without a gap.
    pub seq: u64,
    pub input: SessionInput,
}

impl SequencedInput {
    /// The command and who asked for it, if it is one.
    pub fn command(&self) -> Option<(&CommandContext, &Command)> {
        match &self.input {
            SessionInput::Command { by, command } => Some((by, command)),
            SessionInput::Event(_) => None,
        }
    }
}
