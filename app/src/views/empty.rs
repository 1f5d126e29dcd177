//! What to do when no trace is open.

use egui::{Align, Layout, RichText, Ui, vec2};

use super::Scene;
use crate::{
    commands::{Action, FileAction},
    link::Standing,
    panels::recent_file_ui,
    theme::shorten,
};

/// Files offered of each sort.
const OFFERED: usize = 6;
/// Width of the list of recent files.
const BLOCK: f32 = 360.0;
/// Characters of a path.
const NAME: usize = 60;

/// A browser hands over files, not folders.
fn drop_line(standing: &Standing) -> &'static str {
    match standing {
        Standing::Here if cfg!(target_arch = "wasm32") => {
            "Drop a .results.parquet or .trace.safetensors file here, with its plans if you like. It stays on this machine."
        }
        Standing::Here => {
            "Drop a .trace.safetensors file or a folder of shards here, with its results and plans if you like."
        }
        Standing::Joining { .. } | Standing::Joined { .. } | Standing::Away { .. } => {
            "Drop a .trace.safetensors file here, with its results and plans if you like. It is sent to the server."
        }
    }
}

pub fn empty_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    let weak = scene.theme.weak;
    egui::ScrollArea::vertical().auto_shrink([false, false]).show(ui, |ui| {
        ui.vertical_centered(|ui| {
            ui.add_space(ui.available_height() * 0.2);
            if let Some(busy) = scene.busy {
                ui.spinner();
                ui.add(egui::Label::new(busy).truncate());
                return;
            }
            ui.heading("No trace is open");
            ui.add_space(8.0);
            ui.label(drop_line(scene.standing));
            let about = "LoKA shows where FP8 is safe, where it is fast, and what a plan would win.";
            ui.label(RichText::new(about).color(weak));
            ui.add_space(12.0);
            scene.button_ui(ui, Action::File(FileAction::Open));
            scene.button_ui(ui, Action::File(FileAction::Browse));
            recent_ui(ui, scene);
            nearby_ui(ui, scene);
        });
    });
}

fn recent_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    let files = scene.view.recent.files().to_vec();
    if files.is_empty() {
        return;
    }
    ui.add_space(16.0);
    ui.label(RichText::new("Recent").small().color(scene.theme.weak));
    let block = vec2(BLOCK.min(ui.available_width()), 0.0);
    ui.allocate_ui_with_layout(block, Layout::top_down(Align::Min), |ui| {
        for file in files.iter().take(OFFERED) {
            recent_file_ui(ui, scene, file);
        }
    });
}

fn nearby_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    if scene.suggestions.is_empty() {
        return;
    }
    ui.add_space(16.0);
    ui.label(RichText::new("Nearby").small().color(scene.theme.weak));
    for path in scene.suggestions.iter().take(OFFERED) {
        if ui.link(shorten(path, NAME)).on_hover_text("Open this trace").clicked() {
            scene.open(vec![path.clone()]);
        }
    }
}
