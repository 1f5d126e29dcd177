//! Error against speed-up, one point a kernel, with the policy's two lines. Both axes are logarithmic;
//! the lines can be pulled, and one pull is one step of undo.

use egui::{Align2, CursorIcon, FontId, PointerButton, Rect, Response, RichText, Sense, Stroke, Ui, Vec2b, pos2, vec2};
use egui_plot::{GridInput, GridMark, Plot, PlotPoint, PlotTransform};
use loka_core::{
    model::{LatencySource, Metric, Quadrant},
    session::{
        Command,
        view::{Column, Point},
    },
};

use super::{Line, Scene, heatmap::gemm_ui};
use crate::theme::{Glyph, number, paint_glyph, source_about, source_word, verdict_word};

/// How near the pointer must be to a line or a point, in points.
const REACH: f32 = 7.0;

pub fn quadrant_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    ui.horizontal(|ui| {
        let metric = scene.session.document.policy.metric.label();
        ui.label(RichText::new(format!("{metric} against speed-up over BF16")).color(scene.theme.weak));
        ui.add_space(4.0);
        gemm_ui(ui, scene);
    });
    counts_ui(ui, scene);
    let axes = Axes { log_error: scene.session.document.policy.metric != Metric::SqnrDb };
    let footer = 20.0;
    let dragging = scene.view.drag.is_some();
    let plot = Plot::new("quadrant")
        .height((ui.available_height() - footer).max(120.0))
        .allow_boxed_zoom(false)
        .allow_scroll(false)
        .allow_drag(Vec2b::FALSE)
        .allow_axis_zoom_drag(Vec2b::FALSE)
        .show_crosshair(false)
        .auto_bounds(Vec2b::FALSE)
        .grid_color(scene.theme.line)
        .sense(Sense::click_and_drag())
        .cursor_color(egui::Color32::TRANSPARENT)
        .set_margin_fraction(vec2(0.0, 0.0))
        .x_axis_label("Speed-up (× BF16, log)")
        .y_axis_label(axes.label(scene.session.document.policy.metric))
        .x_grid_spacer(|input| decades(&input))
        .y_grid_spacer(move |input| if axes.log_error { decades(&input) } else { tens(&input) })
        .x_axis_formatter(|mark, _| number::trimmed(10f64.powf(mark.value)))
        .y_axis_formatter(move |mark, _| number::trimmed(axes.error_at(mark.value)));
    let points = &scene.derived.quadrant.points;
    let policy = &scene.session.document.policy;
    let (x, y) = axes.bounds(points, policy.min_speedup, policy.max_error);
    let shown = plot.show(ui, |plot| {
        // The bounds stand still while a line is pulled, or the line would run from the pointer.
        if !dragging {
            plot.set_plot_bounds_x(x.0..=x.1);
            plot.set_plot_bounds_y(y.0..=y.1);
        }
    });
    let picture = Picture { transform: shown.transform, axes };
    picture.lines_ui(ui, scene);
    picture.points_ui(ui, scene);
    picture.pulled_ui(ui, scene, &shown.response);
    picture.pointed_ui(scene, &shown.response);
    footer_ui(ui, scene);
}

/// How values become plot coordinates: log10, or decibels as they are.
#[derive(Clone, Copy)]
struct Axes {
    log_error: bool,
}

impl Axes {
    fn speedup(speedup: f64) -> f64 {
        speedup.max(1e-6).log10()
    }

    fn error(self, error: f64) -> f64 {
        if self.log_error { error.max(1e-12).log10() } else { error }
    }

    fn error_at(self, value: f64) -> f64 {
        if self.log_error { 10f64.powf(value) } else { value }
    }

    fn label(self, metric: Metric) -> String {
        let label = metric.label();
        if self.log_error { format!("{label} (log)") } else { label.to_owned() }
    }

