//! Draws the curves over total speed-up, and takes the pointer and the keys.

use egui::{
    Align2, Color32, FontId, Key, Modifiers, Painter, PopupAnchor, Pos2, Rect, Response, Role, Sense, Shape, Stroke,
    Tooltip, Ui, WidgetInfo, pos2, vec2,
};
use egui_plot::{GridInput, GridMark, PlotPoint, PlotTransform};
use loka_core::{
    model::Metric,
    views::{CurvePoint, ErrorAxis, FrontierAxis, FrontierView},
};

use super::words;
use crate::{
    commands::{Action, QuadrantAction, take_arrows},
    state::step_frontier,
    theme::{SMALL, Theme, number},
    views::{
        Scene,
        chart::{grid_marks, still_plot},
    },
};

/// How near the pointer must be to a point, in points of the screen.
const REACH: f32 = 11.0;
/// Lines across the chart, at most.
const TICKS: usize = 8;
/// LoKA's quality budget: drawn also where the policy has none.
const QUALITY: f64 = 0.0002;

/// Where costs stand. What costs nothing stands on a floor of its own: a logarithm has no zero.
#[derive(Clone, Copy)]
struct Costs {
    axis: FrontierAxis,
    scale: ErrorAxis,
    floor: f64,
    bounds: [(f64, f64); 2],
}

impl Costs {
    fn of(scene: &Scene<'_>) -> Self {
        let axis = scene.view.frontier.axis;
        let metric = axis.metric(scene.session.document.policy.metric);
        let scale = ErrorAxis::of(metric);
        let frontier = scene.derived.frontier();
        let points = || frontier.curves.iter().flat_map(|curve| &curve.points);
        let now = scene.derived.now;
        let costs = points().filter_map(|point| axis.cost(&point.totals));
        let versus = scene.derived.versus();
        let costs = costs.chain(now.and_then(|now| now.cost(axis)).map(|cost| cost.hi)).chain(limit(scene));
        let costs = costs.chain(versus.and_then(|versus| versus.cost(axis)));
        let places = costs.filter(|cost| *cost > 0.0).map(|cost| scale.place(cost));
        let (lo, hi) =
            places.fold((f64::INFINITY, f64::NEG_INFINITY), |(lo, hi), place| (lo.min(place), hi.max(place)));
        let air = ((hi - lo) * 0.05).max(0.1);
        let floor = lo - 3.0 * air;
        let speeds = points().map(|point| point.totals.speedup);
        let speeds = speeds.chain(now.into_iter().flat_map(|now| [now.speedup.lo, now.speedup.hi]));
        let speeds = speeds.chain(versus.and_then(|versus| versus.speedup));
        let (slowest, fastest) = speeds.fold((1.0, 1.0), |(lo, hi): (f64, f64), at| (lo.min(at), hi.max(at)));
        let side = ((fastest - slowest) * 0.05).max(0.01);
        Self { axis, scale, floor, bounds: [(slowest - side, fastest + side), (floor - air, hi + 2.0 * air)] }
    }

    fn place(&self, cost: Option<f64>) -> f64 {
        cost.map_or(self.floor, |cost| self.scale.place(cost))
    }

    fn of_point(&self, point: &CurvePoint) -> PlotPoint {
        PlotPoint::new(point.totals.speedup, self.place(self.axis.cost(&point.totals)))
    }
}

/// What the policy in force allows on this axis; else LoKA's own budget.
fn limit(scene: &Scene<'_>) -> Option<f64> {
    let policy = &scene.session.document.policy;
    match scene.view.frontier.axis {
        FrontierAxis::WorstError => Some(policy.max_error),
        FrontierAxis::WorstNoise => Some(policy.max_error).filter(|_| policy.metric == Metric::NoiseShare),
        FrontierAxis::LossCost => {
            let loss = scene.session.trace.as_ref().map_or(0.0, |trace| trace.manifest().loss.value);
            Some(policy.loss_budget.unwrap_or(QUALITY) * loss).filter(|limit| *limit > 0.0)
        }
    }
}

