//! Takes the selected site's recorded series and rows; draws the series with marks where a verdict would
//! flip, each kernel's error along them, the run's checkpoints, and what moved against another trace, at that site and at all.

mod checkpoints;
mod kernels;
mod series;
mod snapshots;
mod traces;

use egui::{RichText, ScrollArea, Ui};

use super::{Scene, distribution::inspection_ui, steps};

pub fn drift_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    let weak = scene.theme.weak;
    let Some(site) = scene.view.site.clone() else {
        ui.label(RichText::new("Select a site to see how its values changed over the steps.").color(weak));
        ui.add_space(10.0);
        ScrollArea::vertical().id_salt("drift").auto_shrink([false, false]).show(ui, |ui| {
            checkpoints::checkpoints_ui(ui, scene);
            traces::traces_ui(ui, scene);
        });
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
            steps::controls_ui(ui, scene);
            series::series_ui(ui, scene, &inspection, &kernels);
            ui.add_space(10.0);
            kernels::kernels_ui(ui, scene, &kernels);
        }
        ui.add_space(10.0);
        checkpoints::checkpoints_ui(ui, scene);
        traces::traces_ui(ui, scene);
        snapshots::snapshots_ui(ui, scene, &inspection);
    });
}
