//! Takes requests to look into a site, or into all of two traces, and what came of them; each is asked for once.
//!
//! An answer names the trace that was open when it was asked for, and is dropped when that is no longer so. None of it is
//! saved or told to others: every window looks for itself.

use std::sync::Arc;

use crate::{
    model::{KernelId, SiteId},
    probe::{SiteErrors, WATCHED, errors_of},
    views::{
        distribution::Inspection,
        drift::{Checkpoint, Followed},
    },
};

use super::{CommandError, Effect, Looked, Session, TraceComparison};

impl Session {
    /// The effect that looks into a site, unless that was done or is under way. A failure can be tried again.
    pub(super) fn inspect(&mut self, site: SiteId, other: Option<String>) -> Result<Vec<Effect>, CommandError> {
        let trace = self.trace.as_ref().ok_or(CommandError::NoTrace)?;
        // In another trace, too, only what the open one has can be put beside something.
        if self.index().at(&site).is_none() {
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
        // Views share it: its distributions are not copied for each.
        let looked = outcome.map_or_else(Looked::Failed, |inspection| Looked::Found(Arc::from(inspection)));
        self.inspections.put(site, other, looked);
        self.revision += 1;
    }

    /// Asked for again it is read again: a trace that is being written changes. One comparison is kept, of the path
    /// that was asked for last.
    pub(super) fn compare_trace(&mut self, path: String) -> Result<Vec<Effect>, CommandError> {
        let trace = self.trace.as_ref().ok_or(CommandError::NoTrace)?.path.clone();
        if matches!(self.inspections.compared(), Some((of, Looked::Waiting)) if of == path) {
            return Ok(Vec::new());
        }
        self.inspections.put_compared(path.clone(), Looked::Waiting);
        self.revision += 1;
        Ok(vec![Effect::CompareTrace { trace, path }])
    }

    /// Noise shares and loss costs are added where this session has rows of its own.
    pub(super) fn trace_compared(&mut self, trace: &str, path: String, outcome: Result<Box<TraceComparison>, String>) {
        let is_awaited = self.inspections.compared().is_some_and(|(of, _)| of == path);
        if !is_awaited || self.trace.as_ref().is_none_or(|open| open.path != trace) {
            return;
        }
        // Whoever read the traces knows the rows beside the other one, and not those of this session.
        let looked = outcome.map_or_else(Looked::Failed, |mut found| {
            found.diff.add_errors([&found.errors, &self.watched_errors()]);
            Looked::Found(Arc::from(found))
        });
        self.inspections.put_compared(path, looked);
        self.revision += 1;
    }

    /// While they are read nothing else is asked for: whoever follows something else by then asks again.
    pub(super) fn read_checkpoints(&mut self, followed: Followed) -> Result<Vec<Effect>, CommandError> {
        let trace = self.trace.as_ref().ok_or(CommandError::NoTrace)?.path.clone();
        if matches!(self.inspections.checkpoints(), Some((_, Looked::Waiting))) {
            return Ok(Vec::new());
        }
        // Kept with the answer: a window that follows other GEMMs by then sees that it is not about them.
        let followed = Arc::new(followed);
        self.inspections.put_checkpoints(followed.clone(), Looked::Waiting);
        self.revision += 1;
        Ok(vec![Effect::ReadCheckpoints { trace, followed }])
    }

    /// Taken while it is awaited, and once.
    pub(super) fn checkpoints_read(&mut self, trace: &str, outcome: Result<Vec<Checkpoint>, String>) {
        let Some((followed, Looked::Waiting)) = self.inspections.checkpoints() else { return };
        if self.trace.as_ref().is_none_or(|open| open.path != trace) {
            return;
        }
        let looked = outcome.map_or_else(Looked::Failed, |found| Looked::Found(Arc::new(found)));
        self.inspections.put_checkpoints(followed.clone(), looked);
        self.revision += 1;
    }

    /// By the kernel that traces are compared by, under the mods in force; a site without such rows is left out.
    fn watched_errors(&self) -> SiteErrors {
        let rows = self.sites().iter().filter_map(|site| self.site_rows(&site.id));
        let loss = self.trace.as_ref().map_or(0.0, |trace| trace.manifest().loss.value);
        errors_of(rows.flat_map(|rows| rows.all()), &KernelId::new(WATCHED), loss)
    }
}

#[cfg(test)]
mod tests;
