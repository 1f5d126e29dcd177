//! Takes another trace of the same run; shows what moved between the two at the selected site.

use egui::{Grid, RichText, Ui};
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
    let Some(path) = scene.view.drift.compared.clone() else { return };
    ui.add_space(10.0);
    ui.label(RichText::new(format!("{} there and here", inspection.site.id)).strong());
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
pub(super) fn pair_text(pair: Option<(f64, f64)>) -> String {
    let Some((from, to)) = pair else { return "–".to_owned() };
    let ratio = match to / from {
        ratio if from <= 0.0 || !ratio.is_finite() => String::new(),
        // Of so many no hundredth says anything.
        ratio if ratio >= 100.0 => format!(" ({}×)", number::count(ratio.round() as u64)),
        ratio => format!(" ({})", number::times(ratio)),
    };
    format!("{} → {}{ratio}", number::plain(from), number::plain(to))
}

#[cfg(test)]
mod tests {
    use super::pair_text;

    #[test]
    fn pairs_tell_both_and_their_ratio() {
        assert_eq!(pair_text(Some((2.0, 3.0))), "2.00 → 3.00 (1.50×)");
        assert_eq!(pair_text(Some((0.0, 3.0))), "0 → 3.00");
        assert!(pair_text(Some((1.0, 1234.0))).ends_with("(1,234×)"));
        assert_eq!(pair_text(None), "–");
    }
}
