//! The review: where the plan stands with those who must sign it, the sites in the order of their risk, and what was
//! said of the selected one.

mod queue;
mod standing;
mod thread;
mod words;

use egui::{RichText, Ui};

use super::Scene;

/// Narrower than this, what was said stands below the queue.
const SIDE_BY_SIDE: f32 = 620.0;

pub fn review_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    if scene.derived.plan.decided.is_none() || scene.derived.table.lines.is_empty() {
        let why = scene.derived.plan.problem.clone();
        let why = why.unwrap_or_else(|| "There is nothing to review before the first rows".to_owned());
        ui.label(RichText::new(why).color(scene.theme.weak));
        return;
    }
    let me = scene.me.name.clone();
    scene.view.review.refresh(scene.session, scene.derived, &me);
    standing::standing_ui(ui, scene);
    ui.separator();
    if ui.available_width() < SIDE_BY_SIDE {
        let height = (ui.available_height() * 0.45).max(88.0);
        ui.allocate_ui(egui::vec2(ui.available_width(), height), |ui| queue::queue_ui(ui, scene));
        ui.separator();
        return thread::thread_ui(ui, scene);
    }
    let width = (ui.available_width() * 0.46).floor();
    ui.horizontal_top(|ui| {
        ui.allocate_ui_with_layout(
            egui::vec2(width, ui.available_height()),
            egui::Layout::top_down(egui::Align::Min),
            |ui| queue::queue_ui(ui, scene),
        );
        ui.separator();
        ui.vertical(|ui| thread::thread_ui(ui, scene));
    });
}
