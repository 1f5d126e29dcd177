//! What to do when no trace is open.

use egui::{Align, Id, Layout, RichText, TextEdit, Ui, vec2};
use loka_core::session::FileKind;

use super::Scene;
use crate::{
    commands::{Action, FileAction},
    platform::{Here, Platform as _},
    theme::{number, shorten},
};

/// Files offered of each sort.
const OFFERED: usize = 6;
/// Width of the list of recent files.
const BLOCK: f32 = 360.0;
/// Characters of a path.
const NAME: usize = 60;

/// A browser hands over files, not folders.
const DROP: &str = if Here::IS_PAGE {
    "Drop a .results.parquet or .trace.safetensors file here, with its plans if you like. It stays on this machine."
} else {
    "Drop a .trace.safetensors file or a folder of shards here, with its results and plans if you like."
};

const SERVED: &str = "Open a trace of the served folder, or drop a .trace.safetensors file here, which is sent to the server. \
                      Everyone who opens the same trace shares one session.";

/// With more traces than that there is a field to find one.
const FEW: usize = 12;

/// Why nothing is shown of a trace that has rows: none of them is of the mods in force, and none is coming.
pub fn no_rows(scene: &Scene<'_>) -> Option<&'static str> {
    let none = scene.session.has_rows() && !scene.session.is_running() && scene.derived.grid.columns.is_empty();
    none.then_some("Not probed under these mods: run the probe, or turn them off")
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
            let served = scene.connection.is_served();
            ui.label(if served { SERVED } else { DROP });
            let about = "LoKA shows where FP8 is safe, where it is fast, and what a plan would win.";
            ui.label(RichText::new(about).color(weak));
            ui.add_space(12.0);
            scene.button_ui(ui, Action::File(FileAction::Open));
            scene.button_ui(ui, Action::File(FileAction::Browse));
            if served {
                in_the_folder_ui(ui, scene);
            } else {
                recent_ui(ui, scene);
                nearby_ui(ui, scene);
            }
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
            super::recent_file_ui(ui, scene, file);
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
        trace_ui(ui, scene, path);
    }
}

fn trace_ui(ui: &mut Ui, scene: &mut Scene<'_>, path: &str) {
    let response = ui.link(shorten(path, NAME)).on_hover_text(format!("Open this trace\n{path}"));
    if response.clicked() {
        scene.open(vec![path.to_owned()]);
    }
}

/// Every trace of the server's folder; what else lies there is opened from within a session.
fn in_the_folder_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    let weak = scene.theme.weak;
    // A run of many ranks is a folder.
    let is_trace = |name: &&String| FileKind::of_name(name).is_none_or(|kind| kind == FileKind::Trace);
    let traces: Vec<&String> = scene.suggestions.iter().filter(is_trace).collect();
    ui.add_space(16.0);
    if traces.is_empty() {
        ui.label(RichText::new("There is no trace in the folder yet").color(weak));
        return;
    }
    let count = number::count(traces.len() as u64);
    let noun = if traces.len() == 1 { "trace" } else { "traces" };
    ui.label(RichText::new(format!("{count} {noun} in the served folder")).small().color(weak));
    let block = vec2(BLOCK.min(ui.available_width()), 0.0);
    ui.allocate_ui_with_layout(block, Layout::top_down(Align::Min), |ui| {
        let wanted = if traces.len() > FEW { wanted_ui(ui) } else { String::new() };
        let fits = |name: &str| wanted.split_whitespace().all(|word| name.to_lowercase().contains(word));
        let mut shown = traces.iter().filter(|name| fits(name)).peekable();
        if shown.peek().is_none() {
            ui.label(RichText::new("No trace matches").color(weak));
        }
        for name in shown {
            trace_ui(ui, scene, name);
        }
    });
}

/// Words that a name must have, in lower case.
fn wanted_ui(ui: &mut Ui) -> String {
    let id = Id::unique("trace in the folder");
    let mut text = ui.data(|data| data.get_temp::<String>(id)).unwrap_or_default();
    let field = ui.add(TextEdit::singleline(&mut text).desired_width(f32::INFINITY).hint_text("Part of a name"));
    field.widget_info(|| egui::WidgetInfo::labeled(egui::Role::TextInput, true, "Find a trace"));
    ui.data_mut(|data| data.insert_temp(id, text.clone()));
    text.to_lowercase()
}
