//! What a session is told, by whom, in which place of the order.

use serde::{Deserialize, Serialize};

use crate::session::{Command, Event};

/// Who asked for something.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Author {
    /// One a window, drawn at random by it; 0: the program itself.
    pub key: u64,
    /// As the person calls themselves.
    pub name: String,
}

impl Author {
    /// The program: what it does unasked, as probing a trace that was just opened.
    pub fn program() -> Self {
        Self { key: 0, name: "LoKA".to_owned() }
    }
}

/// Anything that changes a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Input {
    Command {
        author: Author,
        /// Counts the author's commands, from 1: one that is sent again after a lost connection is known by it.
        number: u64,
        command: Command,
    },
    Event(Box<Event>),
}

impl Input {
    /// Says nothing that a later process would want to know.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Command { command, .. } => command.is_private(),
            Self::Event(event) => event.is_passing(),
        }
    }
}

/// An input in its place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Counts from 1, without a gap.
    pub seq: u64,
    pub input: Input,
}
