//! Where columns stand and what is written above them: the GEMM, what a column's kernels compute, and of an open recipe the
//! libraries that compute it.

use std::ops::Range;

use egui::{
    Align2, Color32, CursorIcon, FontId, Pos2, Rangef, Response, Sense, Shape, Stroke, TextStyle, Ui,
    epaint::TextShape, pos2, vec2,
};
use loka_core::{
    format::short_kernel,
    model::Gemm,
    views::{Column, SeriesGrid, ShownColumn},
};

use super::{table::HeatmapTable, words::column_name};
use crate::{
    gpu::ColumnGroup,
    theme::{Term, with_terms},
    views::{Scene, steps::step_number},
};

const GROUP_GAP: f32 = 8.0;
const MIN_CELL: f32 = 9.0;
const MAX_CELL: f32 = 44.0;
const MIN_STEP: f32 = 2.0;
/// The GEMM over its line.
const GEMM_HEAD: f32 = 20.0;
/// The recipe over the line of its libraries, and the line alone.
const RECIPE_HEAD: f32 = 16.0;
const RECIPE_LINE: f32 = 6.0;
/// Names written upwards: of recipes and libraries, and of kernels.
const RECIPE_NAMES: f32 = 84.0;
const KERNEL_NAMES: f32 = 116.0;
/// Of small text, at most.
const LETTER: f32 = 6.2;
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
        for at in 0..table.num_columns() {
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

/// `10–40`, or `10` where a column is one step.
pub fn steps_text((first, last): (i64, i64)) -> String {
    if first == last { step_number(first) } else { format!("{}–{}", step_number(first), step_number(last)) }
}

pub fn height(table: &HeatmapTable, columns: &Columns) -> f32 {
    if table.steps().is_some() {
        return STEPS_HEADER;
    }
    match open_heads(table, columns) {
        OpenHeads::None => GEMM_HEAD + RECIPE_NAMES,
        OpenHeads::Named => GEMM_HEAD + RECIPE_HEAD + RECIPE_NAMES,
        OpenHeads::Lines => GEMM_HEAD + RECIPE_LINE + KERNEL_NAMES,
    }
}

/// What stands above the columns of open recipes: their name where there is room for all of them, or else a line, and the
/// columns have their kernel's name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OpenHeads {
    None,
    Named,
    Lines,
}

fn open_heads(table: &HeatmapTable, columns: &Columns) -> OpenHeads {
    let mut heads = OpenHeads::None;
    for column in table.columns.iter().filter(|column| column.is_open()) {
        heads = OpenHeads::Named;
        let room = column.num_alike as f32 * columns.width - 4.0;
        if column.recipe.chars().count() as f32 * LETTER > room {
            return OpenHeads::Lines;
        }
    }
    heads
}

pub fn header_ui(ui: &mut Ui, scene: &mut Scene<'_>, table: &HeatmapTable, columns: &Columns, names: f32) {
    let size = vec2(names + columns.total, height(table, columns));
    let (rect, response) = ui.allocate_exact_size(size, Sense::click());
    let left = rect.left() + names;
    match table.steps() {
        Some(series) => steps_ui(ui, scene, series, columns, &response, left),
        None => kernels_ui(ui, scene, table, columns, &response, left),
    }
}

fn kernels_ui(ui: &Ui, scene: &mut Scene<'_>, table: &HeatmapTable, columns: &Columns, response: &Response, left: f32) {
    let (painter, rect) = (ui.painter(), response.rect);
    for group in &columns.groups {
        let Some(gemm) = table.column(group.first).map(|column| column.gemm) else { continue };
        let (from, to) = (left + group.left, left + group.left + group.count as f32 * columns.width);
        let at = pos2(from, rect.top() + 2.0);
        painter.text(at, Align2::LEFT_TOP, Gemm::as_str(gemm), FontId::proportional(13.0), scene.theme.text);
        let line = rect.top() + GEMM_HEAD - 1.0;
        painter.line_segment([pos2(from, line), pos2(to - 1.0, line)], Stroke::new(1.0, scene.theme.line));
    }
    let heads = open_heads(table, columns);
    for at in 0..table.columns.len() {
        let opened = recipe_at(table, at).filter(|of| of.start == at && table.columns[at].is_open());
        if let Some(of) = opened {
            let first = left + columns.left(at);
            let span = Rangef::new(first, first + of.len() as f32 * columns.width - 1.0);
            recipe_ui(ui, scene, &table.columns[at].recipe, (span, rect.top() + GEMM_HEAD), heads);
        }
        let middle = pos2(left + columns.left(at) + columns.width / 2.0, rect.bottom() - 4.0);
        column_name_ui(ui, scene, table, at, middle, heads);
    }
    let Some(pointer) = response.hover_pos() else { return };
    let Some(column) = columns.at(pointer.x - left).and_then(|at| table.column(at)) else { return };
    if column.num_alike > 1 {
        ui.ctx().set_cursor_icon(CursorIcon::PointingHand);
        if response.clicked() {
            return scene.view.heatmap.toggle_recipe(&column.recipe);
        }
    }
    response.clone().on_hover_text_at_pointer(head_text(table, column));
}