pub(super) fn chart_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    let costs = Costs::of(scene);
    let transform = axes_ui(ui, scene, costs);
    let id = ui.scope_id().with("frontier area");
    let area = ui.interact(*transform.frame(), id, Sense::click());
    area.widget_info(|| WidgetInfo::labeled(Role::Canvas, true, "Frontier: arrows go along it, Enter adopts"));
    let painter = ui.painter_at(*transform.frame());
    limit_ui(&painter, scene, costs, &transform);
    for (number, curve) in scene.derived.frontier().curves.iter().enumerate() {
        let color = scene.theme.group(number);
        let line: Vec<Pos2> =
            curve.points.iter().map(|point| transform.position_from_point(&costs.of_point(point))).collect();
        let marks = line.len() <= 60;
        painter.add(Shape::line(line.clone(), Stroke::new(1.5, color)));
        for at in line.iter().filter(|_| marks) {
            mark(&painter, *at, number, color);
        }
    }
    now_ui(&painter, scene, costs, &transform);
    keys(ui, scene, &area);
    pointed_ui(ui, scene, costs, &transform, &area);
    stood_ui(ui, scene, costs, &transform, &area);
}

/// The point that the keys stand at, as a button: a screen reader tells it and can press it.
fn stood_ui(ui: &Ui, scene: &mut Scene<'_>, costs: Costs, transform: &PlotTransform, area: &Response) {
    let frontier = scene.derived.frontier();
    let Some((curve, at)) = scene.view.frontier.at else { return };
    let Some(curve) = frontier.curves.get(curve) else { return };
    let Some(point) = curve.points.get(at) else { return };
    let place = transform.position_from_point(&costs.of_point(point));
    let rect = Rect::from_center_size(place, vec2(16.0, 16.0));
    let button = ui.interact(rect, area.id.with("stood"), Sense::click());
    let label = format!("Frontier point: {}", words::point(scene, curve, at).replace('\n', ", "));
    button.widget_info(|| WidgetInfo::labeled(Role::Button, true, &label));
    if button.clicked() {
        scene.act(Action::Quadrant(QuadrantAction::Adopt));
    }
}

fn axes_ui(ui: &mut Ui, scene: &Scene<'_>, costs: Costs) -> PlotTransform {
    let label = costs.axis.label(scene.session.document.policy.metric);
    let [x, y] = costs.bounds;
    let plot = still_plot(ui, "frontier", &scene.theme)
        .x_axis_label("Total speed-up (× BF16)")
        .y_axis_label(label)
        .y_grid_spacer(move |input| marks(&input, costs))
        .x_axis_formatter(|mark, _| number::trimmed(mark.value))
        .y_axis_formatter(move |mark, _| {
            if mark.value <= costs.floor { "0".to_owned() } else { number::trimmed(costs.scale.error_at(mark.value)) }
        });
    let shown = plot.show(ui, |plot| {
        plot.set_plot_bounds_x(x.0..=x.1);
        plot.set_plot_bounds_y(y.0..=y.1);
    });
    shown.transform
}

/// Round values above the floor, and the floor.
fn marks(input: &GridInput, costs: Costs) -> Vec<GridMark> {
    let (lo, hi) = input.bounds;
    let mut marks = grid_marks((lo.max(costs.floor), hi), costs.scale.is_log(), TICKS);
    marks.retain(|mark| mark.value > costs.floor);
    marks.push(GridMark { value: costs.floor, step_size: 1.0 });
    marks
}

