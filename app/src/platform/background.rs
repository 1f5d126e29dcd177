//! Work of the window itself that a frame would feel (files, dialogs, long tables): takes a closure, gives what
//! came of it in a later frame. Without threads it is done at once.

use std::sync::{
    Arc,
    mpsc::{Receiver, Sender, channel},
};

use crate::{
    executor::Wake,
    platform::{Here, Platform as _},
};

/// What came of a task.
#[derive(Clone, Debug)]
pub enum TaskResult {
    /// A person picked these files to open, or the one to write.
    Picked(Vec<String>),
    /// No file dialog can be shown here, and why.
    NoDialog(String),
    /// For the clipboard, and how it is called.
    Copy {
        text: String,
        what: String,
    },
    /// The same, once another program would get it, or why none would.
    Copied {
        what: String,
        outcome: Result<(), String>,
    },
    /// What was asked for lies where it was to be put.
    Ready,
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

/// Where background tasks report to; it wakes the window.
#[derive(Clone)]
pub struct Reports {
    sender: Sender<TaskResult>,
    wake: Option<Wake>,
}

impl Reports {
    pub fn send(&self, done: TaskResult) {
        // A closed channel means that the window is gone, and nobody is left to tell.
        drop(self.sender.send(done));
        if let Some(wake) = &self.wake {
            wake();
        }
    }
}

pub struct BackgroundTasks {
    reports: Reports,
    receiver: Receiver<TaskResult>,
}

impl BackgroundTasks {
    /// Everything is done at once: in tests.
    pub fn inline() -> Self {
        let (sender, receiver) = channel();
        Self { reports: Reports { sender, wake: None }, receiver }
    }

    /// Beside the frames, where there are threads; what is done wakes the window.
    pub fn waking(wake: Wake) -> Self {
        let Self { reports, receiver } = Self::inline();
        Self { reports: Reports { wake: Some(wake), ..reports }, receiver }
    }

    pub fn reports(&self) -> Reports {
        self.reports.clone()
    }

    /// Everything is done at once.
    pub fn is_inline(&self) -> bool {
        self.reports.wake.is_none()
    }

    pub fn poll(&self) -> Option<TaskResult> {
        self.receiver.try_recv().ok()
    }

    /// Runs `work` on a thread of that name. A panic in it is a line for the person.
    pub fn run(&self, name: &str, work: impl FnOnce() -> Option<TaskResult> + Send + 'static) {
        let reports = self.reports();
        let guarded = move || {
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            let done = done.unwrap_or_else(|cause| Some(TaskResult::Failed(crate::executor::panic_text(&*cause))));
            if let Some(done) = done {
                reports.send(done);
            }
        };
        if self.is_inline() {
            return guarded();
        }
        if let Err(line) = Here::spawn(name, guarded) {
            self.reports.send(TaskResult::Failed(line));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_reports_and_a_panic_is_a_line() {
        let background = BackgroundTasks::inline();
        background.run("loka-test", || Some(TaskResult::Picked(vec!["a".to_owned()])));
        assert!(matches!(background.poll(), Some(TaskResult::Picked(paths)) if paths == ["a"]));
        background.run("loka-test", || panic!("boom"));
        assert!(matches!(background.poll(), Some(TaskResult::Failed(text)) if text.ends_with("boom")));
        assert!(background.poll().is_none());
    }

    #[test]
    fn a_thread_wakes_the_window() {
        let (woken, waits) = channel();
        let background = BackgroundTasks::waking(Arc::new(move || woken.send(()).unwrap_or(())));
        background.run("loka-test", || Some(TaskResult::Failed("no".to_owned())));
        waits.recv_timeout(std::time::Duration::from_secs(20)).unwrap();
        assert!(matches!(background.poll(), Some(TaskResult::Failed(_))));
    }
}
