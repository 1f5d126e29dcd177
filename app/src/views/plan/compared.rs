//! What differs from pure Dispatch and from another plan, with the reason for each.

use egui::{RichText, ScrollArea, Ui};
use loka_core::{plan::ChoiceChange, views::Comparison};

use super::lists::place_ui;
use crate::{
    commands::{Action, PlanAction},
    executor::name_of,
    theme::{ROW, number, shorten},
    views::Scene,
};

pub fn differences_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    let table = scene.derived.table.clone();
    ui.horizontal_wrapped(|ui| {
        scene.button_ui(ui, Action::Plan(PlanAction::Compare));
        scene.button_ui(ui, Action::Plan(PlanAction::CompareResults));
        if scene.session.other_plan.is_some() {
            scene.button_ui(ui, Action::Plan(PlanAction::CloseComparison));
        }
    });
    let half =
        if table.other.is_some() && table.dispatch.is_some() { ui.available_height() / 2.0 } else { f32::INFINITY };
    if let Some(other) = &table.other {
        let path = scene.session.other_plan.as_ref().map_or("", |(path, _)| path.as_str());
        let title = match &scene.session.other_results {
            // It is no file.
            _ if path.is_empty() => format!("Against {}", shorten(&other.name, 64)),
            Some(_) => format!("Against the results {}", shorten(name_of(path), 64)),
            None => format!("Against {} ({})", shorten(&other.name, 32), shorten(name_of(path), 48)),
        };
        super::flips::flips_ui(ui, scene);
        comparison_ui(ui, scene, &title, path, other, ("other", half));
    }
    match &table.dispatch {
        Some(dispatch) => {
            let hint = "The same rows and policy without overrides";
            comparison_ui(ui, scene, "Against pure Dispatch", hint, dispatch, ("dispatch", f32::INFINITY));
        }
        None => {
            let text = "Without overrides this is what pure Dispatch chooses.";
            ui.label(RichText::new(text).color(scene.theme.weak));
        }
    }
}

fn comparison_ui(
    ui: &mut Ui,
    scene: &mut Scene<'_>,
    title: &str,
    hint: &str,
    of: &Comparison,
    (id, height): (&str, f32),
) {
    ui.label(RichText::new(title).strong()).on_hover_text(hint);
    let now = scene.derived.plan.decided.as_ref().and_then(|decided| decided.totals.speedup);
    let times = |speedup: Option<f64>| speedup.map_or_else(|| "unknown".to_owned(), number::times);
    let changes = &of.changes;
    let near = if of.num_near_ties > 0 { format!(" ({} near ties)", of.num_near_ties) } else { String::new() };
    let mut text = format!(
        "{} of {} choices differ{near} · speed-up {} → {}",
        number::count(changes.changes.len() as u64),
        number::count((changes.changes.len() + changes.unchanged) as u64),
        times(of.before.speedup),
        times(now)
    );
    for (what, sites) in [("sites only here", changes.added.len()), ("sites only there", changes.removed.len())] {
        if sites > 0 {
            text += &format!(" · {} {what}", number::count(sites as u64));
        }
    }
    ui.label(RichText::new(text).color(scene.theme.weak));
    if of.another_trace {
        let text = "It was made from another trace: sites of the same name may be other layers.";
        ui.label(RichText::new(text).color(scene.theme.warning));
    }
    let area = ScrollArea::vertical().id_salt(id).auto_shrink([false, true]).max_height((height - 60.0).max(4.0 * ROW));
    area.show_rows(ui, ROW, changes.changes.len(), |ui, visible| {
        for change in &changes.changes[visible] {
            change_ui(ui, scene, change);
        }
    });
}

fn change_ui(ui: &mut Ui, scene: &mut Scene<'_>, change: &ChoiceChange) {
    ui.horizontal(|ui| {
        place_ui(ui, scene, &change.site, change.gemm, None);
        let was = shorten(change.before.as_str(), 26);
        ui.label(format!("{was} → {}", shorten(change.after.as_str(), 26)))
            .on_hover_text(format!("{} → {}", change.before, change.after));
        let near = if change.near_tie { ", near tie" } else { "" };
        ui.label(RichText::new(format!("{}{near}", change.cause.as_str())).color(scene.theme.accent));
        let text = RichText::new(&change.reason).small().color(scene.theme.weak);
        ui.add(egui::Label::new(text).truncate()).on_hover_text(&change.reason);
    });
}
