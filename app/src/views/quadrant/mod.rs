//! Error against speed-up, one point a kernel, with the policy's two lines. Both axes are logarithmic; the
//! lines can be dragged or nudged by key, and one drag is one step of undo.

mod density;
mod labels;
mod lines;
mod picture;
mod pointer;
mod points;
mod unplaced;

use egui::{Color32, RichText, Ui};

use crate::{
    commands::{Action, QuadrantAction},
    gpu::points::MAX_COLORS,
    layout::Pane,
    state::{Bounds, ColorBy, QUADRANTS},
    theme::{Theme, number},
    views::{
        Scene,
        brush::card_ui,
        chart::{grid_marks, still_plot},
        heatmap::gemm_ui,
        no_rows,
    },
};

use picture::Picture;

/// Of those from a baseline.
const ABOUT_ARROWS: &str = "From where a kernel or a choice stands in the baseline to where it is now; of more than 200 those of the selected \
                            site are drawn";

/// At most, on either axis: the plot pales those that stand close.
const TICKS: usize = 24;

/// By the number that a point has for them.
fn colors(theme: &Theme, by: ColorBy) -> [Color32; MAX_COLORS] {
    std::array::from_fn(|number| match by {
        ColorBy::Verdict => QUADRANTS.get(number).map_or(theme.weak, |quadrant| theme.verdict(*quadrant)),
        ColorBy::Group(_) => theme.group(number),
    })
}

pub fn quadrant_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    controls_ui(ui, scene);
    labels::legend_ui(ui, scene);
    let view = scene.derived.quadrant.clone();
    if view.points.is_empty() && view.unplaced.is_empty() {
        ui.add_space(24.0);
        let why = match no_rows(scene) {
            Some(text) => text,
            None if scene.session.has_rows() => "No kernel in low precision has a row here",
            None => "The first rows are on their way",
        };
        ui.vertical_centered(|ui| ui.label(RichText::new(why).color(scene.theme.weak)));
        return;
    }
    let policy = &scene.session.document.policy;
    // The axes stand still while a line is dragged, or it would run from the pointer.
    let standing = scene.view.drag.map(|_| scene.view.quadrant.shown);
    let bounds = standing.or(scene.view.quadrant.zoom).unwrap_or_else(|| Bounds::fit(&view, policy));
    scene.view.quadrant.shown = bounds;
    let transform = axes_ui(ui, scene, bounds);
    let picture = Picture::new(transform, view);
    let density = scene.view.quadrant.density(&picture.view, picture.hexagon());
    let area = picture.area_ui(ui, scene);
    picture.points_ui(ui, scene, density.as_deref());
    picture.brushed_ui(ui, scene);
    picture.lines_ui(ui, scene);
    picture.selected_ui(ui, scene);
    labels::corners_ui(ui, scene, &picture);
    picture.pointed_ui(ui, scene, &area, density.as_deref());
    labels::footer_ui(ui, scene, density.as_deref());
    card_ui(ui, scene, Pane::Quadrant, picture.brushed(scene));
    unplaced::unplaced_ui(ui, scene);
}

/// The grid and its numbers; everything else is ours.
fn axes_ui(ui: &mut Ui, scene: &Scene<'_>, bounds: Bounds) -> egui_plot::PlotTransform {
    let axis = scene.derived.quadrant.axis;
    let label = scene.session.document.policy.metric.label();
    let label = if axis.is_log() { format!("{label} (log)") } else { label.to_owned() };
    let plot = still_plot(ui, "quadrant", &scene.theme)
        .x_axis_label("Speed-up (× BF16, log)")
        .y_axis_label(label)
        .x_grid_spacer(|input| grid_marks(input.bounds, true, TICKS))
        .y_grid_spacer(move |input| grid_marks(input.bounds, axis.is_log(), TICKS))
        .x_axis_formatter(|mark, _| number::trimmed(10f64.powf(mark.value)))
        .y_axis_formatter(move |mark, _| number::trimmed(axis.error_at(mark.value)));
    let shown = plot.show(ui, |plot| {
        plot.set_plot_bounds_x(bounds.x.0..=bounds.x.1);
        plot.set_plot_bounds_y(bounds.y.0..=bounds.y.1);
    });
    shown.transform
}

fn controls_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    ui.horizontal_wrapped(|ui| {
        gemm_ui(ui, scene);
        ui.separator();
        let by = scene.view.quadrant.color_by;
        let label = ui.label(RichText::new("Colour").color(scene.theme.weak));
        let combo = egui::ComboBox::from_id_salt("colour points").selected_text(by.word()).width(76.0);
        let combo = combo.show_ui(ui, |ui| {
            for other in ColorBy::ALL {
                let action = Action::Quadrant(other.action());
                if ui.selectable_label(by == other, other.word()).on_hover_text(action.tooltip()).clicked() {
                    scene.act(action);
                }
            }
        });
        combo.response.labelled_by(label.id).on_hover_text("What colours the points; shapes always tell the verdict");
        if scene.derived.versus().is_some() {
            let text = format!("{} from the baseline", number::counted(scene.derived.quadrant.arrows.len(), "arrow"));
            ui.label(RichText::new(text).color(scene.theme.weak)).on_hover_text(ABOUT_ARROWS);
        } else if !scene.session.document.mods.is_empty() {
            let action = Action::Quadrant(QuadrantAction::ToggleArrows);
            let response = ui.selectable_label(scene.view.quadrant.arrows, "Arrows from before");
            if response.on_hover_text(action.hint(ui.ctx())).clicked() {
                scene.act(action);
            }
        }
        if scene.view.quadrant.zoom.is_some() {
            scene.button_ui(ui, Action::Quadrant(QuadrantAction::ResetZoom));
        }
    });
}
