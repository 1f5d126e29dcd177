//! What each step of speed-up costs: a curve a policy as its threshold moves, and the plan of now among them.
//! A point is adopted by a click or by Enter: one step of undo.

mod chart;
mod words;

use egui::{RichText, Ui};
use loka_core::{model::Metric, views::FrontierAxis};

use super::{Scene, no_rows};
use crate::{
    commands::{Action, QuadrantAction},
    theme::number,
};

pub fn frontier_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    controls_ui(ui, scene);
    if let Some((problem, next)) = problem(scene) {
        ui.add_space(24.0);
        ui.vertical_centered(|ui| {
            ui.label(RichText::new(problem).color(scene.theme.weak));
            if let Some(action) = next {
                ui.add_space(8.0);
                scene.button_ui(ui, action);
            }
        });
        return;
    }
    legend_ui(ui, scene);
    chart::chart_ui(ui, scene);
    footer_ui(ui, scene);
}

fn controls_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    ui.horizontal_wrapped(|ui| {
        ui.label(RichText::new("Cost").color(scene.theme.weak));
        let switch = Action::Quadrant(QuadrantAction::SwitchCost);
        // A policy that bounds the noise share has it as its worst error already.
        let own = scene.session.document.policy.metric;
        let axes =
            FrontierAxis::ALL.into_iter().filter(|axis| *axis != FrontierAxis::WorstError || own != Metric::NoiseShare);
        ui.spacing_mut().item_spacing.x = 2.0;
        for axis in axes {
            let text = match axis {
                FrontierAxis::LossCost => "Loss cost",
                FrontierAxis::WorstNoise => "Noise share",
                FrontierAxis::WorstError => "Worst error",
            };
            let chosen = scene.view.frontier.axis == axis;
            if ui.selectable_label(chosen, text).on_hover_text(switch.hint(ui.ctx())).clicked() {
                scene.view.frontier.axis = axis;
            }
        }
        ui.spacing_mut().item_spacing.x = 8.0;
        if scene.view.frontier.at.is_some() {
            ui.separator();
            scene.button_named_ui(ui, Action::Quadrant(QuadrantAction::PreviousFrontier), "Slower");
            scene.button_named_ui(ui, Action::Quadrant(QuadrantAction::NextFrontier), "Faster");
            scene.button_ui(ui, Action::Quadrant(QuadrantAction::Adopt));
        }
        if scene.derived.frontier_is_behind() {
            ui.label(RichText::new("Sweeping the thresholds").color(scene.theme.weak));
        }
    });
}

/// Why there is nothing to draw, and what helps.
fn problem(scene: &Scene<'_>) -> Option<(String, Option<Action>)> {
    let frontier = scene.derived.frontier();
    let switch = Some(Action::Quadrant(QuadrantAction::SwitchCost));
    if !scene.session.has_rows() {
        return Some(("The first rows are on their way".to_owned(), None));
    }
    if let Some(text) = no_rows(scene) {
        return Some((text.to_owned(), None));
    }
    if frontier.curves.is_empty() {
        let text = if scene.derived.frontier_is_behind() {
            "The thresholds are being swept"
        } else {
            "No latency is known for any GEMM here: there is no speed-up to pay for. Measure the speeds on a GPU, or \
             open results that have them"
        };
        return Some((text.to_owned(), None));
    }
    if frontier.buys_nothing() {
        let text = "No threshold buys speed here: no kernel in low precision that was probed is fast enough at any GEMM. A lower \
                    speed-up threshold lets slower ones in";
        return Some((text.to_owned(), Some(Action::Quadrant(QuadrantAction::LetFastestIn))));
    }
    if !frontier.is_free(scene.view.frontier.axis) {
        return None;
    }
    Some(match scene.view.frontier.axis {
        FrontierAxis::LossCost => {
            ("No loss cost is known: only forward GEMMs of a trace with recorded gradients have one".to_owned(), switch)
        }
        FrontierAxis::WorstNoise => (
            "No noise share is known: only dgrad and wgrad of a trace with recorded gradients have one".to_owned(),
            switch,
        ),
        FrontierAxis::WorstError => ("No policy lets a GEMM into low precision here".to_owned(), switch),
    })
}

fn legend_ui(ui: &mut Ui, scene: &Scene<'_>) {
    ui.horizontal_wrapped(|ui| {
        ui.spacing_mut().item_spacing.x = 4.0;
        for (number, curve) in scene.derived.frontier().curves.iter().enumerate() {
            let (rect, mark) = ui.allocate_exact_size(egui::vec2(18.0, 14.0), egui::Sense::hover());
            let color = scene.theme.group(number);
            ui.painter().hline(rect.x_range(), rect.center().y, egui::Stroke::new(1.5, color));
            chart::mark(ui.painter(), rect.center(), number, color);
            let text = RichText::new(curve.name()).small().color(scene.theme.weak);
            mark.union(ui.label(text)).on_hover_text(words::about(curve));
            ui.add_space(6.0);
        }
        let (rect, mark) = ui.allocate_exact_size(egui::vec2(16.0, 14.0), egui::Sense::hover());
        chart::now_mark(ui.painter(), rect.center(), &scene.theme);
        let text = RichText::new("now").small().color(scene.theme.weak);
        mark.union(ui.label(text)).on_hover_text(words::now(scene));
    });
}

fn footer_ui(ui: &mut Ui, scene: &Scene<'_>) {
    let overrides = scene.session.document.overrides.len();
    let mut text = "Click a point to adopt it".to_owned();
    if overrides > 0 {
        let count = number::count(overrides as u64);
        let noun = if overrides == 1 { "override is" } else { "overrides are" };
        text += &format!(" · {count} {noun} in the plan of now and not in the curves");
    }
    ui.add(egui::Label::new(RichText::new(text).small().color(scene.theme.weak)).truncate());
}
