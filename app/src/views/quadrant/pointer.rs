//! What the pointer does in empty space and over points: it tells, selects, boxes, zooms and moves.

use egui::{
    CursorIcon, PointerButton, PopupAnchor, Rect, Response, Role, Sense, Stroke, StrokeKind, Tooltip, Ui, WidgetInfo,
    pos2,
};
use loka_core::{
    model::ResultRow,
    views::{BrushedRows, Density, NOT_IN_BASELINE, Point, speedup_at},
};

use super::picture::Picture;
use crate::{
    state::{BrushDrag, BrushShape},
    theme::{number, source_word, verdict_word},
    views::Scene,
};

impl Picture {
    /// Below everything else: what no line and no point of the selected site takes.
    pub fn area_ui(&self, ui: &mut Ui, scene: &mut Scene<'_>) -> Response {
        let area = ui.interact(self.frame(), ui.scope_id().with("quadrant area"), Sense::click_and_drag());
        let count = number::count(self.view.points.len() as u64);
        let about = format!("Quadrant, {count} points. Drag a box for its sums, ctrl-wheel zooms, right drag moves");
        area.widget_info(|| WidgetInfo::labeled(Role::Canvas, true, &about));
        self.zoomed(ui, scene, &area);
        self.boxed(ui, scene, &area);
        area
    }

    fn zoomed(&self, ui: &Ui, scene: &mut Scene<'_>, area: &Response) {
        let state = &mut scene.view.quadrant;
        if area.dragged_by(PointerButton::Secondary) || area.dragged_by(PointerButton::Middle) {
            let (moved, corner) = (area.drag_delta(), self.frame().left_top());
            let (from, to) = (self.value(corner), self.value(corner + moved));
            state.zoom = Some(state.shown.moved(from[0] - to[0], from[1] - to[1]));
            ui.set_cursor_icon(CursorIcon::Grabbing);
        }
        if area.double_clicked() {
            state.zoom = None;
        }
        let Some(pointer) = ui.input(|input| input.pointer.hover_pos()).filter(|_| area.contains_pointer()) else {
            return;
        };
        let factor = ui.input(egui::InputState::zoom_delta);
        if factor != 1.0 {
            let [x, y] = self.value(pointer);
            state.zoom_by(f64::from(factor), Some((x, y)));
            ui.ctx().request_repaint();
        }
    }

    /// A drag with the first button in empty space brushes what lies in its box; with Shift that is added.
    fn boxed(&self, ui: &Ui, scene: &mut Scene<'_>, area: &Response) {
        if area.drag_started_by(PointerButton::Primary) {
            let origin = ui.input(|input| input.pointer.press_origin());
            let adds = ui.input(|input| input.modifiers.shift);
            scene.view.brush.drag = origin.map(|origin| BrushDrag::Box { from: self.value(origin), adds });
        }
        let Some(BrushDrag::Box { from, adds }) = scene.view.brush.drag else { return };
        let Some(to) = area.interact_pointer_pos().or_else(|| ui.input(|input| input.pointer.latest_pos())) else {
            return;
        };
        let corner = self.place(from.map(|place| place as f32));
        let rect = Rect::from_two_pos(corner, self.frame().clamp(to));
        let accent = scene.theme.accent;
        let painter = ui.painter_at(self.frame());
        painter.rect(rect, 0.0, accent.gamma_multiply(0.12), Stroke::new(1.0, accent), StrokeKind::Inside);
        if area.dragged_by(PointerButton::Primary) {
            return;
        }
        let corners = [self.value(rect.min), self.value(rect.max)].map(|corner| corner.map(|place| place as f32));
        let set = BrushedRows::of_points(&self.view, corners[0], corners[1]);
        scene.view.brush.take(set, BrushShape::Box(corners), adds);
    }

    /// Where the brushed box lies; nowhere in particular without one.
    pub fn brushed(&self, scene: &Scene<'_>) -> Rect {
        match scene.view.brush.shape {
            Some(BrushShape::Box([a, b])) => Rect::from_two_pos(self.place(a), self.place(b)).intersect(self.frame()),
            _ => self.frame(),
        }
    }

    /// It stays in sight while it is what the card is about.
    pub fn brushed_ui(&self, ui: &Ui, scene: &Scene<'_>) {
        if let (Some(BrushShape::Box(_)), None) = (&scene.view.brush.shape, &scene.view.brush.drag) {
            let accent = scene.theme.accent;
            let (stroke, rect) = (Stroke::new(1.5, accent), self.brushed(scene));
            ui.painter_at(self.frame()).rect(rect, 0.0, accent.gamma_multiply(0.06), stroke, StrokeKind::Inside);
        }
    }

