//! The selected kernel in words: where its numbers come from, how far the sampler can be trusted, and
//! the form that sets it by hand.

use egui::{Id, Key, RichText, TextEdit, Ui};
use loka_core::{
    model::{Gemm, LatencySource, ResultRow, Site},
    session::{Command, engine_title, view::Column},
};

use super::inspector::mods_in_force;
use crate::{
    theme::{number, source_about, source_ui, source_word},
    views::Scene,
};

pub fn details_ui(ui: &mut Ui, scene: &mut Scene<'_>, site: &Site, gemm: Gemm) {
    let Some(column) = scene.view.column.clone().filter(|column| column.gemm == gemm) else { return };
    let row = scene.session.row(&site.id, gemm, &column.kernel, &mods_in_force(scene)).cloned();
    let Some(row) = row else { return };
    ui.add_space(4.0);
    if scene.view.overriding.as_ref() == Some(&column) && row.supported {
        override_ui(ui, scene, site, &column);
    }
    for line in lines(&row) {
        let label = egui::Label::new(RichText::new(&line).small().color(scene.theme.weak)).truncate();
        ui.add(label).on_hover_text(line);
    }
    if row.supported {
        ui.horizontal(|ui| {
            ui.spacing_mut().item_spacing.x = 4.0;
            let (source, line) = (row.latency.source, latency_line(&row));
            source_ui(ui, &scene.theme, source, &line).on_hover_text(format!("{line}\n{}", source_about(source)));
        });
    }
}

/// Origins of the numbers, one line each.
fn lines(row: &ResultRow) -> Vec<String> {
    let mut lines = Vec::new();
    if !row.supported {
        lines.push(format!("{}: {}", row.kernel, row.reason.as_deref().unwrap_or("unsupported")));
        return lines;
    }
    if let Some(error) = &row.error {
        let skipped = match error.zeros_skipped {
            0 => String::new(),
            zeros => format!(", {} zeros skipped", number::count(zeros)),
        };
        let draws = number::count(error.draws);
        let by = engine_title(&row.engine);
        lines.push(format!("{}: {draws} draws, {} sampler, {by} engine{skipped}", row.kernel, row.sampler));
    }
    if let (Some(error), Some(fidelity)) = (&row.error, row.fidelity) {
        let (sampled, heldout) = (number::plain(error.rel_l2.value), number::plain(fidelity.heldout_rel_l2));
        let rows = number::count(fidelity.rows);
        lines.push(format!("Relative L2: sampled {sampled}, on {rows} held-out rows {heldout}"));
    }
    let latency = &row.latency;
    let parts = [("GEMM", latency.gemm_us), ("casts", latency.cast_us), ("tail (modelled)", latency.tail_us)];
    let known = parts.iter().filter_map(|(name, time)| Some(format!("{name} {} µs", number::micros((*time)?))));
    let times = known.collect::<Vec<_>>().join(" · ");
    if !times.is_empty() {
        lines.push(times);
    }
    lines
}

/// Where the latency came from. Its note begins with that word where there is one.
fn latency_line(row: &ResultRow) -> String {
    let (note, word) = (&row.latency.note, source_word(row.latency.source));
    match row.latency.source {
        LatencySource::None if note.is_empty() => "No latency".to_owned(),
        LatencySource::None => format!("No latency: {note}"),
        _ if note.starts_with(word) => format!("Latency {note}"),
        _ => format!("Latency {word}{}{note}", if note.is_empty() { "" } else { ": " }),
    }
}

fn override_ui(ui: &mut Ui, scene: &mut Scene<'_>, site: &Site, column: &Column) {
    ui.label(format!("Use {} for {}", column.kernel, column.gemm));
    ui.horizontal(|ui| {
        let width = ui.available_width() - 148.0;
        let field = TextEdit::singleline(&mut scene.view.reason).id(Id::unique("override reason")).desired_width(width);
        let response = ui.add(field.hint_text("Why, for the plan"));
        response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::TextInput, true, "Reason"));
        if std::mem::take(&mut scene.view.focus_reason) {
            response.request_focus();
        }
        let enter = response.lost_focus() && ui.input(|input| input.key_pressed(Key::Enter));
        let go = ui.button("Override").on_hover_text("Set this kernel by hand (Enter)").clicked();
        if ui.button("Cancel").on_hover_text("Leave the choice as it is (Esc)").clicked() {
            scene.view.overriding = None;
        }
        if go || enter {
            let reason = std::mem::take(&mut scene.view.reason);
            let (site, gemm, kernel) = (site.id.clone(), column.gemm, column.kernel.clone());
            scene.send(Command::SetOverride { site, gemm, kernel, reason: reason.trim().to_owned() });
            scene.view.overriding = None;
        }
    });
}
