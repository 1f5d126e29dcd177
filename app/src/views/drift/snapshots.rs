//! Takes another trace of the same run; shows what moved between the two at the selected site.

use egui::{Grid, Key, RichText, Role, TextEdit, Ui, WidgetInfo};
use loka_core::{
    session::{Command, Looked},
    views::{
        distribution::{Inspection, Operand},
        drift::{OperandChange, snapshots},
    },
};

use crate::{
    theme::{Term, heads_ui, number},
    views::Scene,
};

pub(super) fn snapshots_ui(ui: &mut Ui, scene: &mut Scene<'_>, inspection: &Inspection) {
    ui.label(RichText::new("Another snapshot of this run").strong());
    field_ui(ui, scene, inspection);
    let Some(path) = scene.view.drift.compared.clone() else { return };
    let (weak, warning) = (scene.theme.weak, scene.theme.warning);
    match scene.session.inspections.in_other(&path, &inspection.site.id) {
        Some(Looked::Found(other)) => match snapshots(&[(inspection.step, inspection), (other.step, other)]) {
            Ok(changes) => changes_ui(ui, scene, &changes),
            Err(reason) => drop(ui.label(RichText::new(format!("Cannot be compared: {reason}")).color(warning))),
        },
        Some(Looked::Failed(reason)) => {
            ui.label(RichText::new(format!("Cannot be compared: {reason}")).color(warning));
        }
        looked => {
            // The selection moved on: the same trace, at this site.
            if looked.is_none() {
                scene.send(Command::InspectOther { path: path.clone(), site: inspection.site.id.clone() });
            }
            ui.label(RichText::new(format!("Reading {path}")).color(weak));
        }
    }
}

fn field_ui(ui: &mut Ui, scene: &mut Scene<'_>, inspection: &Inspection) {
    ui.horizontal(|ui| {
        let width = (ui.available_width() - 190.0).clamp(120.0, 520.0);
        let field = TextEdit::singleline(&mut scene.view.drift.compare).desired_width(width);
        let response = ui.add(field.hint_text("Path of a trace of an earlier or later step"));
        response.widget_info(|| WidgetInfo::labeled(Role::TextInput, true, "Path of another snapshot"));
        let enter = response.lost_focus() && ui.input(|input| input.key_pressed(Key::Enter));
        let path = scene.view.drift.compare.trim().to_owned();
        let button = ui.add_enabled(!path.is_empty(), egui::Button::new("Compare"));
        let hint = "Read this site there, too, and show what moved between the two";
        if button.on_hover_text(hint).clicked() || (enter && !path.is_empty()) {
            scene.send(Command::InspectOther { path: path.clone(), site: inspection.site.id.clone() });
            scene.view.drift.compared = Some(path);
        }
        if scene.view.drift.compared.is_some()
            && ui.button("Stop comparing").on_hover_text("Show this trace alone again").clicked()
        {
            scene.view.drift.compared = None;
        }
    });
}

fn changes_ui(ui: &mut Ui, scene: &Scene<'_>, changes: &[OperandChange]) {
    let Some(first) = changes.first() else { return };
    let step = |step: u64| number::count(step);
    let title = format!("Step {} → step {}", step(first.from_step), step(first.to_step));
    ui.label(RichText::new(title).color(scene.theme.weak));
    Grid::new("snapshots").num_columns(5).spacing([20.0, 2.0]).show(ui, |ui| {
        ui.label("");
        let heads = [
            ("amax", Term::Amax),
            ("furthest feature", Term::Reach),
            ("median spread", Term::Spread),
            ("moved by", Term::Moved),
        ];
        heads_ui(ui, scene.theme.weak, heads);
        for change in changes {
            ui.label(change.operand.label());
            for pair in [change.amax, change.largest_reach, change.typical_spread] {
                ui.label(RichText::new(pair_text(pair)).monospace());
            }
            let moved =
                change.octaves_moved.map_or_else(|| "–".to_owned(), |by| format!("{} octaves", number::plain(by)));
            ui.label(RichText::new(moved).monospace());
            ui.end_row();
        }
    });
    if let Some(norm) = changes.iter().find(|change| change.operand == Operand::Input).and_then(|of| of.bias_norm) {
        ui.label(RichText::new(format!("Bias norm {}", pair_text(Some(norm)))).monospace());
    }
    let text = "Verdicts of the other snapshot are not known here: probe it, save its results, and compare plans.";
    ui.label(RichText::new(text).small().color(scene.theme.weak));
}

/// `3.10 → 4.20 (1.35×)`.
fn pair_text(pair: Option<(f64, f64)>) -> String {
    let Some((from, to)) = pair else { return "–".to_owned() };
    let ratio = if from > 0.0 { format!(" ({})", number::times(to / from)) } else { String::new() };
    format!("{} → {}{ratio}", number::plain(from), number::plain(to))
}

#[cfg(test)]
mod tests {
    use super::pair_text;

    #[test]
    fn pairs_tell_both_and_their_ratio() {
        assert_eq!(pair_text(Some((2.0, 3.0))), "2.00 → 3.00 (1.50×)");
        assert_eq!(pair_text(Some((0.0, 3.0))), "0 → 3.00");
        assert_eq!(pair_text(None), "–");
    }
}
