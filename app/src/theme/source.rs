//! Where a latency came from, as a mark and a word: a dot was measured here, a square was recorded
//! elsewhere, a square with a notched corner is modelled, a dash is nothing.

use egui::{Color32, Painter, Pos2, Rect, Response, RichText, Sense, Shape, Stroke, StrokeKind, TextStyle, Ui, vec2};
use loka_core::model::LatencySource;

use super::Theme;

/// A mark's room in a line of widgets.
pub const SOURCE_MARK: f32 = 9.0;

/// Half of a mark's width.
const HALF: f32 = 3.5;

pub fn source_word(source: LatencySource) -> &'static str {
    match source {
        LatencySource::None => "no latency",
        known => known.as_str(),
    }
}

pub fn paint_source(painter: &Painter, center: Pos2, source: LatencySource, color: Color32) {
    let rect = Rect::from_center_size(center, vec2(2.0 * HALF, 2.0 * HALF));
    let stroke = Stroke::new(1.2, color);
    match source {
        LatencySource::Measured => {
            painter.circle_filled(center, HALF, color);
        }
        LatencySource::Recorded => {
            painter.rect_stroke(rect, 0.0, stroke, StrokeKind::Inside);
        }
        LatencySource::Modelled => {
            painter.rect_stroke(rect, 0.0, stroke, StrokeKind::Inside);
            painter.add(notch(rect, HALF * 1.5, color));
        }
        LatencySource::None => {
            let across = vec2(HALF, 0.0);
            painter.line_segment([center - across, center + across], stroke);
        }
    }
}

/// The upper right corner, filled.
pub(super) fn notch(rect: Rect, size: f32, color: Color32) -> Shape {
    let corner = rect.right_top();
    let points = vec![corner - vec2(size, 0.0), corner, corner + vec2(0.0, size)];
    Shape::convex_polygon(points, color, Stroke::NONE)
}

/// The mark with its word or `text` after it, in a line of widgets.
pub fn source_ui(ui: &mut Ui, theme: &Theme, source: LatencySource, text: &str) -> Response {
    if ui.layout().main_wrap() {
        // A mark belongs to its word: both in one line.
        let font = TextStyle::Small.resolve(ui.style());
        let wide = ui.painter().layout_no_wrap(text.to_owned(), font, theme.weak).size().x;
        if ui.available_size_before_wrap().x < SOURCE_MARK + ui.spacing().item_spacing.x + wide {
            ui.end_row();
        }
    }
    let (rect, mark) = ui.allocate_exact_size(vec2(SOURCE_MARK, 12.0), Sense::hover());
    paint_source(ui.painter(), rect.center(), source, theme.weak);
    let label = egui::Label::new(RichText::new(text).small().color(theme.weak)).truncate();
    mark.union(ui.add(label))
}
