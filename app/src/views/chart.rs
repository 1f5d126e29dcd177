//! Takes a name and a theme, gives the plot that charts of ours are drawn on: a grid with numbers that nothing but
//! its chart moves.

use egui::{Color32, Sense, Ui, Vec2b, vec2};
use egui_plot::Plot;

use crate::theme::Theme;

/// Room for a line of text below it.
const FOOTER: f32 = 20.0;

pub fn still_plot<'a>(ui: &Ui, name: &'static str, theme: &Theme) -> Plot<'a> {
    Plot::new(name)
        .height((ui.available_height() - FOOTER).max(120.0))
        .allow_boxed_zoom(false)
        .allow_scroll(false)
        .allow_zoom(Vec2b::FALSE)
        .allow_drag(Vec2b::FALSE)
        .allow_axis_zoom_drag(Vec2b::FALSE)
        .allow_double_click_reset(false)
        .show_crosshair(false)
        .auto_bounds(Vec2b::FALSE)
        .grid_color(theme.line)
        .sense(Sense::hover())
        .cursor_color(Color32::TRANSPARENT)
        .set_margin_fraction(vec2(0.0, 0.0))
}
