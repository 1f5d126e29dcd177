//! Everything about the selected site: what it is, every kernel of its GEMMs, the choice and why, what
//! mods would do.

use egui::{Button, RichText, ScrollArea, Ui};
use loka_core::{
    dispatch::{Choice, ChoiceSource},
    model::{Gemm, ModSet, Site},
    session::view::Column,
};

use super::{details::details_ui, kernels::kernels_ui, mods::mods_ui};
use crate::{
    commands::Action,
    theme::{number, shorten},
    views::Scene,
};

pub fn inspector_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    let site = scene.view.site.as_ref().and_then(|id| {
        let trace = scene.session.trace.as_ref()?;
        trace.manifest().sites.iter().find(|site| site.id == *id).cloned()
    });
    let Some(site) = site else {
        ui.add_space(8.0);
        ui.label(RichText::new("Select a site to see its kernels").color(scene.theme.weak));
        return;
    };
    ScrollArea::vertical().id_salt("inspector").auto_shrink([false, false]).show(ui, |ui| {
        head_ui(ui, scene, &site);
        ui.add_space(4.0);
        let gemm = gemm_tabs_ui(ui, scene, &site);
        choice_ui(ui, scene, &site, gemm);
        kernels_ui(ui, scene, &site, gemm);
        details_ui(ui, scene, &site, gemm);
        ui.separator();
        mods_ui(ui, scene, &site, gemm);
    });
}

fn head_ui(ui: &mut Ui, scene: &mut Scene<'_>, site: &Site) {
    ui.horizontal(|ui| {
        let max = ((ui.available_width() - 84.0) / 8.2) as usize;
        let name = RichText::new(shorten(site.id.as_str(), max)).size(15.0).strong();
        ui.label(name).on_hover_text(site.id.as_str());
        if ui.small_button(Action::CopySite.text()).on_hover_text(Action::CopySite.tooltip()).clicked() {
            scene.act(Action::CopySite);
        }
    });
    let count = |value: usize| number::count(value as u64);
    let mut parts = vec![format!("{} × {} → {}", count(site.m), count(site.k), count(site.n))];
    parts.push(if site.bias { "bias".to_owned() } else { "no bias".to_owned() });
    let tail: Vec<&str> = site.tail.iter().map(|op| op.op.as_str()).collect();
    parts.push(if tail.is_empty() { "no tail".to_owned() } else { tail.join(", ").replace('_', " ") });
    if site.head {
        parts.push("final layer".to_owned());
    }
    let label = ui.label(parts.join(" · "));
    label.on_hover_text("Rows a step × in features → out features · bias · what follows the linear");
    if !site.feeds.is_empty() {
        let feeds: Vec<&str> = site.feeds.iter().map(|id| id.as_str()).collect();
        let text = RichText::new(format!("feeds {}", feeds.join(", "))).small().color(scene.theme.weak);
        ui.add(egui::Label::new(text).truncate()).on_hover_text(feeds.join("\n"));
    }
}

/// The three GEMMs side by side, each with its choice's name; gives the one that is shown.
fn gemm_tabs_ui(ui: &mut Ui, scene: &mut Scene<'_>, site: &Site) -> Gemm {
    let shown = scene.view.column.as_ref().map_or(Gemm::Fprop, |column| column.gemm);
    ui.horizontal(|ui| {
        ui.spacing_mut().item_spacing.x = 4.0;
        let width = (ui.available_width() - 8.0) / 3.0;
        for gemm in Gemm::ALL {
            let choice = scene.derived.plan.choice(&site.id, gemm);
            let mark =
                if choice.is_some_and(|choice| choice.source == ChoiceSource::Override) { " · set" } else { "" };
            let text = RichText::new(format!("{}{mark}", gemm.as_str()));
            let button = Button::selectable(gemm == shown, text).min_size(egui::vec2(width, 22.0));
            let hint = choice
                .map_or_else(|| "No choice yet".to_owned(), |choice| format!("{}: {}", choice.kernel, choice.reason));
            let response = ui.add(button);
            let label = format!("Inspect {gemm}");
            response.widget_info(|| egui::WidgetInfo::selected(egui::Role::Button, true, gemm == shown, &label));
            if response.on_hover_text(hint).clicked() {
                let kernel = choice.map(|choice| choice.kernel.clone());
                let kernel = kernel.unwrap_or_else(loka_core::model::baseline_kernel);
                scene.view.select(site.id.clone(), Some(Column { gemm, kernel }));
            }
        }
    });
    shown
}

fn choice_ui(ui: &mut Ui, scene: &mut Scene<'_>, site: &Site, gemm: Gemm) {
    let Some(choice) = scene.derived.plan.choice(&site.id, gemm).cloned() else {
        ui.label(RichText::new("Chosen as soon as there are rows").color(scene.theme.weak));
        return;
    };
    ui.horizontal(|ui| {
        let word = if choice.source == ChoiceSource::Override { "Set by hand:" } else { "Chosen:" };
        ui.label(RichText::new(word).color(scene.theme.weak));
        ui.label(RichText::new(choice.kernel.as_str()).strong());
        if choice.source == ChoiceSource::Override {
            let hint = Action::ClearOverride.tooltip();
            if ui.small_button("Clear override").on_hover_text(hint).clicked() {
                let (site, gemm) = (site.id.clone(), gemm);
                scene.send(loka_core::session::Command::ClearOverride { site, gemm });
            }
        }
    });
    ui.label(RichText::new(&choice.reason).small().color(scene.theme.weak));
    runners_up_ui(ui, scene, &choice);
}

fn runners_up_ui(ui: &mut Ui, scene: &Scene<'_>, choice: &Choice) {
    if choice.runners_up.is_empty() {
        return;
    }
    let names: Vec<&str> = choice.runners_up.iter().map(|kernel| kernel.as_str()).collect();
    let text = RichText::new(format!("Runners-up: {}", names.join(", "))).small().color(scene.theme.weak);
    ui.add(egui::Label::new(text).truncate()).on_hover_text(names.join("\n"));
}

/// The mods that rows are shown under.
pub(super) fn mods_in_force(scene: &Scene<'_>) -> ModSet {
    scene.session.document.mods.clone()
}
