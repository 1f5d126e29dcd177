//! The end of the server: takes the signal, gives it to everything under way, and waits for all of it.

use tokio::sync::{mpsc, watch};

/// Held by everything that wants to end well.
#[derive(Clone)]
pub struct Shutdown {
    signal: watch::Receiver<bool>,
    /// Never sent on: the last one that is dropped tells that nobody is left.
    _present: mpsc::Sender<()>,
}

/// The other side.
pub struct Ender {
    signal: watch::Sender<bool>,
    left: mpsc::Receiver<()>,
}

pub fn shutdown() -> (Ender, Shutdown) {
    let (signal, heard) = watch::channel(false);
    let (present, left) = mpsc::channel(1);
    (Ender { signal, left }, Shutdown { signal: heard, _present: present })
}

impl Shutdown {
    /// Returns when the end has begun.
    pub async fn began(&self) {
        let mut signal = self.signal.clone();
        // A closed channel is an end, too.
        drop(signal.wait_for(|ended| *ended).await);
    }
}

impl Ender {
    /// Tells everyone, and waits until all are gone or the time is over.
    pub async fn end(mut self, within: std::time::Duration) {
        self.signal.send_replace(true);
        drop(tokio::time::timeout(within, self.left.recv()).await);
    }
}
