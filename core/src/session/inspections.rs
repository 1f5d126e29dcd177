//! Takes requests to look into a site and what came of them; keeps every inspection of the open trace, and
//! those of other snapshots of its run, each asked for once.

use std::{collections::BTreeMap, sync::Arc};

use crate::{model::SiteId, views::distribution::Inspection};

use super::{CommandError, Effect, Session};

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
}

impl Session {
    /// The effect that looks into a site, unless that was done or is under way. A failure can be tried again.
    pub(super) fn inspect(&mut self, site: SiteId, other: Option<String>) -> Result<Vec<Effect>, CommandError> {
        let trace = self.trace.as_ref().ok_or(CommandError::NoTrace)?;
        if !trace.manifest().sites.iter().any(|known| known.id == site) {
            return Err(CommandError::UnknownSite(site));
        }
        let known = match &other {
            Some(path) => self.inspections.in_other(path, &site),
            None => self.inspections.of(&site),
        };
        if matches!(known, Some(Looked::Waiting | Looked::Found(_))) {
            return Ok(Vec::new());
        }
        let trace = trace.path.clone();
        self.put(site.clone(), other.clone(), Looked::Waiting);
        Ok(vec![match other {
            Some(path) => Effect::InspectOther { trace, path, site },
            None => Effect::Inspect { trace, site },
        }])
    }

    /// `trace`: the open trace when the question was asked; an answer for an earlier one changes nothing.
    pub(super) fn inspected(
        &mut self,
        trace: &str,
        other: Option<String>,
        site: SiteId,
        outcome: Result<Box<Inspection>, String>,
    ) {
        if self.trace.as_ref().is_none_or(|open| open.path != trace) {
            return;
        }
        let looked = outcome.map_or_else(Looked::Failed, |inspection| Looked::Found(Arc::from(inspection)));
        self.put(site, other, looked);
    }

    fn put(&mut self, site: SiteId, other: Option<String>, looked: Looked) {
        match other {
            Some(path) => self.inspections.others.insert((path, site), looked),
            None => self.inspections.own.insert(site, looked),
        };
        self.revision += 1;
    }
}

#[cfg(test)]
mod tests;
