//! The heatmap's colour scale with its unit, the policy's threshold on it, and what marks mean.

use egui::{Align2, Color32, FontId, Mesh, Rect, RichText, Sense, Stroke, StrokeKind, Ui, pos2, vec2};

use loka_core::views::{NOT_IN_BASELINE, Versus};

use super::{controls::series_title, table::HeatmapTable};
use crate::{
    gpu::hatch,
    theme::{Scale, Term, number, rgb, term_ui},
    views::Scene,
};

/// At most, under the bar.
const TICKS: usize = 7;

pub fn legend_ui(ui: &mut Ui, scene: &Scene<'_>, table: &HeatmapTable, scale: Scale) {
    ui.add_space(6.0);
    ui.horizontal(|ui| {
        let text = RichText::new(title(scene, table)).small().color(scene.theme.weak);
        match table.steps() {
            Some(_) => ui.label(text),
            None => term_ui(ui, text, Term::of_metric(scene.view.metric)),
        };
        bar_ui(ui, scene, table, scale);
        ui.add_space(8.0);
        marks_ui(ui, scene, table);
    });
}

fn title(scene: &Scene<'_>, table: &HeatmapTable) -> String {
    if let Some(series) = table.steps() {
        return format!("{} (as recorded, log)", series_title(&series.name));
    }
    let label = scene.view.metric.label();
    let unit = match scene.derived.versus() {
        Some(_) => "× baseline, log; white: no change",
        None if scene.view.relative => "× BF16, log; white: no change",
        None => scene.view.metric.unit(),
    };
    let label = label.trim_end_matches(" (dB)");
    format!("{label} ({unit})")
}

fn bar_ui(ui: &mut Ui, scene: &Scene<'_>, table: &HeatmapTable, scale: Scale) {
    let width = (ui.available_width() - 350.0).clamp(110.0, 300.0);
    let (rect, response) = ui.allocate_exact_size(vec2(width, 34.0), Sense::hover());
    let bar = Rect::from_min_size(rect.min + vec2(0.0, 4.0), vec2(width, 10.0));
    let (painter, theme) = (ui.painter(), &scene.theme);
    painter.add(gradient(bar, scale));
    let font = FontId::monospace(10.0);
    let x = |value: f64| bar.left() + bar.width() * scale.share(value) as f32;
    for tick in scale.ticks(TICKS) {
        let at = x(tick);
        painter.line_segment([pos2(at, bar.bottom()), pos2(at, bar.bottom() + 3.0)], Stroke::new(1.0, theme.weak));
        let align = if at < bar.left() + 12.0 {
            Align2::LEFT_TOP
        } else if at > bar.right() - 12.0 {
            Align2::RIGHT_TOP
        } else {
            Align2::CENTER_TOP
        };
        painter.text(pos2(at, bar.bottom() + 4.0), align, number::trimmed(tick), font.clone(), theme.weak);
    }
    let (lo, hi) = scale.ends();
    let Some(bound) = table.grid.bound.filter(|_| table.series.is_none()) else { return };
    if (lo..=hi).contains(&bound) {
        let at = x(bound);
        let line = Rect::from_center_size(pos2(at, bar.center().y), vec2(3.0, 16.0));
        painter.rect(line, 1.0, theme.text, Stroke::new(1.0, theme.canvas), StrokeKind::Outside);
    }
    response.on_hover_text(format!("The policy's threshold: {}", number::trimmed(bound)));
}

/// Strips of the scale, smooth enough for the eye.
fn gradient(rect: Rect, scale: Scale) -> Mesh {
    let mut mesh = Mesh::default();
    const STEPS: u32 = 48;
    for step in 0..=STEPS {
        let share = f64::from(step) / f64::from(STEPS);
        let x = rect.left() + rect.width() * share as f32;
        let color: Color32 = rgb(scale.color_at(share));
        mesh.colored_vertex(pos2(x, rect.top()), color);
        mesh.colored_vertex(pos2(x, rect.bottom()), color);
        if step > 0 {
            let at = 2 * step;
            mesh.add_triangle(at - 2, at - 1, at);
            mesh.add_triangle(at - 1, at, at + 1);
        }
    }
    mesh
}

fn marks_ui(ui: &mut Ui, scene: &Scene<'_>, table: &HeatmapTable) {
    let theme = &scene.theme;
    let word = |ui: &mut Ui, text: &str| ui.label(RichText::new(text).small().color(theme.weak));
    ui.spacing_mut().item_spacing.x = 5.0;
    let swatch = |ui: &mut Ui| ui.allocate_exact_size(vec2(12.0, 12.0), Sense::hover()).0;
    if let Some(bound) = table.grid.bound.filter(|_| table.series.is_none()) {
        let rect = swatch(ui).shrink(1.0);
        ui.painter().rect_stroke(rect, 1.0, Stroke::new(1.0, theme.beyond), StrokeKind::Inside);
        word(ui, &format!("beyond {}", number::trimmed(bound)));
    }
    if table.series.is_none() {
        let rect = swatch(ui);
        ui.painter().circle_filled(rect.center(), 3.0, theme.text);
        word(ui, "chosen");
        let rect = swatch(ui);
        ui.painter().circle_stroke(rect.center(), 2.5, Stroke::new(1.5, theme.text));
        word(ui, "by hand");
        let rect = swatch(ui).shrink(1.0);
        ui.painter().rect_filled(rect, 0.0, theme.raised);
        let corner = rect.right_top();
        let points = vec![corner - vec2(5.0, 0.0), corner, corner + vec2(0.0, 5.0)];
        ui.painter().add(egui::Shape::convex_polygon(points, theme.text, Stroke::NONE));
        word(ui, "modelled");
    }
    let rect = swatch(ui).shrink(1.0);
    hatch(ui.painter(), rect, theme.weak);
    let lacks = |versus: &Versus| versus.by_kernel || versus.num_missing > 0;
    let versus = scene.derived.versus().is_some_and(|versus| table.series.is_none() && lacks(versus));
    word(ui, if versus { NOT_IN_BASELINE } else { "no value" });
}
