//! The recorded step that views show together: its controls, and what is derived of a kernel there.

use egui::{RichText, Ui};
use loka_core::{
    model::{Estimate, Quadrant, Safety},
    session::Looked,
    views::{
        Column,
        drift::{KernelDrift, MODEL_ERROR},
    },
};

use super::Scene;
use crate::{
    commands::{Action, StepAction},
    theme::number,
};

/// `1,200`
pub fn step_number(step: i64) -> String {
    let sign = if step < 0 { "-" } else { "" };
    format!("{sign}{}", number::count(step.unsigned_abs()))
}

pub fn step_text(step: i64) -> String {
    format!("step {}", step_number(step))
}

/// As far as the model supports it.
pub fn modelled(error: Estimate) -> String {
    let value = error.value;
    number::with_interval(Estimate::new(value, value / MODEL_ERROR, value * MODEL_ERROR)).0
}

/// The same with its mark; a loss cost outside its range is no figure.
pub fn derived(kernel: &KernelDrift, error: Estimate) -> String {
    if kernel.is_out_of_range(error) { "outside its range".to_owned() } else { format!("≈ {}", modelled(error)) }
}

pub fn safety_color(scene: &Scene<'_>, safety: Safety) -> egui::Color32 {
    scene.theme.verdict(match safety {
        Safety::Safe => Quadrant::SafeFast,
        Safety::Uncertain => Quadrant::Uncertain,
        Safety::Unsafe => Quadrant::UnsafeFast,
    })
}

pub fn controls_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    ui.horizontal_wrapped(|ui| {
        let playing = scene.view.steps.is_playing();
        scene.button_named_ui(ui, Action::Step(StepAction::Previous), "Previous step");
        scene.button_named_ui(ui, Action::Step(StepAction::Next), "Next step");
        scene.button_named_ui(ui, Action::Step(StepAction::Play), if playing { "Stop" } else { "Play" });
        match scene.view.steps.step() {
            None => {
                let hint = "Statistics of all recorded steps together: what the probe samples and the plan rests on";
                ui.label(RichText::new("whole recording").color(scene.theme.weak)).on_hover_text(hint);
            }
            Some(step) => {
                ui.label(RichText::new(step_text(step)).color(scene.theme.accent).strong());
                scene.button_named_ui(ui, Action::Step(StepAction::Leave), "Whole recording");
            }
        }
    });
}

/// What a kernel's error would have been at the step that is looked at: where it can be derived, else why not.
pub fn at_step_ui(ui: &mut Ui, scene: &mut Scene<'_>, column: &Column) {
    let Some(step) = scene.view.steps.step() else { return };
    let Some(site) = scene.view.site.clone() else { return };
    let Some(Looked::Found(inspection)) = scene.session.inspections.of(&site) else { return };
    let kernels = scene.view.drift.kernels(scene.session, inspection);
    let found = kernels.iter().find(|kernel| kernel.gemm == column.gemm && kernel.kernel == column.kernel);
    let Some(found) = found else { return };
    let (text, color) = match (found.at(step), &found.errors) {
        (Some((error, safety)), _) => {
            let changed = if safety == found.safety { scene.theme.weak } else { safety_color(scene, safety) };
            let error = format!("{} {}", found.metric.label(), derived(found, error));
            (format!("At {}: {error}, {} (modelled)", step_text(step), safety.as_str()), changed)
        }
        (None, Err(why)) => (format!("At {} not known: {why}", step_text(step)), scene.theme.weak),
        (None, Ok(_)) => return,
    };
    ui.label(RichText::new(text).small().color(color));
}

#[cfg(test)]
mod tests {
    use loka_core::model::{Gemm, KernelId, Metric};

    use super::*;

    #[test]
    fn a_derived_loss_cost_outside_its_range_is_no_number() {
        let kernel = KernelDrift {
            gemm: Gemm::Fprop,
            kernel: KernelId::new("te/current"),
            metric: Metric::LossCost,
            limit: 1e-4,
            measured: Some(Estimate::exact(0.02)),
            safety: Safety::Unsafe,
            range: Some(0.05),
            errors: Ok(Vec::new()),
            flips: Vec::new(),
        };
        assert_eq!(derived(&kernel, Estimate::exact(0.06)), "outside its range");
        assert!(derived(&kernel, Estimate::exact(0.04)).starts_with("≈ .04"));
    }
}
