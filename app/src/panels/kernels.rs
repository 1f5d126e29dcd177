//! Every kernel of one GEMM: error with interval, latency and its source, speed-up, verdict.

use egui::{Align2, Button, Color32, FontId, Painter, Rect, RichText, Sense, Ui, pos2, vec2};
use loka_core::{
    dispatch::judge,
    model::{Gemm, LatencySource, Quadrant, ResultRow, Site, catalogue},
    session::view::Column,
};

use super::inspector::mods_in_force;
use crate::{
    theme::{Glyph, number, paint_glyph, paint_source, shorten, source_word, verdict_word},
    views::Scene,
};

const LINE: f32 = 19.0;
/// Right edges from the right end: error, its interval, latency, speed-up; the button stands last.
const ERROR: f32 = 216.0;
const HALF: f32 = 174.0;
const LATENCY: f32 = 134.0;
const SPEEDUP: f32 = 42.0;
/// The left edge of the source's mark; its word follows.
const SOURCE: f32 = 128.0;

pub fn kernels_ui(ui: &mut Ui, scene: &mut Scene<'_>, site: &Site, gemm: Gemm) {
    ui.add_space(4.0);
    header_ui(ui, scene);
    ui.spacing_mut().item_spacing.y = 0.0;
    let mods = mods_in_force(scene);
    let session = scene.session;
    let rows: Vec<&ResultRow> =
        catalogue().iter().filter_map(|kernel| session.row(&site.id, gemm, &kernel.id(), &mods)).collect();
    if rows.is_empty() {
        ui.add_space(6.0);
        let why = problem(scene, site).unwrap_or_else(|| "Not probed yet".to_owned());
        ui.label(RichText::new(why).color(scene.theme.weak));
    }
    for row in rows {
        row_ui(ui, scene, row);
    }
    ui.spacing_mut().item_spacing.y = 4.0;
}

fn problem(scene: &Scene<'_>, site: &Site) -> Option<String> {
    let problems = &scene.session.trace.as_ref()?.meta.problems;
    problems.iter().find(|(id, _)| *id == site.id).map(|(_, reason)| format!("This site cannot be used: {reason}"))
}

fn header_ui(ui: &mut Ui, scene: &Scene<'_>) {
    let (rect, response) = ui.allocate_exact_size(vec2(ui.available_width(), 18.0), Sense::hover());
    let (painter, weak) = (ui.painter(), scene.theme.weak);
    let font = FontId::proportional(11.0);
    let y = rect.center().y;
    painter.text(pos2(rect.left() + 18.0, y), Align2::LEFT_CENTER, "kernel", font.clone(), weak);
    let metric = scene.view.metric.label();
    for (text, edge) in [(metric, ERROR), ("±", HALF), ("µs", LATENCY), ("× BF16", SPEEDUP)] {
        painter.text(pos2(rect.right() - edge, y), Align2::RIGHT_CENTER, text, font.clone(), weak);
    }
    painter.hline(rect.x_range(), rect.bottom(), egui::Stroke::new(1.0, scene.theme.line));
    response.on_hover_text(
        "Error with half of its interval; median latency, casts included, and where it came from: measured here, recorded elsewhere, or modelled; speed-up over BF16 of the same source",
    );
}

fn row_ui(ui: &mut Ui, scene: &mut Scene<'_>, row: &ResultRow) {
    let (rect, response) = ui.allocate_exact_size(vec2(ui.available_width(), LINE), Sense::click());
    let loss = scene.session.trace.as_ref().map_or(0.0, |trace| trace.manifest().loss.value);
    let (_, _, quadrant) = judge(row, &scene.session.document.policy, loss);
    let chosen = scene.derived.plan.choice(&row.site, row.gemm).is_some_and(|choice| choice.kernel == row.kernel);
    let column = Column { gemm: row.gemm, kernel: row.kernel.clone() };
    let selected = scene.view.column.as_ref() == Some(&column);
    let label = spoken(scene, row, quadrant, chosen);
    response.widget_info(|| egui::WidgetInfo::selected(egui::Role::Button, true, selected, &label));
    ground_ui(ui, scene, rect, selected, response.hovered(), chosen);
    paint(ui.painter(), scene, rect, row, quadrant, chosen);
    if row.supported && !chosen {
        use_ui(ui, scene, rect, row, &column);
    }
    if response.clicked() {
        scene.view.select(row.site.clone(), Some(column));
    }
    response.on_hover_ui(|ui| {
        ui.label(label);
    });
}

fn ground_ui(ui: &Ui, scene: &Scene<'_>, rect: Rect, selected: bool, hovered: bool, chosen: bool) {
    let accent = scene.theme.accent;
    if selected || hovered {
        ui.painter().rect_filled(rect, 3.0, accent.gamma_multiply(if selected { 0.22 } else { 0.08 }));
    }
    if chosen {
        let bar = Rect::from_min_size(rect.min + vec2(0.0, 3.0), vec2(3.0, rect.height() - 6.0));
        ui.painter().rect_filled(bar, 1.0, accent);
    }
}

