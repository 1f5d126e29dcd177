//! What to do when no trace is open.

use egui::{RichText, Ui};
use loka_core::session::Command;

use super::Scene;
use crate::commands::Action;

pub fn empty_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    let weak = scene.theme.weak;
    ui.vertical_centered(|ui| {
        ui.add_space(ui.available_height() * 0.28);
        if let Some(busy) = scene.busy {
            ui.spinner();
            ui.label(busy);
            return;
        }
        ui.heading("No trace is open");
        ui.add_space(8.0);
        ui.label("Drop a .trace.safetensors file or a folder of shards here.");
        ui.label(
            RichText::new("LoKA shows where FP8 is safe, where it is fast, and what a plan would win.").color(weak),
        );
        ui.add_space(12.0);
        scene.button_ui(ui, Action::Open);
        if !scene.suggestions.is_empty() {
            ui.add_space(16.0);
            ui.label(RichText::new("Nearby").small().color(weak));
            for path in scene.suggestions {
                if ui.link(path).on_hover_text("Open this trace").clicked() {
                    scene.requests.push(crate::commands::Request::Do(Command::OpenTrace { path: path.clone() }));
                }
            }
        }
    });
}
