//! Takes one cell of the heatmap, paints it: colour, hatch, outline, mark.

use egui::{Align2, Color32, FontId, Painter, Rect, Stroke, StrokeKind, pos2};
use loka_core::{
    model::{Gemm, Metric},
    session::view::{Cell, Column, Heatmap},
};

use crate::theme::{Scale, Theme, number, text_on};

/// Where columns stand: groups of one GEMM with a gap between them.
#[derive(Clone, Debug, PartialEq)]
pub struct Columns {
    /// Left edges, one a column.
    lefts: Vec<f32>,
    pub width: f32,
    pub total: f32,
}

const GROUP_GAP: f32 = 8.0;
const MIN_CELL: f32 = 9.0;
const MAX_CELL: f32 = 44.0;

impl Columns {
    pub fn fit(columns: &[Column], available: f32) -> Self {
        let num_groups = Gemm::ALL.iter().filter(|gemm| columns.iter().any(|of| of.gemm == **gemm)).count();
        let gaps = GROUP_GAP * num_groups.saturating_sub(1) as f32;
        let width = ((available - gaps) / columns.len().max(1) as f32).clamp(MIN_CELL, MAX_CELL);
        let mut at = 0.0;
        let mut lefts = Vec::with_capacity(columns.len());
        for (index, column) in columns.iter().enumerate() {
            if index > 0 && columns[index - 1].gemm != column.gemm {
                at += GROUP_GAP;
            }
            lefts.push(at);
            at += width;
        }
        Self { lefts, width, total: at }
    }

    pub fn left(&self, column: usize) -> f32 {
        self.lefts.get(column).copied().unwrap_or_default()
    }

    /// The column at `x` from the first one's left edge.
    pub fn at(&self, x: f32) -> Option<usize> {
        self.lefts.iter().rposition(|left| *left <= x).filter(|at| x < self.lefts[*at] + self.width)
    }
}

/// What is the same for all cells.
pub struct CellStyle<'a> {
    pub theme: &'a Theme,
    pub scale: Option<Scale>,
    pub heatmap: &'a Heatmap,
    pub metric: Metric,
}

impl CellStyle<'_> {
    pub fn paint(&self, painter: &Painter, rect: Rect, cell: &Cell) {
        let rect = rect.shrink(0.5);
        match cell {
            Cell::Value { estimate, chosen, .. } => {
                let color = match self.scale {
                    // An error of exactly 0 has no place on a log scale: it is the good end.
                    Some(scale) if estimate.value.is_finite() => scale.color(estimate.value),
                    _ => self.theme.raised,
                };
                painter.rect_filled(rect, 1.0, color);
                let ink = text_on(color);
                if rect.width() >= 34.0 {
                    let (text, _) = number::with_interval(*estimate);
                    painter.text(rect.center(), Align2::CENTER_CENTER, text, FontId::monospace(10.0), ink);
                }
                if self.is_beyond(estimate.value) {
                    painter.rect_stroke(
                        rect,
                        1.0,
                        Stroke::new(1.0, self.theme.beyond.gamma_multiply(0.75)),
                        StrokeKind::Inside,
                    );
                }
                if *chosen {
                    mark(painter, rect, ink, color);
                }
            }
            Cell::Missing { .. } => hatch(painter, rect, self.theme.line),
            Cell::Waiting => {
                painter.rect_filled(rect, 1.0, self.theme.raised.gamma_multiply(0.35));
            }
        }
    }

    fn is_beyond(&self, value: f64) -> bool {
        self.heatmap
            .bound
            .is_some_and(|bound| if self.metric == Metric::SqnrDb { value < bound } else { value > bound })
    }
}

/// The chosen kernel: a disc with a rim, so that it reads on any colour.
fn mark(painter: &Painter, rect: Rect, ink: Color32, ground: Color32) {
    let center = if rect.width() >= 34.0 { pos2(rect.left() + 6.0, rect.top() + 6.0) } else { rect.center() };
    let radius = (rect.width() * 0.28).clamp(2.2, 3.2);
    painter.circle(center, radius, ink, Stroke::new(1.0, ground));
}

/// Diagonal lines: there is no number here.
pub fn hatch(painter: &Painter, rect: Rect, color: Color32) {
    let painter = painter.with_clip_rect(rect.intersect(painter.clip_rect()));
    let stroke = Stroke::new(1.0, color);
    let mut x = rect.left() - rect.height();
    while x < rect.right() {
        painter.line_segment([pos2(x, rect.bottom()), pos2(x + rect.height(), rect.top())], stroke);
        x += 5.0;
    }
}

/// A kernel's name short enough for a column: `cublaslt row+fast`.
pub fn short_kernel(column: &Column) -> String {
    let recipe = column.kernel.recipe().trim_start_matches("fp8-").replace("rowwise_with_gw_hp", "row gw hp");
    let recipe = recipe.replace("tensorwise", "tensor").replace("rowwise", "row").replace("blockwise", "block");
    format!("{} {recipe}", column.kernel.library())
}

#[cfg(test)]
mod tests {
    use loka_core::model::KernelId;

    use super::*;

    fn columns() -> Vec<Column> {
        let kernel = |name| KernelId::new(name);
        let of = |gemm| ["te/current", "fbgemm/rowwise"].map(|name| Column { gemm, kernel: kernel(name) });
        Gemm::ALL.into_iter().flat_map(of).collect()
    }

    #[test]
    fn pointer_and_columns_agree() {
        let columns = columns();
        let fit = Columns::fit(&columns, 200.0);
        for at in 0..columns.len() {
            assert_eq!(fit.at(fit.left(at) + 1.0), Some(at));
        }
        assert_eq!(fit.at(fit.left(2) - 1.0), None, "the gap between two GEMMs is no cell");
        assert_eq!(fit.at(-1.0), None);
        assert_eq!(fit.at(fit.total + 1.0), None);
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
}
