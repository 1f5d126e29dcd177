//! Sites against kernels, coloured by a metric. Only visible rows are laid out.

use egui::{
    Align2, Checkbox, ComboBox, FontId, Rect, Response, RichText, ScrollArea, Sense, Stroke, StrokeKind, TextStyle, Ui,
    epaint::TextShape, pos2, vec2,
};
use loka_core::{
    model::{Gemm, LatencySource, Metric, SiteId},
    session::view::{Cell, Column},
};

use super::{
    Scene,
    cells::{CellStyle, Columns, short_kernel},
    legend::legend_ui,
};
use crate::{
    commands::Action,
    theme::{ROW, SMALL, Scale, number, source_word, verdict_word},
};

const HEADER: f32 = 138.0;
const LEGEND: f32 = 44.0;
const MAX_ROW: f32 = 42.0;

pub fn heatmap_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    controls_ui(ui, scene);
    let heatmap = &scene.derived.heatmap;
    if heatmap.columns.is_empty() {
        ui.add_space(24.0);
        ui.vertical_centered(|ui| ui.label(RichText::new("The first rows are on their way").color(scene.theme.weak)));
        return;
    }
    let shown: Vec<usize> = (0..heatmap.sites.len()).filter(|at| scene.view.shows(&heatmap.sites[*at])).collect();
    let names = (ui.available_width() * 0.2).clamp(96.0, 190.0);
    let columns = Columns::fit(&heatmap.columns, ui.available_width() - names - 14.0);
    let rows_height = ui.available_height() - HEADER - LEGEND;
    let row = (rows_height / shown.len().max(1) as f32).floor().clamp(ROW, MAX_ROW);
    let dark = scene.theme.dark;
    let scale = heatmap.low_range.or(heatmap.range).map(|range| Scale::new(scene.view.metric, range, dark));
    let width = names + columns.total;
    ScrollArea::horizontal().id_salt("heatmap columns").show(ui, |ui| {
        ui.set_min_width(width);
        header_ui(ui, scene, &columns, names);
        let height = rows_height.max(ROW);
        let area = ScrollArea::vertical().id_salt("heatmap rows").max_height(height);
        ui.spacing_mut().item_spacing.y = 0.0;
        area.show_rows(ui, row, shown.len(), |ui, visible| {
            rows_ui(ui, scene, &shown[visible], &columns, &Layout { names, row, scale });
        });
    });
    if let Some(scale) = scale {
        legend_ui(ui, scene, scale);
    }
}

struct Layout {
    names: f32,
    row: f32,
    scale: Option<Scale>,
}

fn controls_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    ui.horizontal(|ui| {
        ui.label(RichText::new("Metric").color(scene.theme.weak));
        let combo = ComboBox::from_id_salt("metric").selected_text(scene.view.metric.label()).width(132.0);
        let combo = combo.show_ui(ui, |ui| {
            for metric in Metric::ALL {
                if ui.selectable_label(scene.view.metric == metric, metric.label()).clicked() {
                    scene.act(Action::ShowMetric(metric));
                }
            }
        });
        combo.response.on_hover_text(Action::CycleMetric.hint(ui.ctx()));
        ui.add_space(4.0);
        gemm_ui(ui, scene);
        ui.add_space(4.0);
        let mut relative = scene.view.relative;
        let hint = Action::ToggleRelative.hint(ui.ctx());
        if ui.add(Checkbox::new(&mut relative, Action::ToggleRelative.text())).on_hover_text(hint).changed() {
            scene.act(Action::ToggleRelative);
        }
    });
}

pub(super) fn gemm_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    ui.spacing_mut().item_spacing.x = 2.0;
    let all = std::iter::once(None).chain(Gemm::ALL.map(Some));
    for gemm in all {
        let text = gemm.map_or("All", Gemm::as_str);
        let response = ui.selectable_label(scene.view.gemm == gemm, text);
        if response.on_hover_text(Action::CycleGemm.hint(ui.ctx())).clicked() {
            scene.view.gemm = gemm;
        }
    }
    ui.spacing_mut().item_spacing.x = 8.0;
}

