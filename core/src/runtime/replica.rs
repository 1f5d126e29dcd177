//! The copy of a session that somebody else drives: takes what its server tells, gives what was applied; takes what a
//! window does for itself alone, gives what is to be carried out here.

use crate::session::{
    Command, Effect, Event, FileKind, NoticeKind, SavedSession, Session,
    shared::{CommandContext, LinkMessage},
};

use super::{Applied, OpenQueue, applied::Pending};

#[derive(Default)]
pub struct Replica {
    session: Session,
    opening: OpenQueue,
}

impl Replica {
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Applies what the server told, in its order.
    pub fn apply(&mut self, news: LinkMessage) -> Applied {
        match news {
            LinkMessage::Event(event) => self.event(*event),
            LinkMessage::Command { by, seq, command } => {
                // Carried out there, with all that it asked for.
                drop(self.session.command_by(&by, seq, *command));
                Applied::Input
            }
            LinkMessage::State(saved) => self.replace(*saved),
            LinkMessage::Refused(line) => {
                self.session.notify(NoticeKind::Error, line.clone());
                Applied::Refused(line)
            }
        }
    }

    /// A window's own command, which changes nothing that others see: gives what is to be done for it. `by` has the time,
    /// which a signature is dated by.
    pub fn private(&mut self, by: &CommandContext, command: Command) -> Vec<Effect> {
        self.session.command_by(by, 0, command).unwrap_or_else(|error| {
            self.session.notify(NoticeKind::Error, error.to_string());
            Vec::new()
        })
    }

    /// Takes files to open; gives what has to be asked about them first.
    pub fn open(&mut self, paths: Vec<String>) -> Vec<Command> {
        self.opening.add(paths)
    }

    /// The next file to open, when the one before is there.
    pub fn next_open(&mut self) -> Option<Command> {
        self.opening.next(&self.session)
    }

    fn event(&mut self, event: Event) -> Applied {
        let pending = Pending::of(&event, &self.session);
        let not_ours = self.opening.event(&event);
        self.session.event(event);
        if let Some(line) = not_ours {
            self.session.notify(NoticeKind::Error, line);
        }
        pending.applied(&self.session)
    }

    /// Another session, or this one after a time away.
    fn replace(&mut self, saved: SavedSession) -> Applied {
        let session = Session::restored(saved).in_place_of(&self.session);
        let same_trace = session.trace_path() == self.session.trace_path();
        self.session = session;
        self.opening.answered(FileKind::Trace);
        Applied::Replaced { same_trace }
    }
}

#[cfg(test)]
mod tests;
