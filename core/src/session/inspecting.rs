//! Takes requests to look into a site and what came of them; each is asked for once.

use std::sync::Arc;

use crate::{model::SiteId, views::distribution::Inspection};

use super::{CommandError, Effect, Looked, Session};

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
        self.inspections.put(site.clone(), other.clone(), Looked::Waiting);
        self.revision += 1;
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
        self.inspections.put(site, other, looked);
        self.revision += 1;
    }
}

#[cfg(test)]
mod tests;
