//! Every inspection of the open trace, and those of other snapshots of its run.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{
    model::SiteId,
    probe::{SiteErrors, TraceDiff},
    views::{
        distribution::Inspection,
        drift::{Checkpoint, Followed},
    },
};

/// What is known of one site, or of all of them.
#[derive(Clone, Debug, PartialEq)]
pub enum Looked<T = Inspection> {
    /// Asked for, not there yet.
    Waiting,
    Found(Arc<T>),
    /// Why it cannot be shown, one line.
    Failed(String),
}

/// Another trace's sites and the open one's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TraceComparison {
    pub diff: TraceDiff,
    /// What the rows beside the other trace say; empty: there are none.
    pub errors: SiteErrors,
}

/// By the trace's path and the site. Cleared when another trace is opened.
#[derive(Clone, Debug, Default)]
pub struct Inspections {
    own: BTreeMap<SiteId, Looked>,
    others: BTreeMap<(String, SiteId), Looked>,
    /// The trace that was compared with last.
    compared: Option<(String, Looked<TraceComparison>)>,
    /// The run's checkpoints, and what was followed over them.
    checkpoints: Option<(Arc<Followed>, Looked<Vec<Checkpoint>>)>,
}

impl Inspections {
    pub fn of(&self, site: &SiteId) -> Option<&Looked> {
        self.own.get(site)
    }

    /// In another trace.
    pub fn in_other(&self, path: &str, site: &SiteId) -> Option<&Looked> {
        self.others.get(&(path.to_owned(), site.clone()))
    }

    /// Other traces' inspections of the site that are there, by path.
    pub fn others_of<'a>(&'a self, site: &'a SiteId) -> impl Iterator<Item = (&'a str, &'a Looked)> {
        self.others.iter().filter(move |((_, of), _)| of == site).map(|((path, _), looked)| (path.as_str(), looked))
    }

    /// The trace that was compared with last, and how all sites differ.
    pub fn compared(&self) -> Option<(&str, &Looked<TraceComparison>)> {
        self.compared.as_ref().map(|(path, looked)| (path.as_str(), looked))
    }

    /// The run's checkpoints in the order of steps, as far as they lie beside the open trace, and what was followed over them.
    pub fn checkpoints(&self) -> Option<(&Arc<Followed>, &Looked<Vec<Checkpoint>>)> {
        self.checkpoints.as_ref().map(|(followed, looked)| (followed, looked))
    }

    pub(super) fn put_checkpoints(&mut self, followed: Arc<Followed>, looked: Looked<Vec<Checkpoint>>) {
        self.checkpoints = Some((followed, looked));
    }

    pub(super) fn put_compared(&mut self, path: String, looked: Looked<TraceComparison>) {
        self.compared = Some((path, looked));
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(super) fn put(&mut self, site: SiteId, other: Option<String>, looked: Looked) {
        match other {
            Some(path) => self.others.insert((path, site), looked),
            None => self.own.insert(site, looked),
        };
    }
}
