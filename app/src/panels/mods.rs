//! The three mods: on or off for the model, what each does at this site, before and after.

use egui::{Checkbox, RichText, Ui};
use loka_core::{
    model::{Gemm, ModKind, ModSet, Site},
    mods::{Effect, MUST_BE_TRAINED, effect},
};

use super::inspector::mods_in_force;
use crate::{commands::Action, theme::number, views::Scene};

pub fn mods_ui(ui: &mut Ui, scene: &mut Scene<'_>, site: &Site, gemm: Gemm) {
    ui.horizontal(|ui| {
        ui.label(RichText::new("Mods").strong()).on_hover_text("For the whole model");
        for kind in ModKind::ALL {
            let mut on = scene.session.document.mods.contains(kind);
            let response =
                ui.add(Checkbox::new(&mut on, kind.label())).on_hover_text(Action::ToggleMod(kind).tooltip());
            if response.changed() {
                scene.act(Action::ToggleMod(kind));
            }
        }
    });
    for kind in ModKind::ALL {
        let (text, color) = match effect(kind, site) {
            Effect::Changes(text) => (text, scene.theme.text),
            Effect::Nothing(why) => (format!("nothing here, {why}"), scene.theme.weak),
        };
        let text = format!("{}: {text}", kind.label());
        let label = egui::Label::new(RichText::new(&text).small().color(color)).truncate();
        ui.add(label).on_hover_text(text);
    }
    let mods = mods_in_force(scene);
    if !mods.is_empty() {
        ui.label(RichText::new(MUST_BE_TRAINED).small().color(scene.theme.warning));
        before_after_ui(ui, scene, site, gemm, &mods);
    }
}

/// The shown metric of the selected kernel without mods and with them.
fn before_after_ui(ui: &mut Ui, scene: &Scene<'_>, site: &Site, gemm: Gemm, mods: &ModSet) {
    let chosen = || scene.derived.plan.choice(&site.id, gemm).map(|choice| choice.kernel.clone());
    let selected = scene.view.column.as_ref().filter(|column| column.gemm == gemm).map(|column| column.kernel.clone());
    let Some(kernel) = selected.or_else(chosen) else { return };
    let value = |mods: &ModSet| {
        let row = scene.session.row(&site.id, gemm, &kernel, mods)?;
        row.metric(scene.view.metric)
    };
    let metric = scene.view.metric.label();
    let text = match (value(&ModSet::none()), value(mods)) {
        (Some(before), Some(after)) => {
            let (before, after) = (number::with_interval(before).0, number::with_interval(after).0);
            format!("{metric} of {kernel}: {before} → {after}")
        }
        (None, Some(_)) => format!("{metric} of {kernel}: not probed without mods"),
        _ => format!("{metric} of {kernel}: waiting for rows under these mods"),
    };
    ui.label(RichText::new(text).small());
}
