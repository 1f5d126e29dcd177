//! The plan: its totals, every choice by the time it saves, overrides, warnings, what differs from pure
//! Dispatch and from another plan, and what will be written.

mod answer;
mod choices;
mod compared;
mod findings;
mod flips;
mod groups;
mod lists;
mod totals;

use egui::{Button, RichText, Ui};

use super::Scene;
use crate::state::PlanPart;

pub fn plan_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    if scene.derived.plan.decided.is_none() || scene.derived.table.lines.is_empty() {
        let why = scene.derived.plan.problem.clone().unwrap_or_else(|| "Made as soon as there are rows".to_owned());
        ui.label(RichText::new(why).color(scene.theme.weak));
        return;
    }
    answer::answer_ui(ui, scene);
    totals::totals_ui(ui, scene);
    ui.add_space(4.0);
    parts_ui(ui, scene);
    ui.add_space(2.0);
    match scene.view.plan.part {
        PlanPart::Choices => choices::choices_ui(ui, scene),
        PlanPart::Findings => findings::findings_ui(ui, scene),
        PlanPart::Overrides => lists::overrides_ui(ui, scene),
        PlanPart::Warnings => lists::warnings_ui(ui, scene),
        PlanPart::Differences => compared::differences_ui(ui, scene),
        PlanPart::Export => lists::export_ui(ui, scene),
    }
}

fn parts_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    ui.horizontal_wrapped(|ui| {
        ui.spacing_mut().item_spacing.x = 2.0;
        for part in PlanPart::ALL {
            let (word, count) = match part {
                PlanPart::Choices => ("Choices", None),
                PlanPart::Findings => ("Findings", Some(scene.derived.findings.len())),
                PlanPart::Overrides => ("Overrides", Some(scene.session.document.overrides.len())),
                PlanPart::Warnings => ("Warnings", Some(scene.derived.table.warnings.len())),
                PlanPart::Differences => ("Differences", num_differences(scene)),
                PlanPart::Export => ("Export", None),
            };
            let text = count.map_or_else(|| word.to_owned(), |count| format!("{word} {count}"));
            let response = ui.add(Button::selectable(scene.view.plan.part == part, text));
            let label = format!("Plan: {}", word.to_lowercase());
            response.widget_info(|| {
                egui::WidgetInfo::selected(egui::Role::Button, true, scene.view.plan.part == part, &label)
            });
            if response.clicked() {
                scene.view.plan.part = part;
            }
        }
    });
}

fn num_differences(scene: &Scene<'_>) -> Option<usize> {
    let table = &scene.derived.table;
    table.other.as_ref().or(table.dispatch.as_ref()).map(|compared| compared.changes.changes.len())
}
