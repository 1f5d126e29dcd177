//! Takes a verdict, paints its shape: a disc, a half disc, a triangle, a square, a ring, a dash. Drawn,
//! not typed, so that every font and every size shows the same.

use egui::{Color32, Painter, Pos2, Response, Sense, Shape, Stroke, Ui, pos2, vec2};
use loka_core::model::{LatencySource, Quadrant};

use super::Theme;

/// How a shape is drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Glyph {
    pub quadrant: Quadrant,
    pub radius: f32,
    /// Where the latency behind it came from, when that is told: measured has a dot at its corner;
    /// modelled a notch there and a pale filling (not none at all, or every disc would be a ring).
    pub source: Option<LatencySource>,
}

impl Glyph {
    pub fn new(quadrant: Quadrant) -> Self {
        Self { quadrant, radius: 4.5, source: None }
    }
}

/// A shape in a line of widgets, with the verdict's word as its name.
pub fn glyph_ui(ui: &mut Ui, theme: &Theme, quadrant: Quadrant) -> Response {
    let (rect, response) = ui.allocate_exact_size(vec2(12.0, ui.spacing().interact_size.y), Sense::hover());
    paint_glyph(ui.painter(), rect.center(), Glyph::new(quadrant), theme.verdict(quadrant));
    response.on_hover_text(super::Term::of_verdict(quadrant).text())
}

pub fn paint_glyph(painter: &Painter, center: Pos2, glyph: Glyph, color: Color32) {
    let radius = glyph.radius;
    let fill = if glyph.source == Some(LatencySource::Modelled) { color.gamma_multiply(0.3) } else { color };
    let stroke = Stroke::new(1.3, color);
    source_mark(painter, center, glyph, color);
    match glyph.quadrant {
        Quadrant::SafeFast => {
            painter.circle(center, radius, fill, stroke);
        }
        Quadrant::SafeSlow => {
            painter.circle_stroke(center, radius, stroke);
            painter.add(half_disc(center, radius, fill));
        }
        Quadrant::UnsafeFast => {
            let reach = radius * 1.15;
            let points = [(0.0, -1.0), (0.95, 0.75), (-0.95, 0.75)];
            let points = points.map(|(x, y)| center + vec2(x, y) * reach).to_vec();
            painter.add(Shape::convex_polygon(points, fill, stroke));
        }
        Quadrant::SafeUnknown => {
            painter.circle_stroke(center, radius, stroke);
            painter.circle_filled(center, radius * 0.35, fill);
        }
        Quadrant::UnsafeSlow | Quadrant::UnsafeUnknown => {
            // Hollow: the same verdict, with nothing known of the speed.
            let hollow = glyph.quadrant == Quadrant::UnsafeUnknown;
            let fill = if hollow { Color32::TRANSPARENT } else { fill };
            let half = radius * 0.85;
            let points = [(-1.0, -1.0), (1.0, -1.0), (1.0, 1.0), (-1.0, 1.0)];
            let points = points.map(|(x, y)| center + vec2(x, y) * half).to_vec();
            painter.add(Shape::convex_polygon(points, fill, stroke));
        }
        Quadrant::Uncertain => {
            painter.circle_stroke(center, radius, stroke);
        }
        Quadrant::Unsupported => {
            let across = vec2(radius, 0.0);
            painter.line_segment([center - across, center + across], stroke);
        }
    }
}

/// Up and to the right of the shape, clear of it.
fn source_mark(painter: &Painter, center: Pos2, glyph: Glyph, color: Color32) {
    let reach = glyph.radius + 1.5;
    let size = (glyph.radius * 0.55).max(2.2);
    match glyph.source {
        Some(LatencySource::Measured) => {
            painter.circle_filled(center + vec2(reach, -reach), size * 0.7, color);
        }
        Some(LatencySource::Modelled) => {
            let rect = egui::Rect::from_center_size(center, vec2(2.0 * reach, 2.0 * reach));
            painter.add(super::source::notch(rect, size * 1.5, color));
        }
        _ => {}
    }
}

/// The left half.
fn half_disc(center: Pos2, radius: f32, color: Color32) -> Shape {
    let points = (0..=16).map(|step| {
        let angle = std::f32::consts::PI * (0.5 + step as f32 / 16.0);
        pos2(center.x + radius * angle.cos(), center.y + radius * angle.sin())
    });
    Shape::convex_polygon(points.collect(), color, Stroke::NONE)
}
