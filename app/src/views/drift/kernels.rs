//! Takes kernels along the series; lists those whose error can be derived, with the steps at which their
//! verdict would flip, and says why the others cannot.

use std::collections::BTreeMap;

use egui::{Grid, RichText, Ui};
use loka_core::{
    model::Estimate,
    views::drift::{FlipSpan, KernelDrift},
};

use super::series::steps_text;
use crate::{
    theme::{Term, number, term_ui},
    views::{
        Scene,
        steps::{derived, safety_color, step_text},
    },
};

pub(super) fn kernels_ui(ui: &mut Ui, scene: &Scene<'_>, kernels: &[KernelDrift]) {
    let weak = scene.theme.weak;
    if kernels.is_empty() {
        let text = "No rows of this site yet: probe the trace to see which verdicts would flip.";
        ui.label(RichText::new(text).color(weak));
        return;
    }
    let known: Vec<&KernelDrift> = kernels.iter().filter(|kernel| kernel.errors.is_ok()).collect();
    if !known.is_empty() {
        table_ui(ui, scene, &known);
    }
    reasons_ui(ui, scene, kernels);
}

fn table_ui(ui: &mut Ui, scene: &Scene<'_>, kernels: &[&KernelDrift]) {
    let weak = scene.theme.weak;
    let step = scene.view.steps.step();
    Grid::new("drifting kernels").num_columns(6).spacing([16.0, 2.0]).show(ui, |ui| {
        for (name, term) in [
            ("GEMM", Term::Gemm),
            ("kernel", Term::Kernel),
            ("error now", Term::Error),
            ("along the series (modelled)", Term::Drift),
            ("verdict", Term::Verdict),
        ] {
            term_ui(ui, RichText::new(name).small().color(weak), term);
        }
        if let Some(step) = step {
            let text = format!("at {} (modelled)", step_text(step));
            ui.label(RichText::new(text).small().color(scene.theme.accent));
        }
        ui.end_row();
        for kernel in kernels {
            ui.label(kernel.gemm.as_str());
            ui.label(kernel.kernel.as_str());
            let now = kernel.measured.map_or_else(|| "–".to_owned(), |estimate| number::with_interval(estimate).0);
            let bound = format!("{}, bound {}", kernel.metric.label(), number::trimmed(kernel.limit));
            ui.label(RichText::new(now).monospace()).on_hover_text(bound);
            ui.label(RichText::new(range_text(kernel)).monospace());
            verdict_ui(ui, scene, kernel);
            if let Some((error, safety)) = step.and_then(|step| kernel.at(step)) {
                let text = format!("{}, {}", derived(kernel, error), safety.as_str());
                let same = safety == kernel.safety;
                ui.label(RichText::new(text).color(if same { scene.theme.weak } else { safety_color(scene, safety) }));
            }
            ui.end_row();
        }
    });
}

/// As far as the model supports it.
fn range_text(kernel: &KernelDrift) -> String {
    let Ok(errors) = &kernel.errors else { return String::new() };
    let values = errors.iter().flat_map(|at| [at.low.value, at.high.value]);
    let range = values.map(|value| (value, value)).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
    let Some((low, high)) = range else { return "–".to_owned() };
    let [low, high] = [low, high].map(|value| derived(kernel, Estimate::exact(value)));
    if low == high { low } else { format!("{low} to {}", high.trim_start_matches("≈ ")) }
}

fn verdict_ui(ui: &mut Ui, scene: &Scene<'_>, kernel: &KernelDrift) {
    let stays = format!("stays {}", kernel.safety.as_str());
    let Some(first) = kernel.flips.first() else {
        ui.label(RichText::new(stays).color(scene.theme.weak));
        return;
    };
    let times = match kernel.flips.len() {
        1 => steps_text(first.first_step, first.last_step),
        several => format!("{several} times"),
    };
    let text = format!("{} → {}, {times}", kernel.safety.as_str(), first.to.as_str());
    let hover: Vec<String> = kernel.flips.iter().take(24).map(|flip| told(kernel, flip)).collect();
    ui.label(RichText::new(text).color(safety_color(scene, first.to))).on_hover_text(hover.join("\n"));
}

fn told(kernel: &KernelDrift, flip: &FlipSpan) -> String {
    let steps = steps_text(flip.first_step, flip.last_step);
    let error =
        if kernel.is_out_of_range(flip.error) { "outside its range".to_owned() } else { number::sentence(flip.error) };
    format!("{} at {steps}: {error} (modelled)", flip.to.as_str())
}

/// Kernels without marks, by reason.
fn reasons_ui(ui: &mut Ui, scene: &Scene<'_>, kernels: &[KernelDrift]) {
    let mut reasons: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for kernel in kernels {
        if let Err(reason) = &kernel.errors {
            reasons.entry(reason).or_default().push(format!("{} {}", kernel.kernel, kernel.gemm));
        }
    }
    if !reasons.is_empty() {
        ui.add_space(4.0);
        ui.label(RichText::new("No marks can be derived for").small().color(scene.theme.weak));
    }
    for (reason, names) in reasons {
        let what = if names.len() == 1 { "row" } else { "rows" };
        let text = format!("{} {what}: {reason}", number::count(names.len() as u64));
        ui.label(RichText::new(text).small().color(scene.theme.weak)).on_hover_text(names.join("\n"));
    }
}