    /// Everything in sight, both lines included, with some air.
    fn bounds(self, points: &[Point], min_speedup: f64, max_error: f64) -> ((f64, f64), (f64, f64)) {
        let around = |values: &mut dyn Iterator<Item = f64>, line: f64| {
            let (lo, hi) =
                values.filter(|value| value.is_finite()).fold((line, line), |(lo, hi), v| (lo.min(v), hi.max(v)));
            let air = ((hi - lo) * 0.06).max(0.08);
            (lo - air, hi + air)
        };
        let x = around(&mut points.iter().map(|point| Self::speedup(point.speedup)), Self::speedup(min_speedup));
        let y = around(&mut points.iter().map(|point| self.error(point.error.value)), self.error(max_error));
        (x, y)
    }
}

/// Marks at 1, 2 and 5 of every power of ten.
fn decades(input: &GridInput) -> Vec<GridMark> {
    let (from, to) = (input.bounds.0.floor() as i32, input.bounds.1.ceil() as i32);
    let of = |power: i32| {
        [(1.0, 1.0), (2.0, 0.3), (5.0, 0.3)]
            .map(|(digit, step_size): (f64, f64)| GridMark { value: f64::from(power) + digit.log10(), step_size })
    };
    // The plot labels marks that lie outside it, too.
    let seen = |mark: &GridMark| (input.bounds.0..=input.bounds.1).contains(&mark.value);
    (from..=to).flat_map(of).filter(seen).collect()
}

fn tens(input: &GridInput) -> Vec<GridMark> {
    let (from, to) = ((input.bounds.0 / 10.0).floor() as i32, (input.bounds.1 / 10.0).ceil() as i32);
    (from..=to).map(|ten| GridMark { value: 10.0 * f64::from(ten), step_size: 10.0 }).collect()
}

struct Picture {
    transform: PlotTransform,
    axes: Axes,
}

impl Picture {
    fn frame(&self) -> Rect {
        *self.transform.frame()
    }

    fn place(&self, point: &Point) -> egui::Pos2 {
        self.at(point.speedup, point.error.value)
    }

    fn at(&self, speedup: f64, error: f64) -> egui::Pos2 {
        self.transform.position_from_point(&PlotPoint::new(Axes::speedup(speedup), self.axes.error(error)))
    }

    fn lines_ui(&self, ui: &Ui, scene: &Scene<'_>) {
        let policy = &scene.session.document.policy;
        let at = self.at(policy.min_speedup, policy.max_error);
        let (painter, frame) = (ui.painter_at(self.frame()), self.frame());
        let color = |line| {
            if scene.view.drag.is_some_and(|(of, _)| of == line) { scene.theme.accent } else { scene.theme.text }
        };
        painter.hline(frame.x_range(), at.y, Stroke::new(1.5, color(Line::Error)));
        painter.vline(at.x, frame.y_range(), Stroke::new(1.5, color(Line::Speedup)));
        let font = FontId::proportional(11.0);
        let error = format!("{} {}", policy.metric.label(), number::trimmed(policy.max_error));
        let place = pos2(frame.right() - 6.0, at.y - 3.0);
        label_ui(&painter, scene, place, Align2::RIGHT_BOTTOM, error, &font);
        // On the line's other side where there is no room.
        let (dx, align) = if frame.right() - at.x < 48.0 { (-5.0, Align2::RIGHT_TOP) } else { (5.0, Align2::LEFT_TOP) };
        let place = pos2(at.x + dx, frame.top() + 5.0);
        label_ui(&painter, scene, place, align, number::times(policy.min_speedup), &font);
    }

