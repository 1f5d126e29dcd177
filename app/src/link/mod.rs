//! The window's way to its session, which is driven in this process or by a server: a window submits what a person wants,
//! polls what was applied, and reads the session and where it stands.

mod in_process;
mod remote;

pub use in_process::InProcess;
pub use remote::{Network, RemoteLink, Socket, SocketNews};

use std::sync::Arc;

use loka_core::{
    runtime::Applied,
    session::{
        Command, Event, NoticeKind, Session,
        shared::{Author, Person, Place},
    },
};

/// A window is a client of whatever is behind it.
pub trait Link {
    fn session(&self) -> &Session;

    /// What comes of it is in the session, at once or later.
    fn submit(&mut self, what: Submission);

    /// Applies the next thing that happened, if any.
    fn poll(&mut self) -> Option<Applied>;

    fn status(&self) -> Status;
}

/// What a window has to say.
#[derive(Clone, Debug, PartialEq)]
pub enum Submission {
    Command(Command),
    /// Opens these files, the trace among them first.
    Open(Vec<String>),
    /// What the window did by itself: nobody else hears of it.
    Note(Event),
    /// Where the person looks, for others who look on.
    Look(Place),
    /// Tries at once to reach a server that is away.
    Retry,
}

impl Submission {
    /// Tells the person at this window a line.
    pub fn notice(kind: NoticeKind, message: String) -> Self {
        Self::Note(Event::Notice { kind, message })
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    pub connection: ConnectionState,
    /// What is under way besides a probe ("Opening …").
    pub busy: Option<String>,
    /// Who is at this window.
    pub me: Author,
    /// What can be opened where the session is; `None`: whatever this machine has.
    pub files: Option<Arc<[String]>>,
}

/// Where the session is.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum ConnectionState {
    /// In this process.
    #[default]
    Here,
    /// On a server that is being reached; how much of the session has come.
    Joining { share: Option<f32> },
    /// On a server, with these people. `waiting`: what was asked for here and not answered for a second or more.
    Joined { people: Vec<Person>, me: Author, waiting: usize },
    /// The server does not answer: what is seen is as it was. Tried again by itself in so many seconds.
    Away { why: String, seconds_away: u64, retry_in: Option<u64> },
}

impl ConnectionState {
    /// The session and its files are a server's, whether it answers or not.
    pub fn is_served(&self) -> bool {
        !matches!(self, Self::Here)
    }
}
