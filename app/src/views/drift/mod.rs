//! Takes the selected site's recorded series and rows; draws the series with marks where a verdict would
//! flip, each kernel's error along them, and what moved since another snapshot of the run.

mod kernels;
mod series;
mod snapshots;

use std::sync::Arc;

use egui::{RichText, ScrollArea, Ui};
use loka_core::{
    model::{ResultRow, SiteId},
    session::{
        Session,
        view::{
            distribution::Inspection,
            drift::{KernelDrift, kernel_drifts},
        },
    },
};

use super::{Scene, distribution::inspection_ui};

/// What this view shows. Not saved, not undone.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// The trace to compare with, as it was typed.
    pub compare: String,
    /// The one that was asked for.
    pub compared: Option<String>,
    /// Kernels along the series, for a site at a revision of the session.
    derived: Option<(SiteId, u64, Arc<Vec<KernelDrift>>)>,
}

impl State {
    fn kernels(&mut self, session: &Session, inspection: &Inspection) -> Arc<Vec<KernelDrift>> {
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

pub fn drift_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    let weak = scene.theme.weak;
    let Some(site) = scene.view.site.clone() else {
        ui.label(RichText::new("Select a site to see how its values changed over the steps.").color(weak));
        return;
    };
    let Some(inspection) = inspection_ui(ui, scene, &site) else { return };
    let session = scene.session;
    let kernels = scene.view.drift.kernels(session, &inspection);
    ScrollArea::vertical().id_salt("drift").auto_shrink([false, false]).show(ui, |ui| {
        if inspection.series.is_empty() {
            ui.label(
                RichText::new("The trace has no series of this site: record with series to see drift.").color(weak),
            );
        } else {
            series::series_ui(ui, scene, &inspection, &kernels);
            ui.add_space(10.0);
            kernels::kernels_ui(ui, scene, &kernels);
        }
        ui.add_space(10.0);
        snapshots::snapshots_ui(ui, scene, &inspection);
    });
}
