//! A session that this process drives.

use loka_core::{
    runtime::{Applied, Driver, Executor},
    session::{Command, Session, shared::Author},
};

use super::{ConnectionState, Link, Status, Submission};
use crate::clock::now;

pub struct InProcess {
    driver: Driver,
    /// Who is at the window now: a key may have been made since it was opened.
    who: Option<fn() -> Author>,
}

impl InProcess {
    pub fn new(executor: impl Executor + 'static) -> Self {
        Self { driver: Driver::new(Box::new(executor), now), who: None }
    }

    /// Commands of this process are that person's.
    #[must_use]
    pub fn with_author(self, author: Author) -> Self {
        Self { driver: self.driver.with_author(author), ..self }
    }

    /// The same, asked again before something is signed.
    #[must_use]
    pub fn with_author_of(self, who: fn() -> Author) -> Self {
        Self { who: Some(who), ..self.with_author(who()) }
    }
}

impl Link for InProcess {
    fn session(&self) -> &Session {
        self.driver.session()
    }

    fn submit(&mut self, what: Submission) {
        match what {
            Submission::Command(command) => {
                // Signing is by the name of the key, which is the person's own from then on.
                if let (Command::Sign { .. }, Some(who)) = (&command, self.who) {
                    self.driver.set_author(who());
                }
                self.driver.ask(command);
            }
            Submission::Open(paths) => self.driver.open(paths),
            Submission::Note(event) => self.driver.note(event),
            // There is nobody else, and nobody to be reached.
            Submission::Look(_) | Submission::Retry => {}
        }
    }

    fn poll(&mut self) -> Option<Applied> {
        self.driver.poll()
    }

    fn status(&self) -> Status {
        let (connection, files) = (ConnectionState::Here, None);
        Status { connection, busy: self.driver.busy(), me: self.driver.author().clone(), files }
    }
}
