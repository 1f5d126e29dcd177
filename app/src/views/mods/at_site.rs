//! The mods in the inspector: on or off at this site, what each does at this site, before and after.

use egui::{Checkbox, RichText, Ui};
use loka_core::{
    model::{Gemm, Metric, ModKind, Site},
    mods::{Effect, MUST_BE_TRAINED, effect},
    review::Role,
    session::Command,
};

use crate::{commands::Action, theme::number, views::Scene};

/// One line of switches, near the top: what a reviewer tries first. They act on this site; what acts on all of them
/// stands beside them and says so.
pub fn switches_ui(ui: &mut Ui, scene: &mut Scene<'_>, site: &Site) {
    ui.horizontal_wrapped(|ui| {
        ui.label(RichText::new("Mods here").strong()).on_hover_text("At this site; the Mods view has modules too");
        for kind in ModKind::ALL {
            let mut on = scene.session.document.mods.of(&site.id).contains(kind);
            let (does, void) = match effect(kind, site) {
                Effect::Changes(text) => (text, None),
                Effect::Nothing(why) => (String::new(), Some(format!("Nothing here, {why}"))),
            };
            // What is on can be taken off, wherever it came from.
            let refused = scene.not_allowed(Role::Owner).or_else(|| void.filter(|_| !on));
            let response = ui.add_enabled(refused.is_none(), Checkbox::new(&mut on, kind.label()));
            response.widget_info(|| {
                let said = format!("{} here", kind.label());
                egui::WidgetInfo::selected(egui::Role::CheckBox, refused.is_none(), on, said)
            });
            let response = response.on_hover_text(format!("At this site: {does}"));
            let response = response.on_disabled_hover_text(refused.unwrap_or_default());
            if response.changed() {
                scene.send(Command::SetMod { kind, on, sites: vec![site.id.clone()] });
            }
        }
        everywhere_ui(ui, scene);
    });
}

/// The same at every site, with how many that changes and what it asks for.
fn everywhere_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    let standing = scene.derived.mods.clone();
    let refused = scene.not_allowed(Role::Owner);
    // Short, so that the line stays one; it is called by what it does.
    let button = egui::Button::new("All…");
    let name = |response: &egui::Response, enabled: bool| {
        response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Button, enabled, "Everywhere…"));
    };
    if let Some(why) = refused {
        let response = ui.add_enabled(false, button);
        name(&response, false);
        response.on_disabled_hover_text(why);
        return;
    }
    let (response, _) = egui::containers::menu::MenuButton::from_button(button).ui(ui, |ui| {
        for of in &standing.kinds {
            let mut on = of.num_on == standing.num_sites;
            let num = number::count(of.num_able as u64);
            let sites = number::counted(standing.num_sites, "site");
            let text = format!("{}: changes {num} of {sites}", of.kind.label());
            let some = of.num_on > 0 && !on;
            let action = Action::ToggleMod(of.kind);
            let response = ui.add(Checkbox::new(&mut on, text).indeterminate(some));
            response.widget_info(|| {
                let said = format!("{} everywhere", of.kind.label());
                egui::WidgetInfo::selected(egui::Role::CheckBox, true, on, said)
            });
            if response.on_hover_text(action.tooltip()).clicked() {
                scene.act(action);
                ui.close();
            }
        }
        ui.label(RichText::new("Sites without rows under it are probed: see the time left above").small());
    });
    name(&response, true);
    response.on_hover_text("The same at every site");
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

/// The shown metric of the selected kernel without mods and with them. Also where the site has none of its
/// own: what feeds it may.
fn before_after_ui(ui: &mut Ui, scene: &Scene<'_>, site: &Site, gemm: Gemm) {
    let chosen = || scene.derived.plan.pick(&site.id, gemm).map(|choice| choice.kernel.clone());
    let selected = scene.view.column.as_ref().filter(|column| column.gemm == gemm).map(|column| column.kernel.clone());
    let Some(kernel) = selected.or_else(chosen) else { return };
    let metric = scene.view.metric;
    let change = scene.derived.site_change(&site.id, gemm, &kernel, metric);
    let values = change.as_ref().and_then(|change| change.errors.first());
    let out = change.as_ref().filter(|_| metric == Metric::LossCost).map_or((false, false), |of| of.is_out_of_range);
    let text = match values.map(|(_, before, after)| (before, after)) {
        _ if out.0 || out.1 => {
            let when = match out {
                (true, true) => "without and with the mods",
                (true, false) => "without the mods",
                _ => "with the mods",
            };
            format!("{} of {kernel}: outside its range {when}, where it means nothing", metric.label())
        }
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
