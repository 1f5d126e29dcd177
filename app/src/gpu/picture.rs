//! Takes cells with where they stand and their colours, paints them as shapes. The shader reads the same cells and
//! the same measures: edges fall on the same pixels, and a mark that does not fit is left out in both.

use std::sync::Arc;

use bytemuck::{Pod, Zeroable};
use egui::{Color32, Painter, Rect, Shape, Stroke, StrokeKind, pos2, vec2};
use loka_core::views::Mark;

use crate::theme::{Scale, rgb, text_on};

/// One cell as the texture holds it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct Texel {
    pub value: f32,
    /// The bits of [`Mark`], and those below.
    pub bits: u32,
}

impl Texel {
    /// Worse than the policy's bound: a thin outline.
    pub const BEYOND: u32 = 256;
    /// All of a folder's sites: drawn lower than a site's cell.
    pub const FOLDER: u32 = 512;

    pub fn new(value: f32, mark: Mark) -> Self {
        let bits = u32::from(mark.0 & !Mark::BEST.0);
        Self { value: if value.is_nan() { 0.0 } else { value }, bits }
    }

    #[must_use]
    pub fn with(self, bits: u32, on: bool) -> Self {
        Self { bits: if on { self.bits | bits } else { self.bits }, ..self }
    }

    fn has(self, mark: Mark) -> bool {
        self.bits & u32::from(mark.0) != 0
    }
}

/// Columns that stand together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ColumnGroup {
    /// From the picture's left edge, in points.
    pub left: f32,
    pub first: usize,
    pub count: usize,
}

/// Colours besides the scale's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Palette {
    pub waiting: Color32,
    pub hatch: Color32,
    pub beyond: Color32,
}

/// Cells and where they stand. Lengths in points.
#[derive(Clone, Debug)]
pub struct Picture {
    pub texels: Arc<[Texel]>,
    /// Tells these texels from all others that this window has shown.
    pub revision: u64,
    pub num_columns: usize,
    /// What is in sight.
    pub rect: Rect,
    /// The first row's top from that of `rect`.
    pub top: f32,
    pub row: f32,
    pub width: f32,
    pub groups: Vec<ColumnGroup>,
    pub scale: Option<Scale>,
    pub palette: Palette,
    /// Numbers stand in the cells: the chosen mark moves into the corner.
    pub has_text: bool,
    pub pixels_per_point: f32,
}

/// Groups that a picture can have: three GEMMs, or one series.
pub const MAX_GROUPS: usize = 4;

// Least sizes in pixels for what stands in a cell; the shader has the same.
pub const GAP_FROM: f32 = 4.0;
pub const OUTLINE_FROM: f32 = 5.0;
pub const DISC_FROM: f32 = 6.0;
pub const NOTCH_FROM: f32 = 10.0;
/// Of the height: how much lower a folder's cell is at each end.
pub const FOLDER_INSET: f32 = 0.18;

/// The first pixel whose middle is at `edge` or beyond.
fn snap(edge: f32) -> f32 {
    (edge - 0.5).ceil()
}

impl Picture {
    pub fn num_rows(&self) -> usize {
        self.texels.len() / self.num_columns.max(1)
    }

    /// A cell's place in pixels from the picture's corner, without the gap to the next.
    fn pixels(&self, row: usize, column: usize, bits: u32) -> Option<Rect> {
        let scale = self.pixels_per_point;
        let group = self.groups.iter().find(|group| (group.first..group.first + group.count).contains(&column))?;
        let left = |column: usize| snap(scale * (group.left + (column - group.first) as f32 * self.width));
        let top = |row: usize| snap(scale * (self.top + row as f32 * self.row));
        let (x0, x1, y0, y1) = (left(column), left(column + 1), top(row), top(row + 1));
        let gap = |size: f32| if size >= GAP_FROM { 1.0 } else { 0.0 };
        let inset = if bits & Texel::FOLDER == 0 { 0.0 } else { ((y1 - y0) * FOLDER_INSET).floor() };
        let max = pos2(x1 - gap(x1 - x0), y1 - gap(y1 - y0) - inset);
        Some(Rect::from_min_max(pos2(x0, y0 + inset), max))
    }

    /// The same in points of the window.
    pub fn cell(&self, row: usize, column: usize) -> Option<Rect> {
        let texel = self.texels.get(row * self.num_columns + column)?;
        let of = self.pixels(row, column, texel.bits)?;
        let corner = self.corner();
        let point = |at: egui::Pos2| (corner + at.to_vec2()).to_vec2() / self.pixels_per_point;
        Some(Rect::from_min_max(point(of.min).to_pos2(), point(of.max).to_pos2()))
    }

    /// The picture's corner in whole pixels.
    pub fn corner(&self) -> egui::Pos2 {
        (self.rect.min.to_vec2() * self.pixels_per_point).round().to_pos2()
    }

    /// The ground of a cell that has a value.
    pub fn color(&self, texel: Texel) -> Option<Color32> {
        let scale = self.scale.filter(|_| texel.has(Mark::VALUE))?;
        Some(rgb(scale.color(f64::from(texel.value))))
    }

