//! Every inspection of the open trace, and those of other snapshots of its run.

use std::{collections::BTreeMap, sync::Arc};

use crate::{model::SiteId, views::distribution::Inspection};

/// What is known of one site.
#[derive(Clone, Debug, PartialEq)]
pub enum Looked {
    /// Asked for, not there yet.
    Waiting,
    Found(Arc<Inspection>),
    /// Why it cannot be shown, one line.
    Failed(String),
}

/// By the trace's path and the site. Cleared when another trace is opened.
#[derive(Clone, Debug, Default)]
pub struct Inspections {
    own: BTreeMap<SiteId, Looked>,
    others: BTreeMap<(String, SiteId), Looked>,
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