fn limit_ui(painter: &Painter, scene: &Scene<'_>, costs: Costs, transform: &PlotTransform) {
    let Some(limit) = limit(scene) else { return };
    let policy = &scene.session.document.policy;
    let own = costs.axis != FrontierAxis::LossCost || policy.loss_budget.is_some();
    let y = transform.position_from_point_y(costs.scale.place(limit));
    let (frame, stroke) = (*transform.frame(), Stroke::new(1.0, scene.theme.text));
    let ends = [pos2(frame.left(), y), pos2(frame.right(), y)];
    if own {
        painter.line_segment(ends, stroke);
    } else {
        painter.extend(Shape::dashed_line(&ends, stroke, 5.0, 4.0));
    }
    let text = match (costs.axis, own) {
        (FrontierAxis::WorstError | FrontierAxis::WorstNoise, _) => {
            format!("{} {}", policy.metric.label(), number::trimmed(limit))
        }
        (FrontierAxis::LossCost, true) => format!("budget {}", number::plain(limit)),
        (FrontierAxis::LossCost, false) => {
            format!("LoKA's .02 % of the loss, {}: no budget of this policy", number::plain(limit))
        }
    };
    let above = y - frame.top() > 18.0;
    let (dy, align) = if above { (-3.0, Align2::LEFT_BOTTOM) } else { (3.0, Align2::LEFT_TOP) };
    painter.text(pos2(frame.left() + 6.0, y + dy), align, text, FontId::proportional(SMALL), scene.theme.text);
}

fn now_ui(painter: &Painter, scene: &Scene<'_>, costs: Costs, transform: &PlotTransform) {
    let Some(now) = scene.derived.now else { return };
    let cost = now.cost(costs.axis);
    // A budget is held against the upper end of a cost, an error's own value is what the curves have.
    let counts =
        |cost: loka_core::model::Estimate| if costs.axis == FrontierAxis::LossCost { cost.hi } else { cost.value };
    let place = |speedup: f64, cost: Option<f64>| {
        transform.position_from_point(&PlotPoint::new(speedup, costs.place(cost.filter(|cost| *cost > 0.0))))
    };
    let at = place(now.speedup.value, cost.map(counts));
    let stroke = Stroke::new(1.5, scene.theme.accent);
    if let Some((versus, speedup)) = scene.derived.versus().and_then(|versus| Some((versus, versus.speedup?))) {
        let then = place(speedup, versus.cost(costs.axis));
        let (thin, font) = (Stroke::new(1.0, scene.theme.text), FontId::proportional(SMALL));
        painter.line_segment([then, at], thin);
        painter.circle(then, 5.0, scene.theme.canvas, thin);
        painter.text(then + vec2(10.0, 8.0), Align2::LEFT_TOP, "baseline", font, scene.theme.text);
    }
    let (slow, fast) = (place(now.speedup.lo, cost.map(counts)), place(now.speedup.hi, cost.map(counts)));
    painter.line_segment([slow, fast], stroke);
    if let Some(cost) = cost {
        let ends = [place(now.speedup.value, Some(cost.lo)), place(now.speedup.value, Some(cost.hi))];
        painter.line_segment(ends, stroke);
    }
    now_mark(painter, at, &scene.theme);
    painter.text(at + vec2(10.0, -8.0), Align2::LEFT_BOTTOM, "now", FontId::proportional(SMALL), scene.theme.accent);
}

pub(super) fn now_mark(painter: &Painter, at: Pos2, theme: &Theme) {
    painter.circle(at, 6.0, theme.canvas, Stroke::new(2.0, theme.accent));
    painter.circle_filled(at, 2.5, theme.accent);
}

