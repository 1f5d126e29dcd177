//! Takes a site's series; draws each over the same steps, with the recorded amax as a line and marks where a
//! cast or a verdict would change.

use egui::{
    Align2, FontId, Painter, Pos2, Rect, Response, RichText, Role, Sense, Shape, Stroke, StrokeKind, Ui, WidgetInfo,
    pos2, vec2,
};
use loka_core::views::{
    distribution::{Inspection, Operand},
    drift::{Bucket, DriftMark, KernelDrift, MarkKind, OperandDrift, SHARE_BOUND, SeriesView},
};

use crate::{
    theme::number,
    views::{
        Scene,
        steps::{safety_color, step_number, step_text},
    },
};

const HEIGHT: f32 = 74.0;
const NAMES: f32 = 110.0;
const VALUES: f32 = 56.0;
/// From this ratio on the axis is logarithmic.
const LOG_FROM: f64 = 20.0;

/// A click, or a drag, looks at the step that was recorded there.
pub(super) fn series_ui(ui: &mut Ui, scene: &mut Scene<'_>, inspection: &Inspection, kernels: &[KernelDrift]) {
    let steps = Steps::of(inspection);
    title_ui(ui, scene, inspection, steps);
    let mut picked = None;
    for series in &inspection.series {
        let drift = Operand::ALL.into_iter().find(|operand| operand.series() == series.name);
        let drift = drift.and_then(|operand| inspection.drift(operand));
        picked = one_ui(ui, scene, steps, series, drift).or(picked);
    }
    verdicts_ui(ui, scene, steps, kernels);
    axis_ui(ui, scene, steps);
    if let Some(step) = picked {
        scene.view.steps.set(step);
    }
}

/// The steps from left to right; the same in every row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Steps {
    first: i64,
    last: i64,
}

impl Steps {
    pub fn of(inspection: &Inspection) -> Self {
        let points = inspection.series.iter().flat_map(|series| &series.points);
        let ends = points.map(|point| (point.first_step, point.last_step));
        let (first, last) = ends.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))).unwrap_or((0, 1));
        Self { first, last: last.max(first + 1) }
    }

    fn x(self, rect: Rect, step: i64) -> f32 {
        let share = (step - self.first) as f64 / (self.last - self.first) as f64;
        rect.left() + rect.width() * share as f32
    }

    fn step_at(self, rect: Rect, x: f32) -> i64 {
        let share = f64::from((x - rect.left()) / rect.width().max(1.0)).clamp(0.0, 1.0);
        self.first + (share * (self.last - self.first) as f64).round() as i64
    }
}

fn part(row: Rect) -> Rect {
    let left = row.left() + NAMES + VALUES;
    Rect::from_min_max(pos2(left, row.top() + 4.0), pos2((row.right() - 8.0).max(left + 40.0), row.bottom() - 4.0))
}

fn title_ui(ui: &mut Ui, scene: &Scene<'_>, inspection: &Inspection, steps: Steps) {
    let text = format!(
        "Run {}, steps {} to {}. Marks: where it would matter if only the extremes moved and the other values \
         stayed as recorded; where all move together nothing flips.",
        inspection.run,
        step_number(steps.first),
        step_number(steps.last)
    );
    ui.label(RichText::new(text).small().color(scene.theme.weak));
}

fn one_ui(
    ui: &mut Ui,
    scene: &Scene<'_>,
    steps: Steps,
    series: &SeriesView,
    drift: Option<&OperandDrift>,
) -> Option<i64> {
    let size = vec2(ui.available_width(), HEIGHT);
    let (row, response) = ui.allocate_exact_size(size, Sense::click_and_drag());
    if !ui.is_rect_visible(row) {
        return None;
    }
    let rect = part(row);
    let recorded = drift.and_then(|drift| drift.recorded_amax.filter(|_| drift.points.is_ok()));
    let scale = SeriesScale::of(series, recorded);
    let (painter, theme) = (ui.painter(), &scene.theme);
    marks(painter, scene, steps, rect, drift);
    scale.axis(painter, scene, rect);
    if let Some(recorded) = recorded {
        let y = scale.y(rect, recorded);
        let line = [pos2(rect.left(), y), pos2(rect.right(), y)];
        painter.extend(Shape::dashed_line(&line, Stroke::new(1.0, theme.weak), 3.0, 3.0));
    }
    curve(painter, scene, steps, rect, scale, &series.points);
    cursor(painter, scene, steps, rect);
    names(painter, scene, row, series, drift);
    let outline = if response.has_focus() { theme.accent } else { theme.line };
    painter.rect_stroke(rect, 0.0, Stroke::new(1.0, outline), StrokeKind::Outside);
    let label = spoken(series, drift);
    response.widget_info(|| WidgetInfo::labeled(Role::Image, true, &label));
    let pointer = response.interact_pointer_pos().filter(|_| response.clicked() || response.dragged());
    let picked = pointer.and_then(|at| series.at(steps.step_at(rect, at.x)));
    let picked = picked.map(|point| point.last_step);
    pointed_ui(response, steps, rect, series, drift);
    picked
}

