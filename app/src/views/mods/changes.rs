//! What the mods in force change: the plan's sums, errors and verdicts of the model, and the selected site.

use egui::{Grid, RichText, Ui};
use loka_core::{
    model::{Estimate, Gemm, Metric, Safety},
    views::{Flips, ModsEffect, Ratio, SiteChange},
};

use crate::{
    theme::{Term, heads_ui, number, shorten, term_ui},
    views::Scene,
};

pub fn changes_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    let Some(effect) = scene.derived.mods_effect.clone() else {
        ui.label(RichText::new("Nothing is changed: no mod is on.").color(scene.theme.weak));
        return;
    };
    waiting_ui(ui, scene, &effect);
    ui.label(RichText::new("The model, before and after").strong());
    model_ui(ui, scene, &effect);
    flips_ui(ui, scene, &effect);
    ui.add_space(6.0);
    site_ui(ui, scene);
    ui.label(
        RichText::new("Gradients stay as they were recorded: what a mod does to them shows only in training.")
            .small()
            .color(scene.theme.weak),
    );
}

fn waiting_ui(ui: &mut Ui, scene: &Scene<'_>, effect: &ModsEffect) {
    if effect.num_waiting > 0 {
        let (left, all) = (number::count(effect.num_waiting as u64), number::count(effect.num_sites as u64));
        let text = match scene.session.is_running() {
            true => format!("Rows are on their way: {left} of {all} sites still have none under these mods."),
            false => format!("{left} of {all} sites have no rows under these mods: run the probe."),
        };
        ui.label(RichText::new(text).color(scene.theme.warning));
    }
    if effect.lacks_before {
        let text = "There are no rows without mods to compare with: turn the mods off and run the probe once.";
        ui.label(RichText::new(text).color(scene.theme.warning));
    }
}

fn model_ui(ui: &mut Ui, scene: &Scene<'_>, effect: &ModsEffect) {
    let (before, after) = (&effect.before, &effect.after);
    let micros = |us: f64| format!("{} µs", number::micros(us));
    let times = |speedup: Option<f64>| speedup.map_or_else(|| "unknown".to_owned(), number::times);
    let cost = |cost: Option<f64>| cost.map_or_else(|| "unknown".to_owned(), number::plain);
    let metric = scene.session.document.policy.metric;
    Grid::new("model before and after").num_columns(3).spacing([14.0, 2.0]).show(ui, |ui| {
        head_ui(ui, scene);
        row_ui(
            ui,
            scene,
            ("Speed-up of the plan", Term::Speedup),
            &times(before.totals.speedup),
            &times(after.totals.speedup),
        );
        row_ui(
            ui,
            scene,
            ("Its GEMMs", Term::Latency),
            &micros(before.totals.planned_us),
            &micros(after.totals.planned_us),
        );
        row_ui(ui, scene, ("Tails (modelled)", Term::Tail), &micros(before.tail_us), &micros(after.tail_us));
        let sum = |of: &loka_core::views::Sums| micros(of.totals.planned_us + of.tail_us);
        row_ui(ui, scene, ("Together", Term::Plan), &sum(before), &sum(after));
        row_ui(ui, scene, ("Loss cost", Term::LossCost), &cost(before.totals.loss_cost), &cost(after.totals.loss_cost));
        ratio_ui(ui, scene, (metric.label(), Term::of_metric(metric)), effect.error);
        ratio_ui(ui, scene, ("Block relative L2", Term::BlockRelL2), effect.block_error);
    });
}

fn head_ui(ui: &mut Ui, scene: &Scene<'_>) {
    for text in ["", "before", "after"] {
        ui.label(RichText::new(text).small().color(scene.theme.weak));
    }
    ui.end_row();
}

fn row_ui(ui: &mut Ui, scene: &Scene<'_>, (name, term): (&str, Term), before: &str, after: &str) {
    term_ui(ui, RichText::new(name).color(scene.theme.weak), term);
    ui.label(RichText::new(before).monospace());
    ui.label(RichText::new(after).monospace());
    ui.end_row();
}

/// The median over kernels of after / before.
fn ratio_ui(ui: &mut Ui, scene: &Scene<'_>, (name, term): (&str, Term), ratio: Option<Ratio>) {
    let Some(ratio) = ratio else { return };
    term_ui(ui, RichText::new(name).color(scene.theme.weak), term);
    ui.label(RichText::new("1").monospace());
    let num = number::count(ratio.num as u64);
    ui.label(RichText::new(format!("×{}", number::plain(ratio.median))).monospace())
        .on_hover_text(format!("The median of after over before, kernel by kernel in low precision, over {num} rows"));
    ui.end_row();
}

