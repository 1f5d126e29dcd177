//! Takes a session and what is looked at, gives its views. A small trace is derived in the frame that needs
//! it; a large one on a thread, and the frame goes on with what it has.

mod frontier_cache;
mod graph_cache;
mod throttle;

pub use frontier_cache::FrontierCache;
pub use graph_cache::GraphCache;

use std::sync::Arc;

use loka_core::{
    session::Session,
    views::{Derivation, Snapshot, ViewQuery, Views},
};

use crate::{
    clock::now_ms,
    executor::Wake,
    platform::{Here, Platform as _, ViewWorker},
};
use throttle::Throttle;

/// Cells (GEMMs of all sites) that are derived without leaving the frame: a few milliseconds.
const INLINE: usize = 600;

/// Of a page's frame, in milliseconds. A part of 10,000 sites takes .1 to 12.
const SHARE: f64 = 1.0;

/// Where views come from.
pub struct ViewCache {
    worker: Option<ViewWorker<(Arc<Snapshot>, ViewQuery), Views>>,
    /// What the worker was asked last.
    asked: Option<(u64, ViewQuery)>,
    behind: bool,
    /// In a page, whose frames do the work.
    throttle: Option<Throttle>,
    /// There: what frames have made of the next views.
    begun: Option<Begun>,
    /// Milliseconds of a frame after which it leaves the next part to the next one.
    share: f64,
    /// Cells that are derived in one frame all the same.
    inline: usize,
}

struct Begun {
    derivation: Derivation,
    asked: (u64, ViewQuery),
    took: f64,
}

impl ViewCache {
    /// Everything in the frame: where there are no threads.
    pub fn inline() -> Self {
        let throttle = Here::IS_PAGE.then(Throttle::default);
        Self { worker: None, asked: None, behind: false, throttle, begun: None, share: SHARE, inline: INLINE }
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

    /// The next frame goes on with what this one began.
    pub fn is_halfway(&self) -> bool {
        self.begun.is_some()
    }

    /// Puts the newest views that there are into `views`. An error of our own comes as a line.
    pub fn refresh(&mut self, session: &Session, question: ViewQuery, views: &mut Views) -> Option<String> {
        let problem = self.take(views);
        let wanted = (session.revision(), question);
        self.behind = (views.revision, views.question) != (wanted.0, Some(question));
        if !self.behind {
            return problem;
        }
        if self.throttle.is_some() {
            self.go_on(session, question, views);
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
        *views = Views::of(&snapshot, question, views);
        (self.behind, self.asked) = (false, None);
        problem
    }

    /// In a page: a frame's share of the views. What was begun is ended, although something else is asked by now: else nothing
    /// would be seen of a threshold while it is dragged.
    fn go_on(&mut self, session: &Session, question: ViewQuery, views: &mut Views) {
        let Some(throttle) = &mut self.throttle else { return };
        let is_shown = |begun: &Begun| session.trace.as_ref().is_some_and(|trace| begun.derivation.is_of(trace));
        let mut begun = match self.begun.take().filter(is_shown) {
            Some(begun) => begun,
            None if throttle.rests(now_ms(), session.num_decisions(), question) => return,
            None => {
                let Some(snapshot) = session.snapshot() else {
                    self.behind = false;
                    return;
                };
                let derivation = Derivation::new(snapshot, question, views);
                Begun { derivation, asked: (session.num_decisions(), question), took: 0.0 }
            }
        };
        let start = now_ms();
        let share = if 3 * session.sites().len() > self.inline { self.share } else { f64::INFINITY };
        let made = loop {
            let made = begun.derivation.step(views);
            if made.is_some() || now_ms() - start > share {
                break made;
            }
        };
        let end = now_ms();
        begun.took += end - start;
        match made {
            None => self.begun = Some(begun),
            Some(newer) => {
                throttle.took(end - begun.took, end, begun.asked.0, begun.asked.1);
                *views = newer;
                self.behind = (views.revision, views.question) != (session.revision(), Some(question));
            }
        }
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use loka_core::{
        dispatch::Policy,
        model::Metric,
        session::{Command, Event},
        tables::read_results_by_site,
    };

    use super::*;

    const QUESTION: ViewQuery = ViewQuery { metric: Metric::RelL2, gemm: None, relative: false, versus: false };

    fn open(session: &mut Session) {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../sample-traces/dcnv2-ranker.results.parquet");
        let results = Box::new(read_results_by_site(path.as_ref()).unwrap());
        session.event(Event::ResultsOpened { path: path.to_owned(), results });
    }

    /// One that makes a part a frame, of a trace that is open.
    fn page() -> (Session, ViewCache, Views) {
        let mut session = Session::default();
        open(&mut session);
        let page = ViewCache { throttle: Some(Throttle::default()), share: -1.0, inline: 0, ..ViewCache::inline() };
        (session, page, Views::default())
    }

    fn take(session: &mut Session, max_error: f64) {
        let policy = Policy { max_error, ..session.document.policy.clone() };
        session.command(Command::SetPolicy { policy }).unwrap();
    }

    /// Gives how many frames it took.
    fn caught_up(page: &mut ViewCache, session: &Session, views: &mut Views) -> usize {
        let frames = (1..20).find(|_| {
            assert_eq!(page.refresh(session, QUESTION, views), None);
            !page.is_behind()
        });
        frames.unwrap()
    }

    #[test]
    fn a_page_makes_views_in_parts_and_ends_what_it_began() {
        let (mut session, mut page, mut views) = page();
        let parts = caught_up(&mut page, &session, &mut views);
        assert_eq!(parts, 6, "rows judged, the plan, its table, the sites, the grid, the quadrant");
        take(&mut session, 0.02);
        page.throttle = Some(Throttle::default());
        page.refresh(&session, QUESTION, &mut views);
        let begun = session.revision();
        take(&mut session, 0.03);
        while page.is_halfway() {
            page.refresh(&session, QUESTION, &mut views);
        }
        assert!((views.revision, page.is_behind()) == (begun, true), "of the threshold before, while it is dragged on");
        page.throttle = Some(Throttle::default());
        caught_up(&mut page, &session, &mut views);
        let whole = Views::of(&session.snapshot().unwrap(), QUESTION, &Views::default());
        assert_eq!((&views.table, &views.answer, &views.findings), (&whole.table, &whole.answer, &whole.findings));
        assert_eq!(format!("{:?}", (&views.grid, &views.quadrant)), format!("{:?}", (&whole.grid, &whole.quadrant)));
    }

    #[test]
    fn what_was_begun_of_a_trace_that_is_gone_is_let_go() {
        let (mut session, mut page, mut views) = page();
        page.refresh(&session, QUESTION, &mut views);
        assert!(page.is_halfway());
        open(&mut session);
        assert_eq!(caught_up(&mut page, &session, &mut views), 6, "from the beginning");
        assert_eq!(views.revision, session.revision());
    }
}
