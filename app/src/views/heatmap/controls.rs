//! What the heatmap shows: metric, GEMM, reference, what its columns are, what a folder shows.

use egui::{Checkbox, ComboBox, RichText, Ui};
use loka_core::{
    model::{Gemm, Metric},
    session::{Command, SeriesState},
};

use crate::{
    commands::{Action, HeatmapAction, PlanAction, ShowAction},
    state::NO_SERIES,
    theme::{Term, explained, term_ui, with_terms},
    views::Scene,
};

pub fn controls_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    ui.horizontal_wrapped(|ui| {
        if scene.view.heatmap.series.is_none() {
            metric_ui(ui, scene);
            gemm_ui(ui, scene);
            ui.add_space(4.0);
            // Against a baseline values are divided by that.
            if scene.derived.versus().is_none() {
                tick_ui(ui, scene, scene.view.relative, Action::View(ShowAction::ToggleRelative));
            }
            if scene.session.other_plan.is_some() {
                tick_ui(ui, scene, scene.view.versus, Action::Plan(PlanAction::ToggleBaseline));
            }
        }
        columns_ui(ui, scene);
        if scene.view.sites.order.grouped {
            tick_ui(ui, scene, scene.view.heatmap.medians, Action::Heatmap(HeatmapAction::ShowMedians));
        }
    });
}

fn metric_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    term_ui(ui, RichText::new("Metric").color(scene.theme.weak), Term::of_metric(scene.view.metric));
    let combo = ComboBox::from_id_salt("metric").selected_text(scene.view.metric.label()).width(118.0);
    let combo = combo.show_ui(ui, |ui| {
        for metric in Metric::ALL {
            let line = ui.selectable_label(scene.view.metric == metric, metric.label());
            if explained(line, &Term::of_metric(metric).text()).clicked() {
                scene.act(Action::ShowMetric(metric));
            }
        }
    });
    let hint = Action::View(ShowAction::CycleMetric).hint(ui.ctx());
    explained(combo.response, &with_terms(&hint, [Term::of_metric(scene.view.metric)]));
    ui.add_space(4.0);
}

pub fn gemm_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    ui.spacing_mut().item_spacing.x = 2.0;
    let all = std::iter::once(None).chain(Gemm::ALL.map(Some));
    for gemm in all {
        let text = gemm.map_or("All", Gemm::as_str);
        let response = ui.selectable_label(scene.view.gemm == gemm, text);
        let hint = Action::View(ShowAction::CycleGemm).hint(ui.ctx());
        if explained(response, &with_terms(&hint, [gemm.map_or(Term::Gemm, Term::of_gemm)])).clicked() {
            scene.view.gemm = gemm;
        }
    }
    ui.spacing_mut().item_spacing.x = 8.0;
}

fn tick_ui(ui: &mut Ui, scene: &mut Scene<'_>, on: bool, action: Action) {
    let mut ticked = on;
    let hint = action.hint(ui.ctx());
    if ui.add(Checkbox::new(&mut ticked, action.text())).on_hover_text(hint).changed() {
        scene.act(action);
    }
}

/// Recipes, kernels, or the steps of a series: those are read when somebody asks for them.
fn columns_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    let shown =
        scene.view.heatmap.series.as_deref().map_or_else(|| format!("Columns: {}", columns_word(scene)), series_title);
    let combo = ComboBox::from_id_salt("columns").selected_text(shown).width(130.0).show_ui(ui, |ui| {
        for (by_library, word) in [(false, RECIPES), (true, KERNELS)] {
            let heatmap = &mut scene.view.heatmap;
            let on = heatmap.series.is_none() && heatmap.by_library == by_library;
            if ui.selectable_label(on, word).clicked() {
                heatmap.series = None;
                heatmap.set_by_library(by_library);
            }
        }
        if scene.session.series == SeriesState::NotAsked {
            scene.send(Command::ReadSeries);
        }
        match &scene.session.series {
            SeriesState::Read(table) if table.series.is_empty() => weak(ui, scene, NO_SERIES),
            SeriesState::Read(table) => {
                for series in &table.series {
                    let on = scene.view.heatmap.series.as_ref() == Some(&series.name);
                    if ui.selectable_label(on, series_title(&series.name)).clicked() {
                        (scene.view.heatmap.series, scene.view.heatmap.step) = (Some(series.name.clone()), None);
                    }
                }
            }
            SeriesState::Failed(reason) => weak(ui, scene, &format!("No series: {reason}")),
            SeriesState::NotAsked | SeriesState::Reading => weak(ui, scene, "Reading the recorded series"),
        }
    });
    let hints = [HeatmapAction::ByLibrary, HeatmapAction::ShowSteps].map(|of| Action::Heatmap(of).hint(ui.ctx()));
    combo.response.on_hover_text(format!(
        "One for all kernels that compute the same, one a kernel, or recorded steps\n{}",
        hints.join("\n")
    ));
}

const RECIPES: &str = "recipes";
const KERNELS: &str = "kernels";

fn columns_word(scene: &Scene<'_>) -> &'static str {
    if scene.view.heatmap.by_library { KERNELS } else { RECIPES }
}

/// `input_amax` as people read it.
pub fn series_title(name: &str) -> String {
    format!("steps of {}", name.replace('_', " "))
}

fn weak(ui: &mut Ui, scene: &Scene<'_>, text: &str) {
    ui.label(RichText::new(text).color(scene.theme.weak));
}