/// Each curve has a shape of its own beside its colour.
pub(super) fn mark(painter: &Painter, at: Pos2, curve: usize, color: Color32) {
    let size = 3.2;
    match curve % 4 {
        0 => {
            painter.rect_filled(Rect::from_center_size(at, vec2(1.8 * size, 1.8 * size)), 0.0, color);
        }
        1 => {
            let points = [(0.0, -1.2), (1.1, 0.8), (-1.1, 0.8)].map(|(x, y)| at + vec2(x, y) * size).to_vec();
            painter.add(Shape::convex_polygon(points, color, Stroke::NONE));
        }
        2 => {
            painter.circle_filled(at, size, color);
        }
        _ => {
            let points =
                [(0.0, -1.3), (1.3, 0.0), (0.0, 1.3), (-1.3, 0.0)].map(|(x, y)| at + vec2(x, y) * size).to_vec();
            painter.add(Shape::convex_polygon(points, color, Stroke::NONE));
        }
    }
}

/// Left and right go along a curve, up and down to the next one, Enter adopts.
fn keys(ui: &Ui, scene: &mut Scene<'_>, area: &Response) {
    if !area.has_focus() {
        return;
    }
    take_arrows(ui.ctx(), area.id);
    let pressed = |key| ui.input_mut(|input| input.consume_key(Modifiers::NONE, key));
    if pressed(Key::ArrowRight) {
        step_frontier(scene.view, scene.derived, 1);
    }
    if pressed(Key::ArrowLeft) {
        step_frontier(scene.view, scene.derived, -1);
    }
    if pressed(Key::ArrowUp) || pressed(Key::ArrowDown) {
        scene.view.frontier.next_curve(scene.derived.frontier());
    }
}

fn pointed_ui(ui: &Ui, scene: &mut Scene<'_>, costs: Costs, transform: &PlotTransform, area: &Response) {
    let frontier = scene.derived.frontier();
    let pointer = ui.input(|input| input.pointer.hover_pos()).filter(|_| area.contains_pointer());
    let hovered = pointer.and_then(|pointer| pick(frontier, costs, transform, pointer));
    let clicked = area.clicked();
    if std::mem::replace(&mut scene.view.frontier.hovered, hovered) != hovered {
        // A tooltip is measured in one frame and seen in the next.
        ui.ctx().request_repaint();
    }
    let adopted = if area.interact_pointer_pos().is_some() { hovered } else { scene.view.frontier.at };
    let told = hovered.or(scene.view.frontier.at.filter(|_| area.has_focus()));
    let ringed = scene.view.frontier.at.into_iter().map(|at| (at, scene.theme.accent));
    for ((curve, point), color) in ringed.chain(hovered.map(|at| (at, scene.theme.text))) {
        let Some(point) = frontier.curves.get(curve).and_then(|curve| curve.points.get(point)) else { continue };
        let at = transform.position_from_point(&costs.of_point(point));
        ui.painter_at(*transform.frame()).circle_stroke(at, 7.0, Stroke::new(1.5, color));
    }
    if let Some((curve, point)) = told.and_then(|(curve, point)| Some((frontier.curves.get(curve)?, point)))
        && let Some(of) = curve.points.get(point)
    {
        let at = transform.position_from_point(&costs.of_point(of));
        let around = Rect::from_center_size(at, vec2(18.0, 18.0));
        let text = words::point(scene, curve, point);
        Tooltip::always_open(ui.ctx().clone(), ui.layer_id(), area.id, PopupAnchor::ParentRect(around)).show(|ui| {
            ui.label(text);
        });
    }
    if let Some(at) = adopted.filter(|_| clicked) {
        scene.view.frontier.at = Some(at);
        scene.act(Action::Quadrant(QuadrantAction::Adopt));
    }
}

fn pick(frontier: &FrontierView, costs: Costs, transform: &PlotTransform, pointer: Pos2) -> Option<(usize, usize)> {
    let all = frontier
        .curves
        .iter()
        .enumerate()
        .flat_map(|(number, curve)| curve.points.iter().enumerate().map(move |(at, point)| ((number, at), point)));
    let near = all.map(|(at, point)| (at, transform.position_from_point(&costs.of_point(point)).distance(pointer)));
    near.filter(|(_, away)| *away <= REACH).min_by(|a, b| a.1.total_cmp(&b.1)).map(|(at, _)| at)
}