    fn points_ui(&self, ui: &Ui, scene: &Scene<'_>) {
        let painter = ui.painter_at(self.frame());
        let selected = |point: &&Point| scene.view.site.as_ref() == Some(&point.site);
        let (front, back): (Vec<&Point>, Vec<&Point>) = scene.derived.quadrant.points.iter().partition(selected);
        let any = scene.view.site.is_some();
        for point in back {
            // Whiskers of every site would cover each other: only the selected one's are drawn in full.
            let color = scene.theme.verdict(point.quadrant).gamma_multiply(if any { 0.55 } else { 1.0 });
            let glyph = Glyph { quadrant: point.quadrant, radius: 3.2, source: Some(point.source) };
            paint_glyph(&painter, self.place(point), glyph, color);
        }
        for point in front {
            let color = scene.theme.verdict(point.quadrant);
            let (low, high) = (self.at(point.speedup, point.error.lo), self.at(point.speedup, point.error.hi));
            painter.line_segment([low, high], Stroke::new(1.2, color));
            let glyph = Glyph { quadrant: point.quadrant, radius: 5.0, source: Some(point.source) };
            let at = self.place(point);
            painter.circle_filled(at, 6.0, scene.theme.canvas.gamma_multiply(0.8));
            paint_glyph(&painter, at, glyph, color);
            if is_selected(scene, point) {
                painter.circle_stroke(at, 9.0, Stroke::new(1.5, scene.theme.accent));
            }
        }
    }

    /// Which line the pointer is at.
    fn line_at(&self, scene: &Scene<'_>, pointer: egui::Pos2) -> Option<Line> {
        let policy = &scene.session.document.policy;
        let at = self.at(policy.min_speedup, policy.max_error);
        let (dx, dy) = ((pointer.x - at.x).abs(), (pointer.y - at.y).abs());
        match (dx <= REACH, dy <= REACH) {
            (true, true) => Some(if dx < dy { Line::Speedup } else { Line::Error }),
            (true, false) => Some(Line::Speedup),
            (false, true) => Some(Line::Error),
            (false, false) => None,
        }
    }

    fn pulled_ui(&self, ui: &Ui, scene: &mut Scene<'_>, response: &Response) {
        let near = response.hover_pos().and_then(|pointer| self.line_at(scene, pointer));
        if let Some(line) = scene.view.drag.map(|(line, _)| line).or(near) {
            let icon = if line == Line::Error { CursorIcon::ResizeVertical } else { CursorIcon::ResizeHorizontal };
            ui.set_cursor_icon(icon);
        }
        if response.drag_started_by(PointerButton::Primary) {
            let origin = ui.input(|input| input.pointer.press_origin());
            let line = origin.and_then(|origin| self.line_at(scene, origin));
            scene.view.drag = line.map(|line| (line, scene.view.next_gesture()));
        }
        if let (Some((line, gesture)), Some(pointer)) = (scene.view.drag, response.interact_pointer_pos()) {
            let value = self.transform.value_from_position(pointer);
            let gesture = Some(gesture);
            scene.send(match line {
                Line::Error => Command::SetMaxError { value: rounded(self.axes.error_at(value.y)), gesture },
                Line::Speedup => Command::SetMinSpeedup { value: rounded(10f64.powf(value.x)), gesture },
            });
        }
        if response.drag_stopped() {
            scene.view.drag = None;
        }
    }

    fn pointed_ui(&self, scene: &mut Scene<'_>, response: &Response) {
        let Some(pointer) = response.hover_pos() else { return };
        let distance = |point: &&Point| self.place(point).distance(pointer);
        let points = scene.derived.quadrant.points.iter();
        let Some(point) = points.min_by(|a, b| distance(a).total_cmp(&distance(b))) else { return };
        if distance(&point) > REACH || scene.view.drag.is_some() {
            return;
        }
        let text = describe(scene, point);
        let (site, gemm, kernel) = (point.site.clone(), point.gemm, point.kernel.clone());
        if response.clicked() {
            scene.view.select(site, Some(Column { gemm, kernel }));
            scene.view.reveal = true;
        }
        response.clone().on_hover_text_at_pointer(text);
    }
}

fn label_ui(painter: &egui::Painter, scene: &Scene<'_>, at: egui::Pos2, align: Align2, text: String, font: &FontId) {
    let galley = painter.layout_no_wrap(text, font.clone(), scene.theme.text);
    let rect = align.anchor_size(at, galley.size());
    painter.rect_filled(rect.expand(2.0), 2.0, scene.theme.canvas.gamma_multiply(0.8));
    painter.galley(rect.min, galley, scene.theme.text);
}

