//! A session that this process drives.

use loka_core::{
    runtime::{Applied, Driver, Executor},
    session::{Session, shared::Author},
};

use super::{ConnectionState, Link, Status, Submission};
use crate::clock::now;

pub struct InProcess(Driver);

impl InProcess {
    pub fn new(executor: impl Executor + 'static) -> Self {
        Self(Driver::new(Box::new(executor), now))
    }

    /// Commands of this process are that person's.
    #[must_use]
    pub fn with_author(self, author: Author) -> Self {
        Self(self.0.with_author(author))
    }
}

impl Link for InProcess {
    fn session(&self) -> &Session {
        self.0.session()
    }

    fn submit(&mut self, what: Submission) {
        match what {
            Submission::Command(command) => self.0.ask(command),
            Submission::Open(paths) => self.0.open(paths),
            Submission::Note(event) => self.0.note(event),
            // There is nobody else, and nobody to be reached.
            Submission::Look(_) | Submission::Retry => {}
        }
    }

    fn poll(&mut self) -> Option<Applied> {
        self.0.poll()
    }

    fn status(&self) -> Status {
        let (connection, files) = (ConnectionState::Here, None);
        Status { connection, busy: self.0.busy(), me: self.0.author().clone(), files }
    }
}
