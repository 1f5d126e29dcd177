//! The plan as it stands, made anew when rows, policy, mods or overrides change.

use std::collections::HashMap;

use crate::{
    dispatch::{Candidates, Choice, Dispatch, FrontierPoint, Overrides, dispatch, frontier},
    model::{Gemm, Results, SiteId},
};

use super::Document;

/// Choices and totals for the views, and why they cannot be made when they can't.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlanView {
    pub decided: Option<Dispatch>,
    pub frontier: Vec<FrontierPoint>,
    pub problem: Option<String>,
    /// Overrides that have no row yet (a probe under new mods is still running).
    pub num_waiting_overrides: usize,
    index: HashMap<(SiteId, Gemm), usize>,
}

impl PlanView {
    pub fn of(results: &Results, document: &Document) -> Self {
        let candidates = Candidates::new(results, &document.mods.clone().into());
        let loss = results.meta.manifest.loss.value;
        let groups = candidates.groups.iter().enumerate();
        let index: HashMap<(SiteId, Gemm), usize> =
            groups.map(|(at, group)| ((group.site.id.clone(), group.gemm), at)).collect();
        let ready: Overrides = document
            .overrides
            .iter()
            .filter(|(key, wanted)| {
                index.get(key).is_some_and(|at| candidates.groups[*at].row(&wanted.kernel).is_some())
            })
            .map(|(key, wanted)| (key.clone(), wanted.clone()))
            .collect();
        let (decided, problem) = match dispatch(&candidates, &document.policy, &ready, loss) {
            Ok(decided) => (Some(decided), None),
            Err(error) => (None, Some(error.to_string())),
        };
        Self {
            index,
            frontier: frontier(&candidates, &document.policy, loss),
            num_waiting_overrides: document.overrides.len() - ready.len(),
            decided,
            problem,
        }
    }

    pub fn choice(&self, site: &SiteId, gemm: Gemm) -> Option<&Choice> {
        let at = *self.index.get(&(site.clone(), gemm))?;
        self.decided.as_ref()?.choices.get(at)
    }
}
