//! Takes a session, gives the frontier's curves: on a thread of their own, so that a policy's two dozen
//! thresholds never hold up a verdict; only while somebody looks at them.

use std::sync::Arc;

use loka_core::{
    session::Session,
    views::{FrontierView, Snapshot},
};

use crate::{executor::Wake, platform::ViewWorker};

/// Where curves come from, and the latest of them.
pub struct FrontierCache {
    worker: Option<ViewWorker<Arc<Snapshot>, Arc<FrontierView>>>,
    view: Arc<FrontierView>,
    /// The revision that the worker was asked about last.
    asked: Option<u64>,
    behind: bool,
}

impl FrontierCache {
    /// Everything in the frame: where there are no threads.
    pub fn inline() -> Self {
        Self { worker: None, view: Arc::default(), asked: None, behind: false }
    }

    pub fn threaded(wake: Wake) -> Self {
        let answer = |snapshot: Arc<Snapshot>, last: &Arc<FrontierView>| Arc::new(FrontierView::of(&snapshot, last));
        Self { worker: ViewWorker::start("loka-frontier", wake, answer), ..Self::inline() }
    }

    pub fn view(&self) -> &Arc<FrontierView> {
        &self.view
    }

    pub fn is_behind(&self) -> bool {
        self.behind
    }

    /// Another trace: no curve of the last one is shown meanwhile.
    pub fn forget(&mut self) {
        (self.view, self.asked) = (Arc::default(), None);
    }

    /// Brings the curves up to date, or has that begun. An error of our own comes as a line.
    pub fn refresh(&mut self, session: &Session) -> Option<String> {
        let problem = self.take();
        let now = session.revision();
        self.behind = self.view.revision != now && session.trace.is_some();
        if !self.behind || self.asked == Some(now) {
            return problem;
        }
        self.asked = Some(now);
        let Some(snapshot) = session.snapshot() else { return problem };
        if let Some(worker) = &self.worker {
            worker.ask(snapshot);
            return problem;
        }
        self.view = Arc::new(FrontierView::of(&snapshot, &self.view));
        self.behind = false;
        problem
    }

    fn take(&mut self) -> Option<String> {
        let worker = self.worker.as_ref()?;
        match worker.take()? {
            Ok(newer) => {
                worker.retire(std::mem::replace(&mut self.view, newer));
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
