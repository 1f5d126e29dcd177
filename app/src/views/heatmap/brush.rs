//! A drag over cells brushes them: what they hold in sums is the card's, which the quadrant has, too.

use egui::{PointerButton, Pos2, Rect, Response, Stroke, StrokeKind, Ui};

use super::frame::{Frame, cell_rect};
use crate::{
    layout::Pane,
    state::{BrushDrag, BrushShape, rows_of_cells},
    views::{Scene, brush::card_ui},
};

/// A line and a shown column.
type CellPlace = (usize, usize);

/// `rect`: of all rows, names included.
pub fn brush_ui(ui: &Ui, scene: &mut Scene<'_>, frame: &Frame, response: &Response, rect: Rect) {
    if frame.table.columns.is_empty() || frame.lines.all.is_empty() {
        return;
    }
    begin(ui, scene, frame, response, rect);
    if let Some(BrushDrag::Cells { from, adds }) = scene.view.brush.drag {
        drag(ui, scene, frame, response, rect, (from, adds));
        return;
    }
    let Some(area) = standing(scene, frame, rect) else {
        // The lines are others now: the card stays, and what it is about is not in one place.
        return card_ui(ui, scene, Pane::Heatmap, rect.intersect(ui.clip_rect()));
    };
    paint(ui, scene, area);
    card_ui(ui, scene, Pane::Heatmap, area.intersect(ui.clip_rect()));
}

/// Names are no cells.
fn begin(ui: &Ui, scene: &mut Scene<'_>, frame: &Frame, response: &Response, rect: Rect) {
    if !response.drag_started_by(PointerButton::Primary) {
        return;
    }
    let (origin, adds) = ui.input(|input| (input.pointer.press_origin(), input.modifiers.shift));
    let Some(origin) = origin.filter(|origin| origin.x >= rect.left() + frame.names) else { return };
    scene.view.brush.drag = Some(BrushDrag::Cells { from: cell_at(frame, rect, origin), adds });
}

fn drag(ui: &Ui, scene: &mut Scene<'_>, frame: &Frame, response: &Response, rect: Rect, of: (CellPlace, bool)) {
    let (from, adds) = of;
    let pointer = response.interact_pointer_pos().or_else(|| ui.input(|input| input.pointer.latest_pos()));
    let Some(pointer) = pointer else { return };
    // What is out of sight cannot be meant.
    let to = cell_at(frame, rect, rect.intersect(ui.clip_rect()).clamp(pointer));
    paint(ui, scene, area_of(frame, rect, from, to));
    if response.dragged_by(PointerButton::Primary) {
        return;
    }
    let (columns, grid) = (&frame.table.columns, &frame.table.grid);
    let corner = |(line, column): CellPlace| Some((line, columns.get(column)?.first(grid)?));
    match corner(from).zip(corner(to)) {
        Some((a, b)) => {
            let set = rows_of_cells(&frame.lines, (grid, columns), (from, to));
            let shape = BrushShape::Cells { lines: frame.lines.clone(), corners: [a, b] };
            scene.view.brush.take(set, shape, adds);
        }
        None => scene.view.brush.drag = None,
    }
}

/// The nearest cell: a gap between two GEMMs belongs to the one before it.
fn cell_at(frame: &Frame, rect: Rect, at: Pos2) -> CellPlace {
    let line = (((at.y - rect.top()) / frame.row).max(0.0) as usize).min(frame.lines.all.len() - 1);
    let x = at.x - rect.left() - frame.names;
    let before = (0..frame.table.columns.len()).rev().find(|column| frame.columns.left(*column) <= x);
    (line, frame.columns.at(x).or(before).unwrap_or(0))
}

fn area_of(frame: &Frame, rect: Rect, a: CellPlace, b: CellPlace) -> Rect {
    cell_rect(frame, rect, a.0, a.1).union(cell_rect(frame, rect, b.0, b.1))
}

/// Where the brushed cells stand, while the lines are those that they were brushed in.
fn standing(scene: &Scene<'_>, frame: &Frame, rect: Rect) -> Option<Rect> {
    let Some(BrushShape::Cells { lines, corners: [a, b] }) = &scene.view.brush.shape else { return None };
    if !std::sync::Arc::ptr_eq(lines, &frame.lines) {
        return None;
    }
    let place = |column| frame.table.shown_at(column);
    Some(area_of(frame, rect, (a.0, place(&a.1)?), (b.0, place(&b.1)?)))
}

fn paint(ui: &Ui, scene: &Scene<'_>, area: Rect) {
    let accent = scene.theme.accent;
    ui.painter().rect(area, 2.0, accent.gamma_multiply(0.10), Stroke::new(2.0, accent), StrokeKind::Outside);
}