fn header_ui(ui: &mut Ui, scene: &Scene<'_>, columns: &Columns, names: f32) {
    let (rect, response) = ui.allocate_exact_size(vec2(names + columns.total, HEADER), Sense::hover());
    let (painter, theme) = (ui.painter(), &scene.theme);
    let small = TextStyle::Small.resolve(ui.style());
    let all = &scene.derived.heatmap.columns;
    let left = rect.left() + names;
    for gemm in Gemm::ALL {
        let group: Vec<usize> = (0..all.len()).filter(|at| all[*at].gemm == gemm).collect();
        let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
        let (from, to) = (left + columns.left(*first), left + columns.left(*last) + columns.width);
        painter.text(
            pos2(from, rect.top() + 2.0),
            Align2::LEFT_TOP,
            gemm.as_str(),
            FontId::proportional(13.0),
            theme.text,
        );
        painter.line_segment(
            [pos2(from, rect.top() + 19.0), pos2(to - 1.0, rect.top() + 19.0)],
            Stroke::new(1.0, theme.line),
        );
    }
    for (at, column) in all.iter().enumerate() {
        let selected = scene.view.column.as_ref() == Some(column);
        let color = if selected { theme.accent } else { theme.weak };
        let galley = painter.layout_no_wrap(short_kernel(column), small.clone(), color);
        let x = left + columns.left(at) + (columns.width - galley.size().y) / 2.0;
        let text = TextShape::new(pos2(x, rect.bottom() - 4.0), galley, color).with_angle(-std::f32::consts::FRAC_PI_2);
        painter.add(text);
    }
    let Some(pointer) = response.hover_pos() else { return };
    if let Some(column) = columns.at(pointer.x - left).and_then(|at| all.get(at)) {
        let about = loka_core::model::kernel(column.kernel.as_str()).map_or("", |kernel| kernel.about);
        response.on_hover_text_at_pointer(format!("{} · {}\n{about}", column.kernel, column.gemm));
    }
}

fn rows_ui(ui: &mut Ui, scene: &mut Scene<'_>, sites: &[usize], columns: &Columns, layout: &Layout) {
    let size = vec2(layout.names + columns.total, layout.row * sites.len() as f32);
    let (rect, response) = ui.allocate_exact_size(size, Sense::click());
    let heatmap = &scene.derived.heatmap;
    let (num_sites, num_columns) = (heatmap.sites.len(), heatmap.columns.len());
    response.widget_info(|| {
        let label = format!("Heatmap of {num_sites} sites and {num_columns} kernels");
        egui::WidgetInfo::labeled(egui::Role::Image, true, label)
    });
    let style = CellStyle { theme: &scene.theme, scale: layout.scale, heatmap, metric: scene.view.metric };
    let max = ((layout.names - 10.0) / 6.2) as usize;
    for (line, site) in sites.iter().enumerate() {
        let top = rect.top() + line as f32 * layout.row;
        let id = &heatmap.sites[*site];
        name_ui(ui, scene, id, Rect::from_min_size(pos2(rect.left(), top), vec2(layout.names, layout.row)), max);
        for at in 0..num_columns {
            let cell = cell_rect(rect, columns, layout, line, at);
            if let Some(value) = heatmap.cell(*site, at)
                && ui.is_rect_visible(cell)
            {
                style.paint(ui.painter(), cell, value);
            }
        }
        selection_ui(ui, scene, id, rect, columns, layout, line);
    }
    pointed_ui(scene, &response, rect, sites, columns, layout);
}

fn cell_rect(rect: Rect, columns: &Columns, layout: &Layout, line: usize, column: usize) -> Rect {
    let min = pos2(rect.left() + layout.names + columns.left(column), rect.top() + line as f32 * layout.row);
    Rect::from_min_size(min, vec2(columns.width, layout.row))
}

