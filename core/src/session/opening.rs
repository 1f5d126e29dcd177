//! A trace or results that were opened: what of the state goes, what stays.
//!
//! What names sites of the trace before goes with it: rows, overrides, mods of single sites, steps of undo, the review,
//! what was looked into, the baseline. What a person works by stays: policy, runtime, the mods of all sites, the engine.
//! Rows and plans of a file have to be of the open trace, which they name by its digest.

use std::sync::Arc;

use crate::{
    engine::contexts,
    model::{ResultsBySite, SiteIndex, SiteMods, visible},
    plan::Plan,
    views::{BaselinePlan, OpenedTrace},
};

use super::{
    Circumstances, CommandError, History, LogKind, NoticeKind, Reviewing, SeriesState, Session, contexts::Uniform,
    counted,
};

/// Unusable sites that are told one by one; of more, a count.
const TOLD: usize = 3;

impl Session {
    /// Takes the place of the trace before. Sites that cannot be used are told, and the trace is open all the same.
    pub(super) fn opened(&mut self, trace: OpenedTrace) {
        let problems = &trace.meta.problems;
        for (site, reason) in problems.iter().take(TOLD) {
            self.notices.tell(NoticeKind::Warning, format!("{site} cannot be used: {reason}"));
        }
        if problems.len() > TOLD {
            let more = problems.len() - TOLD;
            self.notices
                .tell(NoticeKind::Warning, format!("{more} more sites cannot be used: they are marked in the list"));
        }
        // A plan changes sites alone: whoever hopes for more should know before anything is probed.
        if let Some(warning) = trace.manifest().flop_coverage().ok().and_then(|coverage| coverage.warning()) {
            self.notices.tell(NoticeKind::Warning, visible(&warning));
        }
        // Rows are kept by the numbers of this index, so that none may outlive it.
        self.sets.open(Arc::new(SiteIndex::new(&trace.manifest().sites)));
        let (path, sites) = (&trace.path, counted(trace.manifest().sites.len(), "site"));
        self.notices.record(LogKind::File, format!("Opened {}, {sites}: {path}", trace.name));
        // Shared with every snapshot: a view may still be made of the trace before.
        self.trace = Some(Arc::new(trace));
        self.results_file = None;
        self.idle_runs.clear();
        self.inspections.clear();
        // What still comes of a run finds none here that it belongs to.
        (self.run, self.measuring) = (None, None);
        (self.other_plan, self.other_results) = (None, None);
        self.other_contexts = Arc::default();
        self.show_chosen_if_empty();
        self.document.overrides.clear();
        // Exceptions name sites of the trace that was open.
        self.document.mods = SiteMods::from(self.document.mods.of_others().clone());
        self.contexts = contexts(self.sites(), &self.document.mods).into();
        // An undo would bring back overrides of sites that are no longer there.
        self.history = History::default();
        // Marks and signatures were of the other plan; versions count from 1 again.
        self.reviewing = Reviewing::default();
        self.series = SeriesState::NotAsked;
        self.revision += 1;
    }

    /// Comes after the trace, since all of its bytes are read for it. Dropped where that trace is no longer the open one.
    pub(super) fn digested(&mut self, path: &str, digest: String) {
        if let Some(trace) = self.trace.as_mut().filter(|trace| trace.path == path) {
            // Snapshots that hold the trace keep it as it was.
            Arc::make_mut(trace).meta.trace_digest = digest;
        }
    }

    /// A plan is compared with the trace that it was made for, and with no other. Where it is refused, the baseline
    /// before stays.
    pub(super) fn take_plan(&mut self, path: String, plan: Box<Plan>) {
        let problem = match &self.trace {
            None => Some("a plan is compared with its trace: open that first"),
            // What a person asked for twice must not be lost to a digest that is still under way.
            Some(trace) if trace.meta.trace_digest.is_empty() => None,
            Some(trace) => (trace.meta.trace_digest != plan.trace_digest).then_some("this plan is of another trace"),
        };
        if let Some(problem) = problem {
            return self.notices.tell(NoticeKind::Error, format!("{problem}: {path}"));
        }
        self.notices.record(LogKind::File, format!("Opened plan {} to compare with: {path}", plan.name));
        drop(self.compare_with(Some((path, Arc::new(BaselinePlan::Read(plan))))));
    }