    /// Every cell as shapes.
    pub fn paint(&self, painter: &Painter) {
        let painter = painter.with_clip_rect(self.rect.intersect(painter.clip_rect()));
        for row in 0..self.num_rows() {
            for column in 0..self.num_columns {
                let texel = self.texels[row * self.num_columns + column];
                if let Some(rect) = self.cell(row, column).filter(|rect| rect.intersects(self.rect)) {
                    self.paint_cell(&painter, rect, texel);
                }
            }
        }
    }

    fn paint_cell(&self, painter: &Painter, rect: Rect, texel: Texel) {
        let pixels = rect.size() * self.pixels_per_point;
        let fits = |least: f32| pixels.min_elem() >= least;
        let Some(color) = self.color(texel) else {
            if texel.has(Mark::MISSING) {
                hatch(painter, rect, self.palette.hatch);
            } else {
                painter.rect_filled(rect, 0.0, self.palette.waiting);
            }
            return;
        };
        painter.rect_filled(rect, 0.0, color);
        let ink = text_on(color);
        if texel.bits & Texel::BEYOND != 0 && fits(OUTLINE_FROM) {
            let stroke = Stroke::new(1.0 / self.pixels_per_point, self.palette.beyond);
            painter.rect_stroke(rect, 0.0, stroke, StrokeKind::Inside);
        }
        if texel.has(Mark::MODELLED) && fits(NOTCH_FROM) {
            let corner = rect.right_top();
            let points = vec![corner - vec2(4.0, 0.0), corner, corner + vec2(0.0, 4.0)];
            painter.add(Shape::convex_polygon(points, ink, Stroke::NONE));
        }
        if texel.has(Mark::CHOSEN) && fits(DISC_FROM) {
            let center = if self.has_text { rect.min + vec2(4.5, 4.5) } else { rect.center() };
            let radius = if self.has_text { 2.4 } else { disc_radius(rect.width()) };
            painter.circle_filled(center, radius, ink);
            if texel.has(Mark::OVERRIDDEN) {
                painter.circle_filled(center, radius * 0.5, color);
            }
        }
    }
}

/// The chosen kernel's disc; hollow when a person chose it.
pub fn disc_radius(width: f32) -> f32 {
    (width * 0.28).clamp(2.2, 3.2)
}

/// Between two diagonal lines, in points.
pub const HATCH: f32 = 5.0;

/// Diagonal lines: there is no number here.
pub fn hatch(painter: &Painter, rect: Rect, color: Color32) {
    let painter = painter.with_clip_rect(rect.intersect(painter.clip_rect()));
    let stroke = Stroke::new(1.0, color);
    let mut x = rect.left();
    while x < rect.right() + rect.height() {
        painter.line_segment([pos2(x, rect.top()), pos2(x - rect.height(), rect.bottom())], stroke);
        x += HATCH;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(row: f32, pixels_per_point: f32) -> Picture {
        Picture {
            texels: vec![Texel::default(); 40].into(),
            revision: 1,
            num_columns: 4,
            rect: Rect::from_min_size(pos2(10.3, 20.7), vec2(100.0, 100.0)),
            top: -3.3,
            row,
            width: 11.7,
            groups: vec![ColumnGroup { left: 0.0, first: 0, count: 2 }, ColumnGroup { left: 31.4, first: 2, count: 2 }],
            scale: None,
            palette: Palette { waiting: Color32::GRAY, hatch: Color32::GRAY, beyond: Color32::WHITE },
            has_text: false,
            pixels_per_point,
        }
    }

    #[test]
    fn cells_touch_and_never_overlap() {
        for (row, pixels_per_point) in [(7.3, 1.0), (22.0, 1.5), (2.1, 2.0)] {
            let picture = picture(row, pixels_per_point);
            for at in 0..9 {
                let (above, below) = (picture.pixels(at, 0, 0).unwrap(), picture.pixels(at + 1, 0, 0).unwrap());
                let gap = below.top() - above.bottom();
                assert!((0.0..=1.0).contains(&gap), "{gap}");
                let (left, right) = (picture.pixels(at, 0, 0).unwrap(), picture.pixels(at, 1, 0).unwrap());
                assert!((0.0..=1.0).contains(&(right.left() - left.right())));
                assert_eq!(left.min, left.min.round(), "on whole pixels");
            }
            assert!(picture.pixels(0, 4, 0).is_none());
        }
    }

    #[test]
    fn a_folder_is_lower_than_a_site() {
        let picture = picture(22.0, 1.0);
        let (site, folder) = (picture.pixels(0, 0, 0).unwrap(), picture.pixels(0, 0, Texel::FOLDER).unwrap());
        assert!(folder.height() < site.height() && site.contains_rect(folder));
    }

    #[test]
    fn no_number_is_no_bits_of_a_number() {
        assert_eq!(Texel::new(f32::NAN, Mark::MISSING).value, 0.0);
        assert_eq!(Texel::new(0.5, Mark::VALUE).with(Texel::BEYOND, true).bits, 2 | 256);
    }
}
