//! What one frame of the heatmap is drawn from, and where in it a cell stands.

use std::sync::Arc;

use egui::{Rect, pos2, vec2};
use loka_core::views::Lines;

use super::{axis::Columns, table::HeatmapTable};
use crate::views::Scene;

/// Everything that one frame of the heatmap is drawn from.
pub struct Frame {
    pub table: HeatmapTable,
    pub lines: Arc<Lines>,
    pub columns: Columns,
    /// Widths and heights in points.
    pub names: f32,
    pub row: f32,
}

/// Where a cell stands, before it is snapped to pixels.
pub fn cell_rect(frame: &Frame, rect: Rect, line: usize, shown: usize) -> Rect {
    let left = rect.left() + frame.names + frame.columns.left(shown);
    let top = rect.top() + line as f32 * frame.row;
    Rect::from_min_size(pos2(left, top), vec2(frame.columns.width, frame.row.max(2.0)))
}

/// The shown column that is selected: a kernel's, or a step's.
pub fn selected_column(scene: &Scene<'_>, frame: &Frame) -> Option<usize> {
    if frame.table.series.is_some() {
        return scene.view.heatmap.step.filter(|step| *step < frame.table.num_columns());
    }
    frame.table.shown_at(scene.view.column.as_ref()?)
}

/// The selected site's line; of a closed folder that it is in.
pub fn selected_line(scene: &Scene<'_>, frame: &Frame) -> Option<usize> {
    let site = scene.session.index().at(scene.view.site.as_ref()?)?;
    frame.lines.line_of(site)
}
