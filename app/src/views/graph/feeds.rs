//! Feeds as arcs below the boxes: thin where values are read as they are, thick and with a word where FP8 codes are
//! handed on, the selected box's own strongest.

use egui::{Align2, Color32, FontId, Painter, Pos2, Rect, Stroke, Ui, pos2, vec2};
use loka_core::views::{GraphEdge, GraphItems};

use super::{Strip, words};
use crate::{
    theme::{SMALL, Theme},
    views::Scene,
};

/// How near the pointer must be to an arc.
const REACH: f32 = 5.0;
const STEPS: usize = 18;
/// Farther ones lie upon each other.
const DEEPEST: f32 = 30.0;

pub fn plain(theme: &Theme) -> Stroke {
    Stroke::new(1.2, theme.weak)
}

pub fn codes(theme: &Theme) -> Stroke {
    Stroke::new(2.6, theme.accent)
}

/// With a head where it ends.
pub fn arc(painter: &Painter, ends: (f32, f32), top: f32, depth: f32, stroke: Stroke) {
    painter.line(points(ends, top, depth), stroke);
    let (tip, size) = (pos2(ends.1, top), 3.0 + stroke.width);
    for side in [-1.0, 1.0] {
        painter.line_segment([tip, tip + vec2(side * size * 0.7, size)], stroke);
    }
}

/// Along a cubic curve: an SVG has it as a path, and what is under the pointer is found along it.
fn points((from, to): (f32, f32), top: f32, depth: f32) -> Vec<Pos2> {
    let step = |step: usize| {
        let share = step as f32 / STEPS as f32;
        let (rest, middle) = (1.0 - share, 3.0 * share * (1.0 - share));
        // The ends' tangents are upright; at its middle the curve is 3/4 as deep as its controls.
        let x = from * (rest.powi(3) + middle * rest) + to * (share.powi(3) + middle * share);
        pos2(x, top + middle * depth / 0.75)
    };
    (0..=STEPS).map(step).collect()
}

/// Where an edge leaves and arrives, and how deep it goes: farther ones lie below nearer ones.
fn place(strip: &Strip, rect: Rect, edge: GraphEdge) -> ((f32, f32), f32) {
    let layout = &strip.layout;
    let (from, to) = (edge.from as usize, edge.to as usize);
    let inside = |at: usize| ((layout.right(at) - layout.left(at)) * 0.3).min(12.0);
    // Feeds lead forwards: they leave at the right and arrive at the left.
    let ends = (rect.left() + layout.right(from) - inside(from), rect.left() + layout.left(to) + inside(to));
    (ends, depth(edge))
}

fn depth(edge: GraphEdge) -> f32 {
    let span = edge.to.saturating_sub(edge.from).max(1);
    (8.0 + 5.0 * (span as f32).log2()).min(DEEPEST)
}

/// The room that arcs take below the boxes.
pub fn deepest(items: &GraphItems) -> f32 {
    let deepest = items.edges.iter().map(|edge| depth(*edge)).fold(0.0, f32::max);
    if deepest > 0.0 { deepest + 8.0 } else { 4.0 }
}

pub fn feeds_ui(ui: &Ui, scene: &Scene<'_>, strip: &Strip, rect: Rect, visible: std::ops::Range<usize>) {
    let theme = &scene.theme;
    let top = rect.top() + strip.brackets + strip.box_height() + 3.0;
    let painter = ui.painter();
    let pointer = ui.input(|input| input.pointer.hover_pos()).filter(|at| at.y > top && ui.clip_rect().contains(*at));
    let mut pointed: Option<(f32, GraphEdge)> = None;
    let is_own = |edge: &GraphEdge| strip.selected.is_some_and(|at| [edge.from, edge.to].contains(&(at as u32)));
    let mut edges: Vec<GraphEdge> = strip.items.edges_at(visible.start, visible.end).collect();
    // The selected box's over the others.
    edges.sort_by_key(is_own);
    for edge in &edges {
        let (ends, depth) = place(strip, rect, *edge);
        let stroke = if edge.codes > 0 { codes(theme) } else { plain(theme) };
        let stroke = if is_own(edge) { Stroke::new(stroke.width + 0.6, own_color(theme, edge)) } else { stroke };
        arc(painter, ends, top, depth, stroke);
        if edge.codes > 0 && (ends.1 - ends.0).abs() > 14.0 {
            label(painter, theme, pos2(f32::midpoint(ends.0, ends.1), top + depth), "FP8");
        }
        let away = |at: Pos2| {
            points(ends, top, depth).windows(2).map(|pair| distance(at, pair[0], pair[1])).fold(f32::MAX, f32::min)
        };
        if let Some(away) = pointer.map(away).filter(|away| *away < REACH)
            && pointed.is_none_or(|(known, _)| away < known)
        {
            pointed = Some((away, *edge));
        }
    }
    if let Some((_, edge)) = pointed {
        let (ends, depth) = place(strip, rect, edge);
        arc(painter, ends, top, depth, Stroke::new(2.0, theme.text));
        egui::Tooltip::always_open(
            ui.ctx().clone(),
            ui.layer_id(),
            ui.scope_id().with("feed"),
            egui::PopupAnchor::Pointer,
        )
        .gap(12.0)
        .show(|ui| _ = ui.label(words::edge(scene, strip, edge)));
    }
}

fn own_color(theme: &Theme, edge: &GraphEdge) -> Color32 {
    if edge.codes > 0 { theme.accent } else { theme.text }
}

fn label(painter: &Painter, theme: &Theme, at: Pos2, text: &str) {
    let galley = painter.layout_no_wrap(text.to_owned(), FontId::proportional(SMALL - 1.0), theme.text);
    let rect = Align2::CENTER_CENTER.anchor_size(at, galley.size());
    painter.rect_filled(rect.expand2(vec2(2.0, 0.0)), 2.0, theme.canvas);
    painter.galley(rect.min, galley, theme.text);
}

fn distance(at: Pos2, from: Pos2, to: Pos2) -> f32 {
    let (line, own) = (to - from, at - from);
    let share = if line.length_sq() > 0.0 { (own.dot(line) / line.length_sq()).clamp(0.0, 1.0) } else { 0.0 };
    (own - share * line).length()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arc_goes_from_end_to_end_and_as_deep_as_it_was_asked() {
        let arc = points((10.0, 50.0), 100.0, 12.0);
        assert_eq!((arc[0], arc[STEPS]), (pos2(10.0, 100.0), pos2(50.0, 100.0)));
        let deepest = arc.iter().map(|at| at.y).fold(0.0, f32::max);
        assert!((deepest - 112.0).abs() < 1e-3, "{deepest}");
        assert!((distance(pos2(30.0, 112.0), arc[STEPS / 2], arc[STEPS / 2 + 1])) < 0.1);
    }
}
