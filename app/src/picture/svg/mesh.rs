//! Triangles of plain colours: strips of a colour scale become gradients, the rest is filled with the mean of
//! its corners. Images have no vector form.

use egui::{
    Color32, Pos2, Rect,
    epaint::{Mesh, TextureId, Vertex, WHITE_UV},
};

use super::write::{Writer, color, number};

pub(super) fn mesh(writer: &mut Writer, mesh: &Mesh) {
    let plain = mesh.texture_id == TextureId::default() && mesh.vertices.iter().all(|vertex| vertex.uv == WHITE_UV);
    if !plain {
        return writer.omit();
    }
    let corners = |triangle: &[u32]| -> Option<[Vertex; 3]> {
        let vertex = |at: usize| mesh.vertices.get(*triangle.get(at)? as usize).copied();
        Some([vertex(0)?, vertex(1)?, vertex(2)?])
    };
    let triangles: Vec<[Vertex; 3]> = mesh.indices.chunks_exact(3).filter_map(corners).collect();
    let mut at = 0;
    while at < triangles.len() {
        if let Some(quad) = triangles.get(at + 1).and_then(|next| Quad::of(&triangles[at], next)) {
            quad.put(writer);
            at += 2;
        } else {
            triangle(writer, &triangles[at]);
            at += 1;
        }
    }
}

fn triangle(writer: &mut Writer, corners: &[Vertex; 3]) {
    let fill = mean(corners.map(|corner| corner.color));
    if fill.a() == 0 {
        return;
    }
    let points: Vec<String> = corners.iter().map(|of| format!("{},{}", number(of.pos.x), number(of.pos.y))).collect();
    let paint = color("fill", fill);
    writer.put(&format!("<polygon points=\"{}\"{paint} shape-rendering=\"crispEdges\"/>", points.join(" ")));
}

fn mean(colors: [Color32; 3]) -> Color32 {
    let of = |channel: fn(&Color32) -> u8| {
        let sum: u16 = colors.iter().map(|color| u16::from(channel(color))).sum();
        // A third of three bytes is a byte.
        u8::try_from(sum / 3).unwrap_or(u8::MAX)
    };
    Color32::from_rgba_premultiplied(of(Color32::r), of(Color32::g), of(Color32::b), of(Color32::a))
}

/// Two triangles that make a rectangle whose colour changes along one side at most.
struct Quad {
    rect: Rect,
    from: Color32,
    to: Color32,
    /// The colour changes to the right; otherwise downward.
    across: bool,
}

impl Quad {
    fn of(first: &[Vertex; 3], second: &[Vertex; 3]) -> Option<Self> {
        let all = || first.iter().chain(second);
        let rect = Rect::from_points(&all().map(|vertex| vertex.pos).collect::<Vec<Pos2>>());
        let [a, b, c, d] = [rect.left_top(), rect.right_top(), rect.left_bottom(), rect.right_bottom()];
        if !rect.is_positive() || !all().all(|vertex| [a, b, c, d].contains(&vertex.pos)) {
            return None;
        }
        let at = |corner: Pos2| all().find(|vertex| vertex.pos == corner).map(|vertex| vertex.color);
        let [a, b, c, d] = [at(a)?, at(b)?, at(c)?, at(d)?];
        match () {
            () if a == c && b == d => Some(Self { rect, from: a, to: b, across: true }),
            () if a == b && c == d => Some(Self { rect, from: a, to: c, across: false }),
            () => None,
        }
    }

    fn put(&self, writer: &mut Writer) {
        let (x, y) = (number(self.rect.left()), number(self.rect.top()));
        let (width, height) = (number(self.rect.width()), number(self.rect.height()));
        let paint = if self.from == self.to { color("fill", self.from) } else { self.gradient(writer) };
        let place = format!("x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\"");
        writer.put(&format!("<rect {place}{paint} shape-rendering=\"crispEdges\"/>"));
    }

    fn gradient(&self, writer: &mut Writer) -> String {
        let id = writer.id("g");
        let stop = |offset: u8, of: Color32| format!("<stop offset=\"{offset}\"{}/>", color("stop-color", of));
        let (x2, y2) = if self.across { (1, 0) } else { (0, 1) };
        let stops = stop(0, self.from) + &stop(1, self.to);
        let stops = stops.replace("stop-color-opacity", "stop-opacity");
        writer.put(&format!(
            "<linearGradient id=\"{id}\" x1=\"0\" y1=\"0\" x2=\"{x2}\" y2=\"{y2}\">{stops}</linearGradient>"
        ));
        format!(" fill=\"url(#{id})\"")
    }
}
