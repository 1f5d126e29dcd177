//! What is seen of the drift: the trace that is compared with, the kernels along the series and the run's checkpoints as they were
//! derived last.

use std::sync::Arc;

use loka_core::{
    model::{ResultRow, SiteId},
    session::{Looked, Session},
    views::{
        distribution::Inspection,
        drift::{Checkpoint, Followed, KernelDrift, TimelinePoint, kernel_drifts, timeline},
    },
};

use super::Derived;

/// What this view shows. Not saved, not undone.
#[derive(Clone, Debug, Default)]
pub struct DriftState {
    /// The trace to compare with, as it was typed.
    pub compare: String,
    /// The one that was asked for.
    pub compared: Option<String>,
    /// Kernels along the series, for a site at a revision of the session.
    derived: Option<(SiteId, u64, Arc<Vec<KernelDrift>>)>,
    /// What the plan runs in FP8, at a revision of the views.
    followed: Option<(u64, Arc<Followed>)>,
    timeline: Option<Timeline>,
}

/// The checkpoints as they were read, and what was made of them at a revision of the views.
#[derive(Clone, Debug)]
struct Timeline {
    read: Arc<Vec<Checkpoint>>,
    revision: u64,
    points: Arc<Vec<TimelinePoint>>,
}

impl DriftState {
    /// Also as the text of the field, so that it can be changed.
    pub fn compare_with(&mut self, path: String) {
        self.compare.clone_from(&path);
        self.compared = Some(path);
    }

    /// What is followed over the checkpoints: the plan as it stands. `None`: there is none yet.
    pub fn followed(&mut self, derived: &Derived) -> Option<Arc<Followed>> {
        if let Some((revision, followed)) = &self.followed
            && *revision == derived.revision
        {
            return Some(followed.clone());
        }
        let followed = Followed::of(derived.snapshot.as_ref()?, &derived.plan);
        // The same one while nothing else is chosen: what is held against it is held against it once.
        let kept = self.followed.take().map(|(_, before)| before).filter(|before| **before == followed);
        let followed = kept.unwrap_or_else(|| Arc::new(followed));
        self.followed = Some((derived.revision, followed.clone()));
        Some(followed)
    }

    /// The checkpoints that were read, in the order of steps, by what was followed when they were.
    pub fn timeline(&mut self, session: &Session, derived: &Derived) -> Option<Arc<Vec<TimelinePoint>>> {
        let (followed, Looked::Found(read)) = session.inspections.checkpoints()? else { return None };
        if let Some(made) = &self.timeline
            && made.revision == derived.revision
            && Arc::ptr_eq(&made.read, read)
        {
            return Some(made.points.clone());
        }
        let here = followed.verdicts_here(derived.snapshot.as_ref()?);
        let points = Arc::new(timeline(read, (session.trace_path().unwrap_or_default(), &here)));
        self.timeline = Some(Timeline { read: read.clone(), revision: derived.revision, points: points.clone() });
        Some(points)
    }

    /// The checkpoint after or before the one that is compared with; without one, the last or the first of the others.
    pub fn next_checkpoint(&self, session: &Session, forward: bool) -> Option<String> {
        let Some((_, Looked::Found(read))) = session.inspections.checkpoints() else { return None };
        let others = || read.iter().filter(|of| Some(of.path.as_str()) != session.trace_path());
        let at = self.compared.as_ref().and_then(|path| others().position(|of| of.path == *path));
        let to = match (at, forward) {
            (None, true) => 0,
            (None, false) => others().count().checked_sub(1)?,
            (Some(at), true) => at + 1,
            (Some(at), false) => at.checked_sub(1)?,
        };
        others().nth(to).map(|of| of.path.clone())
    }

    pub fn kernels(&mut self, session: &Session, inspection: &Inspection) -> Arc<Vec<KernelDrift>> {
        let site = &inspection.site.id;
        if let Some((of, revision, kernels)) = &self.derived
            && of == site
            && *revision == session.revision()
        {
            return kernels.clone();
        }
        let rows: Vec<&ResultRow> = session.site_rows(site).iter().flat_map(|rows| rows.all()).collect();
        let loss = session.trace.as_ref().map_or(0.0, |trace| trace.manifest().loss.value);
        let kernels = Arc::new(kernel_drifts(inspection, rows, &session.document.policy, loss));
        self.derived = Some((site.clone(), session.revision(), kernels.clone()));
        kernels
    }
}
