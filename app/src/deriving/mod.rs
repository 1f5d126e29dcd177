//! Takes a session and what is looked at, gives its views. A small trace is derived in the frame that needs
//! it; a large one on a thread, and the frame goes on with what it has.

#[cfg(any(target_arch = "wasm32", test))]
mod pace;
mod sweeps;
#[cfg(not(target_arch = "wasm32"))]
mod worker;

pub use sweeps::Sweeps;

use std::sync::Arc;

use loka_core::{
    session::Session,
    views::{Question, Snapshot, Views},
};

/// Cells (GEMMs of all sites) that are derived without leaving the frame: a few milliseconds.
#[cfg(not(target_arch = "wasm32"))]
const INLINE: usize = 600;

/// Where views come from.
pub struct Deriver {
    #[cfg(not(target_arch = "wasm32"))]
    worker: Option<worker::Worker<(Arc<Snapshot>, Question), Views>>,
    /// What the worker was asked last.
    asked: Option<(u64, Question)>,
    behind: bool,
    #[cfg(target_arch = "wasm32")]
    pace: pace::Pace,
}

impl Deriver {
    /// Everything in the frame: where there are no threads.
    pub fn inline() -> Self {
        Self {
            #[cfg(not(target_arch = "wasm32"))]
            worker: None,
            asked: None,
            behind: false,
            #[cfg(target_arch = "wasm32")]
            pace: pace::Pace::default(),
        }
    }

    /// With a thread for what is large; `wake` is called from it when views are ready.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn threaded(wake: crate::executor::Wake) -> Self {
        let answer =
            |(snapshot, question): (Arc<Snapshot>, Question), last: &Views| Views::of(&snapshot, question, last);
        Self { worker: Some(worker::Worker::new("loka-views", wake, answer)), ..Self::inline() }
    }

    pub fn is_behind(&self) -> bool {
        self.behind
    }

    /// Puts the newest views that there are into `views`. An error of our own comes as a line.
    pub fn refresh(&mut self, session: &Session, question: Question, views: &mut Views) -> Option<String> {
        let problem = self.take(views);
        let wanted = (session.revision(), question);
        self.behind = (views.revision, views.question) != (wanted.0, Some(question));
        if !self.behind {
            return problem;
        }
        #[cfg(target_arch = "wasm32")]
        if self.pace.rests(crate::clock::now_ms(), session.num_decisions(), question) {
            return problem;
        }
        let Some(snapshot) = session.trace.as_ref().and_then(|_| self.snapshot(session, wanted)) else {
            self.behind &= session.trace.is_some();
            return problem;
        };
        #[cfg(not(target_arch = "wasm32"))]
        if 3 * session.sites().len() > INLINE
            && let Some(worker) = &self.worker
        {
            worker.ask((snapshot, question));
            return problem;
        }
        #[cfg(target_arch = "wasm32")]
        let start = crate::clock::now_ms();
        *views = Views::of(&snapshot, question, views);
        #[cfg(target_arch = "wasm32")]
        self.pace.took(start, crate::clock::now_ms(), session.num_decisions(), question);
        (self.behind, self.asked) = (false, None);
        problem
    }

    /// `None`: it was asked already, and the answer is on its way.
    fn snapshot(&mut self, session: &Session, wanted: (u64, Question)) -> Option<Arc<Snapshot>> {
        if self.asked == Some(wanted) {
            return None;
        }
        self.asked = Some(wanted);
        session.snapshot()
    }

    #[cfg(not(target_arch = "wasm32"))]
    fn take(&mut self, views: &mut Views) -> Option<String> {
        match self.worker.as_ref()?.take()? {
            Ok(newer) => {
                *views = newer;
                None
            }
            Err(problem) => {
                // What failed once on its thread is not asked of it again.
                (self.worker, self.asked) = (None, None);
                Some(problem)
            }
        }
    }

    #[cfg(target_arch = "wasm32")]
    fn take(&mut self, _: &mut Views) -> Option<String> {
        None
    }
}
