//! Where columns stand and what is written above them.

use egui::{Align2, FontId, Response, Sense, Stroke, TextStyle, Ui, epaint::TextShape, pos2, vec2};
use loka_core::{
    model::Gemm,
    views::{Column, SeriesGrid},
};

use super::table::HeatmapTable;
use crate::{
    gpu::ColumnGroup,
    theme::{Term, with_terms},
    views::{Scene, steps::step_number},
};

const GROUP_GAP: f32 = 8.0;
const MIN_CELL: f32 = 9.0;
const MAX_CELL: f32 = 44.0;
const MIN_STEP: f32 = 2.0;
const HEADER: f32 = 138.0;
const STEPS_HEADER: f32 = 26.0;

/// Where columns stand: groups of one GEMM with a gap between them.
#[derive(Clone, Debug, PartialEq)]
pub struct Columns {
    pub groups: Vec<ColumnGroup>,
    pub width: f32,
    pub total: f32,
}

impl Columns {
    /// `wanted`: the width that a person zoomed to.
    pub fn fit(table: &HeatmapTable, available: f32, wanted: Option<f32>) -> Self {
        let steps = table.steps().is_some();
        let gemm = |at: usize| table.column(at).map(|column| column.gemm);
        let mut counts: Vec<usize> = Vec::new();
        for at in 0..table.columns.len() {
            match counts.last_mut() {
                Some(count) if gemm(at) == gemm(at - 1) => *count += 1,
                _ => counts.push(1),
            }
        }
        let least = if steps { MIN_STEP } else { MIN_CELL };
        Self::of(&counts, available, least, wanted)
    }

    fn of(counts: &[usize], available: f32, least: f32, wanted: Option<f32>) -> Self {
        let gaps = GROUP_GAP * counts.len().saturating_sub(1) as f32;
        let all: usize = counts.iter().sum();
        let fitting = ((available - gaps) / all.max(1) as f32).clamp(least, MAX_CELL);
        let width = wanted.map_or(fitting, |wanted| wanted.max(least));
        let (mut left, mut first) = (0.0, 0);
        let mut groups = Vec::with_capacity(counts.len());
        for count in counts {
            groups.push(ColumnGroup { left, first, count: *count });
            left += *count as f32 * width + GROUP_GAP;
            first += count;
        }
        Self { groups, width, total: (left - GROUP_GAP).max(0.0) }
    }

    pub fn left(&self, column: usize) -> f32 {
        let group = self.groups.iter().find(|group| (group.first..group.first + group.count).contains(&column));
        group.map_or(0.0, |group| group.left + (column - group.first) as f32 * self.width)
    }

    /// The column at `x` from the first one's left edge.
    pub fn at(&self, x: f32) -> Option<usize> {
        self.groups.iter().find_map(|group| {
            let inside = ((x - group.left) / self.width).floor();
            (inside >= 0.0 && inside < group.count as f32).then(|| group.first + inside as usize)
        })
    }
}

/// A kernel's name short enough for a column: `cublaslt row+fast`.
pub fn short_kernel(column: &Column) -> String {
    loka_core::format::short_kernel(column.kernel.as_str())
}

/// `10–40`, or `10` where a column is one step.
pub fn steps_text((first, last): (i64, i64)) -> String {
    if first == last { step_number(first) } else { format!("{}–{}", step_number(first), step_number(last)) }
}

pub fn height(table: &HeatmapTable) -> f32 {
    if table.steps().is_some() { STEPS_HEADER } else { HEADER }
}

pub fn header_ui(ui: &mut Ui, scene: &Scene<'_>, table: &HeatmapTable, columns: &Columns, names: f32) {
    let size = vec2(names + columns.total, height(table));
    let (rect, response) = ui.allocate_exact_size(size, Sense::hover());
    let left = rect.left() + names;
    match table.steps() {
        Some(series) => steps_ui(ui, scene, series, columns, &response, left),
        None => kernels_ui(ui, scene, table, columns, &response, left),
    }
}

