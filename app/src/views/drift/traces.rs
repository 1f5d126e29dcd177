//! Takes the path of another trace, of a good run or another step; shows which sites changed most since, and in what.

use egui::{Grid, Key, Label, RichText, Role, TextEdit, Ui, WidgetInfo};
use loka_core::{
    format::number::counted_as,
    probe::{Shift, SiteShift, Symptom, WATCHED},
    session::{Command, Looked, TraceComparison},
};

use super::snapshots::pair_text;
use crate::{executor::name_of, theme::shorten, views::Scene};

/// Sites in the table; the command line lists all.
const LISTED: usize = 100;

pub(super) fn traces_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    ui.label(RichText::new("Against another trace").strong());
    field_ui(ui, scene);
    let Some(path) = scene.view.drift.compared.clone() else { return };
    let (weak, warning) = (scene.theme.weak, scene.theme.warning);
    let session = scene.session;
    match session.inspections.compared() {
        Some((of, Looked::Found(found))) if of == path => comparison_ui(ui, scene, &path, found),
        Some((of, Looked::Failed(reason))) if of == path => {
            ui.label(RichText::new(format!("Cannot be compared: {reason}")).color(warning));
        }
        looked => {
            // Another trace was opened meanwhile, or another one is compared with: the same question of that one.
            let is_asked = matches!(looked, Some((of, _)) if of == path);
            if !is_asked && session.trace.is_some() {
                scene.send(Command::CompareTrace { path: path.clone() });
            }
            ui.label(RichText::new(format!("Reading {path}")).color(weak));
        }
    }
}

fn field_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    ui.horizontal(|ui| {
        let width = (ui.available_width() - 190.0).clamp(120.0, 520.0);
        let field = TextEdit::singleline(&mut scene.view.drift.compare).desired_width(width);
        let response = ui.add(field.hint_text("Path of a trace: another step, or a run that went well"));
        response.widget_info(|| WidgetInfo::labeled(Role::TextInput, true, "Path of another trace"));
        let enter = response.lost_focus() && ui.input(|input| input.key_pressed(Key::Enter));
        let path = scene.view.drift.compare.trim().to_owned();
        let button = ui.add_enabled(!path.is_empty(), egui::Button::new("Compare"));
        let hint = "Read its sites, too: which changed most, and what moved at the selected one";
        if button.on_hover_text(hint).clicked() || (enter && !path.is_empty()) {
            scene.send(Command::CompareTrace { path: path.clone() });
            if let Some(site) = scene.view.site.clone() {
                scene.send(Command::InspectOther { path: path.clone(), site });
            }
            scene.view.drift.compare_with(path);
        }
        if scene.view.drift.compared.is_some()
            && ui.button("Stop comparing").on_hover_text("Show this trace alone again").clicked()
        {
            scene.view.drift.compared = None;
        }
    });
}

fn comparison_ui(ui: &mut Ui, scene: &mut Scene<'_>, path: &str, found: &TraceComparison) {
    let (weak, warning) = (scene.theme.weak, scene.theme.warning);
    let diff = &found.diff;
    let (changed, num_changed) = (diff.changed(), diff.changed().len());
    let name = shorten(name_of(path), 48);
    let (num, all) = (counted_as(num_changed, "site", "sites"), diff.sites.len());
    let title = match num_changed {
        0 => format!("None of {} changed twofold since {name}.", counted_as(all, "site", "sites")),
        _ => format!("{num} of {all} changed twofold or more since {name}, the most first:"),
    };
    ui.label(title).on_hover_text(path);
    sites_ui(ui, scene, &changed[..num_changed.min(LISTED)]);
    let mut notes = Vec::new();
    if num_changed > LISTED {
        notes.push(format!("{} more: `loka diff` lists them all.", num_changed - LISTED));
    }
    if !diff.sites.iter().flat_map(|site| &site.shifts).any(Shift::is_of_rows) {
        let text =
            "Noise shares and loss costs take rows of both: probe the other trace, and leave the results beside it.";
        notes.push(text.to_owned());
    }
    for (sites, only) in [(&diff.added, "here"), (&diff.removed, "there")] {
        if !sites.is_empty() {
            notes.push(format!("{} only {only}.", counted_as(sites.len(), "site is", "sites are")));
        }
    }
    notes.iter().for_each(|note| drop(ui.label(RichText::new(note).small().color(weak))));
    for (site, problem) in diff.problems.iter().take(3) {
        ui.label(RichText::new(format!("{site} cannot be compared: {problem}")).small().color(warning));
    }
}

fn sites_ui(ui: &mut Ui, scene: &mut Scene<'_>, sites: &[SiteShift]) {
    Grid::new("changed sites").num_columns(4).spacing([20.0, 2.0]).show(ui, |ui| {
        for site in sites {
            let Some(most) = site.shifts.first() else { continue };
            let name = shorten(&scene.derived.short_name(&site.site, 28), 28);
            let all: Vec<String> = site.shifts.iter().map(told).collect();
            let hint = format!("Select {}\n{}", site.site, all.join("\n"));
            if ui.link(name).on_hover_text(hint).clicked() {
                scene.view.select(site.site.clone(), None);
                scene.view.reveal = true;
            }
            ui.label(most.symptom.label()).on_hover_text(about(most.symptom));
            ui.label(RichText::new(pair_text(Some((most.before, most.after)))).monospace());
            let others = site.shifts.iter().skip(1).filter(|shift| shift.is_changed());
            let others: Vec<&str> = others.map(|shift| shift.symptom.label()).collect();
            let also = if others.is_empty() { String::new() } else { format!("also {}", others.join(", ")) };
            ui.add(Label::new(RichText::new(&also).small().color(scene.theme.weak)).truncate()).on_hover_text(also);
            ui.end_row();
        }
    });
}

fn told(shift: &Shift) -> String {
    format!("{}: {}", shift.symptom.label(), pair_text(Some((shift.before, shift.after))))
}

fn about(symptom: Symptom) -> String {
    match symptom {
        Symptom::InputAmax | Symptom::GradAmax => "Largest magnitude that was recorded".to_owned(),
        Symptom::InputSaturation | Symptom::GradSaturation => {
            "Share of steps that saturate with the static scale that suits the other trace".to_owned()
        }
        Symptom::LossCost => {
            format!(
                "By the rows of {WATCHED}, without mods. One of more than a tenth of the loss means nothing: it is left out"
            )
        }
        Symptom::DgradNoiseShare | Symptom::WgradNoiseShare => format!("By the rows of {WATCHED}, without mods"),
    }
}
