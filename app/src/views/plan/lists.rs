//! Overrides with their reasons, warnings in groups, and what an export will write.

use egui::{RichText, ScrollArea, Ui};
use loka_core::{
    model::{Gemm, SiteId},
    review::Role,
    session::Command,
    views::{Column, WarningGroup},
};

use crate::{
    commands::{Action, EditAction, FileAction},
    theme::{ROW, number, shorten},
    views::Scene,
};

/// Names shown of one group before the rest is counted.
const MAX_NAMED: usize = 200;

pub fn overrides_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    if scene.session.document.overrides.is_empty() {
        let text = "Every choice is the policy's. Set one by hand with Use in the site's table.";
        ui.label(RichText::new(text).color(scene.theme.weak));
        return;
    }
    ui.horizontal_wrapped(|ui| {
        scene.button_ui(ui, Action::Edit(EditAction::ClearSelected));
        scene.button_ui(ui, Action::Edit(EditAction::ClearAll));
    });
    let session = scene.session;
    let num = session.document.overrides.len();
    ScrollArea::vertical().id_salt("overrides").auto_shrink([false, false]).show_rows(ui, ROW, num, |ui, visible| {
        let rows = session.document.overrides.iter().skip(visible.start).take(visible.len());
        for ((site, gemm), wanted) in rows {
            ui.horizontal(|ui| {
                let refused = scene.not_allowed(Role::Owner);
                let clear = ui.add_enabled(refused.is_none(), egui::Button::new("Clear").small());
                let clear = clear.on_disabled_hover_text(refused.unwrap_or_default());
                let label = format!("Clear the override of {site} {gemm}");
                clear.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Button, true, &label));
                if clear.on_hover_text("Leave this GEMM to the policy again").clicked() {
                    scene.send(Command::ClearOverride { site: site.clone(), gemm: *gemm });
                }
                place_ui(ui, scene, site, *gemm, Some(&wanted.kernel));
                ui.label(wanted.kernel.as_str());
                let reason = if wanted.reason.is_empty() { "no reason given" } else { &wanted.reason };
                let text = RichText::new(reason).color(scene.theme.weak);
                ui.add(egui::Label::new(text).truncate()).on_hover_text(reason);
            });
        }
    });
}

/// A link to one GEMM of one site.
pub fn place_ui(
    ui: &mut Ui,
    scene: &mut Scene<'_>,
    site: &SiteId,
    gemm: Gemm,
    kernel: Option<&loka_core::model::KernelId>,
) {
    let name = shorten(&scene.derived.short_name(site, 28), 28);
    let link = ui.link(format!("{name} {gemm}"));
    if link.on_hover_text(format!("Select {site} {gemm}")).clicked() {
        let chosen = || scene.derived.plan.pick(site, gemm).map(|choice| choice.kernel.clone());
        let column = kernel.cloned().or_else(chosen).map(|kernel| Column { gemm, kernel });
        scene.view.select(site.clone(), column);
        scene.view.reveal = true;
    }
}

pub fn warnings_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    let table = scene.derived.table.clone();
    if table.warnings.is_empty() {
        ui.label(RichText::new("Nothing warns.").color(scene.theme.weak));
        return;
    }
    ScrollArea::vertical().id_salt("warnings").auto_shrink([false, false]).show(ui, |ui| {
        for group in &table.warnings {
            group_ui(ui, scene, group);
        }
    });
}

fn group_ui(ui: &mut Ui, scene: &mut Scene<'_>, group: &WarningGroup) {
    if group.at.is_empty() {
        ui.label(RichText::new(&group.title).color(scene.theme.warning));
        if !group.about.is_empty() {
            ui.label(RichText::new(&group.about).small().color(scene.theme.weak));
        }
        return;
    }
    let title = RichText::new(&group.title).color(scene.theme.warning);
    egui::CollapsingHeader::new(title).id_salt(&group.about).default_open(group.at.len() <= 12).show(ui, |ui| {
        ui.label(RichText::new(&group.about).small().color(scene.theme.weak));
        for (at, gemm, text) in group.at.iter().take(MAX_NAMED) {
            let Some(site) = scene.session.index().ids().get(*at).cloned() else { continue };
            ui.horizontal(|ui| {
                place_ui(ui, scene, &site, *gemm, None);
                let words = RichText::new(text).small().color(scene.theme.weak);
                ui.add(egui::Label::new(words).truncate()).on_hover_text(text);
            });
        }
        if let Some(rest) = group.at.len().checked_sub(MAX_NAMED + 1) {
            let text = format!("and {} more: show them with the filter of the choices", number::count(rest as u64 + 1));
            ui.label(RichText::new(text).small().color(scene.theme.weak));
        }
    });
}

/// What the file will hold.
pub fn export_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    ScrollArea::vertical().id_salt("export").auto_shrink([false, false]).show(ui, |ui| contents_ui(ui, scene));
}

fn contents_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    let text = "As JSON, for a framework, or as a report. What a file cannot say is shown before it is written.";
    ui.label(RichText::new(text).small().color(scene.theme.weak));
    ui.horizontal_wrapped(|ui| {
        scene.button_ui(ui, Action::File(FileAction::ExportPlan));
        scene.button_ui(ui, Action::File(FileAction::ExportReport));
    });
    ui.add_space(6.0);
    let session = scene.session;
    let count = |value: usize| number::count(value as u64);
    let (sites, table) = (session.sites().len(), scene.derived.table.clone());
    let document = &session.document;
    let exceptions = |empty: bool| document.mods.exceptions().filter(|(_, set)| set.is_empty() == empty).count();
    let mods = if document.mods.of_others().is_empty() { exceptions(false) } else { sites - exceptions(true) };
    let digest = session.trace.as_ref().map_or("", |trace| trace.meta.trace_digest.as_str());
    let digest =
        if digest.is_empty() { "the trace is still being read for it".to_owned() } else { shorten(digest, 32) };
    egui::Grid::new("export").num_columns(2).spacing([14.0, 3.0]).show(ui, |ui| {
        let mut row = |name: &str, text: String| {
            ui.label(RichText::new(name).color(scene.theme.weak));
            ui.add(egui::Label::new(text).wrap());
            ui.end_row();
        };
        row(
            "Choices",
            format!("{} of {} sites, high precision too, each with its reason", count(3 * sites), count(sites)),
        );
        row(
            "Policy",
            format!(
                "{}: {} ≤ {}",
                document.policy.name,
                document.policy.metric.label(),
                number::trimmed(document.policy.max_error)
            ),
        );
        row("Overrides", format!("{}, with their reasons", count(document.overrides.len())));
        row("Mods", if mods == 0 { "none".to_owned() } else { format!("at {} sites", count(mods)) });
        row("Totals", "times, speed-up and loss cost".to_owned());
        row("Trace", digest);
        row("Digests", "of the trace, of the results, and of the plan itself: an edited plan is noticed".to_owned());
        row("Warnings", format!("{} kinds; loka check says which of them close the gate", count(table.warnings.len())));
    });
}
