//! Rectangles, circles, lines, paths and curves as elements.

use egui::{
    Color32, CornerRadius, Pos2, Rect, Stroke, StrokeKind,
    epaint::{BandShape, CircleShape, ColorMode, EllipseShape, PathStroke, RectShape},
};

use super::write::{Writer, color, number, stroke};

pub(super) fn circle(writer: &mut Writer, shape: &CircleShape) {
    let (x, y) = (number(shape.center.x), number(shape.center.y));
    let paint = color("fill", shape.fill) + &stroke(shape.stroke);
    writer.put(&format!("<circle cx=\"{x}\" cy=\"{y}\" r=\"{}\"{paint}/>", number(shape.radius.max(0.0))));
}

pub(super) fn ellipse(writer: &mut Writer, shape: &EllipseShape) {
    let (x, y) = (number(shape.center.x), number(shape.center.y));
    let (rx, ry) = (number(shape.radius.x.max(0.0)), number(shape.radius.y.max(0.0)));
    let paint = color("fill", shape.fill) + &stroke(shape.stroke) + &turned(shape.angle, shape.center);
    writer.put(&format!("<ellipse cx=\"{x}\" cy=\"{y}\" rx=\"{rx}\" ry=\"{ry}\"{paint}/>"));
}

pub(super) fn line(writer: &mut Writer, [from, to]: [Pos2; 2], of: Stroke) {
    let paint = stroke(of);
    if paint.is_empty() {
        return;
    }
    let (x1, y1, x2, y2) = (number(from.x), number(from.y), number(to.x), number(to.y));
    writer.put(&format!("<line x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\"{paint}/>"));
}

pub(super) fn path(writer: &mut Writer, points: &[Pos2], closed: bool, fill: Color32, of: &PathStroke) {
    let Some((first, rest)) = points.split_first() else { return };
    let mut d = format!("M{}", pair(*first));
    for point in rest {
        d += &format!("L{}", pair(*point));
    }
    finished(writer, d, closed, fill, of, points);
}

/// Three points are a quadratic curve, four a cubic one.
pub(super) fn curve(writer: &mut Writer, points: &[Pos2], closed: bool, fill: Color32, of: &PathStroke) {
    let Some((first, rest)) = points.split_first() else { return };
    let command = if rest.len() == 2 { 'Q' } else { 'C' };
    let rest: Vec<String> = rest.iter().map(|point| pair(*point)).collect();
    let d = format!("M{}{command}{}", pair(*first), rest.join(" "));
    finished(writer, d, closed, fill, of, points);
}

fn finished(writer: &mut Writer, mut d: String, closed: bool, fill: Color32, of: &PathStroke, points: &[Pos2]) {
    if closed {
        d.push('Z');
    }
    let bounds = Rect::from_points(points);
    let of = Stroke::new(of.width, solid(&of.color, bounds));
    let paint = color("fill", fill) + &stroke(of);
    writer.put(&format!("<path d=\"{d}\"{paint}/>"));
}

/// A stroke whose colour varies gets that of its middle.
fn solid(mode: &ColorMode, bounds: Rect) -> Color32 {
    match mode {
        ColorMode::Solid(color) => *color,
        ColorMode::UV(of) => of(bounds, bounds.center()),
    }
}

pub(super) fn band(writer: &mut Writer, shape: &BandShape) {
    let upper = shape.points.iter().map(|point| Pos2::new(point.x, point.y.min));
    let lower = shape.points.iter().rev().map(|point| Pos2::new(point.x, point.y.max));
    let points: Vec<Pos2> = upper.chain(lower).collect();
    path(writer, &points, true, shape.fill, &PathStroke::from(shape.stroke));
}

pub(super) fn rect(writer: &mut Writer, shape: &RectShape) {
    if shape.brush.is_some() {
        return writer.omit();
    }
    // SVG strokes the middle of an edge.
    let inset = match shape.stroke_kind {
        StrokeKind::Inside => shape.stroke.width / 2.0,
        StrokeKind::Middle => 0.0,
        StrokeKind::Outside => -shape.stroke.width / 2.0,
    };
    let has_stroke = !stroke(shape.stroke).is_empty();
    let edge = if has_stroke { shape.rect.shrink(inset) } else { shape.rect };
    if edge.is_negative() || !(shape.fill.a() > 0 || has_stroke) {
        return;
    }
    let mut paint = color("fill", shape.fill) + &stroke(shape.stroke) + &turned(shape.angle, shape.rect.center());
    if shape.blur_width > 0.0 {
        paint += &format!(" style=\"filter:blur({}px)\"", number(shape.blur_width / 2.0));
    }
    let (x, y) = (number(edge.left()), number(edge.top()));
    let (width, height) = (number(edge.width()), number(edge.height()));
    if shape.corner_radius.is_same() {
        let radius = number(f32::from(shape.corner_radius.nw).min(edge.width() / 2.0).min(edge.height() / 2.0));
        let radius = if radius == "0" { String::new() } else { format!(" rx=\"{radius}\"") };
        writer.put(&format!("<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\"{radius}{paint}/>"));
    } else {
        writer.put(&format!("<path d=\"{}\"{paint}/>", rounded(edge, shape.corner_radius)));
    }
}

/// Corners of different radii.
fn rounded(rect: Rect, radius: CornerRadius) -> String {
    let most = rect.width().min(rect.height()) / 2.0;
    let [nw, ne, se, sw] = [radius.nw, radius.ne, radius.se, radius.sw].map(|radius| f32::from(radius).min(most));
    let arc = |radius: f32, x: f32, y: f32| {
        let radius = number(radius);
        format!("A{radius} {radius} 0 0 1 {}", pair(Pos2::new(x, y)))
    };
    let to = |x: f32, y: f32| pair(Pos2::new(x, y));
    let (left, right, top, bottom) = (rect.left(), rect.right(), rect.top(), rect.bottom());
    format!("M{}L{}", to(left + nw, top), to(right - ne, top))
        + &arc(ne, right, top + ne)
        + &format!("L{}", to(right, bottom - se))
        + &arc(se, right - se, bottom)
        + &format!("L{}", to(left + sw, bottom))
        + &arc(sw, left, bottom - sw)
        + &format!("L{}", to(left, top + nw))
        + &arc(nw, left + nw, top)
        + "Z"
}

fn pair(point: Pos2) -> String {
    format!("{} {}", number(point.x), number(point.y))
}

/// Radians clockwise around `pivot`.
pub(super) fn turned(angle: f32, pivot: Pos2) -> String {
    if angle == 0.0 {
        return String::new();
    }
    format!(" transform=\"rotate({} {})\"", number(angle.to_degrees()), pair(pivot))
}
