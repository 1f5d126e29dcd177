//! What is seen of the drift: the trace that is compared with, and the kernels along the series as they were derived last.

use std::sync::Arc;

use loka_core::{
    model::{ResultRow, SiteId},
    session::Session,
    views::{
        distribution::Inspection,
        drift::{KernelDrift, kernel_drifts},
    },
};

/// What this view shows. Not saved, not undone.
#[derive(Clone, Debug, Default)]
pub struct DriftState {
    /// The trace to compare with, as it was typed.
    pub compare: String,
    /// The one that was asked for.
    pub compared: Option<String>,
    /// Kernels along the series, for a site at a revision of the session.
    derived: Option<(SiteId, u64, Arc<Vec<KernelDrift>>)>,
}

impl DriftState {
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
