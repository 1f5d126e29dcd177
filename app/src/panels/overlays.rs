//! What lies over the window: dialog, sheet, palette, and the word on files that are about to be dropped.

use egui::Ui;

use super::{dialogs_ui, tour::tour_ui};
use crate::{
    commands::{Action, Chosen, PaletteOutcome, PaletteSource, palette_ui, sheet_ui},
    theme::HEADING,
    views::{self, Scene},
};

/// Dialog, sheet and palette, above everything.
pub fn overlays_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    tour_ui(ui, scene);
    dialogs_ui(ui, scene);
    views::bulk_ui(ui, scene);
    dropping_ui(ui, scene);
    if let Some(mut sheet) = scene.finder.sheet.take()
        && !sheet_ui(ui.ctx(), &scene.theme, &mut sheet)
    {
        scene.finder.sheet = Some(sheet);
    }
    let Some(mut palette) = scene.finder.palette.take() else { return };
    let source = PaletteSource {
        problem: &|action: Action| action.problem(scene.scope()),
        sites: scene.session.index().ids(),
        files: scene.view.recent.files(),
        recent: &scene.finder.recent,
    };
    match palette_ui(ui.ctx(), &scene.theme, &mut palette, &source) {
        PaletteOutcome::Open => scene.finder.palette = Some(palette),
        PaletteOutcome::Closed => {}
        PaletteOutcome::Chosen(Chosen::Action(action)) => scene.act(action),
        PaletteOutcome::Chosen(Chosen::File(path)) => scene.open(vec![path]),
        PaletteOutcome::Chosen(Chosen::Site(site)) => {
            scene.view.select(site, None);
            scene.view.reveal = true;
        }
    }
}

/// Files are over the window: what letting go would do.
fn dropping_ui(ui: &Ui, scene: &Scene<'_>) {
    let hovered = ui.input(|input| input.raw.hovered_files.len());
    if hovered == 0 {
        return;
    }
    let rect = ui.ctx().content_rect();
    let painter = ui.ctx().layer_painter(egui::LayerId::new(egui::Order::Foreground, egui::Id::unique("dropping")));
    painter.rect_filled(rect, 0.0, scene.theme.canvas.gamma_multiply(0.85));
    let text = if hovered == 1 { "Drop to open 1 file".to_owned() } else { format!("Drop to open {hovered} files") };
    let font = egui::FontId::proportional(HEADING);
    painter.text(rect.center(), egui::Align2::CENTER_CENTER, text, font, scene.theme.text);
}
