//! Hover tells, a click selects, the wheel with Ctrl zooms, a double click on nothing in particular ends the zoom.

use egui::{Rect, Response, Stroke, StrokeKind, Ui};
use loka_core::views::{Line, LineKind};

use super::{
    frame::{Frame, cell_rect},
    words::{cell_text, folder_text},
};
use crate::{theme::number, views::Scene};

pub fn pointer_ui(ui: &Ui, scene: &mut Scene<'_>, frame: &Frame, response: &Response, rect: Rect) {
    let Some(pointer) = response.hover_pos() else { return };
    zoom(ui, scene, frame, pointer.y - (rect.top() + scene.view.heatmap.offset));
    let at = ((pointer.y - rect.top()) / frame.row) as usize;
    let Some(line) = frame.lines.all.get(at) else { return };
    let shown = frame.columns.at(pointer.x - rect.left() - frame.names);
    if scene.view.brush.drag.is_some() {
        return;
    }
    if response.double_clicked() {
        scene.view.heatmap.reset_zoom();
        return;
    }
    if response.clicked() {
        click(ui, scene, frame, line, shown);
        return;
    }
    if let Some(shown) = shown.filter(|_| frame.row >= 4.0) {
        let cell = cell_rect(frame, rect, at, shown);
        ui.painter().rect_stroke(cell, 1.0, Stroke::new(1.0, scene.theme.text), StrokeKind::Inside);
    }
    response.clone().on_hover_text_at_pointer(text(scene, frame, at, line, shown));
}

/// `keep`: the pointer, below the top of what is in sight.
fn zoom(ui: &Ui, scene: &mut Scene<'_>, frame: &Frame, keep: f32) {
    let (factor, shift) = ui.input(|input| (input.zoom_delta(), input.modifiers.shift));
    if factor == 1.0 {
        return;
    }
    let heatmap = &mut scene.view.heatmap;
    if shift {
        heatmap.width = Some((frame.columns.width * factor).clamp(2.0, 96.0));
    } else {
        heatmap.zoom_rows(frame.row, factor, frame.lines.all.len(), keep);
    }
    ui.ctx().request_repaint();
}

/// A site's cell selects it; a folder's its worst site; a folder's name opens or closes it.
fn click(ui: &Ui, scene: &mut Scene<'_>, frame: &Frame, line: &Line, shown: Option<usize>) {
    let site = match (line.kind, shown) {
        (LineKind::Folder { folder, .. }, None) => return scene.view.sites.toggle(folder),
        (LineKind::Folder { folder, .. }, Some(shown)) => {
            let fold = scene.view.heatmap.folding.get(folder, shown, frame.table.num_columns());
            fold.filter(|fold| fold.num_values > 0).map_or(line.site, |fold| fold.worst_site)
        }
        (LineKind::Site, _) => line.site,
    };
    let Some(id) = scene.session.index().ids().get(site as usize).cloned() else { return };
    if ui.input(|input| input.modifiers.shift) {
        return super::super::sites::extend_to(scene, id, &frame.lines);
    }
    let column = shown.and_then(|shown| frame.table.kernel_at(site as usize, shown));
    if frame.table.series.is_some() {
        scene.view.heatmap.step = shown.or(scene.view.heatmap.step);
    }
    scene.view.selection.clear();
    scene.view.sites.anchor = Some(id.clone());
    scene.view.select(id, column);
}

fn text(scene: &Scene<'_>, frame: &Frame, at: usize, line: &Line, shown: Option<usize>) -> String {
    let ids = scene.session.index().ids();
    let Some(shown) = shown else {
        let sites = match line.num_sites() {
            1 => String::new(),
            count => format!("\n{} sites", number::count(count as u64)),
        };
        return format!("{}{sites}", line.path(ids));
    };
    let crowd = crowd_text(frame, at);
    let text = match line.kind {
        LineKind::Site => cell_text(scene, &frame.table, line.site as usize, shown),
        LineKind::Folder { folder, .. } => {
            let fold = scene.view.heatmap.folding.get(folder, shown, frame.table.num_columns());
            folder_text(scene, frame, line, fold, shown)
        }
    };
    format!("{crowd}{text}")
}

/// Rows that share a line of pixels are not told apart by eye.
fn crowd_text(frame: &Frame, at: usize) -> String {
    let window = crate::state::ColumnWindow::of(0.0, 1.0, frame.row, frame.lines.all.len(), 0);
    if window.per_band <= 1 {
        return String::new();
    }
    let first = at / window.per_band * window.per_band;
    let count = window.per_band.min(frame.lines.all.len() - first);
    format!(
        "The colour is the worst of {} rows; zoom in to tell them apart. Under the pointer:\n",
        number::count(count as u64)
    )
}
