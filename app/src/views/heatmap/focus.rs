//! The selected cell: brought into sight when it changes, and exposed as a widget of its own, so that who works by
//! keyboard or screen reader has it too.

use egui::{Event, EventFilter, Id, Key, Modifiers, Rect, Sense, Ui};
use loka_core::views::LineKind;

use super::{
    frame::{Frame, cell_rect, selected_column, selected_line},
    words::{cell_text, folder_text},
};
use crate::{
    commands::{Action, BrushAction, SelectAction, take_presses},
    layout::Pane,
    views::Scene,
};

/// Where the rows must be scrolled so that a newly selected site is in sight.
pub fn wanted_offset(scene: &mut Scene<'_>, frame: &Frame, height: f32) -> Option<f32> {
    if scene.view.heatmap.seen == scene.view.site {
        return None;
    }
    scene.view.heatmap.seen = scene.view.site.clone();
    let top = selected_line(scene, frame)? as f32 * frame.row;
    let offset = scene.view.heatmap.offset;
    let most = (frame.lines.all.len() as f32 * frame.row - height).max(0.0);
    let in_sight = top >= offset && top + frame.row <= offset + height;
    (!in_sight).then(|| (top - height / 2.0).clamp(0.0, most))
}

const KEYS: [(Key, Modifiers, SelectAction); 8] = [
    (Key::ArrowDown, Modifiers::NONE, SelectAction::NextSite),
    (Key::ArrowUp, Modifiers::NONE, SelectAction::PreviousSite),
    (Key::ArrowRight, Modifiers::NONE, SelectAction::NextColumn),
    (Key::ArrowLeft, Modifiers::NONE, SelectAction::PreviousColumn),
    (Key::Home, Modifiers::NONE, SelectAction::FirstSite),
    (Key::End, Modifiers::NONE, SelectAction::LastSite),
    (Key::PageDown, Modifiers::NONE, SelectAction::PageDown),
    (Key::PageUp, Modifiers::NONE, SelectAction::PageUp),
];

/// With Shift, from the selected cell on.
const BRUSH: [(Key, BrushAction); 4] = [
    (Key::ArrowDown, BrushAction::ExtendDown),
    (Key::ArrowUp, BrushAction::ExtendUp),
    (Key::ArrowRight, BrushAction::ExtendRight),
    (Key::ArrowLeft, BrushAction::ExtendLeft),
];

/// The widget of the selected cell. It takes no pointer: the heatmap has that.
pub fn focus_ui(ui: &Ui, scene: &mut Scene<'_>, frame: &Frame, rect: Rect) {
    let Some(line) = selected_line(scene, frame) else { return };
    let column = selected_column(scene, frame);
    let id = Id::unique("heatmap cell");
    let place = cell_rect(frame, rect, line, column.unwrap_or(0));
    let response = ui.interact(place, id, Sense::focusable_noninteractive());
    response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::GridCell, true, spoken(scene, frame, line, column)));
    if !response.has_focus() {
        return;
    }
    let filter = EventFilter { horizontal_arrows: true, vertical_arrows: true, ..EventFilter::default() };
    ui.memory_mut(|memory| memory.set_focus_lock_filter(id, filter));
    let of_event = |event: &Event| {
        let Event::Key { key, pressed: true, modifiers, .. } = event else { return None };
        let moves = KEYS.iter().find(|(of, held, _)| of == key && held == modifiers);
        let moves = moves.map(|(.., action)| Action::Select(*action));
        let grows = BRUSH.iter().find(|(of, _)| of == key && modifiers.shift_only());
        let moves = moves.or(grows.map(|(_, action)| Action::Brush(*action)));
        moves.or((*key == Key::Enter && modifiers.is_none()).then_some(Action::Show(Pane::Site)))
    };
    for action in ui.input_mut(|input| take_presses(input, of_event)) {
        scene.act(action);
    }
}

fn spoken(scene: &Scene<'_>, frame: &Frame, line: usize, column: Option<usize>) -> String {
    let Some(of) = frame.lines.all.get(line) else { return String::new() };
    let Some(shown) = column else { return format!("{}, no column selected", of.path(scene.session.index().ids())) };
    let text = match of.kind {
        LineKind::Site => cell_text(scene, &frame.table, of.site as usize, shown),
        LineKind::Folder { folder, .. } => {
            let fold = scene.view.heatmap.folding.get(folder, shown, frame.table.num_columns());
            folder_text(scene, frame, of, fold, shown)
        }
    };
    text.replace('\n', ", ")
}