/// A threshold that a person can read: two digits at most.
fn rounded(value: f64) -> f64 {
    let place = 10f64.powf(value.abs().max(1e-12).log10().floor() - 2.0);
    let value = (value / place).round() * place;
    // Away from the noise of binary fractions: .2, not .20000000000000001.
    format!("{value:.6}").parse().unwrap_or(value)
}

fn is_selected(scene: &Scene<'_>, point: &Point) -> bool {
    let column = scene.view.column.as_ref();
    scene.view.site.as_ref() == Some(&point.site)
        && column.is_some_and(|column| column.gemm == point.gemm && column.kernel == point.kernel)
}

fn describe(scene: &Scene<'_>, point: &Point) -> String {
    let metric = scene.session.document.policy.metric.label();
    let chosen = if point.chosen { " · chosen" } else { "" };
    let row = scene.session.row(&point.site, point.gemm, &point.kernel, &scene.session.document.mods);
    let note = row.map_or_else(String::new, |row| format!("\nLatency {}", row.latency.note));
    format!(
        "{} · {}\n{}\n{metric} {}\n{}, {}{note}\n{}{chosen}",
        point.site,
        point.gemm,
        point.kernel,
        number::sentence(point.error),
        number::times(point.speedup),
        source_word(point.source),
        verdict_word(point.quadrant)
    )
}

/// How many points each verdict has.
fn counts_ui(ui: &mut Ui, scene: &Scene<'_>) {
    let all = [Quadrant::SafeFast, Quadrant::SafeSlow, Quadrant::UnsafeFast, Quadrant::UnsafeSlow, Quadrant::Uncertain];
    ui.horizontal_wrapped(|ui| {
        ui.spacing_mut().item_spacing = vec2(4.0, 0.0);
        for quadrant in all {
            let count = scene.derived.quadrant.points.iter().filter(|point| point.quadrant == quadrant).count();
            crate::theme::glyph_ui(ui, &scene.theme, quadrant);
            let text = format!("{} {}", number::count(count as u64), verdict_word(quadrant));
            ui.label(RichText::new(text).small().color(scene.theme.weak));
            ui.add_space(6.0);
        }
    });
}

fn footer_ui(ui: &mut Ui, scene: &Scene<'_>) {
    let weak = |text: String| RichText::new(text).small().color(scene.theme.weak);
    ui.horizontal(|ui| {
        for source in [LatencySource::Measured, LatencySource::Recorded, LatencySource::Modelled] {
            let count = scene.derived.quadrant.points.iter().filter(|point| point.source == source).count();
            let (rect, response) = ui.allocate_exact_size(vec2(16.0, 14.0), Sense::hover());
            let glyph = Glyph { quadrant: Quadrant::SafeFast, radius: 3.2, source: Some(source) };
            paint_glyph(ui.painter(), rect.center(), glyph, scene.theme.weak);
            ui.spacing_mut().item_spacing.x = 3.0;
            let label = ui.label(weak(format!("{} {}", number::count(count as u64), source_word(source))));
            response.union(label).on_hover_text(source_about(source));
            ui.spacing_mut().item_spacing.x = 8.0;
        }
        ui.add_space(4.0);
        let missing = scene.derived.quadrant.num_without_latency;
        if missing > 0 {
            let text = weak(format!("{} without latency not shown", number::count(missing as u64)));
            ui.add(egui::Label::new(text).truncate()).on_hover_text(source_about(LatencySource::None));
        }
    });
}

#[cfg(test)]
mod tests {
    use super::rounded;

    #[test]
    fn thresholds_are_readable() {
        assert_eq!(rounded(0.200_499), 0.2);
        assert_eq!(rounded(1.054_9), 1.05);
        assert_eq!(rounded(0.036_68), 0.0367);
    }
}
