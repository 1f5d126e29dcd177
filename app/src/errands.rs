//! Work of the window itself that a frame would feel (files, dialogs, long tables): takes a closure, gives what
//! came of it in a later frame. Without threads it is done at once.

use std::sync::{
    Arc,
    mpsc::{Receiver, Sender, channel},
};

use crate::executor::Wake;

/// What came of an errand.
#[derive(Clone, Debug)]
pub enum Done {
    /// A person picked these files to open, or the one to write.
    Picked(Vec<String>),
    /// No file dialog can be shown here, and why.
    NoDialog(String),
    /// For the clipboard, and how it is called.
    Copy {
        text: String,
        what: String,
    },
    /// The window as it was drawn.
    Shot(Arc<egui::ColorImage>),
    Written {
        path: String,
        what: String,
    },
    /// Which of the recent files are missing, with the reason.
    Missing(Vec<(String, String)>),
    /// The settings are stored, or why not.
    Stored(Result<(), String>),
    Failed(String),
}

/// Where errands report to; it wakes the window.
#[derive(Clone)]
pub struct Reports {
    sender: Sender<Done>,
    wake: Option<Wake>,
}

impl Reports {
    pub fn send(&self, done: Done) {
        // A closed channel means that the window is gone, and nobody is left to tell.
        drop(self.sender.send(done));
        if let Some(wake) = &self.wake {
            wake();
        }
    }
}

pub struct Errands {
    reports: Reports,
    receiver: Receiver<Done>,
}

impl Errands {
    /// Everything is done at once: where there are no threads, and in tests.
    pub fn inline() -> Self {
        let (sender, receiver) = channel();
        Self { reports: Reports { sender, wake: None }, receiver }
    }

    #[cfg(not(target_arch = "wasm32"))]
    pub fn threaded(wake: Wake) -> Self {
        let Self { reports, receiver } = Self::inline();
        Self { reports: Reports { wake: Some(wake), ..reports }, receiver }
    }

    /// Done at once as well; what is told later wakes the window.
    #[cfg(target_arch = "wasm32")]
    pub fn waking(wake: Wake) -> Self {
        let Self { reports, receiver } = Self::inline();
        Self { reports: Reports { wake: Some(wake), ..reports }, receiver }
    }

    pub fn reports(&self) -> Reports {
        self.reports.clone()
    }

    pub fn poll(&self) -> Option<Done> {
        self.receiver.try_recv().ok()
    }

    /// Runs `work` on a thread of that name. A panic in it is a line for the person.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn run(&self, name: &str, work: impl FnOnce() -> Option<Done> + Send + 'static) {
        let reports = self.reports();
        let guarded = move || {
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            let done = done.unwrap_or_else(|cause| Some(Done::Failed(crate::executor::panic_text(&*cause))));
            if let Some(done) = done {
                reports.send(done);
            }
        };
        if self.reports.wake.is_none() {
            return guarded();
        }
        if let Err(error) = std::thread::Builder::new().name(name.to_owned()).spawn(guarded) {
            self.reports.send(Done::Failed(format!("no thread could be started: {error}")));
        }
    }

    #[cfg(target_arch = "wasm32")]
    pub fn run(&self, _: &str, work: impl FnOnce() -> Option<Done>) {
        if let Some(done) = work() {
            self.reports.send(done);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_errand_reports_and_a_panic_is_a_line() {
        let errands = Errands::inline();
        errands.run("loka-test", || Some(Done::Picked(vec!["a".to_owned()])));
        assert!(matches!(errands.poll(), Some(Done::Picked(paths)) if paths == ["a"]));
        errands.run("loka-test", || panic!("boom"));
        assert!(matches!(errands.poll(), Some(Done::Failed(text)) if text.ends_with("boom")));
        assert!(errands.poll().is_none());
    }

    #[test]
    fn a_thread_wakes_the_window() {
        let (woken, waits) = channel();
        let errands = Errands::threaded(Arc::new(move || woken.send(()).unwrap_or(())));
        errands.run("loka-test", || Some(Done::Failed("no".to_owned())));
        waits.recv_timeout(std::time::Duration::from_secs(20)).unwrap();
        assert!(matches!(errands.poll(), Some(Done::Failed(_))));
    }
}
