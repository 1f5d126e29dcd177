//! Takes an event on its way into a session, gives what the session's client may want to do something about.

use crate::{
    review::Approval,
    session::{Event, FileKind, LogKind, Session},
};

/// What was just applied to a session.
#[derive(Clone, Debug, PartialEq)]
pub enum Applied {
    /// Nothing that asks a client for more than to be drawn.
    Input,
    /// A file was read. `refused`: the session said why it will not have it.
    Opened {
        path: String,
        kind: FileKind,
        refused: bool,
    },
    OpenFailed {
        message: String,
    },
    /// What this client asked for was refused, in one line.
    Refused(String),
    /// What a person asked to be signed, to be sent on.
    Signed(Box<Approval>),
    /// The whole session is another one: what an earlier process left, or a server's.
    Replaced {
        same_trace: bool,
    },
}

/// What is known of an event before the session takes it.
pub(super) struct Pending {
    applied: Applied,
    last_problem: u64,
}

impl Pending {
    pub fn of(event: &Event, session: &Session) -> Self {
        let opened = |path: &String, kind| Applied::Opened { path: path.clone(), kind, refused: false };
        let applied = match event {
            Event::TraceOpened { trace } => opened(&trace.path, FileKind::Trace),
            Event::ResultsOpened { path, .. } => opened(path, FileKind::Results),
            Event::PlanOpened { path, .. } => opened(path, FileKind::Plan),
            Event::OpenFailed { message } => Applied::OpenFailed { message: message.clone() },
            Event::Signed { approval: Ok(approval) } => Applied::Signed(approval.clone()),
            _ => Applied::Input,
        };
        // Rows come a thousand times a second: their log is not read.
        let last_problem = if matches!(applied, Applied::Opened { .. }) { last_problem(session) } else { 0 };
        Self { applied, last_problem }
    }

    /// After the session took it.
    pub fn applied(self, session: &Session) -> Applied {
        match self.applied {
            // A trace with sites that cannot be used is open all the same.
            Applied::Opened { path, kind, .. } if kind != FileKind::Trace => {
                Applied::Opened { path, kind, refused: last_problem(session) != self.last_problem }
            }
            applied => applied,
        }
    }
}

/// The number of the last line about something that went wrong.
fn last_problem(session: &Session) -> u64 {
    let wrong = |kind| matches!(kind, LogKind::Warning | LogKind::Error);
    session.log().entries().iter().filter(|entry| wrong(entry.kind)).map(|entry| entry.seq).max().unwrap_or(0)
}