/// The step that is looked at.
fn cursor(painter: &Painter, scene: &Scene<'_>, steps: Steps, rect: Rect) {
    if let Some(step) = scene.view.steps.step() {
        let x = steps.x(rect, step.clamp(steps.first, steps.last));
        painter.vline(x, rect.y_range(), Stroke::new(1.5, scene.theme.text));
    }
}

/// Values from bottom to top.
#[derive(Clone, Copy)]
struct SeriesScale {
    low: f64,
    high: f64,
    log: bool,
    /// The smallest and the largest value shown.
    ends: (f64, f64),
}

impl SeriesScale {
    fn of(series: &SeriesView, recorded: Option<f64>) -> Self {
        let (low, high) = series.range.unwrap_or((0.0, 1.0));
        let (low, high) = recorded.map_or((low, high), |amax| (low.min(amax), high.max(amax)));
        let log = low > 0.0 && high / low > LOG_FROM;
        let air = if log { 0.0 } else { (high - low).max(high.abs() * 0.01) * 0.1 };
        Self { low: low - air, high: if high > low { high + air } else { low + 1.0 }, log, ends: (low, high) }
    }

    fn y(&self, rect: Rect, value: f64) -> f32 {
        let of = |value: f64| if self.log { value.max(f64::MIN_POSITIVE).ln() } else { value };
        let share = (of(value) - of(self.low)) / (of(self.high) - of(self.low));
        rect.bottom() - rect.height() * share.clamp(0.0, 1.0) as f32
    }

    fn axis(&self, painter: &Painter, scene: &Scene<'_>, rect: Rect) {
        let font = FontId::monospace(10.0);
        let (low, high) = self.ends;
        for value in if high > low { vec![high, low] } else { vec![high] } {
            let at = pos2(rect.left() - 4.0, self.y(rect, value).clamp(rect.top() + 5.0, rect.bottom() - 5.0));
            painter.text(at, Align2::RIGHT_CENTER, number::plain(value), font.clone(), scene.theme.weak);
        }
        if self.log {
            let at = pos2(rect.left() - 4.0, rect.center().y);
            painter.text(at, Align2::RIGHT_CENTER, "log", FontId::proportional(10.0), scene.theme.weak);
        }
    }
}

fn curve(painter: &Painter, scene: &Scene<'_>, steps: Steps, rect: Rect, scale: SeriesScale, points: &[Bucket]) {
    let ink = scene.theme.accent;
    let mut path: Vec<Pos2> = Vec::with_capacity(2 * points.len());
    for point in points {
        let x = steps.x(rect, (point.first_step + point.last_step) / 2);
        match point.range {
            Some((low, high)) => path.extend([pos2(x, scale.y(rect, low)), pos2(x, scale.y(rect, high))]),
            // The line breaks where nothing is finite.
            None => painter.extend([Shape::line(std::mem::take(&mut path), Stroke::new(1.3, ink))]),
        }
        if point.num_not_finite > 0 {
            cross(painter, pos2(x, rect.top() + 6.0), scene.theme.error);
        }
    }
    painter.add(Shape::line(path, Stroke::new(1.3, ink)));
}

fn cross(painter: &Painter, at: Pos2, color: egui::Color32) {
    for across in [vec2(3.5, 3.5), vec2(3.5, -3.5)] {
        painter.line_segment([at - across, at + across], Stroke::new(1.5, color));
    }
}

