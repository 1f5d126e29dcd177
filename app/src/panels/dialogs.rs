//! Asks for a path. Enter does it, Esc closes.

use egui::{Id, Key, Modal, RichText, TextEdit, Ui};
use loka_core::session::Command;

use crate::views::{Dialog, DialogKind, Scene};

pub fn dialogs_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    let Some(mut dialog) = scene.view.dialog.take() else { return };
    let modal = Modal::new(Id::unique("path dialog")).show(ui.ctx(), |ui| body_ui(ui, scene, &mut dialog));
    match modal.inner {
        Answer::Go => scene.send(command(&dialog)),
        Answer::Cancel => {}
        Answer::Wait if modal.should_close() => {}
        Answer::Wait => scene.view.dialog = Some(dialog),
    }
}

enum Answer {
    Wait,
    Go,
    Cancel,
}

fn body_ui(ui: &mut Ui, scene: &Scene<'_>, dialog: &mut Dialog) -> Answer {
    let (title, about, verb) = words(dialog.kind);
    ui.set_width(520.0);
    ui.heading(title);
    ui.label(RichText::new(about).color(scene.theme.weak));
    ui.add_space(8.0);
    let label = ui.label("Path");
    let field =
        ui.add(TextEdit::singleline(&mut dialog.path).desired_width(f32::INFINITY).hint_text("Path of the file"));
    let field = field.labelled_by(label.id);
    if std::mem::take(&mut dialog.fresh) {
        field.request_focus();
    }
    let enter = field.lost_focus() && ui.input(|input| input.key_pressed(Key::Enter));
    ui.add_space(12.0);
    let ready = !dialog.path.trim().is_empty();
    let mut answer = if enter && ready { Answer::Go } else { Answer::Wait };
    ui.with_layout(egui::Layout::right_to_left(egui::Align::Center), |ui| {
        if ui.add_enabled(ready, egui::Button::new(verb)).on_hover_text("Enter does the same").clicked() {
            answer = Answer::Go;
        }
        if ui.button("Cancel").on_hover_text("Esc does the same").clicked() {
            answer = Answer::Cancel;
        }
    });
    answer
}

fn words(kind: DialogKind) -> (&'static str, &'static str, &'static str) {
    match kind {
        DialogKind::Open => {
            ("Open", "A .trace.safetensors file, a folder of shards, or a .results.parquet file.", "Open")
        }
        DialogKind::SaveResults => ("Save results", "Every row with its circumstances, as Parquet.", "Save"),
        DialogKind::ExportPlan => {
            ("Export plan", "One kernel a GEMM with its reason, as JSON that loka check accepts.", "Save")
        }
    }
}

fn command(dialog: &Dialog) -> Command {
    let path = dialog.path.trim().to_owned();
    match dialog.kind {
        DialogKind::Open => open(path),
        DialogKind::SaveResults => Command::SaveResults { path },
        DialogKind::ExportPlan => Command::ExportPlan { path },
    }
}

/// Results by their ending, everything else as a trace, whose reader says what is wrong.
pub(crate) fn open(path: String) -> Command {
    if path.ends_with(".parquet") { Command::OpenResults { path } } else { Command::OpenTrace { path } }
}
