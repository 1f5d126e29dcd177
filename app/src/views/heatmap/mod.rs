//! Sites against kernels or steps, coloured by a metric: rows are the lines of the site list, cells a picture that
//! a shader draws. Only what is in sight is laid out.

mod axis;
mod brush;
mod controls;
mod focus;
mod frame;
mod legend;
mod names;
mod pointer;
mod rows;
mod table;
mod words;

pub use controls::gemm_ui;

use egui::{RichText, ScrollArea, Ui};
use loka_core::views::Lines;

use axis::Columns;
use frame::Frame;
use table::HeatmapTable;

use crate::{
    theme::ROW,
    views::{Scene, no_rows},
};

const LEGEND: f32 = 44.0;

pub fn heatmap_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    scene.view.refresh_lines(scene.session, scene.derived);
    scene.view.heatmap.settle_series(scene.session);
    controls::controls_ui(ui, scene);
    let table = HeatmapTable::of(scene);
    let lines = scene.view.sites.lines();
    if let Some(text) = nothing(scene, &table, &lines) {
        ui.add_space(24.0);
        ui.vertical_centered(|ui| ui.label(RichText::new(text).color(scene.theme.weak)));
        return;
    }
    let names = (ui.available_width() * 0.22).clamp(96.0, 210.0);
    let columns = Columns::fit(&table, ui.available_width() - names - 14.0, scene.view.heatmap.width);
    scene.view.heatmap.drawn_width = columns.width;
    let height = (ui.available_height() - axis::height(&table, &columns) - LEGEND).max(ROW);
    scene.view.heatmap.height = height;
    let row = scene.view.heatmap.row.unwrap_or_else(|| scene.view.heatmap.fitting(lines.all.len()));
    let frame = Frame { table, lines, columns, names, row };
    let width = names + frame.columns.total;
    ScrollArea::horizontal().id_salt("heatmap columns").show(ui, |ui| {
        ui.set_min_width(width);
        axis::header_ui(ui, scene, &frame.table, &frame.columns, names);
        rows_ui(ui, scene, &frame, height);
    });
    if let Some(scale) = frame.table.scale {
        legend::legend_ui(ui, scene, &frame.table, scale);
    }
}

/// Why there is no heatmap.
fn nothing(scene: &Scene<'_>, table: &HeatmapTable, lines: &Lines) -> Option<&'static str> {
    if table.series.is_none() && table.grid.columns.is_empty() {
        Some(no_rows(scene).unwrap_or("The first rows are on their way"))
    } else if table.num_columns() == 0 {
        Some("The filter leaves no kernel: change its gemm: and lib: terms")
    } else {
        lines.all.is_empty().then_some("No site passes the filter")
    }
}

fn rows_ui(ui: &mut Ui, scene: &mut Scene<'_>, frame: &Frame, height: f32) {
    let mut area = ScrollArea::vertical().id_salt("heatmap rows").max_height(height);
    let wanted = scene.view.heatmap.scroll_to.take().or_else(|| focus::wanted_offset(scene, frame, height));
    if let Some(offset) = wanted {
        area = area.vertical_scroll_offset(offset);
    }
    ui.spacing_mut().item_spacing.y = 0.0;
    let output = area.show_viewport(ui, |ui, viewport| rows::rows_ui(ui, scene, frame, viewport));
    scene.view.heatmap.offset = output.state.clamped_offset().y;
}
