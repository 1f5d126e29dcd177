//! The log: every line of this session with its time, by kind, the newest at the bottom.

use egui::{Align2, Color32, FontId, RichText, ScrollArea, Sense, Ui, vec2};
use loka_core::{
    session::{LogEntry, LogKind, Session},
    views::tsv,
};

use super::Scene;
use crate::{
    commands::{Action, FileAction, WindowAction},
    state::LogState,
};

const LINE: f32 = 18.0;
/// Where the kind and the text begin.
const KIND: f32 = 64.0;
const TEXT: f32 = 112.0;
/// Characters that are laid out of one line; the rest is in the tooltip.
const LONGEST: usize = 400;

pub fn log_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    let session = scene.session;
    controls_ui(ui, scene);
    let entries = session.log().entries();
    if entries.is_empty() {
        let text = "Nothing happened yet: opened files, runs and notices are written here";
        ui.label(RichText::new(text).color(scene.theme.weak));
        return;
    }
    let shown: Vec<&LogEntry> = entries.iter().filter(|entry| scene.view.log.shows(entry)).collect();
    if shown.is_empty() {
        ui.label(RichText::new("Every line is of a kind that is hidden").color(scene.theme.weak));
        return;
    }
    ui.spacing_mut().item_spacing.y = 0.0;
    let area = ScrollArea::vertical().id_salt("log").auto_shrink([false, false]).stick_to_bottom(true);
    area.show_rows(ui, LINE, shown.len(), |ui, visible| {
        for entry in &shown[visible] {
            line_ui(ui, scene, entry);
        }
    });
}

/// Kinds to show, copy, clear.
fn controls_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    ui.horizontal_wrapped(|ui| {
        for kind in LogKind::ALL {
            let mut shown = !scene.view.log.hidden.contains(&kind);
            let hint = format!("Show lines of the kind {}", kind.word().to_lowercase());
            if ui.checkbox(&mut shown, kind.word()).on_hover_text(hint).changed() {
                let hidden = &mut scene.view.log.hidden;
                if shown {
                    hidden.remove(&kind)
                } else {
                    hidden.insert(kind)
                };
            }
        }
        ui.add_space(8.0);
        scene.button_named_ui(ui, Action::File(FileAction::CopyLog), "Copy log");
        scene.button_named_ui(ui, Action::Window(WindowAction::ClearLog), "Clear log");
    });
}

fn line_ui(ui: &mut Ui, scene: &Scene<'_>, entry: &LogEntry) {
    let theme = &scene.theme;
    let (rect, response) = ui.allocate_exact_size(vec2(ui.available_width(), LINE), Sense::hover());
    let time = scene.view.log.time_of(entry.seq);
    let said = format!("{time} {}: {}", entry.kind.word(), entry.text);
    response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Label, true, &said));
    let painter = ui.painter().with_clip_rect(rect.intersect(ui.clip_rect()));
    let at = |x: f32| rect.left_center() + vec2(x, 0.0);
    painter.text(at(0.0), Align2::LEFT_CENTER, time, FontId::monospace(11.0), theme.weak);
    let word = entry.kind.word();
    painter.text(at(KIND), Align2::LEFT_CENTER, word, FontId::proportional(12.0), color_of(scene, entry.kind));
    // A name of thousands of characters is laid out as far as a line can show it.
    let text: String = one_line(&entry.text).chars().take(LONGEST).collect();
    painter.text(at(TEXT), Align2::LEFT_CENTER, text, FontId::proportional(13.0), theme.text);
    response.on_hover_text(said);
}

fn color_of(scene: &Scene<'_>, kind: LogKind) -> Color32 {
    match kind {
        LogKind::Error => scene.theme.error,
        LogKind::Warning => scene.theme.warning,
        LogKind::Info | LogKind::Run | LogKind::File | LogKind::Review => scene.theme.accent,
    }
}

fn one_line(text: &str) -> String {
    text.chars().map(|character| if character.is_control() { ' ' } else { character }).collect()
}

/// The lines that are shown as a table, and how many.
pub fn log_text(session: &Session, state: &LogState) -> (String, usize) {
    let shown = session.log().entries().iter().filter(|entry| state.shows(entry));
    let line = |entry: &LogEntry| {
        tsv::line(&[state.time_of(entry.seq).to_owned(), entry.kind.word().to_owned(), entry.text.clone()])
    };
    let lines: Vec<String> = shown.map(line).collect();
    (tsv::line(&["time (UTC)", "kind", "text"].map(str::to_owned)) + &lines.concat(), lines.len())
}
