//! Takes a name and a theme, gives the plot that charts of ours are drawn on: a grid with numbers that nothing but
//! its chart moves.

use egui::{Color32, Sense, Ui, Vec2b, vec2};
use egui_plot::{GridMark, Plot};
use loka_core::views::ticks;

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

/// Lines at round values, where places on the axis are values or their logarithms.
pub fn grid_marks((lo, hi): (f64, f64), log: bool, most: usize) -> Vec<GridMark> {
    if !log {
        let values = ticks((lo, hi), false, most);
        let step_size = values.windows(2).next().map_or(1.0, |pair| pair[1] - pair[0]);
        return values.into_iter().map(|value| GridMark { value, step_size }).collect();
    }
    let marks = ticks((10f64.powf(lo), 10f64.powf(hi)), true, most).into_iter().map(|value| {
        let value = value.log10();
        // Powers of ten are drawn more strongly than what is between them.
        let step_size = if value.fract() == 0.0 { 1.0 } else { 0.3 };
        GridMark { value, step_size }
    });
    // The plot labels marks that lie outside it, too.
    marks.filter(|mark| (lo..=hi).contains(&mark.value)).collect()
}