    /// Rows of an earlier probe. Without an open trace they bring what they know of theirs, which can be looked at and not
    /// probed; with one they have to be of it. Rows of the same kernels under the same mods are replaced, and all are shown,
    /// whichever engine is chosen.
    pub(super) fn take_results(&mut self, path: &str, results: ResultsBySite) {
        match &self.trace {
            Some(trace) if trace.meta.trace_digest.is_empty() => {
                return self.notices.tell(NoticeKind::Warning, CommandError::DigestPending.to_string());
            }
            Some(trace) if trace.meta.trace_digest != results.meta.trace_digest => {
                return self.notices.tell(NoticeKind::Error, format!("these results are of another trace: {path}"));
            }
            // What was timed on a trainer counts whoever drew the rows.
            Some(_) => {
                if let (Some(trace), Some(times)) = (self.trace.as_mut(), &results.meta.site_times) {
                    Arc::make_mut(trace).meta.site_times = Some(times.clone());
                }
            }
            None => {
                let name = results.meta.manifest.model.name.clone();
                self.opened(OpenedTrace { path: path.to_owned(), name, meta: results.meta.clone() });
            }
        }
        let circumstances = Circumstances::from(&results.meta);
        let origin = circumstances.origin();
        // Rows that are there are described: those that a file adds to them do not change it.
        if self.sets.num_rows(&origin) == 0 {
            self.sets.describe(circumstances);
        }
        // Held for itself: sets are changed while its sites are read.
        let sites = self.trace.as_ref().map(|trace| trace.clone());
        let sites = sites.as_ref().map_or(&[][..], |trace| &trace.manifest().sites);
        let firsts = || results.sites.iter().filter_map(|rows| rows.all().first());
        let uniform = Uniform::new(sites, firsts().map(|row| &row.mods));
        let index = self.sets.index.clone();
        // A site that a file has rows of is not probed for the kernels that it lacks there.
        let complete = firsts().filter_map(|row| {
            let at = index.at(&row.site)?;
            Some((at, uniform.of(at, &row.mods)))
        });
        self.sets.complete(&origin, complete);
        self.notices.record(LogKind::File, format!("Opened {}: {path}", counted(results.num_rows(), "row")));
        self.results_file = Some(path.to_owned());
        self.sets.adopt(results.sites, |at, row| uniform.of(at, &row.mods));
        self.sets.show(origin);
        self.revision += 1;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{dispatch::testing::results, session::Event};

    fn opened(sites_flops: Option<u64>) -> Session {
        let mut results = results(&["a"], Vec::new());
        if let Some(sites) = sites_flops {
            let unseen =
                json!([{"op": "bmm", "flops": 1000 - sites, "where": "model.py:31", "reason": "three\ndimensions"}]);
            let coverage = json!({"flops": 1000, "sites": sites, "how": "forward", "unseen": unseen});
            results.meta.manifest.extra.insert("coverage".to_owned(), coverage);
        }
        let mut session = Session::default();
        session.event(Event::ResultsOpened { path: "r.parquet".to_owned(), results: Box::new(results.into()) });
        session
    }

    #[test]
    fn a_model_of_which_little_is_sites_is_warned_of() {
        let session = opened(Some(899));
        assert_eq!(session.notices.len(), 1);
        assert_eq!(session.notices[0].kind, NoticeKind::Warning);
        let text = "the sites are 89.9 % of the model's matmul FLOPs: a plan changes no more than those; first of the rest: \
                    10.1 % bmm at model.py:31: three\\ndimensions";
        assert_eq!(session.notices[0].text, text);
        assert!(session.log().entries().iter().any(|entry| entry.text == text));
        assert!(opened(Some(900)).notices.is_empty() && opened(None).notices.is_empty());
    }
}
