//! The head of the inspector: the name, the shape, the tail as a chain, what feeds the site and what it feeds.

use egui::{RichText, Ui};
use loka_core::{
    model::{Gemm, Site, SiteId},
    views::{GemmView, SiteView, TailStep},
};

use crate::{
    commands::{Action, SelectAction},
    theme::{number, shorten},
    views::Scene,
};

/// Links shown before the rest is counted.
const MAX_LINKS: usize = 3;

pub fn head_ui(ui: &mut Ui, scene: &mut Scene<'_>, site: &Site, view: &SiteView) {
    ui.horizontal(|ui| {
        let max = ((ui.available_width() - 92.0) / 8.2).max(8.0) as usize;
        let name = RichText::new(shorten(site.id.as_str(), max)).size(15.0).strong();
        ui.label(name).on_hover_text(site.id.as_str());
        scene.button_ui(ui, Action::Select(SelectAction::CopySite));
    });
    let count = |value: usize| number::count(value as u64);
    let mut shape = format!("{} × {} → {}", count(site.m), count(site.k), count(site.n));
    if site.head {
        shape += " · final layer";
    }
    ui.label(shape).on_hover_text(format!(
        "Rows a step × in features → out features, {}",
        if site.dtype.is_empty() { "of an unknown type" } else { &site.dtype }
    ));
    tail_ui(ui, scene, view);
    let feeders = scene.view.site_view.fed_by(scene.session, &site.id);
    links_ui(ui, scene, "Fed by", "the model's input, or a layer that was not recorded", &feeders);
    links_ui(ui, scene, "Feeds", "nothing that was recorded", &site.feeds);
    if let Some(problem) = &view.problem {
        ui.label(RichText::new(format!("This site cannot be used: {problem}")).color(scene.theme.warning));
    }
}

/// `then bias → LayerNorm → swish`; what a mod changes stands in the accent's colour, with what it was.
fn tail_ui(ui: &mut Ui, scene: &Scene<'_>, view: &SiteView) {
    ui.horizontal_wrapped(|ui| {
        ui.spacing_mut().item_spacing.x = 4.0;
        ui.label(RichText::new("Then").color(scene.theme.weak));
        if view.tail.is_empty() {
            ui.label(RichText::new("nothing: no bias, no tail").color(scene.theme.weak));
        }
        for (at, TailStep { name, was }) in view.tail.iter().enumerate() {
            if at > 0 {
                ui.label(RichText::new("→").color(scene.theme.weak));
            }
            match was {
                None => ui.label(name),
                Some(was) => ui
                    .label(RichText::new(format!("{name} (was {was})")).color(scene.theme.accent))
                    .on_hover_text("A mod changes this step; the model must be trained with it"),
            };
        }
    });
}

fn links_ui(ui: &mut Ui, scene: &mut Scene<'_>, word: &str, nobody: &str, sites: &[SiteId]) {
    ui.horizontal_wrapped(|ui| {
        ui.spacing_mut().item_spacing.x = 6.0;
        ui.label(RichText::new(word).color(scene.theme.weak));
        if sites.is_empty() {
            ui.label(RichText::new(nobody).small().color(scene.theme.weak));
        }
        let max = ((ui.available_width() - 8.0) / 7.0).max(10.0) as usize;
        for id in sites.iter().take(MAX_LINKS) {
            let name = scene.derived.short_name(id, max);
            let link = ui.link(RichText::new(shorten(&name, max)).small());
            let label = format!("Go to {id}");
            link.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Link, true, &label));
            if link.on_hover_text(format!("Select {id}")).clicked() {
                scene.view.select(id.clone(), None);
                scene.view.reveal = true;
            }
        }
        if let Some(rest) = sites.len().checked_sub(MAX_LINKS + 1) {
            let names: Vec<&str> = sites.iter().skip(MAX_LINKS).map(|id| id.as_str()).collect();
            let text = format!("and {} more", rest + 1);
            ui.label(RichText::new(text).small().color(scene.theme.weak)).on_hover_text(names.join("\n"));
        }
    });
}

/// `y[8,192 × 512] = x Wᵀ, summed over k = 384`.
pub fn gemm_shape(seen: &GemmView) -> String {
    let count = |value: usize| number::count(value as u64);
    let (output, product, over) = match seen.gemm {
        Gemm::Fprop => ("y", "x W'", "k"),
        Gemm::Dgrad => ("dx", "dy W", "n"),
        Gemm::Wgrad => ("dW", "dy' x", "m"),
    };
    let (rows, cols, reduced) = (count(seen.rows), count(seen.cols), count(seen.reduced));
    format!("{output}[{rows} × {cols}] = {product}, summed over {over} = {reduced}")
}
