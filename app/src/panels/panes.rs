//! Draws the tree: each pane with its view, tabs in the theme's colours, the active one told apart.

use egui::{Color32, Frame, Margin, Sense, Stroke, Ui, UiBuilder, Visuals, WidgetText};
use egui_tiles::{Behavior, EditAction, SimplificationOptions, TabState, Tile, TileId, Tiles, UiResponse};

use crate::{
    layout::{Layout, Pane},
    picture::Drawn,
    views::{self, Scene},
};

pub fn layout_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    let width = ui.ctx().content_rect().width();
    scene.view.layout.fit(width);
    // The tree is taken out while it is drawn: views change the view state around it.
    let mut layout = std::mem::take(&mut scene.view.layout);
    let Layout { tree, .. } = &mut layout;
    let mut panes = Panes { scene, edited: false, pressed: None, closed: None };
    tree.ui(&mut panes, ui);
    let Panes { edited, pressed, closed, .. } = panes;
    layout.customised |= edited;
    if let Some(pane) = pressed {
        layout.active = pane;
    }
    if let Some(pane) = closed {
        layout.close(pane);
    }
    scene.view.layout = layout;
}

/// Shapes that lie in this layer so far.
fn drawn(ui: &Ui) -> usize {
    ui.ctx().graphics(|layers| layers.get(ui.layer_id()).map_or(0, |list| list.next_idx().0))
}

struct Panes<'a, 'b> {
    scene: &'a mut Scene<'b>,
    edited: bool,
    /// The pane that was clicked into.
    pressed: Option<Pane>,
    closed: Option<Pane>,
}

impl Behavior<Pane> for Panes<'_, '_> {
    fn pane_ui(&mut self, ui: &mut Ui, _: TileId, pane: &mut Pane) -> UiResponse {
        let rect = ui.max_rect();
        let pressed = ui.input(|input| input.pointer.any_pressed().then(|| input.pointer.interact_pos()).flatten());
        if pressed.is_some_and(|at| rect.contains(at)) && ui.ctx().layer_id_at(rect.center()) == Some(ui.layer_id()) {
            self.pressed = Some(*pane);
        }
        let theme = self.scene.theme;
        let (ground, margin) = match pane {
            Pane::Sites | Pane::Site => (theme.panel, Margin::symmetric(8, 8)),
            _ => (theme.canvas, Margin::symmetric(12, 8)),
        };
        let first = drawn(ui);
        let keep = self.scene.view.picture.wants_shapes_of(*pane);
        let vector = std::mem::replace(&mut self.scene.vector, keep);
        ui.painter().rect_filled(rect, 0.0, ground);
        // Nothing a view draws may reach over its neighbours.
        let mut child = ui.new_child(UiBuilder::new().max_rect(rect).sense(Sense::hover()).id_salt(*pane));
        child.shrink_clip_rect(rect);
        Frame::new().inner_margin(margin).show(&mut child, |ui| {
            ui.set_min_size(ui.available_size());
            views::pane_ui(ui, self.scene, *pane);
        });
        self.scene.vector = vector;
        if keep {
            let shapes = ui.ctx().graphics(|layers| {
                let of_layer = layers.get(ui.layer_id()).map(|list| list.all_entries().skip(first).cloned());
                of_layer.map(Iterator::collect).unwrap_or_default()
            });
            self.scene.view.picture.drawn = Some(Drawn { rect, shapes });
        }
        UiResponse::None
    }

    fn tab_title_for_pane(&mut self, pane: &Pane) -> WidgetText {
        pane.title().into()
    }

    fn is_tab_closable(&self, tiles: &Tiles<Pane>, tile: TileId) -> bool {
        // One cross is enough: a row of them is noise.
        matches!(tiles.get(tile), Some(Tile::Pane(pane)) if *pane == self.scene.active_pane)
    }

    fn on_tab_close(&mut self, tiles: &mut Tiles<Pane>, tile: TileId) -> bool {
        self.closed = tiles.get_pane(&tile).copied();
        // Hidden, not removed: it comes back where it was.
        false
    }

    fn on_tab_button(&mut self, tiles: &mut Tiles<Pane>, tile: TileId, response: egui::Response) -> egui::Response {
        let Some(pane) = tiles.get_pane(&tile).copied() else { return response };
        if response.clicked() {
            self.pressed = Some(pane);
        }
        let hint = crate::commands::Action::Show(pane).hint(&response.ctx);
        response.on_hover_text(hint)
    }

    fn on_edit(&mut self, action: EditAction) {
        // Which tab is in front is no arrangement.
        self.edited |= action != EditAction::TabSelected;
    }

    fn simplification_options(&self) -> SimplificationOptions {
        SimplificationOptions { all_panes_must_have_tabs: true, ..SimplificationOptions::default() }
    }

    fn gap_width(&self, _: &egui::Style) -> f32 {
        4.0
    }

    fn min_size(&self) -> f32 {
        120.0
    }

    fn tab_bar_color(&self, _: &Visuals) -> Color32 {
        self.scene.theme.raised.gamma_multiply(0.55)
    }

    fn tab_bg_color(&self, _: &Visuals, tiles: &Tiles<Pane>, tile: TileId, state: &TabState) -> Color32 {
        let theme = self.scene.theme;
        match tiles.get_pane(&tile) {
            Some(Pane::Sites | Pane::Site) if state.active => theme.panel,
            _ if state.active => theme.canvas,
            _ => Color32::TRANSPARENT,
        }
    }

    fn tab_outline_stroke(&self, _: &Visuals, _: &Tiles<Pane>, _: TileId, _: &TabState) -> Stroke {
        Stroke::NONE
    }

    fn tab_text_color(&self, _: &Visuals, tiles: &Tiles<Pane>, tile: TileId, state: &TabState) -> Color32 {
        let theme = self.scene.theme;
        let keys = tiles.get_pane(&tile).is_some_and(|pane| *pane == self.scene.active_pane);
        match (state.active, keys) {
            (true, true) => theme.accent,
            (true, false) => theme.text,
            (false, _) => theme.weak,
        }
    }
}
