//! The plan as it stands, made anew when rows, policy, mods or overrides change.

use std::sync::Arc;

use crate::{
    dispatch::{Chain, Choice, Dispatch, JudgedRows, dispatch_judged},
    model::{Gemm, SiteId, SiteIndex},
};

use super::Snapshot;

/// Choices and totals for the views, and why they cannot be made when they can't.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlanView {
    pub decided: Option<Dispatch>,
    pub problem: Option<String>,
    /// Overrides that have no row yet (a probe under new mods is still running).
    pub num_waiting_overrides: usize,
    index: Arc<SiteIndex>,
}

impl PlanView {
    pub fn of(snapshot: &Snapshot) -> Self {
        Self::of_judged(snapshot, &snapshot.judged())
    }

    /// `judged`: the snapshot's rows.
    pub(super) fn of_judged(snapshot: &Snapshot, judged: &JudgedRows) -> Self {
        let candidates = snapshot.candidates();
        let (document, loss) = (&snapshot.document, snapshot.loss());
        let ready = candidates.ready(&document.overrides, &document.policy.baseline);
        let (decided, problem) = match dispatch_judged(&candidates, (&document.policy, loss), &ready, Some(judged)) {
            Ok(decided) => (Some(decided), None),
            Err(error) => (None, Some(error.to_string())),
        };
        Self {
            index: snapshot.index.clone(),
            num_waiting_overrides: document.overrides.len() - ready.len(),
            decided,
            problem,
        }
    }

    pub fn choice(&self, site: &SiteId, gemm: Gemm) -> Option<&Choice> {
        self.choice_at(self.index.at(site)?, gemm)
    }

    /// What a site takes or hands on as codes, by its number.
    pub fn chain_at(&self, at: usize) -> Option<&Chain> {
        self.decided.as_ref()?.chains.get(&at)
    }

    /// By the site's number; the choices come three a site.
    pub fn choice_at(&self, at: usize, gemm: Gemm) -> Option<&Choice> {
        self.decided.as_ref()?.choices.get(3 * at + gemm as usize)
    }
}
