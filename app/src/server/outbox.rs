//! Takes what is for one client alone, from whoever answers it; gives it to that client's writer, one after another.

use std::sync::Arc;

use bytes::Bytes;
use loka_core::session::shared::Author;
use tokio::sync::{Notify, mpsc};

use super::{limits, shared_session::Subscription};

/// What is for one client alone.
pub enum Out {
    Message(Bytes),
    Enter(Box<Entered>),
    /// No session: what it is told instead.
    Leave(Vec<Bytes>),
}

/// A place in a session.
pub struct Entered {
    pub subscription: Subscription,
    /// As whom.
    pub me: Author,
    pub welcome: Bytes,
    /// The last step that the client has; `None`: it needs the whole session.
    pub cursor: Option<u64>,
    /// What can be opened in the folder.
    pub files: Arc<[String]>,
}

/// Where answers for one client are put down. Never waits.
#[derive(Clone)]
pub struct Outbox {
    sender: mpsc::Sender<Out>,
    full: Arc<Notify>,
}

impl Outbox {
    /// With where it is read, and what is notified once it is full: of a client that asks and does not read.
    pub fn new() -> (Self, mpsc::Receiver<Out>, Arc<Notify>) {
        let (sender, out) = mpsc::channel(limits::ANSWERS_WAITING);
        let full = Arc::new(Notify::new());
        (Self { sender, full: full.clone() }, out, full)
    }

    /// Of a client that is gone.
    #[cfg(test)]
    pub fn nowhere() -> Self {
        Self { sender: mpsc::channel(1).0, full: Arc::default() }
    }

    pub fn send(&self, message: Bytes) {
        // A closed one is of a client that is gone.
        if let Err(mpsc::error::TrySendError::Full(_)) = self.sender.try_send(Out::Message(message)) {
            self.full.notify_one();
        }
    }

    /// Of a client that a test plays.
    #[cfg(test)]
    pub fn played() -> (Self, mpsc::Receiver<Out>) {
        let (outbox, out, _) = Self::new();
        (outbox, out)
    }

    /// Waits until the writer has come so far. `false`: the client is gone.
    pub async fn put(&self, out: Out) -> bool {
        self.sender.send(out).await.is_ok()
    }
}
