//! Draws the points: all by our shader, or by the painter where there is none; the selected site's above them,
//! with intervals, arrows, and each with a name for those who cannot see it.

use egui::{Id, Key, Modifiers, Painter, Pos2, Rect, Role, Sense, Stroke, Ui, WidgetInfo, vec2};
use loka_core::views::{Density, Point, QuadrantView};

use super::{colors, picture::Picture};
use crate::{
    commands::take_arrows,
    gpu::points::{self, Drawing},
    state::{MANY, color_number, is_selected, step_point},
    theme::{Glyph, number, paint_glyph, source_word, verdict_word},
    views::Scene,
};

/// Intervals and arrows of more points would cover each other: then the selected site's alone are drawn.
pub(super) const FEW: usize = 200;
const RADIUS: f32 = 3.2;

/// Many points are seen through each other.
fn opacity(count: usize) -> f32 {
    match count {
        0..=500 => 1.0,
        501..=5_000 => 0.8,
        _ => 0.6,
    }
}

impl Picture {
    pub fn points_ui(&self, ui: &Ui, scene: &mut Scene<'_>, density: Option<&Density>) {
        let site = scene.view.site.as_ref().and_then(|site| scene.session.index().at(site));
        let dimmed = 0.5;
        if let Some(density) = density {
            self.hexes_ui(ui, scene, density);
        } else if let Some(format) = scene.gpu.filter(|_| !scene.vector) {
            let (scale, offset) = self.scale_and_offset();
            let drawing = Drawing {
                instances: scene.view.quadrant.instances_of(&self.view),
                scale,
                offset,
                radius: RADIUS,
                opacity: opacity(self.view.points.len()),
                selected: site.map(|site| site as u32),
                dimmed,
                colors: colors(&scene.theme, scene.view.quadrant.color_by),
            };
            ui.painter_at(self.frame()).add(points::callback(self.frame(), drawing, format));
        } else {
            self.painted(ui, scene, site, dimmed);
        }
        self.spans_ui(ui, scene, site);
    }

    fn painted(&self, ui: &Ui, scene: &Scene<'_>, site: Option<usize>, dimmed: f32) {
        let painter = ui.painter_at(self.frame());
        let by = scene.view.quadrant.color_by;
        let (colors, of) = (colors(&scene.theme, by), color_number(&self.view, by));
        let alpha = opacity(self.view.points.len());
        let near = self.frame().expand(2.0 * RADIUS);
        let seen = self.view.points.iter().map(|point| (point, self.exact(point))).filter(|(_, at)| near.contains(*at));
        // Where more are in sight, hexagons are drawn.
        for (point, at) in seen.take(MANY) {
            {
                let pale = if site.is_some_and(|site| site != point.site as usize) { dimmed } else { 1.0 };
                let color = colors[usize::from(of(point)) % colors.len()].gamma_multiply(alpha * pale);
                let glyph = Glyph { quadrant: point.quadrant, radius: RADIUS, source: Some(point.source) };
                paint_glyph(&painter, at, glyph, color);
            }
        }
    }

    /// Intervals and arrows: of all points when they are few, else of the selected site's.
    fn spans_ui(&self, ui: &Ui, scene: &Scene<'_>, site: Option<usize>) {
        let painter = ui.painter_at(self.frame());
        let by = scene.view.quadrant.color_by;
        let (colors, of) = (colors(&scene.theme, by), color_number(&self.view, by));
        let color = |point: &Point| {
            let selected = site.is_none_or(|site| site == point.site as usize);
            colors[usize::from(of(point)) % colors.len()].gamma_multiply(if selected { 1.0 } else { 0.4 })
        };
        let own = site.map_or(0..0, |site| self.view.of_site(site));
        let with_spans = if self.view.points.len() <= FEW { 0..self.view.points.len() } else { own.clone() };
        for point in &self.view.points[with_spans] {
            let stroke = Stroke::new(1.2, color(point));
            let [x, y] = point.at;
            painter.line_segment([self.place([x, point.low[1]]), self.place([x, point.high[1]])], stroke);
            if point.low[0] < point.high[0] {
                painter.line_segment([self.place([point.low[0], y]), self.place([point.high[0], y])], stroke);
            }
        }
        if !scene.view.quadrant.arrows && scene.derived.versus().is_none() {
            return;
        }
        let all = self.view.arrows.len() <= FEW;
        let told = self.view.arrows.iter().filter(|arrow| all || own.contains(&(arrow.point as usize)));
        for arrow in told {
            let Some(point) = self.view.points.get(arrow.point as usize) else { continue };
            let (from, to) = (self.place(arrow.from), self.place(arrow.to));
            if from.distance(to) > 4.0 {
                paint_arrow(&painter, from, to, Stroke::new(1.2, color(point)));
                painter.circle_stroke(from, 1.8, Stroke::new(1.0, color(point)));
            }
        }
    }