fn name_ui(ui: &Ui, scene: &Scene<'_>, id: &SiteId, rect: Rect, max: usize) {
    let selected = scene.view.site.as_ref() == Some(id);
    let color = if selected { scene.theme.accent } else { scene.theme.text };
    let at = rect.right_center() - vec2(8.0, 0.0);
    ui.painter().text(
        at,
        Align2::RIGHT_CENTER,
        scene.derived.short_name(id, max),
        FontId::proportional(SMALL + 1.0),
        color,
    );
}

fn selection_ui(ui: &Ui, scene: &Scene<'_>, id: &SiteId, rect: Rect, columns: &Columns, layout: &Layout, line: usize) {
    if scene.view.site.as_ref() != Some(id) {
        return;
    }
    let left = rect.left() + layout.names;
    let top = rect.top() + line as f32 * layout.row;
    let row = Rect::from_min_size(pos2(left, top), vec2(columns.total, layout.row));
    let accent = scene.theme.accent;
    ui.painter().rect_stroke(row, 2.0, Stroke::new(1.0, accent), StrokeKind::Outside);
    let all = &scene.derived.heatmap.columns;
    if let Some(at) = scene.view.column.as_ref().and_then(|column| all.iter().position(|of| of == column)) {
        let cell = cell_rect(rect, columns, layout, line, at);
        ui.painter().rect_stroke(cell, 2.0, Stroke::new(2.0, accent), StrokeKind::Outside);
    }
}

/// Hover shows, click selects.
fn pointed_ui(
    scene: &mut Scene<'_>,
    response: &Response,
    rect: Rect,
    sites: &[usize],
    columns: &Columns,
    layout: &Layout,
) {
    let Some(pointer) = response.hover_pos() else { return };
    let line = ((pointer.y - rect.top()) / layout.row) as usize;
    let Some(site) = sites.get(line).copied() else { return };
    let heatmap = &scene.derived.heatmap;
    let id = heatmap.sites[site].clone();
    let column = columns.at(pointer.x - rect.left() - layout.names);
    let pointed = column.and_then(|at| Some((heatmap.columns.get(at)?.clone(), heatmap.cell(site, at)?)));
    if response.clicked() {
        scene.view.select(id, pointed.map(|(column, _)| column));
        return;
    }
    let text = pointed.map_or_else(|| id.to_string(), |(column, cell)| cell_text(scene, &id, &column, cell));
    response.clone().on_hover_text_at_pointer(text);
}

fn cell_text(scene: &Scene<'_>, site: &SiteId, column: &Column, cell: &Cell) -> String {
    let head = format!("{site} · {}\n{}", column.gemm, column.kernel);
    let label = scene.view.metric.label();
    let relative = if scene.view.relative { ", relative to BF16" } else { "" };
    match cell {
        Cell::Value { estimate, quadrant, chosen } => {
            let chosen = if *chosen { " · chosen" } else { "" };
            let value = number::sentence(*estimate);
            let verdict = verdict_word(*quadrant);
            format!("{head}\n{label}{relative} {value}\n{verdict}{chosen}{}", speed_text(scene, site, column))
        }
        Cell::Missing { reason } => format!("{head}\nNo value: {reason}"),
        Cell::Waiting => format!("{head}\nNot probed yet"),
    }
}

/// The kernel's speed there and where it came from.
fn speed_text(scene: &Scene<'_>, site: &SiteId, column: &Column) -> String {
    let row = scene.session.row(site, column.gemm, &column.kernel, &scene.session.document.mods);
    let Some((row, speedup)) = row.and_then(|row| Some((row, row.speedup()?))) else {
        return format!("\n{}", source_word(LatencySource::None));
    };
    let (times, source) = (number::times(speedup), source_word(row.latency.source));
    format!("\n{times}, {source}\nLatency {}", row.latency.note)
}
