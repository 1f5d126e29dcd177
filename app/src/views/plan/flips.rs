//! Verdicts that are others here than in the results that are compared with, each a line with both errors.

use egui::{RichText, ScrollArea, Ui};
use loka_core::{
    model::{Estimate, Metric, Safety},
    session::Flipped,
};

use super::lists::place_ui;
use crate::{
    theme::{ROW, number, shorten},
    views::Scene,
};

/// Rows of the list before it scrolls: the choices below it matter as much.
const SHOWN: f32 = 6.0;

/// Nothing where a plan is compared.
pub fn flips_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    let Some(compared) = scene.session.other_results.clone() else { return };
    if scene.session.comparison_is_outdated() {
        let text = "Rows, the policy or the mods changed since these results were compared: compare again.";
        ui.label(RichText::new(text).color(scene.theme.warning));
    }
    let flips = &compared.flips;
    let near = match flips.iter().filter(|flip| flip.near_tie).count() {
        0 => String::new(),
        count => format!(" ({} near ties)", number::count(count as u64)),
    };
    let plural = if flips.len() == 1 { "" } else { "s" };
    let title = format!("{} verdict{plural} flipped{near}", number::count(flips.len() as u64));
    let hint = "Of the kernels in both results, under the same policy; from the other results to those of now";
    ui.label(RichText::new(title).strong()).on_hover_text(hint);
    let area = ScrollArea::vertical().id_salt("flips").auto_shrink([false, true]).max_height(SHOWN * ROW);
    area.show_rows(ui, ROW, flips.len(), |ui, visible| {
        for flip in &flips[visible] {
            flip_ui(ui, scene, flip);
        }
    });
    ui.add_space(4.0);
}

fn flip_ui(ui: &mut Ui, scene: &mut Scene<'_>, flip: &Flipped) {
    ui.horizontal(|ui| {
        place_ui(ui, scene, &flip.site, flip.gemm, Some(&flip.kernel));
        ui.label(shorten(flip.kernel.as_str(), 26)).on_hover_text(flip.kernel.as_str());
        let near = if flip.near_tie { ", near tie" } else { "" };
        let text = format!("{} → {}{near}", flip.before.as_str(), flip.after.as_str());
        let color = if flip.after == Safety::Safe { scene.theme.accent } else { scene.theme.warning };
        ui.label(RichText::new(text).color(color));
        // A verdict by the loss cost, and no figure of it: where there is one, it means nothing.
        let unknown = if flip.metric == Metric::LossCost { "unknown or outside its range" } else { "unknown" };
        let of = |error: Option<Estimate>| error.map_or_else(|| unknown.to_owned(), number::sentence);
        let (was, is) = (of(flip.error_before), of(flip.error_after));
        let text = format!("{} {was} → {is}", flip.metric.label());
        ui.add(egui::Label::new(RichText::new(&text).small().color(scene.theme.weak)).truncate()).on_hover_text(&text);
    });
}
