//! The plan in words, above its table: where FP8 pays, and of the rest why it does not. A click on a sentence selects what
//! it speaks of.

use std::collections::BTreeSet;

use egui::{Frame, Link, Margin, RichText, Ui};
use loka_core::{
    model::SiteId,
    views::{Because, Clause, Column},
};

use crate::{state::PlanPart, theme::number, views::Scene};

pub fn answer_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    let answer = scene.derived.answer.clone();
    if answer.clauses.is_empty() {
        return;
    }
    let card = Frame::new().fill(scene.theme.panel).corner_radius(4).inner_margin(Margin::symmetric(8, 6));
    card.show(ui, |ui| {
        ui.set_width(ui.available_width());
        ui.horizontal_wrapped(|ui| {
            ui.spacing_mut().item_spacing.x = 5.0;
            for (at, clause) in answer.clauses.iter().enumerate() {
                clause_ui(ui, scene, clause);
                if let (0, Some(caution)) = (at, answer.caution) {
                    caution_ui(ui, scene, caution);
                }
            }
        });
    });
    ui.add_space(4.0);
}

/// A click shows the warning that has the figures.
fn caution_ui(ui: &mut Ui, scene: &mut Scene<'_>, caution: &str) {
    let text = RichText::new(caution).color(scene.theme.warning);
    if ui.add(Link::new(text)).on_hover_text("Show the plan's warnings").clicked() {
        scene.view.plan.part = PlanPart::Warnings;
    }
}

fn clause_ui(ui: &mut Ui, scene: &mut Scene<'_>, clause: &Clause) {
    let text = RichText::new(&clause.text);
    let text = if clause.because == Because::Pays { text.strong() } else { text };
    if clause.gemms.is_empty() {
        ui.label(text.color(scene.theme.text));
        return;
    }
    // Of ten thousand sites no frame counts what nobody points at.
    let hint = |ui: &mut Ui| _ = ui.label(format!("Select {}", number::counted(clause.sites().len(), "site")));
    if ui.add(Link::new(text.color(scene.theme.text))).on_hover_ui(hint).clicked() {
        let ids = scene.session.index().ids();
        let named: BTreeSet<SiteId> = clause.sites().iter().filter_map(|at| ids.get(*at).cloned()).collect();
        let (at, gemm) = clause.gemms[0];
        let kernel = scene.derived.plan.pick_at(at, gemm).map(|choice| choice.kernel.clone());
        if let Some(first) = ids.get(at).cloned() {
            scene.view.select(first, kernel.map(|kernel| Column { gemm, kernel }));
            scene.view.selection = named;
            scene.view.reveal = true;
        }
    }
}