    /// Hover tells, click selects.
    pub fn pointed_ui(&self, ui: &Ui, scene: &mut Scene<'_>, area: &Response, density: Option<&Density>) {
        let busy = scene.view.drag.is_some() || scene.view.brush.drag.is_some();
        let pointer = ui.input(|input| input.pointer.hover_pos());
        let pointer = pointer.filter(|_| area.contains_pointer() && !busy);
        let hovered = pointer.and_then(|pointer| self.pick(pointer));
        if std::mem::replace(&mut scene.view.quadrant.hovered, hovered) != hovered {
            // A tooltip is measured in one frame and seen in the next.
            ui.ctx().request_repaint();
        }
        let Some(number) = hovered else { return };
        let point = &self.view.points[number];
        let at = self.exact(point);
        let stroke = Stroke::new(1.5, scene.theme.text);
        ui.painter_at(self.frame()).circle_stroke(at, 7.5, stroke);
        if area.clicked() {
            crate::state::select_point(&self.view, scene.view, scene.session, number);
        }
        let around = Rect::from_center_size(pos2(at.x, at.y), egui::vec2(16.0, 16.0));
        let tooltip = Tooltip::always_open(ui.ctx().clone(), ui.layer_id(), area.id, PopupAnchor::ParentRect(around));
        let crowd = density.and_then(|density| self.crowd(scene, density, point)).unwrap_or_default();
        tooltip.show(|ui| {
            ui.label(crowd + &self.describe(scene, point));
        });
    }

    fn describe(&self, scene: &Scene<'_>, point: &Point) -> String {
        let ids = scene.session.index().ids();
        let (Some(site), Some(kernel)) = (ids.get(point.site as usize), self.view.kernel(point.kernel)) else {
            return String::new();
        };
        let mut text = format!("{site} · {}\n{kernel}", point.gemm);
        let row = scene.session.row(site, point.gemm, kernel);
        if let Some(row) = row {
            text += &self.numbers(scene, point, row);
        }
        let choice = scene.derived.choice_at(point.site as usize, point.gemm);
        text += &format!("\n{}", verdict_word(point.quadrant));
        if let Some(choice) = choice {
            let chosen = if point.chosen { "Chosen".to_owned() } else { format!("{} is chosen", choice.kernel) };
            text += &format!("\n{chosen}: {}", choice.reason);
        }
        text
    }

    /// What this GEMM is in the baseline, while the views show what differs from it.
    fn versus(&self, scene: &Scene<'_>, point: &Point) -> Option<String> {
        let versus = scene.derived.versus()?;
        let (at, gemm) = (point.site as usize, point.gemm);
        let Some(line) = versus.line(at, gemm) else { return Some(format!("\nBaseline: {NOT_IN_BASELINE}")) };
        let base = scene.derived.snapshot.as_ref();
        let base = base.and_then(|snapshot| versus.base(snapshot, at, gemm, self.view.kernel(point.kernel)?));
        let metric = scene.session.document.policy.metric;
        let error = base.and_then(|base| base.metric(metric));
        let error = error.map_or_else(|| NOT_IN_BASELINE.to_owned(), number::sentence);
        let speed = base.and_then(ResultRow::speedup).map_or_else(String::new, |of| format!(", {}", number::times(of)));
        Some(format!("\nBaseline: runs {}; {} {error}{speed}", line.kernel, metric.label()))
    }

    fn numbers(&self, scene: &Scene<'_>, point: &Point, row: &ResultRow) -> String {
        let metric = scene.session.document.policy.metric;
        let error = row.metric(metric).map_or_else(|| "unknown".to_owned(), number::sentence);
        let speedup = number::times(speedup_at(f64::from(point.at[0])));
        let ends = [point.low[0], point.high[0]].map(|place| number::times(speedup_at(f64::from(place))));
        let range = if point.low[0] < point.high[0] { format!(" ({} to {})", ends[0], ends[1]) } else { String::new() };
        let mut text = format!("\n{} {error}\n{speedup}{range}, {}", metric.label(), source_word(point.source));
        text += &format!("\nLatency {}", row.latency.told());
        if let Some(told) = self.versus(scene, point) {
            return text + &told;
        }
        let before =
            if scene.view.quadrant.arrows { scene.session.row_before(&row.site, row.gemm, &row.kernel) } else { None };
        if let Some(before) = before.and_then(|before| before.metric(metric)) {
            text += &format!("\nBefore the mods: {} {}", metric.label(), number::sentence(before));
        }
        text
    }
}