fn paint(painter: &Painter, scene: &Scene<'_>, rect: Rect, row: &ResultRow, quadrant: Quadrant, chosen: bool) {
    let theme = &scene.theme;
    let y = rect.center().y;
    let high = loka_core::model::kernel(row.kernel.as_str()).is_some_and(|kernel| kernel.high_precision());
    if !high || !row.supported {
        let glyph = Glyph { radius: 4.0, ..Glyph::new(quadrant) };
        paint_glyph(painter, pos2(rect.left() + 10.0, y), glyph, theme.verdict(quadrant));
    }
    let ink = if row.supported { theme.text } else { theme.weak };
    let max = ((rect.width() - ERROR - 54.0) / 6.0).max(12.0) as usize;
    let size = FontId::proportional(12.0);
    let name = shorten(row.kernel.as_str(), max);
    painter.text(pos2(rect.left() + 18.0, y), Align2::LEFT_CENTER, name, size, if chosen { theme.accent } else { ink });
    if !row.supported {
        let reason = shorten(row.reason.as_deref().unwrap_or("unsupported"), 36);
        painter.text(pos2(rect.right() - 6.0, y), Align2::RIGHT_CENTER, reason, FontId::proportional(11.0), theme.weak);
        return;
    }
    let right = |edge: f32, text: &str, color: Color32| {
        painter.text(pos2(rect.right() - edge, y), Align2::RIGHT_CENTER, text, FontId::monospace(12.0), color);
    };
    match row.metric(scene.view.metric) {
        Some(estimate) => {
            let (value, half) = number::with_interval(estimate);
            right(ERROR, &value, ink);
            right(HALF, &half.map_or_else(String::new, |half| format!("±{half}")), theme.weak);
        }
        None => right(ERROR, "–", theme.weak),
    }
    right(LATENCY, &row.latency.latency_us.map_or_else(|| "–".to_owned(), number::micros), ink);
    source(painter, scene, pos2(rect.right() - SOURCE, y), row.latency.source);
    right(SPEEDUP, &row.speedup().map_or_else(|| "–".to_owned(), |speedup| format!("{speedup:.2}")), ink);
}

/// Mark and word; nothing where there is no latency, as its column says.
fn source(painter: &Painter, scene: &Scene<'_>, at: egui::Pos2, source: LatencySource) {
    if source == LatencySource::None {
        return;
    }
    paint_source(painter, at + vec2(4.0, 0.0), source, scene.theme.weak);
    let font = FontId::proportional(10.0);
    painter.text(at + vec2(11.0, 0.0), Align2::LEFT_CENTER, source_word(source), font, scene.theme.weak);
}

fn use_ui(ui: &mut Ui, scene: &mut Scene<'_>, rect: Rect, row: &ResultRow, column: &Column) {
    let place = Rect::from_center_size(pos2(rect.right() - 18.0, rect.center().y), vec2(34.0, LINE - 3.0));
    let button = Button::new(RichText::new("Use").small()).frame_when_inactive(false).min_size(vec2(0.0, LINE - 3.0));
    // A child of its own: putting it into the list would push the next row down.
    let layout = egui::Layout::centered_and_justified(egui::Direction::LeftToRight);
    let mut child = ui.new_child(egui::UiBuilder::new().max_rect(place).layout(layout).id_salt(row.kernel.as_str()));
    let response = child.add(button);
    let label = format!("Use {} for {}", row.kernel, row.gemm);
    response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Button, true, &label));
    if response.on_hover_text("Choose this kernel by hand").clicked() {
        scene.view.select(row.site.clone(), Some(column.clone()));
        scene.view.overriding = Some(column.clone());
        scene.view.focus_reason = true;
    }
}

/// The row in words, for the tooltip and for screen readers.
fn spoken(scene: &Scene<'_>, row: &ResultRow, quadrant: Quadrant, chosen: bool) -> String {
    let about = loka_core::model::kernel(row.kernel.as_str()).map_or("", |kernel| kernel.about);
    if !row.supported {
        return format!("{}: {about}\nunsupported, {}", row.kernel, row.reason.as_deref().unwrap_or("no reason given"));
    }
    let metric = scene.view.metric.label();
    let error = row.metric(scene.view.metric).map_or_else(|| "not known".to_owned(), number::sentence);
    let source = source_word(row.latency.source);
    let speed =
        row.speedup().map_or_else(|| "speed-up unknown".to_owned(), |of| format!("{}, {source}", number::times(of)));
    let note = &row.latency.note;
    let chosen = if chosen { ", chosen" } else { "" };
    format!("{}: {about}\n{metric} {error}, {speed}\n{}{chosen}\nLatency {note}", row.kernel, verdict_word(quadrant))
}
