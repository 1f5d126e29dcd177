//! Kernels that have no place in the quadrant, each with the reason. Only visible rows are written.

use egui::{Label, RichText, ScrollArea, Ui, Window, vec2};
use loka_core::views::{Column, Unplaced};

use crate::{
    theme::{ROW, number},
    views::Scene,
};

pub(super) fn unplaced_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    if !scene.view.quadrant.lists_unplaced {
        return;
    }
    let view = scene.derived.quadrant.clone();
    let mut open = true;
    let window = Window::new("Kernels without a place").id(ui.scope_id().with("unplaced")).open(&mut open);
    window.default_size(vec2(560.0, 320.0)).collapsible(false).show(ui.ctx(), |ui| {
        let count = number::count(view.unplaced.len() as u64);
        let text = format!("{count} kernels run here, but lack what a place in the quadrant needs");
        ui.label(RichText::new(text).color(scene.theme.weak));
        ui.add_space(4.0);
        let area = ScrollArea::vertical().auto_shrink([false, false]);
        area.show_rows(ui, ROW, view.unplaced.len(), |ui, visible| {
            for of in &view.unplaced[visible] {
                line_ui(ui, scene, of);
            }
        });
    });
    scene.view.quadrant.lists_unplaced = open && !view.unplaced.is_empty();
}

fn line_ui(ui: &mut Ui, scene: &mut Scene<'_>, of: &Unplaced) {
    let site = scene.session.index().ids().get(of.site as usize).cloned();
    let (Some(site), Some(kernel)) = (site, scene.derived.quadrant.kernel(of.kernel).cloned()) else { return };
    let why = why(scene, of, &site, &kernel);
    ui.horizontal(|ui| {
        let text = format!("{} {} {kernel}", scene.derived.short_name(&site, 24), of.gemm);
        let link = ui.add(egui::Button::new(text).frame(false).truncate().min_size(vec2(240.0, 0.0)));
        if link.on_hover_text(format!("Select {site}")).clicked() {
            scene.view.select(site.clone(), Some(Column { gemm: of.gemm, kernel: kernel.clone() }));
            scene.view.reveal = true;
        }
        ui.add(Label::new(RichText::new(&why).color(scene.theme.weak)).truncate()).on_hover_text(&why);
    });
}

fn why(
    scene: &Scene<'_>,
    of: &Unplaced,
    site: &loka_core::model::SiteId,
    kernel: &loka_core::model::KernelId,
) -> String {
    let Some(row) = scene.session.row(site, of.gemm, kernel) else { return "not probed under these mods".to_owned() };
    if of.has_error {
        return format!("no speed-up: {}", row.latency.note);
    }
    let metric = scene.session.document.policy.metric.label();
    let reason = row.reason.as_deref().unwrap_or("it was not measured for this kernel");
    format!("no {metric}: {reason}")
}