/// Hatched bands: values sink to zero. A bar along the top: beyond the recorded amax.
fn marks(painter: &Painter, scene: &Scene<'_>, steps: Steps, rect: Rect, drift: Option<&OperandDrift>) {
    for mark in drift.map_or(&[][..], |drift| &drift.marks) {
        let band = band(steps, rect, mark.first_step, mark.last_step);
        match mark.what {
            MarkKind::Underflow { .. } => {
                painter.rect_filled(band, 0.0, scene.theme.warning.gamma_multiply(0.12));
                hatched(painter, band, scene.theme.warning.gamma_multiply(0.6));
            }
            MarkKind::StaticScale { .. } => {
                let bar = Rect::from_min_max(band.min, pos2(band.right(), rect.top() + 3.0));
                painter.rect_filled(bar, 0.0, scene.theme.warning);
            }
        }
    }
}

fn band(steps: Steps, rect: Rect, first: i64, last: i64) -> Rect {
    let (left, right) = (steps.x(rect, first), steps.x(rect, last));
    // One step can be seen, too.
    let right = right.max(left + 2.0).min(rect.right() + 2.0);
    Rect::from_min_max(pos2(left, rect.top()), pos2(right, rect.bottom()))
}

fn hatched(painter: &Painter, rect: Rect, color: egui::Color32) {
    let painter = painter.with_clip_rect(rect.intersect(painter.clip_rect()));
    let mut x = rect.left() - rect.height();
    while x < rect.right() {
        let line = [pos2(x, rect.bottom()), pos2(x + rect.height(), rect.top())];
        painter.line_segment(line, Stroke::new(1.0, color));
        x += 6.0;
    }
}

fn names(painter: &Painter, scene: &Scene<'_>, row: Rect, series: &SeriesView, drift: Option<&OperandDrift>) {
    let (theme, left) = (&scene.theme, row.left());
    painter.text(pos2(left, row.top() + 6.0), Align2::LEFT_TOP, series.label(), FontId::proportional(12.0), theme.text);
    let mut lines: Vec<String> = Vec::new();
    if let Some(drift) = drift {
        match &drift.points {
            Ok(_) => lines.extend(drift.recorded_amax.map(|amax| format!("recorded {}", number::plain(amax)))),
            Err(_) => lines.push("shown, not used".to_owned()),
        }
        let count = |test: fn(&DriftMark) -> bool| drift.marks.iter().filter(|mark| test(mark)).count();
        let sinking = count(|mark| matches!(mark.what, MarkKind::Underflow { .. }));
        let beyond = count(|mark| matches!(mark.what, MarkKind::StaticScale { .. }));
        if sinking > 0 {
            lines.push(format!("{sinking} × values sink"));
        }
        if beyond > 0 {
            lines.push(format!("{beyond} × beyond it"));
        }
    }
    let galley = painter.layout(lines.join("\n"), FontId::proportional(11.0), theme.weak, NAMES - 4.0);
    painter.galley(pos2(left, row.top() + 22.0), galley, theme.weak);
}

fn spoken(series: &SeriesView, drift: Option<&OperandDrift>) -> String {
    let range = series.range.map_or("no finite value".to_owned(), |(low, high)| {
        format!("from {} to {}", number::plain(low), number::plain(high))
    });
    let marks = drift.map_or(0, |drift| drift.marks.len());
    format!("{}, {} steps, {range}, {marks} marks", series.label(), series.num_steps)
}

fn pointed_ui(response: Response, steps: Steps, rect: Rect, series: &SeriesView, drift: Option<&OperandDrift>) {
    let reason = drift.and_then(|drift| drift.points.as_ref().err());
    let Some(pointer) = response.hover_pos().filter(|at| rect.contains(*at)) else {
        if let Some(reason) = reason {
            response.on_hover_text(format!("Nothing can be derived here: {reason}"));
        }
        return;
    };
    let step = steps.step_at(rect, pointer.x);
    let distance = |point: &&Bucket| (point.first_step - step).abs().min((point.last_step - step).abs());
    let Some(point) = series.points.iter().min_by_key(distance) else { return };
    let mut text = format!("{} at {}", series.label(), steps_text(point.first_step, point.last_step));
    text.push_str(&match point.range {
        Some((low, high)) if low == high => format!("\n{}", number::plain(high)),
        Some((low, high)) => format!("\n{} to {}", number::plain(low), number::plain(high)),
        None => String::new(),
    });
    if point.num_not_finite > 0 {
        text.push_str(&format!("\n{} not finite", point.num_not_finite));
    }
    if let Some(drift) = drift {
        text.push_str(&told_loss(drift, point));
    }
    response.on_hover_text_at_pointer(text);
}

