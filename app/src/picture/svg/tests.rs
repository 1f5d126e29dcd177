//! Every shape that the window draws, as well-formed XML whatever the names in it.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use egui::{
    Color32, CornerRadius, FontId, Mesh, Pos2, Rect, Shape, Stroke, StrokeKind,
    epaint::{CircleShape, ClippedShape, CubicBezierShape, EllipseShape, PathStroke, QuadraticBezierShape, RectShape},
    pos2, vec2,
};

use super::svg;

const AREA: Rect = Rect { min: Pos2::new(10.0, 20.0), max: Pos2::new(210.0, 120.0) };

fn of(shapes: Vec<Shape>) -> (String, usize) {
    let clipped = |shape| ClippedShape::new(AREA, shape);
    let (text, omitted) = svg(AREA, &shapes.into_iter().map(clipped).collect::<Vec<_>>());
    check(&text);
    (text, omitted)
}

/// Tags balance, attributes are quoted, entities are known, and no character is one that XML forbids.
fn check(text: &str) {
    assert!(text.starts_with("<?xml") && text.trim_end().ends_with("</svg>"));
    let mut open: Vec<String> = Vec::new();
    let mut rest = text.split_once("?>").unwrap().1;
    while let Some(from) = rest.find('<') {
        content(&rest[..from]);
        let to = end_of_tag(&rest[from..]) + from;
        let tag = &rest[from + 1..to];
        rest = &rest[to + 1..];
        let name = |tag: &str| tag.split([' ', '/']).next().unwrap().to_owned();
        if let Some(closed) = tag.strip_prefix('/') {
            assert_eq!(open.pop().as_deref(), Some(closed));
        } else if !tag.ends_with('/') {
            open.push(name(tag));
        }
    }
    content(rest);
    assert!(open.is_empty(), "{open:?}");
}

/// The closing bracket outside of quotes.
fn end_of_tag(text: &str) -> usize {
    let mut quoted = false;
    let end = text.char_indices().find(|(_, character)| {
        quoted ^= *character == '"';
        *character == '>' && !quoted
    });
    end.unwrap().0
}

fn content(text: &str) {
    for piece in text.split('&').skip(1) {
        assert!(["amp;", "lt;", "gt;", "quot;"].iter().any(|known| piece.starts_with(known)), "{piece}");
    }
    let allowed = |character: char| matches!(character, '\n' | '\r' | '\t') || !character.is_control();
    assert!(text.chars().all(allowed), "{text:?}");
    assert!(!text.contains('>') && !text.contains(['\u{fffe}', '\u{ffff}']));
}

/// Text laid out by a context of its own.
fn laid_out(text: &str) -> Shape {
    let ctx = egui::Context::default();
    let mut shape = Shape::Noop;
    let output = ctx.run_ui(egui::RawInput::default(), |ui| {
        let font = FontId::proportional(13.0);
        let galley = ui.painter().layout_no_wrap(text.to_owned(), font, Color32::RED);
        shape = Shape::galley(pos2(20.0, 30.0), galley, Color32::RED);
    });
    output.drop_without_applying_deltas();
    shape
}

#[test]
fn marks_keep_their_form() {
    let stroke = Stroke::new(2.0, Color32::BLACK);
    let rect = Rect::from_min_size(pos2(20.0, 30.0), vec2(40.0, 20.0));
    let (text, omitted) = of(vec![
        Shape::Circle(CircleShape { center: pos2(50.0, 50.0), radius: 4.0, fill: Color32::RED, stroke }),
        Shape::Ellipse(EllipseShape::filled(pos2(50.0, 50.0), vec2(4.0, 2.0), Color32::GREEN)),
        Shape::line_segment([pos2(0.0, 0.0), pos2(9.5, 8.25)], stroke),
        Shape::Rect(RectShape::new(rect, 4, Color32::from_black_alpha(128), stroke, StrokeKind::Inside)),
        Shape::rect_filled(rect, CornerRadius { nw: 4, ..CornerRadius::ZERO }, Color32::BLUE),
        Shape::convex_polygon(vec![pos2(0.0, 0.0), pos2(4.0, 0.0), pos2(0.0, 4.0)], Color32::RED, stroke),
        Shape::Vec(vec![Shape::hline(0.0..=9.0, 4.0, stroke)]),
    ]);
    assert_eq!(omitted, 0);
    for element in [
        "<circle cx=\"50\" cy=\"50\" r=\"4\" fill=\"#ff0000\" stroke=\"#000000\" stroke-width=\"2\"/>",
        "<ellipse cx=\"50\" cy=\"50\" rx=\"4\" ry=\"2\" fill=\"#00ff00\"/>",
        "<line x1=\"0\" y1=\"0\" x2=\"9.5\" y2=\"8.25\"",
        "<rect x=\"21\" y=\"31\" width=\"38\" height=\"18\" rx=\"4\" fill=\"#000000\" fill-opacity=\"0.5\"",
        "<path d=\"M24 30L60 30A0 0 0 0 1 60 30L60 50",
        "<path d=\"M0 0L4 0L0 4Z\" fill=\"#ff0000\"",
    ] {
        assert!(text.contains(element), "{element} is not in {text}");
    }
}

