//! A click selects, a click on a folded module opens it, the wheel with Ctrl zooms, the arrows go along the chain.

use egui::{Id, Key, Modifiers, Rect, Response, Ui};
use loka_core::views::{GraphItem, GraphItemKind};

use super::Strip;
use crate::{
    commands::{Action, GraphAction, take_arrows},
    layout::Pane,
    views::Scene,
};

/// The wheel with Ctrl, anywhere on the strip.
pub fn pointer_ui(ui: &Ui, scene: &mut Scene<'_>, strip: &Strip, rect: Rect) {
    let Some(pointer) = ui.input(|input| input.pointer.hover_pos()) else { return };
    let factor = ui.input(egui::InputState::zoom_delta);
    let over = ui.clip_rect().intersect(rect).contains(pointer) && ui.ctx().layer_id_at(pointer) == Some(ui.layer_id());
    if factor == 1.0 || !over || strip.items.all.is_empty() {
        return;
    }
    scene.view.graph.zoom_by(factor, pointer.x - rect.left() - scene.view.graph.offset);
    ui.ctx().request_repaint();
}

pub fn box_clicked(ui: &Ui, scene: &mut Scene<'_>, item: &GraphItem, response: &Response) {
    if !response.clicked() {
        return;
    }
    if let GraphItemKind::Module(folder) = item.kind
        && !ui.input(|input| input.modifiers.shift)
    {
        return scene.view.graph.turn(folder);
    }
    let ids = scene.session.index().ids();
    let own = ids.get(item.from as usize..item.to as usize).unwrap_or_default().to_vec();
    let Some(first) = own.first().cloned() else { return };
    scene.view.selection = if own.len() > 1 { own.into_iter().collect() } else { std::collections::BTreeSet::new() };
    scene.view.sites.anchor = Some(first.clone());
    scene.view.select(first, None);
    scene.view.reveal = true;
    // It is where the pointer is: nothing has to move.
    scene.view.graph.seen = scene.view.site.clone();
}

const KEYS: [(Key, GraphAction); 6] = [
    (Key::ArrowRight, GraphAction::Next),
    (Key::ArrowLeft, GraphAction::Previous),
    (Key::ArrowDown, GraphAction::FollowFeed),
    (Key::ArrowUp, GraphAction::FollowBack),
    (Key::Home, GraphAction::First),
    (Key::End, GraphAction::Last),
];

/// While the selected box has the focus.
pub fn keys(ui: &Ui, scene: &mut Scene<'_>, item: &GraphItem, id: Id) {
    take_arrows(ui.ctx(), id);
    let pressed = |key| ui.input_mut(|input| input.consume_key(Modifiers::NONE, key));
    for (key, action) in KEYS {
        if pressed(key) {
            scene.act(Action::Graph(action));
        }
    }
    // Enter is a click, too: a folded module opens by that.
    if item.kind == GraphItemKind::Site && pressed(Key::Enter) {
        scene.act(Action::Show(Pane::Site));
    }
}
