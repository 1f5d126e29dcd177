//! Takes one or two histograms of log2|x|; draws the first as filled bars and the second as a dashed outline.

use egui::{Align2, FontId, Painter, Pos2, Rect, Response, Role, Sense, Shape, Stroke, Ui, WidgetInfo, pos2, vec2};
use loka_core::views::distribution::{FIRST_EXPONENT, Histogram};

use super::{
    AtStep, ShownOperand,
    axis::{Axis, power_text},
};
use crate::{
    theme::number,
    views::{Scene, steps::step_text},
};

const HEIGHT: f32 = 118.0;
/// Powers of two under the bars.
const TICKS: f32 = 20.0;

pub(super) fn histogram_ui(
    ui: &mut Ui,
    scene: &Scene<'_>,
    axis: Axis,
    main: ShownOperand<'_>,
    beside: Option<ShownOperand<'_>>,
    at: Option<&AtStep>,
) {
    let Ok(histogram) = &main.operand.histogram else { return };
    let other = beside.and_then(|shown| Some((shown, shown.operand.histogram.as_ref().ok()?)));
    let size = vec2(ui.available_width(), HEIGHT + TICKS);
    let (row, response) = ui.allocate_exact_size(size, Sense::focusable_noninteractive());
    let mut rect = Axis::part(row);
    rect.max.y -= TICKS;
    let most = other.map_or(0.0, |(_, other)| other.largest_share()).max(histogram.largest_share());
    let picture = HistogramPicture { axis, rect, most: most.max(f64::MIN_POSITIVE) };
    let painter = ui.painter();
    painter.hline(rect.x_range(), rect.bottom(), Stroke::new(1.0, scene.theme.line));
    picture.bars(painter, scene, histogram);
    if let Some((_, other)) = other {
        picture.outline(painter, scene, other);
    }
    if let Ok((amax, _)) = main.operand.amax {
        picture.amax(painter, scene, amax);
    }
    if let Some(at) = at {
        picture.at_step(painter, scene, at);
    }
    axis.ticks(painter, &scene.theme, rect);
    names_ui(painter, scene, row, main, other.map(|(shown, _)| shown));
    notes_ui(painter, scene, row, rect, histogram);
    if response.has_focus() {
        painter.rect_stroke(row, 3.0, Stroke::new(1.0, scene.theme.accent), egui::StrokeKind::Inside);
    }
    let label = spoken(main, histogram);
    response.widget_info(|| WidgetInfo::labeled(Role::Image, true, &label));
    pointed_ui(response, picture, main, histogram, other);
}

#[derive(Clone, Copy)]
struct HistogramPicture {
    axis: Axis,
    rect: Rect,
    most: f64,
}

impl HistogramPicture {
    fn top(&self, share: f64) -> f32 {
        self.rect.bottom() - (self.rect.height() - 16.0) * (share / self.most) as f32
    }

    fn bars(&self, painter: &Painter, scene: &Scene<'_>, histogram: &Histogram) {
        let fill = scene.theme.accent.gamma_multiply(0.55);
        for (left, right, share) in self.steps(histogram) {
            // A bin that holds anything at all can be seen.
            let top = self.top(share).min(self.rect.bottom() - 1.0);
            painter.rect_filled(
                Rect::from_min_max(pos2(left + 0.5, top), pos2(right - 0.5, self.rect.bottom())),
                0.0,
                fill,
            );
        }
    }

    fn outline(&self, painter: &Painter, scene: &Scene<'_>, histogram: &Histogram) {
        let mut path: Vec<Pos2> = Vec::new();
        for (left, right, share) in self.steps(histogram) {
            let start = if path.is_empty() { self.rect.bottom() } else { self.top(share) };
            path.extend([pos2(left, start), pos2(left, self.top(share)), pos2(right, self.top(share))]);
        }
        path.extend(path.last().map(|last| pos2(last.x, self.rect.bottom())));
        painter.extend(Shape::dashed_line(&path, Stroke::new(1.5, scene.theme.warning), 5.0, 3.0));
    }

    fn amax(&self, painter: &Painter, scene: &Scene<'_>, amax: f64) {
        let x = self.axis.x(self.rect, amax.max(f64::MIN_POSITIVE).log2());
        painter.vline(x, self.rect.y_range(), Stroke::new(1.0, scene.theme.text));
        let text = format!("amax {}", number::plain(amax));
        let at = pos2(x - 4.0, self.rect.top());
        painter.text(at, Align2::RIGHT_TOP, text, FontId::proportional(11.0), scene.theme.text);
    }

