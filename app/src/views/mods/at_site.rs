//! The mods in the inspector: on or off for the model, what each does at this site, before and after.

use egui::{Checkbox, RichText, Ui};
use loka_core::{
    model::{Gemm, ModKind, Site, SiteMods},
    mods::{Effect, MUST_BE_TRAINED, effect},
    review::Role,
};

use crate::{commands::Action, theme::number, views::Scene};

/// One line of switches, near the top: what a reviewer tries first.
pub fn switches_ui(ui: &mut Ui, scene: &mut Scene<'_>, site: &Site) {
    ui.horizontal_wrapped(|ui| {
        ui.label(RichText::new("Mods").strong())
            .on_hover_text("For the whole model; the Mods view has them site by site");
        for kind in ModKind::ALL {
            let mut on = scene.session.document.mods.of(&site.id).contains(kind);
            let elsewhere = is_mixed(&scene.session.document.mods, kind);
            let checkbox = Checkbox::new(&mut on, kind.label()).indeterminate(elsewhere);
            let refused = scene.not_allowed(Role::Owner);
            let response = ui.add_enabled(refused.is_none(), checkbox);
            let response = response.on_hover_text(Action::ToggleMod(kind).tooltip());
            let response = response.on_disabled_hover_text(refused.unwrap_or_default());
            if response.changed() {
                scene.act(Action::ToggleMod(kind));
            }
        }
    });
}

/// What each would do here, and what those that are on change.
pub fn at_site_ui(ui: &mut Ui, scene: &mut Scene<'_>, site: &Site, gemm: Gemm) {
    for kind in ModKind::ALL {
        let (text, color) = match effect(kind, site) {
            Effect::Changes(text) => (text, scene.theme.text),
            Effect::Nothing(why) => (format!("nothing here, {why}"), scene.theme.weak),
        };
        let text = format!("{}: {text}", kind.label());
        let label = egui::Label::new(RichText::new(&text).small().color(color)).truncate();
        ui.add(label).on_hover_text(text);
    }
    if !scene.session.document.mods.is_empty() {
        ui.label(RichText::new(MUST_BE_TRAINED).small().color(scene.theme.warning));
        before_after_ui(ui, scene, site, gemm);
    }
}

/// On at some sites and off at others.
fn is_mixed(mods: &SiteMods, kind: ModKind) -> bool {
    mods.exceptions().any(|(_, of)| of.contains(kind) != mods.of_others().contains(kind))
}

/// The shown metric of the selected kernel without mods and with them. Also where the site has none of its
/// own: what feeds it may.
fn before_after_ui(ui: &mut Ui, scene: &Scene<'_>, site: &Site, gemm: Gemm) {
    let chosen = || scene.derived.plan.choice(&site.id, gemm).map(|choice| choice.kernel.clone());
    let selected = scene.view.column.as_ref().filter(|column| column.gemm == gemm).map(|column| column.kernel.clone());
    let Some(kernel) = selected.or_else(chosen) else { return };
    let metric = scene.view.metric;
    let change = scene.derived.site_change(&site.id, gemm, &kernel, metric);
    let values = change.as_ref().and_then(|change| change.errors.first());
    let text = match values.map(|(_, before, after)| (before, after)) {
        Some((Some(before), Some(after))) => {
            let (before, after) = (number::with_interval(*before).0, number::with_interval(*after).0);
            format!("{} of {kernel}: {before} → {after}", metric.label())
        }
        Some((None, Some(_))) => format!("{} of {kernel}: not probed without mods", metric.label()),
        _ if scene.session.is_running() => {
            format!("{} of {kernel}: rows under these mods are on their way", metric.label())
        }
        _ => format!("{} of {kernel}: not probed under these mods", metric.label()),
    };
    ui.label(RichText::new(text).small());
}