fn told_loss(drift: &OperandDrift, point: &Bucket) -> String {
    let points = match &drift.points {
        Ok(points) => points,
        Err(reason) => return format!("\nNothing can be derived here: {reason}"),
    };
    let Some(at) = points.iter().find(|at| at.first_step == point.first_step) else { return String::new() };
    let format = drift.format.as_str();
    let mut text = format!(
        "\n{format} with this step's tensor scale: ≈ {} become zero, ≈ {} subnormal (modelled)",
        number::percent(at.high.underflow),
        number::percent(at.high.subnormal)
    );
    for mark in drift.marks.iter().filter(|mark| (mark.first_step..=mark.last_step).contains(&point.first_step)) {
        text.push_str(&match mark.what {
            MarkKind::Underflow { share } => {
                format!(
                    "\nMarked: up to {} become zero, more than {}",
                    number::percent(share),
                    number::percent(SHARE_BOUND)
                )
            }
            MarkKind::StaticScale { ratio } => {
                let times = number::times(ratio);
                format!("\nMarked: up to {times} the recorded amax; a scale kept from it would saturate")
            }
        });
    }
    text
}

/// One row under the series: where any kernel's verdict would flip.
fn verdicts_ui(ui: &mut Ui, scene: &Scene<'_>, steps: Steps, kernels: &[KernelDrift]) {
    let derived = kernels.iter().filter(|kernel| kernel.errors.is_ok());
    let size = vec2(ui.available_width(), 26.0);
    let (row, response) = ui.allocate_exact_size(size, Sense::focusable_noninteractive());
    let rect = part(row);
    let (painter, theme) = (ui.painter(), &scene.theme);
    let font = FontId::proportional(12.0);
    painter.text(row.left_center(), Align2::LEFT_CENTER, "Verdicts would flip", font, theme.text);
    painter.rect_stroke(rect, 0.0, Stroke::new(1.0, theme.line), StrokeKind::Outside);
    let count = derived.clone().count();
    let mut flipped = 0;
    for kernel in derived {
        flipped += usize::from(!kernel.flips.is_empty());
        for flip in &kernel.flips {
            let color = safety_color(scene, flip.to);
            painter.rect_filled(band(steps, rect, flip.first_step, flip.last_step), 0.0, color.gamma_multiply(0.45));
        }
    }
    let text = match (count, flipped) {
        (0, _) => "no kernel has an error that can be derived: see below".to_owned(),
        (count, 0) => format!("none of the {count} kernels with one scale a tensor"),
        (count, flipped) => format!("{flipped} of the {count} kernels with one scale a tensor"),
    };
    cursor(painter, scene, steps, rect);
    let galley = painter.layout_no_wrap(text.clone(), FontId::proportional(11.0), theme.text);
    let at = Align2::CENTER_CENTER.anchor_size(rect.center(), galley.size());
    painter.rect_filled(at.expand(2.0), 2.0, theme.canvas.gamma_multiply(0.8));
    painter.galley(at.min, galley, theme.text);
    response.widget_info(|| WidgetInfo::labeled(Role::Label, true, format!("Verdicts would flip: {text}")));
}

fn axis_ui(ui: &mut Ui, scene: &Scene<'_>, steps: Steps) {
    let (row, _) = ui.allocate_exact_size(vec2(ui.available_width(), 16.0), Sense::hover());
    let rect = part(row);
    let font = FontId::proportional(11.0);
    let ends = [(steps.first, rect.left(), Align2::LEFT_TOP), (steps.last, rect.right(), Align2::RIGHT_TOP)];
    for (step, x, align) in ends {
        ui.painter().text(pos2(x, row.top()), align, step_number(step), font.clone(), scene.theme.weak);
    }
    ui.painter().text(pos2(rect.center().x, row.top()), Align2::CENTER_TOP, "step", font, scene.theme.weak);
}

/// `step 120`, `steps 120 to 340`.
pub(super) fn steps_text(first: i64, last: i64) -> String {
    if first == last { step_text(first) } else { format!("steps {} to {}", step_number(first), step_number(last)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_and_places_agree() {
        let (steps, rect) = (Steps { first: 100, last: 300 }, Rect::from_min_max(pos2(50.0, 0.0), pos2(250.0, 10.0)));
        assert_eq!((steps.x(rect, 100), steps.x(rect, 300), steps.step_at(rect, 150.0)), (50.0, 250.0, 200));
        assert!(band(steps, rect, 120, 120).width() >= 2.0);
        assert_eq!((steps_text(5, 5), steps_text(5, 1200)), ("step 5".to_owned(), "steps 5 to 1,200".to_owned()));
    }
}
