//! Takes a session and what is looked at, gives its views. A small trace is derived in the frame that needs
//! it; a large one on a thread, and the frame goes on with what it has.

mod frontier_cache;
mod throttle;

pub use frontier_cache::FrontierCache;

use std::sync::Arc;

use loka_core::{
    session::Session,
    views::{Snapshot, ViewQuery, Views},
};

use crate::{
    clock::now_ms,
    executor::Wake,
    platform::{Here, Platform as _, ViewWorker},
};
use throttle::Throttle;

/// Cells (GEMMs of all sites) that are derived without leaving the frame: a few milliseconds.
const INLINE: usize = 600;

/// Where views come from.
pub struct ViewCache {
    worker: Option<ViewWorker<(Arc<Snapshot>, ViewQuery), Views>>,
    /// What the worker was asked last.
    asked: Option<(u64, ViewQuery)>,
    behind: bool,
    /// In a page, whose frames do the work.
    throttle: Option<Throttle>,
}

impl ViewCache {
    /// Everything in the frame: where there are no threads.
    pub fn inline() -> Self {
        Self { worker: None, asked: None, behind: false, throttle: Here::IS_PAGE.then(Throttle::default) }
    }

    /// With a thread for what is large, where there are threads; `wake` is called from it when views are ready.
    pub fn threaded(wake: Wake) -> Self {
        let answer =
            |(snapshot, question): (Arc<Snapshot>, ViewQuery), last: &Views| Views::of(&snapshot, question, last);
        Self { worker: ViewWorker::start("loka-views", wake, answer), ..Self::inline() }
    }

    pub fn is_behind(&self) -> bool {
        self.behind
    }

    /// Puts the newest views that there are into `views`. An error of our own comes as a line.
    pub fn refresh(&mut self, session: &Session, question: ViewQuery, views: &mut Views) -> Option<String> {
        let problem = self.take(views);
        let wanted = (session.revision(), question);
        self.behind = (views.revision, views.question) != (wanted.0, Some(question));
        if !self.behind {
            return problem;
        }
        if self.throttle.as_ref().is_some_and(|throttle| throttle.rests(now_ms(), session.num_decisions(), question)) {
            return problem;
        }
        let Some(snapshot) = session.trace.as_ref().and_then(|_| self.snapshot(session, wanted)) else {
            self.behind &= session.trace.is_some();
            return problem;
        };
        if 3 * session.sites().len() > INLINE
            && let Some(worker) = &self.worker
        {
            worker.ask((snapshot, question));
            return problem;
        }
        let start = now_ms();
        *views = Views::of(&snapshot, question, views);
        if let Some(throttle) = &mut self.throttle {
            throttle.took(start, now_ms(), session.num_decisions(), question);
        }
        (self.behind, self.asked) = (false, None);
        problem
    }

    /// `None`: it was asked already, and the answer is on its way.
    fn snapshot(&mut self, session: &Session, wanted: (u64, ViewQuery)) -> Option<Arc<Snapshot>> {
        if self.asked == Some(wanted) {
            return None;
        }
        self.asked = Some(wanted);
        session.snapshot()
    }

    fn take(&mut self, views: &mut Views) -> Option<String> {
        let worker = self.worker.as_ref()?;
        match worker.take()? {
            Ok(newer) => {
                worker.retire(std::mem::replace(views, newer));
                None
            }
            Err(problem) => {
                // What failed once on its thread is not asked of it again.
                (self.worker, self.asked) = (None, None);
                Some(problem)
            }
        }
    }
}
