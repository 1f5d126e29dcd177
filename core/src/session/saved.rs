//! A session as plain data, and back: what a client that joins is sent, and what a journal keeps. Rows are shared
//! with the session, so that taking it costs a pointer a site.
//!
//! Left out is what every window has for itself: distributions and series that it looked into.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{
    dispatch::Document,
    engine::contexts,
    model::{SiteIndex, as_text},
    review::KeyRing,
    views::{BaselinePlan, OpenedTrace},
};

use super::{
    ComparedResults, Engines, History, Log, Measuring, Notice, Notices, Origin, Reviewing, RowChunk, Run, Session,
    rows::SavedSet,
};

/// Everything but the rows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionHeader {
    pub trace: Option<Arc<OpenedTrace>>,
    pub document: Document,
    pub history: History,
    pub engines: Engines,
    pub run: Option<Run>,
    pub(super) idle_runs: BTreeMap<Origin, Run>,
    pub measuring: Option<Measuring>,
    pub not_kept: Option<String>,
    pub keys: Option<Arc<KeyRing>>,
    pub notices: Vec<Notice>,
    pub log: Log,
    pub results_file: Option<String>,
    pub(super) other_plan: Option<OtherPlan>,
    pub reviewing: Reviewing,
    pub(super) shown: Origin,
    pub(super) sets: Vec<SavedSet>,
    pub(super) next_run: u64,
    pub(super) next_notice: u64,
    pub(super) revision: u64,
    pub(super) num_decisions: u64,
    /// The last command of each author that was answered: see [`super::shared::SequencedSession`].
    pub(super) heard: BTreeMap<u64, u64>,
}

/// The baseline. Rows of compared results are saved as one of the sets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct OtherPlan {
    path: String,
    #[serde(with = "as_text")]
    plan: Arc<BaselinePlan>,
    results: Option<Arc<ComparedResults>>,
}

/// No session counts that far: one that says so was made up, and goes on without an overflow.
const MOST_COUNTED: u64 = 1 << 48;

/// The whole of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SavedSession {
    pub head: SessionHeader,
    /// Apart from the head: a window is sent them piece by piece, and sees how far they are.
    pub shares: Vec<RowChunk>,
}

impl SavedSession {
    pub fn num_rows(&self) -> usize {
        self.shares.iter().map(|share| share.rows.all().len()).sum()
    }

    /// Equal for sessions that took the same inputs, whatever their windows looked into or dismissed. SHA-256,
    /// hexadecimal.
    pub fn digest(&self) -> String {
        let (notices, log, heard) = (Vec::new(), Log::default(), BTreeMap::new());
        let mut head = SessionHeader {
            notices,
            log,
            heard,
            not_kept: None,
            keys: None,
            revision: 0,
            num_decisions: 0,
            next_notice: 0,
            ..self.head.clone()
        };
        head.reviewing.forget_places();
        // Plain data has a coding.
        let bytes = postcard::to_allocvec(&(head, &self.shares)).unwrap_or_default();
        Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl Session {
    /// Without what was heard of authors: that is of whoever puts inputs in order.
    pub fn save(&self) -> SavedSession {
        let (sets, shares) = self.sets.save();
        let head = SessionHeader {
            trace: self.trace.clone(),
            document: self.document.clone(),
            history: self.history.clone(),
            engines: self.engines.clone(),
            run: self.run.clone(),
            idle_runs: self.idle_runs.clone(),
            measuring: self.measuring.clone(),
            not_kept: self.not_kept.clone(),
            keys: self.keys.clone(),
            notices: self.notices.to_vec(),
            log: self.notices.log().clone(),
            results_file: self.results_file.clone(),
            other_plan: self.other_plan.as_ref().map(|(path, plan)| OtherPlan {
                path: path.clone(),
                plan: plan.clone(),
                results: self.other_results.clone(),
            }),
            reviewing: self.reviewing.clone(),
            shown: self.sets.shown_origin().clone(),
            sets,
            next_run: self.next_run,
            next_notice: self.notices.last_id(),
            revision: self.revision,
            num_decisions: self.num_decisions,
            heard: BTreeMap::new(),
        };
        SavedSession { head, shares }
    }

    /// The session that was saved. What sites are probed under follows from the document and the run, and is found
    /// anew.
    pub fn restored(saved: SavedSession) -> Self {
        let SavedSession { head, shares } = saved;
        let sites = head.trace.as_ref().map_or(&[][..], |trace| &trace.manifest().sites);
        let index = Arc::new(SiteIndex::new(sites));
        let revision = head.revision.min(MOST_COUNTED);
        let of_run = head.run.as_ref().map(|run| contexts(sites, &run.mods).into());
        let mut session = Self {
            contexts: contexts(sites, &head.document.mods).into(),
            run_contexts: of_run.unwrap_or_default(),
            trace: head.trace,
            document: head.document,
            history: head.history,
            engines: head.engines,
            run: head.run,
            idle_runs: head.idle_runs,
            measuring: head.measuring,
            not_kept: head.not_kept,
            keys: head.keys,
            notices: Notices::restored(head.notices, head.log, head.next_notice.min(MOST_COUNTED)),
            results_file: head.results_file,
            other_results: head.other_plan.as_ref().and_then(|other| other.results.clone()),
            other_plan: head.other_plan.map(|other| (other.path, other.plan)),
            reviewing: Reviewing {
                revision: head.reviewing.revision.min(MOST_COUNTED),
                last_release: head.reviewing.last_release.min(u32::MAX >> 1),
                ..head.reviewing
            },
            next_run: head.next_run.min(MOST_COUNTED),
            revision,
            num_decisions: head.num_decisions.min(revision),
            ..Self::default()
        };
        session.sets.restore(index, head.sets, shares, head.shown);
        session.other_contexts = session.contexts_of_other();
        session
    }

    /// Takes the place of `before`: views that were derived from that are out of date, whatever its revision.
    #[must_use]
    pub fn in_place_of(mut self, before: &Self) -> Self {
        self.revision += before.revision + 1;
        self
    }

    /// Another process takes up what the one before it left: nothing runs, and engines are looked for anew.
    pub fn awaken(&mut self) {
        if let Some(run) = self.run.as_mut().filter(|run| run.running) {
            (run.running, run.paused, run.cancelled) = (false, false, true);
        }
        (self.measuring, self.not_kept, self.keys) = (None, None, None);
        self.engines = Engines::default();
        self.notices.dismiss_all();
        // Steps are counted anew.
        self.reviewing.forget_places();
        self.revision += 1;
    }
}

#[cfg(test)]
mod tests;
