//! The form that sets a kernel by hand: what it would break and move, the reason that the plan keeps.

use egui::{Id, Key, RichText, TextEdit, Ui};
use loka_core::{
    model::{Site, SiteId},
    review::Role,
    session::Command,
    views::{Column, GemmView, OverrideEffect, site_words},
};

use super::micros;
use crate::views::Scene;

pub fn form_ui(ui: &mut Ui, scene: &mut Scene<'_>, site: &Site, seen: &GemmView) {
    let Some(column) = scene.view.overriding.clone().filter(|column| column.gemm == seen.gemm) else { return };
    if seen.line(&column.kernel).is_none_or(|line| line.unsupported.is_some()) {
        return;
    }
    ui.add_space(4.0);
    ui.label(format!("Use {} for {}", column.kernel, column.gemm));
    if let Some(effect) = scene.view.site_view.effect(scene.derived, &site.id, &column) {
        effect_ui(ui, scene, &site.id, &effect);
    }
    ui.horizontal(|ui| reason_ui(ui, scene, site, &column));
}

fn effect_ui(ui: &mut Ui, scene: &Scene<'_>, site: &SiteId, effect: &OverrideEffect) {
    for broken in &effect.breaks {
        ui.label(RichText::new(site_words::broken_words(broken)).small().color(scene.theme.warning));
    }
    if effect.breaks.is_empty() {
        ui.label(RichText::new("Breaks nothing of the policy").small().color(scene.theme.weak));
    }
    for (at, gemm, was, is) in &effect.moves {
        let text = match at == site {
            true => format!("{gemm} goes from {was} to {is}: the casts that they share change"),
            false => format!("{at} {gemm} goes from {was} to {is}: what is handed on changes"),
        };
        ui.label(RichText::new(text).small().color(scene.theme.warning));
    }
    if let Some((before, after)) = effect.site_us {
        let whose = match effect.num_sites {
            0 | 1 => "The site's three GEMMs".to_owned(),
            num => format!("The {} GEMMs of the {num} sites of its chain", 3 * num),
        };
        let text = format!("{whose}: {} → {}", micros(before), micros(after));
        ui.label(RichText::new(text).small().color(scene.theme.weak))
            .on_hover_text("Casts included, shared ones once, in the time of the policy's baseline");
    }
}

fn reason_ui(ui: &mut Ui, scene: &mut Scene<'_>, site: &Site, column: &Column) {
    let width = (ui.available_width() - 152.0).max(60.0);
    let field = TextEdit::singleline(&mut scene.view.reason).id(Id::unique("override reason")).desired_width(width);
    let response = ui.add(field.hint_text("Why, for the plan"));
    response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::TextInput, true, "Reason"));
    if std::mem::take(&mut scene.view.focus_reason) {
        response.request_focus();
    }
    let enter = response.lost_focus() && ui.input(|input| input.key_pressed(Key::Enter));
    let refused = scene.not_allowed(Role::Owner);
    let may = refused.is_none();
    let go = ui.add_enabled(may, egui::Button::new("Override")).on_hover_text("Set this kernel by hand (Enter)");
    let go = go.on_disabled_hover_text(refused.unwrap_or_default()).clicked();
    if ui.button("Cancel").on_hover_text("Leave the choice as it is (Esc)").clicked() {
        scene.view.overriding = None;
    }
    if go || (enter && may) {
        let reason = std::mem::take(&mut scene.view.reason);
        let (site, gemm, kernel) = (site.id.clone(), column.gemm, column.kernel.clone());
        scene.send(Command::SetOverride { site, gemm, kernel, reason: reason.trim().to_owned() });
        scene.view.overriding = None;
    }
}
