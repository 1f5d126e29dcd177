//! The rows in sight: their cells as a picture, numbers where they fit, names, the selection around them.

use egui::{Align2, FontId, Rect, Sense, Stroke, StrokeKind, Ui, Vec2, pos2, vec2};
use loka_core::views::Cell;

use super::{
    brush, focus,
    frame::{Frame, cell_rect, selected_column, selected_line},
    names, pointer,
};
use crate::{
    gpu::{HeatmapCallback, Palette, Picture, Texel},
    state::ColumnWindow,
    theme::{number, text_on},
    views::Scene,
};

/// A cell at least this large holds its number.
const TEXT_FROM: Vec2 = vec2(34.0, 15.0);

/// `viewport`: what is in sight, from the first row's top.
pub fn rows_ui(ui: &mut Ui, scene: &mut Scene<'_>, frame: &Frame, viewport: Rect) {
    let num_lines = frame.lines.all.len();
    let size = vec2(frame.names + frame.columns.total, frame.row * num_lines as f32);
    // On a touch screen a drag scrolls.
    let touched = ui.input(|input| input.any_touches() || input.has_touch_screen());
    let sense = if touched { Sense::click() } else { Sense::click_and_drag() };
    let (rect, response) = ui.allocate_exact_size(size, sense);
    let num_columns = frame.table.num_columns();
    response.widget_info(|| {
        let label = format!("Heatmap of {} sites and {num_columns} columns", frame.lines.order.len());
        egui::WidgetInfo::labeled(egui::Role::Image, true, label)
    });
    let seen = Rect::from_min_max(
        pos2(rect.left(), (rect.top() + viewport.top()).max(rect.top())),
        pos2(rect.right(), (rect.top() + viewport.bottom()).min(rect.bottom())),
    );
    let window = ColumnWindow::of(viewport.top(), viewport.bottom(), frame.row, num_lines, num_columns);
    fold_seen(ui, scene, frame, &window);
    let picture = picture(ui, scene, frame, rect, seen, &window);
    draw_ui(ui, scene, &picture);
    if picture.has_text {
        numbers_ui(ui, scene, frame, &picture, &window);
    }
    let first = window.first * window.per_band;
    let last = (first + window.num_bands * window.per_band).min(num_lines);
    let left = Rect::from_min_max(seen.min, pos2(rect.left() + frame.names, seen.bottom()));
    let top = rect.top() + first as f32 * frame.row;
    names::names_ui(ui, scene, left, top, frame.row, &frame.lines, first.min(last)..last);
    brush::brush_ui(ui, scene, frame, &response, rect);
    selection_ui(ui, scene, frame, rect);
    focus::focus_ui(ui, scene, frame, rect);
    pointer::pointer_ui(ui, scene, frame, &response, rect);
}

/// Sums up the folders in sight; what is too much for one frame comes with the next.
fn fold_seen(ui: &Ui, scene: &mut Scene<'_>, frame: &Frame, window: &ColumnWindow) {
    let series = frame.table.series.as_ref().map(|(table, name)| (table, name.as_str()));
    let medians = scene.view.heatmap.medians;
    let folding = &mut scene.view.heatmap.folding;
    folding.show(&frame.table.grid, &frame.lines, (&frame.table.columns, series), medians);
    if window.per_band > 1 {
        return;
    }
    let all = &frame.lines.all;
    let seen = &all[window.first.min(all.len())..(window.first + window.num_bands).min(all.len())];
    if !folding.fold(frame.table.cells(), &frame.lines, seen) {
        ui.ctx().request_repaint();
    }
}

fn picture(ui: &Ui, scene: &mut Scene<'_>, frame: &Frame, rect: Rect, seen: Rect, window: &ColumnWindow) -> Picture {
    let medians = scene.view.heatmap.medians;
    let (revision, texels) =
        scene.view.heatmap.cells(window, |folding| frame.table.texels(window, &frame.lines, folding, medians));
    let left = rect.left() + frame.names;
    let area = Rect::from_min_max(pos2(left, seen.top()), seen.max).intersect(ui.clip_rect());
    let band = frame.row * window.per_band as f32;
    let theme = &scene.theme;
    let mut groups = frame.columns.groups.clone();
    groups.iter_mut().for_each(|group| group.left += left - area.left());
    Picture {
        texels,
        revision,
        num_columns: window.num_columns,
        rect: area,
        top: rect.top() + window.first as f32 * band - area.top(),
        row: band,
        width: frame.columns.width,
        groups,
        scale: frame.table.scale,
        palette: Palette {
            waiting: theme.raised.gamma_multiply(0.35),
            hatch: theme.line,
            beyond: theme.beyond.gamma_multiply(0.75),
        },
        has_text: frame.columns.width >= TEXT_FROM.x && frame.row >= TEXT_FROM.y,
        pixels_per_point: ui.ctx().pixels_per_point(),
    }
}

/// By the shader; by the painter where there is none, and where the frame is written as vectors.
fn draw_ui(ui: &Ui, scene: &Scene<'_>, picture: &Picture) {
    if !picture.rect.is_positive() {
        return;
    }
    match scene.gpu.filter(|_| !scene.vector) {
        Some(format) => {
            ui.painter().add(HeatmapCallback { picture: picture.clone(), format }.shape());
        }
        None => picture.paint(ui.painter()),
    }
}

fn numbers_ui(ui: &Ui, scene: &Scene<'_>, frame: &Frame, picture: &Picture, window: &ColumnWindow) {
    let painter = ui.painter().with_clip_rect(picture.rect);
    for row in 0..picture.num_rows() {
        for column in 0..picture.num_columns {
            let texel = picture.texels[row * picture.num_columns + column];
            let (Some(color), Some(rect)) = (picture.color(texel), picture.cell(row, column)) else { continue };
            if !rect.intersects(picture.rect) {
                continue;
            }
            let text = number_of(scene, frame, window.first + row, column, texel);
            // A letter is .6 as wide as it is high.
            let size = ((rect.width() - 2.0) / (0.6 * text.len() as f32)).min(10.0);
            painter.text(rect.center(), Align2::CENTER_CENTER, text, FontId::monospace(size), text_on(color));
        }
    }
}

/// As far as the interval supports it; of folders and steps there is none.
fn number_of(scene: &Scene<'_>, frame: &Frame, line: usize, shown: usize, texel: Texel) -> String {
    let site = frame.lines.all.get(line).filter(|line| !line.is_folder()).map(|line| line.site as usize);
    let value = |site: usize| {
        let (id, column) = (scene.session.index().ids().get(site)?, frame.table.kernel_at(site, shown)?);
        match scene.derived.cell(id, &column, scene.view.metric, scene.view.relative) {
            Cell::Value { estimate, .. } => Some(number::with_interval(estimate).0),
            _ => None,
        }
    };
    site.and_then(value).unwrap_or_else(|| number::plain(f64::from(texel.value)))
}

fn selection_ui(ui: &Ui, scene: &Scene<'_>, frame: &Frame, rect: Rect) {
    let Some(line) = selected_line(scene, frame) else { return };
    let accent = scene.theme.accent;
    let top = rect.top() + line as f32 * frame.row;
    let row = Rect::from_min_size(pos2(rect.left() + frame.names, top), vec2(frame.columns.total, frame.row.max(2.0)));
    ui.painter().rect_stroke(row, 2.0, Stroke::new(1.0, accent), StrokeKind::Outside);
    if let Some(column) = selected_column(scene, frame) {
        let cell = cell_rect(frame, rect, line, column);
        ui.painter().rect_stroke(cell, 2.0, Stroke::new(2.0, accent), StrokeKind::Outside);
    }
}
