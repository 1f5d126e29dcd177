//! Takes the shapes of a pane, gives an SVG document: text stays text, curves stay curves, and what has no
//! vector form (images, shaders) is counted, not drawn.

mod marks;
mod mesh;
mod text;
mod write;

pub use write::escaped;

use egui::{Rect, Shape, epaint::ClippedShape};

use write::Writer;

/// The document, and how many shapes could not be drawn.
pub fn svg(rect: Rect, shapes: &[ClippedShape]) -> (String, usize) {
    let mut writer = Writer::new(rect);
    for clipped in shapes {
        let visible = clipped.clip_rect.intersect(rect);
        if visible.is_positive() {
            writer.clip(visible);
            shape(&mut writer, &clipped.shape);
        }
    }
    writer.finish()
}

fn shape(writer: &mut Writer, shape_of: &Shape) {
    match shape_of {
        Shape::Noop => {}
        Shape::Vec(shapes) => shapes.iter().for_each(|inner| shape(writer, inner)),
        Shape::Circle(circle) => marks::circle(writer, circle),
        Shape::Ellipse(ellipse) => marks::ellipse(writer, ellipse),
        Shape::LineSegment { points, stroke } => marks::line(writer, *points, *stroke),
        Shape::Path(path) => marks::path(writer, &path.points, path.closed, path.fill, &path.stroke),
        Shape::Band(band) => marks::band(writer, band),
        Shape::Rect(rect) => marks::rect(writer, rect),
        Shape::Text(galley) => text::text(writer, galley),
        Shape::Mesh(of) => mesh::mesh(writer, of),
        Shape::QuadraticBezier(curve) => {
            marks::curve(writer, &curve.points, curve.closed, curve.fill, &curve.stroke);
        }
        Shape::CubicBezier(curve) => marks::curve(writer, &curve.points, curve.closed, curve.fill, &curve.stroke),
        Shape::Callback(_) => writer.omit(),
    }
}

#[cfg(test)]
mod tests;
