//! What the plan wins and costs, and the way out: undo, save, export.

use egui::{Align, Color32, Layout, RichText, TextStyle, Ui};
use loka_core::model::LatencySource;

use crate::{
    commands::{Action, EditAction, FileAction},
    theme::{SOURCE_MARK, Term, explained_ui, number, source_ui, source_word, term_ui, with_terms},
    views::Scene,
};

/// Below this width only the speed-up and the ways to undo and export are shown; the Plan view has the rest.
const ROOMY: f32 = 760.0;

pub fn plan_line_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    ui.horizontal(|ui| {
        // The buttons first, from the right: what is left is the figures', and is cut, never wrapped.
        ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
            let roomy = ui.available_width() > ROOMY;
            scene.button_ui(ui, Action::File(FileAction::ExportPlan));
            if roomy {
                scene.button_ui(ui, Action::File(FileAction::SaveResults));
            }
            scene.button_ui(ui, Action::Edit(EditAction::Redo));
            scene.button_ui(ui, Action::Edit(EditAction::Undo));
            ui.with_layout(Layout::left_to_right(Align::Center), |ui| {
                ui.shrink_clip_rect(ui.max_rect());
                ui.label(RichText::new("Plan").strong()).on_hover_ui(|ui| _ = ui.label(scene.derived.answer.text()));
                totals_ui(ui, scene, roomy);
            });
        });
    });
}

fn totals_ui(ui: &mut Ui, scene: &Scene<'_>, roomy: bool) {
    let weak = |text: String| RichText::new(text).color(scene.theme.weak);
    let plan = &scene.derived.plan;
    let decided = plan.decided.as_ref();
    let Some(decided) = decided.filter(|_| !scene.derived.grid.columns.is_empty()) else {
        let why = plan.problem.clone().unwrap_or_else(|| "made as soon as there are rows".to_owned());
        ui.label(weak(why));
        return;
    };
    let totals = &decided.totals;
    let speedup = match totals.speedup {
        Some(speedup) => RichText::new(number::times(speedup)).monospace().strong(),
        None => weak("speed-up unknown".to_owned()),
    };
    explained_ui(ui, speedup, &speedup_note(totals.num_gemms, totals.num_without_latency));
    if let Some(caution) = scene.derived.answer.caution {
        ui.label(RichText::new("if replayed").color(scene.theme.warning)).on_hover_text(caution);
    }
    if !roomy {
        return;
    }
    let table = &scene.derived.table;
    let (low, all) = (number::count(table.num_low as u64), number::count(totals.num_gemms as u64));
    term_ui(ui, weak(format!("{low} of {all} GEMMs in FP8")), Term::LowPrecision);
    let hint = "GEMMs whose best kernel is too close to the threshold to call; they stay in high precision";
    let uncertain = format!("{} uncertain", number::count(table.num_uncertain as u64));
    explained_ui(ui, weak(uncertain), &with_terms(hint, [Term::Uncertain]));
    loss_ui(ui, scene, totals.loss_cost, totals.loss_cost_hi);
    if let Some(text) = outside_range(totals.num_cost_out_of_range) {
        let note = "Their loss cost is more than a tenth of the loss: it means nothing, and is not in the sum";
        ui.label(RichText::new(text).color(scene.theme.warning)).on_hover_text(note);
    }
    let overrides = scene.session.document.overrides.len();
    term_ui(ui, weak(number::counted(overrides, "override")), Term::Override);
    if plan.num_waiting_overrides > 0 {
        ui.label(weak(format!("({} waiting for rows)", plan.num_waiting_overrides)));
    }
    sources_ui(ui, scene);
}

/// Of choices whose figure means nothing.
fn outside_range(count: usize) -> Option<String> {
    (count > 0).then(|| format!("{} outside its range", number::counted(count, "GEMM")))
}

fn speedup_note(num_gemms: usize, without: usize) -> String {
    let all = "Summed GEMM time, casts included, against BF16 everywhere";
    match without {
        0 => all.to_owned(),
        _ => format!("{all}; {} of {} GEMMs have no latency", number::count(without), number::count(num_gemms)),
    }
}

/// Where the latencies behind the speed-up came from: all of them, or where they find no room, none.
fn sources_ui(ui: &mut Ui, scene: &Scene<'_>) {
    let known = scene.derived.sources.iter().filter(|(source, count)| **source != LatencySource::None && **count > 0);
    let known =
        known.map(|(source, count)| (*source, format!("{} {}", number::count(*count as u64), source_word(*source))));
    let known: Vec<(LatencySource, String)> = known.collect();
    ui.spacing_mut().item_spacing.x = 4.0;
    let font = TextStyle::Small.resolve(ui.style());
    let width = |text: &String| ui.painter().layout_no_wrap(text.clone(), font.clone(), Color32::PLACEHOLDER).size().x;
    let room: f32 = known.iter().map(|(_, text)| SOURCE_MARK + 8.0 + width(text)).sum();
    if room > ui.available_width() {
        return;
    }
    for (source, text) in known {
        source_ui(ui, &scene.theme, source, &text).on_hover_text(Term::of_source(source).text());
    }
}

fn loss_ui(ui: &mut Ui, scene: &Scene<'_>, cost: Option<f64>, cost_hi: Option<f64>) {
    let Some(cost) = cost else {
        let text = RichText::new("loss cost unknown").color(scene.theme.weak);
        let hint = "Only forward GEMMs of a trace with recorded gradients have one";
        explained_ui(ui, text, &with_terms(hint, [Term::LossCost]));
        return;
    };
    let loss = scene.session.trace.as_ref().map_or(0.0, |trace| trace.manifest().loss.value);
    // LoKA's quality budget, also where the policy itself has none.
    let budget = scene.session.document.policy.loss_budget.unwrap_or(0.0002);
    let share = (loss > 0.0).then(|| format!(" ({} of budget)", number::percent(cost / (loss * budget))));
    let text = format!("loss cost {}{}", number::plain(cost), share.unwrap_or_default());
    let most = cost_hi.map(|hi| format!("At most {} at the policy's confidence. ", number::plain(hi)));
    let note = format!("{}The budget is {} of the loss", most.unwrap_or_default(), number::percent(budget));
    explained_ui(
        ui,
        RichText::new(text).color(scene.theme.weak),
        &with_terms(&note, [Term::LossCost, Term::LossBudget]),
    );
}