#[test]
fn curves_stay_curves() {
    let stroke = PathStroke::new(1.0, Color32::RED);
    let points = [pos2(0.0, 0.0), pos2(1.0, 2.0), pos2(3.0, 4.0), pos2(5.0, 6.0)];
    let quadratic = QuadraticBezierShape {
        points: [points[0], points[1], points[2]],
        closed: false,
        fill: Color32::TRANSPARENT,
        stroke: stroke.clone(),
    };
    let cubic = CubicBezierShape { points, closed: true, fill: Color32::RED, stroke };
    let (text, _) = of(vec![Shape::QuadraticBezier(quadratic), Shape::CubicBezier(cubic)]);
    assert!(text.contains("d=\"M0 0Q1 2 3 4\" fill=\"none\""), "{text}");
    assert!(text.contains("d=\"M0 0C1 2 3 4 5 6Z\""), "{text}");
}

#[test]
fn text_can_be_selected_and_stands_where_it_stood() {
    let (text, _) = of(vec![laid_out("net.0 <mlp>")]);
    assert!(text.contains(">net.0 &lt;mlp&gt;</text>"), "{text}");
    let xs = text.split("<text x=\"").nth(1).unwrap().split('"').next().unwrap();
    let xs: Vec<f32> = xs.split(' ').map(|x| x.parse().unwrap()).collect();
    assert_eq!((xs.len(), xs[0]), (11, 20.0));
    assert!(xs.windows(2).all(|pair| pair[0] < pair[1]));
}

#[test]
fn hostile_names_stay_well_formed() {
    let long = "x".repeat(4000);
    for name in
        ["</text><script>", "a&b\"c'", "\u{1}\u{7}\u{fffe}", "שלום עולם", "🦀 e\u{301} 👩‍👩‍👧", long.as_str(), "\n\n"]
    {
        of(vec![laid_out(name)]);
    }
}

#[test]
fn strips_are_gradients_and_images_are_counted() {
    let mut strip = Mesh::default();
    let rect = Rect::from_min_size(pos2(20.0, 30.0), vec2(40.0, 20.0));
    for (corner, color) in [
        (rect.left_top(), Color32::RED),
        (rect.right_top(), Color32::BLUE),
        (rect.left_bottom(), Color32::RED),
        (rect.right_bottom(), Color32::BLUE),
    ] {
        strip.colored_vertex(corner, color);
    }
    strip.add_triangle(0, 1, 2);
    strip.add_triangle(2, 1, 3);
    let mut single = Mesh::default();
    for corner in [pos2(0.0, 0.0), pos2(9.0, 0.0), pos2(0.0, 9.0)] {
        single.colored_vertex(corner, Color32::GREEN);
    }
    single.add_triangle(0, 1, 2);
    let image = Mesh { texture_id: egui::TextureId::User(7), ..single.clone() };
    let (text, omitted) = of(vec![Shape::mesh(strip), Shape::mesh(single), Shape::mesh(image)]);
    assert_eq!(omitted, 1);
    assert!(text.contains("<linearGradient id=\"g2\" x1=\"0\" y1=\"0\" x2=\"1\" y2=\"0\">"), "{text}");
    assert!(text.contains("fill=\"url(#g2)\"") && text.contains("<polygon points=\"0,0 9,0 0,9\" fill=\"#00ff00\""));
}

#[test]
fn what_lies_outside_is_left_out_and_numbers_stay_numbers() {
    let far = Rect::from_min_size(pos2(900.0, 900.0), vec2(4.0, 4.0));
    let shape = Shape::rect_filled(far, 0.0, Color32::RED);
    let (text, _) = svg(AREA, &[ClippedShape::new(far, shape)]);
    assert!(!text.contains("900"));
    let (text, _) = of(vec![Shape::circle_filled(pos2(f32::NAN, f32::INFINITY), 3.0, Color32::RED)]);
    assert!(text.contains("cx=\"0\" cy=\"0\""));
}