    /// The selected site's points, larger and above the others. Each is a button: Tab goes from one to the
    /// next, arrows along the axes.
    pub fn selected_ui(&self, ui: &mut Ui, scene: &mut Scene<'_>) {
        let Some(site) = scene.view.site.as_ref().and_then(|site| scene.session.index().at(site)) else { return };
        let by = scene.view.quadrant.color_by;
        let (colors, of) = (colors(&scene.theme, by), color_number(&self.view, by));
        for number in self.view.ordered(site, false) {
            let point = &self.view.points[number];
            let at = self.exact(point);
            if !self.frame().contains(at) {
                continue;
            }
            let painter = ui.painter_at(self.frame());
            painter.circle_filled(at, 6.0, scene.theme.canvas.gamma_multiply(0.8));
            let glyph = Glyph { quadrant: point.quadrant, radius: 5.0, source: Some(point.source) };
            paint_glyph(&painter, at, glyph, colors[usize::from(of(point)) % colors.len()]);
            let id = point_id(point);
            let response = ui.interact(Rect::from_center_size(at, vec2(14.0, 14.0)), id, Sense::click());
            let selected = is_selected(&self.view, scene.view, point);
            if selected || response.has_focus() {
                let stroke = Stroke::new(if response.has_focus() { 2.0 } else { 1.5 }, scene.theme.accent);
                painter.circle_stroke(at, 9.0, stroke);
            }
            let label = || name(&self.view, scene, point);
            response.widget_info(|| WidgetInfo::selected(Role::Button, true, selected, label()));
            if response.clicked() || response.gained_focus() {
                crate::state::select_point(&self.view, scene.view, scene.session, number);
            }
            if response.has_focus() {
                take_arrows(ui.ctx(), id);
                self.stepped(ui, scene);
            }
        }
    }

    fn stepped(&self, ui: &Ui, scene: &mut Scene<'_>) {
        let moves = [
            (Key::ArrowRight, false, 1),
            (Key::ArrowLeft, false, -1),
            (Key::ArrowUp, true, 1),
            (Key::ArrowDown, true, -1),
        ];
        for (key, by_error, step) in moves {
            if ui.input_mut(|input| input.consume_key(Modifiers::NONE, key)) {
                step_point(scene.view, scene.derived, scene.session, by_error, step);
                let site = scene.view.site.as_ref().and_then(|site| scene.session.index().at(site));
                let own = site.map_or(0..0, |site| self.view.of_site(site));
                let points = &self.view.points[own];
                if let Some(point) = points.iter().find(|point| is_selected(&self.view, scene.view, point)) {
                    ui.memory_mut(|memory| memory.request_focus(point_id(point)));
                }
            }
        }
    }
}

/// With a head of one size, however far it goes.
fn paint_arrow(painter: &Painter, from: Pos2, to: Pos2, stroke: Stroke) {
    const HEAD: f32 = 7.0;
    let back = (from - to).normalized() * HEAD.min(from.distance(to) / 2.0);
    painter.line_segment([from, to], stroke);
    for side in [0.45, -0.45] {
        painter.line_segment([to, to + egui::emath::Rot2::from_angle(side) * back], stroke);
    }
}

fn point_id(point: &Point) -> Id {
    Id::NULL.with(("quadrant point", point.site, point.gemm, point.kernel))
}

/// A point in a line.
fn name(quadrant: &QuadrantView, scene: &Scene<'_>, point: &Point) -> String {
    let kernel = quadrant.kernel(point.kernel).map_or("", |kernel| kernel.as_str());
    let speedup = number::times(loka_core::views::speedup_at(f64::from(point.at[0])));
    let error = number::plain(quadrant.axis.error_at(f64::from(point.at[1])));
    let metric = scene.session.document.policy.metric.label();
    let verdict = verdict_word(point.quadrant);
    format!("Point {} {kernel}: {metric} {error}, {speedup} {}, {verdict}", point.gemm, source_word(point.source))
}
