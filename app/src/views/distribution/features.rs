//! Takes the features of an operand by spread; draws their bands and names those that stand out.

use egui::{
    Align2, FontId, Painter, Rect, Response, RichText, Role, Sense, Stroke, StrokeKind, Ui, WidgetInfo, pos2, vec2,
};
use loka_core::views::distribution::{Band, Features, Operand};

use super::ShownOperand;
use crate::{
    theme::{Term, heads_ui, number},
    views::Scene,
};

const HEIGHT: f32 = 130.0;
const VALUES: f32 = 52.0;

pub(super) fn features_ui(
    ui: &mut Ui,
    scene: &mut Scene<'_>,
    main: ShownOperand<'_>,
    beside: Option<ShownOperand<'_>>,
) {
    title_ui(ui, scene, main);
    let sides: Vec<ShownOperand<'_>> = [Some(main), beside].into_iter().flatten().collect();
    let limits = sides.iter().filter_map(|shown| Some(limits(shown.operand.features.as_ref().ok()?)));
    let limits = limits.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))).unwrap_or((0.0, 1.0));
    let width = (ui.available_width() - 12.0 * (sides.len() - 1) as f32) / sides.len() as f32;
    ui.horizontal_top(|ui| {
        ui.spacing_mut().item_spacing.x = 12.0;
        for shown in &sides {
            ui.vertical(|ui| {
                ui.set_width(width);
                side_ui(ui, scene, *shown, limits, sides.len() > 1);
            });
        }
    });
}

fn title_ui(ui: &mut Ui, scene: &Scene<'_>, main: ShownOperand<'_>) {
    let Ok(features) = &main.operand.features else { return };
    let what = if main.operand.operand == Operand::Weight { "output feature" } else { "feature" };
    let percent = |p: f64| format!("{} %", number::trimmed(100.0 * p));
    let [lowest, low, _, high, highest] = features.probs;
    let ends = if lowest == 0.0 { "all".to_owned() } else { format!("{} to {}", percent(lowest), percent(highest)) };
    let text = format!(
        "{} {what}s by spread, the widest left · line: median · band: {} to {} · pale: {ends} · {}",
        number::count(features.num_features as u64),
        percent(low),
        percent(high),
        features.origin.words()
    );
    ui.label(RichText::new(text).small().color(if features.origin.is_derived() {
        scene.theme.warning
    } else {
        scene.theme.weak
    }));
}

/// Both sides share one scale of values, with zero in it.
fn limits(features: &Features) -> (f64, f64) {
    let ends = features.columns.iter().map(|column| column.extremes);
    let (low, high) = ends.fold((0.0, 0.0), |a, b| (f64::min(a.0, b.0), f64::max(a.1, b.1)));
    if high > low { (low, high) } else { (low - 1.0, high + 1.0) }
}

fn side_ui(ui: &mut Ui, scene: &Scene<'_>, shown: ShownOperand<'_>, limits: (f64, f64), named: bool) {
    if named {
        ui.label(RichText::new(scene.derived.short_name(shown.site, 40)).small());
    }
    match &shown.operand.features {
        Ok(features) => {
            bands_ui(ui, scene, shown, features, limits);
            outliers_ui(ui, scene, shown, features);
        }
        Err(reason) => {
            ui.label(RichText::new(format!("No features: {reason}")).color(scene.theme.weak));
        }
    }
}

fn bands_ui(ui: &mut Ui, scene: &Scene<'_>, shown: ShownOperand<'_>, features: &Features, limits: (f64, f64)) {
    let size = vec2(ui.available_width(), HEIGHT);
    let (row, response) = ui.allocate_exact_size(size, Sense::focusable_noninteractive());
    let rect =
        Rect::from_min_max(pos2(row.left() + VALUES, row.top() + 4.0), pos2(row.right() - 4.0, row.bottom() - 4.0));
    let picture = FeaturePicture { rect, limits, columns: &features.columns };
    let (painter, theme) = (ui.painter(), &scene.theme);
    picture.axis(painter, scene);
    for (at, column) in features.columns.iter().enumerate() {
        picture.column(painter, scene, at, column);
    }
    let outlined = if response.has_focus() { theme.accent } else { theme.line };
    painter.rect_stroke(rect, 0.0, Stroke::new(1.0, outlined), StrokeKind::Outside);
    let label = format!(
        "Quantiles of {} features of {}, the furthest reaches {}",
        features.num_features,
        shown.site,
        number::plain(features.largest_reach)
    );
    response.widget_info(|| WidgetInfo::labeled(Role::Image, true, &label));
    pointed_ui(response, &picture, features);
}

struct FeaturePicture<'a> {
    rect: Rect,
    limits: (f64, f64),
    columns: &'a [Band],
}