fn flips_ui(ui: &mut Ui, scene: &Scene<'_>, effect: &ModsEffect) {
    ui.add_space(4.0);
    ui.label(RichText::new("Verdicts that flip").strong())
        .on_hover_text("Of kernels in low precision, each against itself at the same GEMM");
    Grid::new("flips").num_columns(5).spacing([14.0, 2.0]).show(ui, |ui| {
        ui.label("");
        let heads = [
            ("unsafe → safe", Term::Safe),
            ("safe → unsafe", Term::Unsafe),
            ("via uncertain", Term::Uncertain),
            ("as before", Term::Flip),
        ];
        heads_ui(ui, scene.theme.weak, heads);
        line_ui(ui, scene, "at changed sites", &effect.here);
        line_ui(ui, scene, "downstream", &effect.downstream);
    });
    ui.label(
        RichText::new("Downstream: sites that no mod changes; those that read a changed block get other inputs.")
            .small()
            .color(scene.theme.weak),
    );
}

fn line_ui(ui: &mut Ui, scene: &Scene<'_>, name: &str, flips: &Flips) {
    ui.label(RichText::new(name).color(scene.theme.weak));
    for count in [flips.to_safe, flips.to_unsafe, flips.other, flips.same] {
        ui.label(RichText::new(number::count(count as u64)).monospace());
    }
    ui.end_row();
}

/// The selected kernel at the selected site; else the chosen one of its forward GEMM.
fn site_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    let Some(id) = scene.view.site.clone() else { return };
    let gemm = scene.view.column.as_ref().map_or(Gemm::Fprop, |column| column.gemm);
    let chosen = || scene.derived.plan.pick(&id, gemm).map(|choice| choice.kernel.clone());
    let Some(kernel) = scene.view.column.as_ref().map(|column| column.kernel.clone()).or_else(chosen) else { return };
    ui.add(egui::Label::new(RichText::new(shorten(id.as_str(), 60)).strong()).truncate()).on_hover_text(id.as_str());
    ui.label(RichText::new(format!("{gemm} by {kernel}, before and after")).small().color(scene.theme.weak));
    let Some(change) = scene.derived.site_change(&id, gemm, &kernel, scene.session.document.policy.metric) else {
        ui.label(RichText::new("No row yet").color(scene.theme.weak));
        return;
    };
    if change.waits {
        ui.label(RichText::new("Its rows are on their way").small().color(scene.theme.warning));
    }
    change_ui(ui, scene, &change);
}

fn change_ui(ui: &mut Ui, scene: &Scene<'_>, change: &SiteChange) {
    let error = |(of, is_out_of_range): (Option<Estimate>, bool)| match of.map(number::with_interval) {
        Some((value, Some(half))) => format!("{value} ±{half}"),
        Some((value, None)) => value,
        None => if is_out_of_range { "out of range" } else { "–" }.to_owned(),
    };
    let us = |of: Option<f64>| of.map_or_else(|| "–".to_owned(), |us| format!("{} µs", number::micros(us)));
    let safety = |of: Option<Safety>| of.map_or("–", Safety::as_str);
    Grid::new("site before and after").num_columns(3).spacing([14.0, 2.0]).show(ui, |ui| {
        head_ui(ui, scene);
        row_ui(ui, scene, ("Verdict", Term::Verdict), safety(change.safety.0), safety(change.safety.1));
        for (metric, before, after) in &change.errors {
            let out = if *metric == Metric::LossCost { change.is_out_of_range } else { (false, false) };
            if before.is_some() || after.is_some() || out.0 || out.1 {
                let (before, after) = (error((*before, out.0)), error((*after, out.1)));
                row_ui(ui, scene, (metric.label(), Term::of_metric(*metric)), &before, &after);
            }
        }
        row_ui(ui, scene, ("GEMM with casts", Term::Latency), &us(change.latency_us.0), &us(change.latency_us.1));
        if change.tail_us.0.is_some() || change.tail_us.1.is_some() {
            row_ui(ui, scene, ("Tail (modelled)", Term::Tail), &us(change.tail_us.0), &us(change.tail_us.1));
        }
    });
}
