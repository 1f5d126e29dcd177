//! The session that an assistant asks of: one of this process, driven as a window drives its own, or one of a server,
//! joined as a window joins it. Takes commands and what happens, gives the session.

use loka_core::{
    runtime::{Applied, Driver},
    session::{
        Command, Session,
        shared::{Author, CommandContext, Person, Place},
    },
};

use crate::{
    clock::now,
    link::{ConnectionState, Link as _, RemoteLink, Submission},
    platform::ThreadExecutor,
};

/// Notices that are kept: nobody takes them off a window here.
const NOTICES: usize = 50;

pub enum Seat {
    /// `author`: whose commands the journal keeps.
    Own {
        driver: Box<Driver>,
        author: Author,
    },
    Joined(Box<RemoteLink>),
}

impl Seat {
    /// Opens these files, the trace among them first.
    pub fn open(executor: ThreadExecutor, author: Author, paths: Vec<String>) -> Self {
        let mut driver = Driver::new(Box::new(executor), now);
        driver.open(paths);
        Self::Own { driver: Box::new(driver), author }
    }

    pub fn session(&self) -> &Session {
        match self {
            Self::Own { driver, .. } => driver.session(),
            Self::Joined(link) => link.session(),
        }
    }

    pub fn is_joined(&self) -> bool {
        matches!(self, Self::Joined(_))
    }

    /// Takes up all that happened; the refusals of what was asked for here come with it.
    pub fn drive(&mut self) -> Vec<String> {
        let mut refused = Vec::new();
        // Nobody signs here: what else there is to take up is not for this.
        let mut take = |applied| {
            if let Applied::Refused(line) = applied {
                refused.push(line);
            }
        };
        match self {
            Self::Own { driver, .. } => {
                while let Some(applied) = driver.poll() {
                    take(applied);
                }
                driver.keep_notices(NOTICES);
            }
            Self::Joined(link) => {
                while let Some(applied) = link.poll() {
                    take(applied);
                }
                if link.session().notices.iter().count() > NOTICES {
                    link.submit(Submission::Command(Command::DismissNotices));
                }
            }
        }
        refused
    }

    /// `Ok`: done, or on its way ([`Self::num_waiting`]).
    pub fn submit(&mut self, command: Command) -> Result<(), String> {
        match self {
            Self::Own { driver, author } => {
                let number = driver.ordered().heard(author.key) + 1;
                let by = CommandContext { author: author.clone(), number, seen: 0, at: now() };
                driver.command(by, command).map_err(|error| error.to_string())
            }
            Self::Joined(link) => {
                link.submit(Submission::Command(command));
                Ok(())
            }
        }
    }

    /// Commands that a server did not answer yet.
    pub fn num_waiting(&self) -> usize {
        match self {
            Self::Own { .. } => 0,
            Self::Joined(link) => link.num_waiting(),
        }
    }

    /// What is decided is on the disk, or cannot be for now.
    pub fn flush(&self) {
        if let Self::Own { driver, .. } = self {
            driver.flush();
        }
    }

    /// What has to end before a question has its answer: files being opened, a session on its way.
    pub fn under_way(&self) -> Option<String> {
        match self {
            Self::Own { driver, .. } => driver.busy(),
            Self::Joined(link) => match link.status().connection {
                ConnectionState::Joining { .. } => Some("the session is on its way".to_owned()),
                _ if link.awaits_trace() => Some("the server opens the trace".to_owned()),
                // The list comes after the session, and this one is on it.
                ConnectionState::Joined { people, me, .. }
                    if link.session().trace.is_some() && !people.iter().any(|person| person.key == me.key) =>
                {
                    Some("the list of who is there is on its way".to_owned())
                }
                _ => None,
            },
        }
    }

    /// Why there is no session to ask; `None`: there is, or it may still come.
    pub fn problem(&self) -> Option<String> {
        let Self::Joined(link) = self else { return None };
        match link.status().connection {
            ConnectionState::Away { why, .. } => Some(format!("the served session cannot be reached: {why}")),
            _ => None,
        }
    }

    /// Names that the server has to open, where no trace was chosen.
    pub fn files(&self) -> Vec<String> {
        match self {
            Self::Own { .. } => Vec::new(),
            Self::Joined(link) => link.status().files.map(|files| files.to_vec()).unwrap_or_default(),
        }
    }

    pub fn me(&self) -> Author {
        match self {
            Self::Own { author, .. } => author.clone(),
            Self::Joined(link) => link.status().me,
        }
    }

    /// Who else looks on.
    pub fn people(&self) -> Vec<Person> {
        match self {
            Self::Own { .. } => Vec::new(),
            Self::Joined(link) => match link.status().connection {
                ConnectionState::Joined { people, me, .. } => {
                    people.into_iter().filter(|person| person.key != me.key).collect()
                }
                _ => Vec::new(),
            },
        }
    }

    /// Others see where the assistant looks.
    pub fn look(&mut self, place: Place) {
        if let Self::Joined(link) = self {
            link.submit(Submission::Look(place));
        }
    }
}