fn kernels_ui(ui: &Ui, scene: &Scene<'_>, table: &HeatmapTable, columns: &Columns, response: &Response, left: f32) {
    let (painter, theme, rect) = (ui.painter(), &scene.theme, response.rect);
    let small = TextStyle::Small.resolve(ui.style());
    for group in &columns.groups {
        let Some(gemm) = table.column(group.first).map(|column| column.gemm) else { continue };
        let (from, to) = (left + group.left, left + group.left + group.count as f32 * columns.width);
        let at = pos2(from, rect.top() + 2.0);
        painter.text(at, Align2::LEFT_TOP, Gemm::as_str(gemm), FontId::proportional(13.0), theme.text);
        let line = rect.top() + 19.0;
        painter.line_segment([pos2(from, line), pos2(to - 1.0, line)], Stroke::new(1.0, theme.line));
    }
    for at in 0..table.columns.len() {
        let Some(column) = table.column(at) else { continue };
        let selected = scene.view.column.as_ref() == Some(column);
        let color = if selected { theme.accent } else { theme.weak };
        let galley = painter.layout_no_wrap(short_kernel(column), small.clone(), color);
        let x = left + columns.left(at) + (columns.width - galley.size().y) / 2.0;
        let text = TextShape::new(pos2(x, rect.bottom() - 4.0), galley, color).with_angle(-std::f32::consts::FRAC_PI_2);
        painter.add(text);
    }
    let Some(pointer) = response.hover_pos() else { return };
    if let Some(column) = columns.at(pointer.x - left).and_then(|at| table.column(at)) {
        let about = loka_core::model::kernel(column.kernel.as_str()).map_or("", |kernel| kernel.about);
        let text = format!("{} · {}\n{about}", column.kernel, column.gemm);
        let terms = std::iter::once(Term::of_gemm(column.gemm)).chain(Term::of_kernel(column.kernel.as_str()));
        response.clone().on_hover_text_at_pointer(with_terms(&text, terms));
    }
}

/// Steps at the ends and in between, as far as they do not touch.
fn steps_ui(ui: &Ui, scene: &Scene<'_>, series: &SeriesGrid, columns: &Columns, response: &Response, left: f32) {
    const APART: f32 = 70.0;
    let (painter, theme, rect) = (ui.painter(), &scene.theme, response.rect);
    let every = (APART / columns.width).ceil().max(1.0) as usize;
    let font = FontId::monospace(10.0);
    for (at, (first, _)) in series.columns.iter().enumerate().step_by(every) {
        let x = left + columns.left(at);
        painter.line_segment([pos2(x, rect.bottom() - 4.0), pos2(x, rect.bottom())], Stroke::new(1.0, theme.weak));
        let text = steps_text((*first, *first));
        painter.text(pos2(x, rect.bottom() - 5.0), Align2::LEFT_BOTTOM, text, font.clone(), theme.weak);
    }
    painter.text(pos2(left - 8.0, rect.bottom() - 5.0), Align2::RIGHT_BOTTOM, "step", font, theme.weak);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointer_and_columns_agree() {
        let fit = Columns::of(&[2, 2, 2], 200.0, MIN_CELL, None);
        for at in 0..6 {
            assert_eq!(fit.at(fit.left(at) + 1.0), Some(at));
        }
        assert_eq!(fit.at(fit.left(2) - 1.0), None, "the gap between two GEMMs is no cell");
        assert_eq!(fit.at(-1.0), None);
        assert_eq!(fit.at(fit.total + 1.0), None);
        assert_eq!(Columns::of(&[4], 200.0, MIN_CELL, Some(60.0)).width, 60.0);
    }

    #[test]
    fn kernels_keep_what_tells_them_apart() {
        let all = loka_core::model::catalogue();
        let mut short: Vec<String> =
            all.iter().map(|kernel| short_kernel(&Column { gemm: Gemm::Fprop, kernel: kernel.id() })).collect();
        short.sort();
        short.dedup();
        assert_eq!(short.len(), all.len());
    }

    #[test]
    fn steps_are_named_by_their_ends() {
        assert_eq!(steps_text((10, 10)), "10");
        assert_eq!(steps_text((1_000, 2_500)), "1,000–2,500");
    }
}