/// Over all columns of an open recipe: a line, and its name on it.
fn recipe_ui(ui: &Ui, scene: &Scene<'_>, name: &str, (span, top): (Rangef, f32), heads: OpenHeads) {
    let (painter, theme) = (ui.painter(), &scene.theme);
    let mut line = top + RECIPE_LINE - 2.0;
    if heads == OpenHeads::Named {
        line = top + RECIPE_HEAD - 1.0;
        let font = TextStyle::Small.resolve(ui.style());
        painter.text(pos2(span.center(), line - 1.0), Align2::CENTER_BOTTOM, name, font, theme.text);
    }
    painter.line_segment([pos2(span.min + 1.0, line), pos2(span.max - 1.0, line)], Stroke::new(1.0, theme.weak));
}

/// Written upwards from `foot`, the middle of the column's upper edge.
fn column_name_ui(ui: &Ui, scene: &Scene<'_>, table: &HeatmapTable, at: usize, foot: Pos2, heads: OpenHeads) {
    let (Some(column), theme) = (table.column(at), &scene.theme) else { return };
    let kernel = column.kernels.first().and_then(|first| table.grid.columns.get(*first)).map(|of| &of.kernel);
    let name = match (kernel.filter(|_| column.is_open()), heads) {
        (Some(kernel), OpenHeads::Named) => kernel.library().to_owned(),
        (Some(kernel), _) => short_kernel(kernel.as_str()),
        (None, _) => column.recipe.clone(),
    };
    let selected = scene.view.column.as_ref().and_then(|wanted| table.shown_at(wanted)) == Some(at);
    let color = if selected { theme.accent } else { theme.weak };
    let galley = ui.painter().layout_no_wrap(name, TextStyle::Small.resolve(ui.style()), color);
    let (length, height) = (galley.size().x, galley.size().y);
    let text = TextShape::new(foot - vec2(height / 2.0, 0.0), galley, color).with_angle(-std::f32::consts::FRAC_PI_2);
    ui.painter().add(text);
    if column.is_closed() {
        more_mark(ui, foot - vec2(0.0, length + 5.0), color);
    }
}

/// There is more behind a column: a closed folder's triangle.
fn more_mark(ui: &Ui, at: Pos2, color: Color32) {
    let corners = vec![at + vec2(-2.0, -3.5), at + vec2(3.0, 0.0), at + vec2(-2.0, 3.5)];
    ui.painter().add(Shape::convex_polygon(corners, color, Stroke::NONE));
}

/// The columns that share a recipe with one.
fn recipe_at(table: &HeatmapTable, at: usize) -> Option<Range<usize>> {
    let of = table.column(at)?;
    let is_same =
        |at: &usize| table.column(*at).is_some_and(|other| (other.gemm, &other.recipe) == (of.gemm, &of.recipe));
    let first = (0..=at).rev().take_while(is_same).last()?;
    let last = (at..table.columns.len()).take_while(is_same).last()?;
    Some(first..last + 1)
}

fn head_text(table: &HeatmapTable, column: &ShownColumn) -> String {
    let of = |at: &usize| table.grid.columns.get(*at);
    let kernels: Vec<&Column> = column.kernels.iter().filter_map(of).collect();
    let head = format!("{} · {}", column_name(table, column), column.gemm);
    let names: Vec<&str> = kernels.iter().map(|of| of.kernel.as_str()).collect();
    let about = match kernels.as_slice() {
        [one] => one.kernel.known().map_or("", |kernel| kernel.about).to_owned(),
        _ => format!(
            "{}\nThey compute the same: each site shows the one that is chosen, else the fastest",
            names.join(", ")
        ),
    };
    let click = match (column.is_closed(), column.is_open()) {
        (true, _) => "\nClick for a column each",
        (_, true) => "\nClick for one column of all that compute the same",
        _ => "",
    };
    let terms = kernels.first().into_iter().flat_map(|of| Term::of_kernel(of.kernel.as_str()));
    with_terms(&format!("{head}\n{about}{click}"), std::iter::once(Term::of_gemm(column.gemm)).chain(terms))
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
    fn steps_are_named_by_their_ends() {
        assert_eq!(steps_text((10, 10)), "10");
        assert_eq!(steps_text((1_000, 2_500)), "1,000–2,500");
    }
}