impl FeaturePicture<'_> {
    fn y(&self, value: f64) -> f32 {
        let (low, high) = self.limits;
        let share = (value - low) / (high - low);
        self.rect.bottom() - self.rect.height() * (0.02 + 0.96 * share) as f32
    }

    fn x(&self, at: usize) -> (f32, f32) {
        let width = self.rect.width() / self.columns.len().max(1) as f32;
        (self.rect.left() + width * at as f32, self.rect.left() + width * (at + 1) as f32)
    }

    fn axis(&self, painter: &Painter, scene: &Scene<'_>) {
        let (low, high) = self.limits;
        let apart = |value: &f64| *value == 0.0 || (self.y(*value) - self.y(0.0)).abs() > 10.0;
        for value in [high, 0.0, low].into_iter().filter(apart) {
            let y = self.y(value);
            painter.hline(self.rect.x_range(), y, Stroke::new(1.0, scene.theme.line));
            let at = pos2(self.rect.left() - 4.0, y);
            painter.text(at, Align2::RIGHT_CENTER, number::plain(value), FontId::monospace(10.0), scene.theme.weak);
        }
    }

    fn column(&self, painter: &Painter, scene: &Scene<'_>, at: usize, column: &Band) {
        let (left, right) = self.x(at);
        // Without a gap neighbouring columns of one pixel show the seam.
        let span = |(low, high): (f64, f64)| {
            Rect::from_min_max(
                pos2(left, self.y(high)),
                pos2(right.max(left + 1.0), self.y(low).max(self.y(high) + 1.0)),
            )
        };
        let accent = scene.theme.accent;
        painter.rect_filled(span(column.extremes), 0.0, accent.gamma_multiply(0.25));
        painter.rect_filled(span(column.band), 0.0, accent.gamma_multiply(0.45));
        painter.rect_filled(span(column.median), 0.0, scene.theme.text);
    }
}

fn pointed_ui(response: Response, picture: &FeaturePicture<'_>, features: &Features) {
    let Some(pointer) = response.hover_pos().filter(|at| picture.rect.contains(*at)) else { return };
    let at = ((pointer.x - picture.rect.left()) / picture.rect.width() * picture.columns.len() as f32) as usize;
    let Some(column) = picture.columns.get(at) else { return };
    let pair = |(low, high): (f64, f64)| format!("{} to {}", number::plain(low), number::plain(high));
    let who = match column.num_features {
        1 => format!("Feature {}", column.feature),
        several => format!("{several} features, the widest is {}", column.feature),
    };
    let median = if column.median.0 == column.median.1 { number::plain(column.median.0) } else { pair(column.median) };
    let [lowest, low, _, high, highest] = features.probs;
    response.on_hover_text_at_pointer(format!(
        "{who}\nmedian {median}\n{low} to {high}: {}\n{lowest} to {highest}: {}",
        pair(column.band),
        pair(column.extremes)
    ));
}

/// By name, with how far they reach.
fn outliers_ui(ui: &mut Ui, scene: &Scene<'_>, shown: ShownOperand<'_>, features: &Features) {
    let typical = number::plain(features.typical_reach);
    if features.outliers.is_empty() {
        let text = format!("No feature reaches twice as far as the median one ({typical}).");
        ui.label(RichText::new(text).small().color(scene.theme.weak));
        return;
    }
    let shown_count = features.outliers.len();
    let first =
        if features.num_outliers > shown_count { format!("the first {shown_count} of ") } else { String::new() };
    let count = number::count(features.num_outliers as u64);
    let text = format!("Outliers: {first}{count} that reach at least twice as far as the median feature ({typical})");
    ui.label(RichText::new(text).small().color(scene.theme.weak));
    egui::Grid::new(("outliers", shown.site)).num_columns(4).spacing([18.0, 1.0]).show(ui, |ui| {
        let heads = [
            ("feature", Term::Outlier),
            ("reach", Term::Reach),
            ("× median", Term::Outlier),
            ("median value", Term::Spread),
        ];
        heads_ui(ui, scene.theme.weak, heads);
        for outlier in &features.outliers {
            let cells = [
                outlier.feature.to_string(),
                number::plain(outlier.reach),
                number::times(outlier.factor),
                number::plain(outlier.median),
            ];
            for cell in cells {
                ui.label(RichText::new(cell).monospace());
            }
            ui.end_row();
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_stands_where_its_values_are() {
        let rect = Rect::from_min_max(pos2(0.0, 0.0), pos2(100.0, 100.0));
        let band = Band { feature: 3, num_features: 1, extremes: (-2.0, 2.0), band: (-1.0, 1.0), median: (0.0, 0.0) };
        let picture = FeaturePicture { rect, limits: (-2.0, 2.0), columns: &[band; 4] };
        assert_eq!((picture.y(0.0), picture.y(2.0), picture.y(-2.0)), (50.0, 2.0, 98.0));
        assert_eq!(picture.x(3), (75.0, 100.0));
    }
}