    /// Below the recorded one's name.
    fn at_step(&self, painter: &Painter, scene: &Scene<'_>, at: &AtStep) {
        let x = self.axis.x(self.rect, at.amax.max(f64::MIN_POSITIVE).log2());
        let line = [pos2(x, self.rect.top() + 14.0), pos2(x, self.rect.bottom())];
        painter.line_segment(line, Stroke::new(2.0, scene.theme.accent));
        let place = pos2(x - 4.0, self.rect.top() + 14.0);
        painter.text(place, Align2::RIGHT_TOP, step_text(at.step), FontId::proportional(11.0), scene.theme.accent);
    }

    /// Left edge, right edge and share of every bin that holds something.
    fn steps<'a>(&'a self, histogram: &'a Histogram) -> impl Iterator<Item = (f32, f32, f64)> + 'a {
        let held = histogram.extent().map_or(0..0, |(first, last)| first..last);
        held.filter_map(|power| {
            let share = *histogram.shares.get((power - FIRST_EXPONENT) as usize)?;
            let x = |power: i32| self.axis.x(self.rect, f64::from(power));
            Some((x(power), x(power + 1), share))
        })
    }
}

fn names_ui(painter: &Painter, scene: &Scene<'_>, row: Rect, main: ShownOperand<'_>, other: Option<ShownOperand<'_>>) {
    let (theme, font) = (&scene.theme, FontId::proportional(11.0));
    let name = |shown: ShownOperand<'_>| scene.derived.short_name(shown.site, 17);
    let left = row.left();
    painter.text(pos2(left, row.top()), Align2::LEFT_TOP, "Share of values", font.clone(), theme.weak);
    painter.text(pos2(left, row.top() + 14.0), Align2::LEFT_TOP, "by log2 |x|", font.clone(), theme.weak);
    let Some(other) = other else { return };
    let swatch = Rect::from_min_size(pos2(left, row.top() + 36.0), vec2(10.0, 10.0));
    painter.rect_filled(swatch, 0.0, theme.accent.gamma_multiply(0.55));
    painter.text(pos2(left + 14.0, swatch.center().y), Align2::LEFT_CENTER, name(main), font.clone(), theme.text);
    let y = swatch.center().y + 16.0;
    let line = [pos2(left - 1.0, y), pos2(left + 11.0, y)];
    painter.extend(Shape::dashed_line(&line, Stroke::new(1.5, theme.warning), 5.0, 3.0));
    painter.text(pos2(left + 14.0, y), Align2::LEFT_CENTER, name(other), font, theme.text);
}

/// Right of the picture: what is in no bar, and what all of it is of.
fn notes_ui(painter: &Painter, scene: &Scene<'_>, row: Rect, rect: Rect, histogram: &Histogram) {
    if row.right() - rect.right() < 100.0 {
        return;
    }
    let mut lines = vec![format!("{} values,", number::count(histogram.num_values))];
    lines.push(histogram.origin.words().to_owned());
    lines.push(format!("{} exact zeros", number::percent(histogram.zeros)));
    if histogram.not_finite > 0.0 {
        lines.push(format!("{} not finite", number::percent(histogram.not_finite)));
    }
    let color = if histogram.origin.is_derived() { scene.theme.warning } else { scene.theme.weak };
    let width = row.right() - rect.right() - 16.0;
    let galley = painter.layout(lines.join("\n"), FontId::proportional(11.0), color, width);
    painter.galley(pos2(rect.right() + 16.0, row.top()), galley, color);
}

fn spoken(main: ShownOperand<'_>, histogram: &Histogram) -> String {
    let extent =
        histogram.extent().map_or("nothing but zeros".to_owned(), |(from, to)| format!("from 2^{from} to 2^{to}"));
    format!("Histogram of {} of {}, {extent}", main.operand.operand.label().to_lowercase(), main.site)
}

fn pointed_ui(
    response: Response,
    picture: HistogramPicture,
    main: ShownOperand<'_>,
    histogram: &Histogram,
    other: Option<(ShownOperand<'_>, &Histogram)>,
) {
    let Some(pointer) = response.hover_pos().filter(|at| picture.rect.expand(2.0).contains(*at)) else { return };
    let power = picture.axis.log2_at(picture.rect, pointer.x).floor() as i32;
    let share = |of: &Histogram| {
        let at = usize::try_from(power - FIRST_EXPONENT).ok().and_then(|at| of.shares.get(at)).copied();
        number::percent(at.unwrap_or(0.0))
    };
    let mut text =
        format!("{} ≤ |x| < {}\n{} {}", power_text(power), power_text(power + 1), share(histogram), main.site);
    if let Some((shown, other)) = other {
        text.push_str(&format!("\n{} {} (dashed)", share(other), shown.site));
    }
    response.on_hover_text_at_pointer(text);
}
