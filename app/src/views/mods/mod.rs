//! The three mods: where each is on and what it does there, and what they change, before and after.

mod at_site;
mod changes;
mod modules;

pub use at_site::{at_site_ui, switches_ui};

use egui::{Checkbox, RichText, ScrollArea, Sense, Ui, vec2};
use loka_core::{
    mods::MUST_BE_TRAINED,
    review::Role,
    views::{ModStanding, On},
};

use super::Scene;
use crate::{
    commands::{Action, ModsAction},
    theme::{ROW, number},
};

/// Room for a mod's name and its box.
const NAMES: f32 = 104.0;
/// Beside each other from this width on.
const ROOMY: f32 = 760.0;

pub fn mods_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    let any = !scene.session.document.mods.is_empty();
    ScrollArea::vertical().id_salt("mods").auto_shrink([false, false]).show(ui, |ui| {
        ui.label(RichText::new(MUST_BE_TRAINED).color(if any { scene.theme.warning } else { scene.theme.weak }))
            .on_hover_text("Errors under mods are against the modified model in high precision (LoKA §IV)");
        ui.add_space(4.0);
        if ui.available_width() < ROOMY {
            standing_ui(ui, scene);
            changes::changes_ui(ui, scene);
            ui.separator();
            modules::modules_ui(ui, scene);
            return;
        }
        ui.columns(2, |columns| {
            standing_ui(&mut columns[0], scene);
            modules::modules_ui(&mut columns[0], scene);
            changes::changes_ui(&mut columns[1], scene);
        });
    });
}

/// Each mod for the whole model, for the selection and for the module at hand.
fn standing_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    let standing = scene.derived.mods.clone();
    for of in &standing.kinds {
        let on = On::of(of.num_on, standing.num_sites);
        ui.horizontal_top(|ui| {
            let (place, _) = ui.allocate_exact_size(vec2(NAMES, ROW), Sense::hover());
            let mut child = ui.new_child(egui::UiBuilder::new().max_rect(place).id_salt(of.kind));
            if tri_ui(
                &mut child,
                on,
                of.kind.label(),
                &format!("{} everywhere", of.kind.label()),
                scene.not_allowed(Role::Owner),
            ) {
                scene.act(Action::ToggleMod(of.kind));
            }
            words_ui(ui, scene, of, standing.num_sites);
        });
    }
    ui.horizontal_wrapped(|ui| {
        let here = match scene.view.selection.len() {
            0 => "At the inspected site:".to_owned(),
            1 => "At the selected site:".to_owned(),
            num => format!("At the {} selected sites:", number::count(num as u64)),
        };
        ui.label(RichText::new(here).color(scene.theme.weak));
        for (action, _) in ModsAction::HERE {
            scene.button_ui(ui, Action::Mods(action));
        }
    });
    ui.add_space(4.0);
}

/// Where it is on, what it does at how many sites, and why not at the others.
fn words_ui(ui: &mut Ui, scene: &Scene<'_>, of: &ModStanding, num_sites: usize) {
    let count = |value: usize| number::count(value as u64);
    let on = match On::of(of.num_on, num_sites) {
        On::Nowhere => "off".to_owned(),
        On::Some => format!("on at {} of {} sites", count(of.num_on), count(num_sites)),
        On::Everywhere => "on everywhere".to_owned(),
    };
    let able = format!("changes {} of {}", count(of.num_able), count(num_sites));
    let lines = |(what, num): (&str, usize)| format!("{}: {what}", number::counted(num, "site"));
    let does = of.does.iter().map(|(what, num)| lines((what, *num)));
    let not = of.not.iter().map(|(why, num)| lines((&format!("nothing, {why}"), *num)));
    let hint = does.chain(not).collect::<Vec<_>>().join("\n");
    ui.vertical(|ui| {
        ui.spacing_mut().item_spacing.y = 0.0;
        ui.label(format!("{on} · {able}")).on_hover_text(&hint);
        for (what, num) in of.does.iter().take(2) {
            let text = RichText::new(lines((what, *num))).small().color(scene.theme.weak);
            ui.add(egui::Label::new(text).truncate()).on_hover_text(&hint);
        }
        if let Some((why, num)) = of.not.first() {
            let text = RichText::new(format!("not at {}: {why}", count(*num))).small().color(scene.theme.weak);
            ui.add(egui::Label::new(text).truncate()).on_hover_text(&hint);
        }
    });
}

/// A checkbox that can be half on; true when it was pressed. `refused`: why it does nothing.
fn tri_ui(ui: &mut Ui, on: On, text: &str, label: &str, refused: Option<String>) -> bool {
    let mut checked = on == On::Everywhere;
    let checkbox = Checkbox::new(&mut checked, text).indeterminate(on == On::Some);
    let response = ui.add_enabled(refused.is_none(), checkbox).on_disabled_hover_text(refused.unwrap_or_default());
    let state = match on {
        On::Nowhere => "off",
        On::Some => "on at some",
        On::Everywhere => "on",
    };
    response.widget_info(|| egui::WidgetInfo::selected(egui::Role::CheckBox, true, on == On::Everywhere, label));
    response.on_hover_text(format!("{label}: {state}")).clicked()
}
