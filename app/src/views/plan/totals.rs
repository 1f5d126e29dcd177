//! What the plan wins and costs, in one wrapped line of figures.

use egui::{RichText, Ui};
use loka_core::model::LatencySource;

use crate::{
    theme::{Term, explained_ui, number, source_ui, source_word, term_ui, with_terms},
    views::Scene,
};

pub fn totals_ui(ui: &mut Ui, scene: &Scene<'_>) {
    let Some(decided) = scene.derived.plan.decided.as_ref() else { return };
    let totals = &decided.totals;
    ui.horizontal_wrapped(|ui| {
        ui.spacing_mut().item_spacing.x = 4.0;
        let speedup = totals.speedup.map_or_else(|| "speed-up unknown".to_owned(), number::times);
        term_ui(ui, RichText::new(speedup).size(16.0).strong(), Term::Speedup);
        let (planned, baseline) = (number::micros(totals.planned_us), number::micros(totals.baseline_us));
        figure_ui(
            ui,
            scene,
            &format!("{planned} of {baseline} µs"),
            "The plan's GEMMs, casts included, against the baseline everywhere; tails are not in it",
        );
        if totals.handed_on_us != 0.0 {
            let text = format!("codes handed on save {} µs", number::micros(totals.handed_on_us));
            let hint =
                "Casts that are not needed where a block stores codes for the next site, less the stores; modelled where no sites were timed";
            figure_ui(ui, scene, &text, hint);
        }
        let low = number::count(scene.derived.table.num_low as u64);
        let all = number::count(totals.num_gemms as u64);
        figure_ui(ui, scene, &format!("{low} of {all} GEMMs in low precision"), &Term::LowPrecision.text());
        loss_ui(ui, scene, totals.loss_cost, totals.loss_cost_hi);
        if totals.num_cost_out_of_range > 0 {
            let text =
                format!("{} outside the loss cost's range", number::counted(totals.num_cost_out_of_range, "GEMM"));
            let hint = "Their loss cost is more than a tenth of the loss: it means nothing, and is not in the sum";
            ui.label(RichText::new("·").color(scene.theme.weak));
            ui.label(RichText::new(text).color(scene.theme.warning)).on_hover_text(hint);
        }
        if totals.num_without_latency > 0 {
            let text = format!("{} without a latency", number::count(totals.num_without_latency as u64));
            figure_ui(ui, scene, &text, "They are in neither of the two sums");
        }
        if let Some(optimum) = &decided.optimum {
            let text = match optimum.proven {
                true => "optimal".to_owned(),
                false => format!("within {} of the optimum", number::percent(optimum.gap())),
            };
            let (used, budget) = (number::plain(optimum.loss_cost_hi), number::plain(optimum.budget));
            figure_ui(ui, scene, &text, &format!("The optimiser spent {used} of a loss budget of {budget}"));
        }
        // Their marks part them from the rest.
        for source in [LatencySource::Measured, LatencySource::Recorded, LatencySource::Modelled] {
            let count = scene.derived.sources.get(&source).copied().unwrap_or(0);
            if count > 0 {
                let text = format!("{} {}", number::count(count as u64), source_word(source));
                source_ui(ui, &scene.theme, source, &text).on_hover_text(Term::of_source(source).text());
            }
        }
    });
}

fn figure_ui(ui: &mut Ui, scene: &Scene<'_>, text: &str, hint: &str) {
    ui.label(RichText::new("·").color(scene.theme.weak));
    explained_ui(ui, RichText::new(text).color(scene.theme.text), hint);
}

fn loss_ui(ui: &mut Ui, scene: &Scene<'_>, cost: Option<f64>, cost_hi: Option<f64>) {
    let hint = with_terms("Only forward GEMMs of a trace with recorded gradients have one", [Term::LossCost]);
    let Some(cost) = cost else { return figure_ui(ui, scene, "loss cost unknown", &hint) };
    let loss = scene.session.trace.as_ref().map_or(0.0, |trace| trace.manifest().loss.value);
    let hi = cost_hi.map_or_else(String::new, |hi| format!(", at most {}", number::plain(hi)));
    let text = format!("loss cost {}{hi}", number::plain(cost));
    let hint = match scene.session.document.policy.loss_budget {
        Some(share) if loss > 0.0 => {
            let used = number::percent(cost_hi.unwrap_or(cost) / (share * loss));
            format!(
                "{used} of the policy's budget of {} ({} of the loss)",
                number::plain(share * loss),
                number::percent(share)
            )
        }
        _ => "The policy has no loss budget; the bound is the sum of the intervals' upper ends".to_owned(),
    };
    figure_ui(ui, scene, &text, &with_terms(&hint, [Term::LossCost]));
}
