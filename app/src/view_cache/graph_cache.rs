//! Takes the latest views, gives the graph of their plan: only while it is looked at, and that of a large trace on a thread of its
//! own; the strip goes on with what it has.

use std::sync::Arc;

use loka_core::views::{Graph, GraphBasis, PlanTable, Views};

use super::INLINE;
use crate::{executor::Wake, platform::ViewWorker};

/// A graph and what it was made of; nothing at first.
#[derive(Clone, Debug, Default)]
struct MadeGraph {
    basis: Option<GraphBasis>,
    graph: Arc<Graph>,
}

impl MadeGraph {
    fn again(basis: GraphBasis, last: &Self) -> Self {
        let last = last.basis.as_ref().map(|basis| (basis, &*last.graph));
        Self { graph: Arc::new(Graph::of(&basis, last)), basis: Some(basis) }
    }
}

/// Where the graph comes from, and the latest one.
#[derive(Default)]
pub struct GraphCache {
    worker: Option<ViewWorker<GraphBasis, MadeGraph>>,
    made: MadeGraph,
    /// The plan that the worker was asked about last.
    asked: Option<Arc<PlanTable>>,
    behind: bool,
}

impl GraphCache {
    /// With a thread for what is large, where there are threads.
    pub fn threaded(wake: Wake) -> Self {
        Self { worker: ViewWorker::start("loka-graph", wake, MadeGraph::again), ..Self::default() }
    }

    /// The latest that was made; `None`: none yet.
    pub fn graph(&self) -> Option<&Arc<Graph>> {
        self.made.basis.as_ref().map(|_| &self.made.graph)
    }

    /// True while what is looked at is of an earlier moment.
    pub fn is_behind(&self) -> bool {
        self.behind
    }

    /// Nobody looks.
    pub fn rest(&mut self) {
        self.behind = false;
    }

    /// Another trace: no box of the last one is shown meanwhile.
    pub fn forget(&mut self) {
        (self.made, self.asked, self.behind) = (MadeGraph::default(), None, false);
    }

    /// Brings the graph up to date with the views, or has that begun. An error of our own comes as a line.
    pub fn refresh(&mut self, views: &Views) -> Option<String> {
        let problem = self.take(views);
        let Some(snapshot) = &views.snapshot else { return problem };
        let is_of = |known: Option<&Arc<PlanTable>>| known.is_some_and(|table| Arc::ptr_eq(table, &views.table));
        self.behind = !is_of(self.made.basis.as_ref().map(|basis| &basis.table));
        if !self.behind || is_of(self.asked.as_ref()) {
            return problem;
        }
        let basis = GraphBasis {
            snapshot: snapshot.clone(),
            plan: views.plan.clone(),
            table: views.table.clone(),
            verdicts: views.verdicts.clone(),
        };
        match &self.worker {
            Some(worker) if 3 * snapshot.sites().len() > INLINE => {
                self.asked = Some(basis.table.clone());
                worker.ask(basis);
            }
            _ => (self.made, self.behind) = (MadeGraph::again(basis, &self.made), false),
        }
        problem
    }

    fn take(&mut self, views: &Views) -> Option<String> {
        let worker = self.worker.as_ref()?;
        match worker.take()? {
            Ok(newer) => {
                let trace = |basis: &GraphBasis| Arc::as_ptr(&basis.snapshot.trace);
                let shown = views.snapshot.as_ref().map(|snapshot| Arc::as_ptr(&snapshot.trace));
                // Of a trace that was closed meanwhile it is of no use.
                let old = match newer.basis.as_ref().map(trace) == shown {
                    true => std::mem::replace(&mut self.made, newer),
                    false => newer,
                };
                worker.retire(old);
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
