//! Takes the choice of dark or light, gives colours, sizes and egui's style: nothing else in the app
//! names a colour.

mod explain;
mod glyph;
mod groups;
mod scale;
mod source;

pub use explain::{explained, explained_ui, heads_ui, term_at, term_ui, with_terms};
pub use glyph::{Glyph, glyph_ui, paint_glyph};
pub use loka_core::{
    format::{Term, number, shorten},
    views::verdict_word,
};
pub use scale::{Scale, rgb, text_on};
pub use source::{SOURCE_MARK, paint_source, source_ui, source_word};

use std::collections::BTreeMap;

use egui::{
    Color32, CornerRadius, FontDefinitions, FontFamily, FontId, Margin, Stroke, Style, TextStyle, Visuals, vec2,
};
use loka_core::model::Quadrant;

/// Height of a row in lists and tables.
pub const ROW: f32 = 22.0;
/// The grid that everything stands on.
pub const GRID: f32 = 4.0;
pub const SMALL: f32 = 11.0;
pub const BODY: f32 = 13.0;
pub const HEADING: f32 = 16.0;

/// Which ground a person wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ground {
    /// As the system has it, also when it changes.
    #[default]
    System,
    Dark,
    Light,
}

impl Ground {
    pub fn preference(self) -> egui::ThemePreference {
        match self {
            Self::System => egui::ThemePreference::System,
            Self::Dark => egui::ThemePreference::Dark,
            Self::Light => egui::ThemePreference::Light,
        }
    }
}

/// Colours of one theme.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Theme {
    pub dark: bool,
    pub panel: Color32,
    pub canvas: Color32,
    pub raised: Color32,
    pub line: Color32,
    pub text: Color32,
    pub weak: Color32,
    pub accent: Color32,
    pub error: Color32,
    pub warning: Color32,
    /// Around cells beyond the threshold.
    pub beyond: Color32,
}

impl Theme {
    pub fn dark() -> Self {
        Self {
            dark: true,
            panel: Color32::from_rgb(24, 27, 32),
            canvas: Color32::from_rgb(17, 19, 23),
            raised: Color32::from_rgb(38, 43, 51),
            line: Color32::from_rgb(48, 54, 63),
            text: Color32::from_rgb(226, 230, 236),
            weak: Color32::from_rgb(149, 158, 171),
            accent: Color32::from_rgb(102, 187, 245),
            error: Color32::from_rgb(255, 138, 101),
            warning: Color32::from_rgb(240, 190, 90),
            beyond: Color32::from_rgb(255, 255, 255),
        }
    }

    pub fn light() -> Self {
        Self {
            dark: false,
            panel: Color32::from_rgb(246, 247, 249),
            canvas: Color32::from_rgb(255, 255, 255),
            raised: Color32::from_rgb(228, 232, 238),
            line: Color32::from_rgb(209, 214, 222),
            text: Color32::from_rgb(28, 32, 38),
            weak: Color32::from_rgb(92, 101, 114),
            accent: Color32::from_rgb(0, 98, 168),
            error: Color32::from_rgb(176, 52, 16),
            warning: Color32::from_rgb(132, 88, 0),
            beyond: Color32::from_rgb(0, 0, 0),
        }
    }

    pub fn of(dark: bool) -> Self {
        if dark { Self::dark() } else { Self::light() }
    }

    /// As in reports. Reads on this theme's ground (WCAG AA, a test holds it).
    pub fn verdict(&self, quadrant: Quadrant) -> Color32 {
        rgb(loka_core::views::verdict_colour(quadrant, self.dark))
    }

    /// Gives egui the faces and the styles of both grounds.
    pub fn install(ctx: &egui::Context) {
        ctx.set_fonts(fonts());
        ctx.set_style_of(egui::Theme::Dark, Self::dark().style());
        ctx.set_style_of(egui::Theme::Light, Self::light().style());
        // Text size is an action of ours, with its own keys.
        ctx.options_mut(|options| options.zoom_with_keyboard = false);
    }

    fn style(&self) -> Style {
        let mut style = Style { visuals: self.visuals(), ..Style::default() };
        let font = |size, family| FontId::new(size, family);
        style.text_styles = BTreeMap::from([
            (TextStyle::Small, font(SMALL, FontFamily::Proportional)),
            (TextStyle::Body, font(BODY, FontFamily::Proportional)),
            (TextStyle::Button, font(BODY, FontFamily::Proportional)),
            (TextStyle::Heading, font(HEADING, FontFamily::Proportional)),
            (TextStyle::Monospace, font(12.0, FontFamily::Monospace)),
        ]);
        style.spacing.item_spacing = vec2(2.0 * GRID, GRID);
        style.spacing.button_padding = vec2(2.0 * GRID, 2.0);
        style.spacing.interact_size = vec2(ROW, ROW);
        style.spacing.menu_margin = Margin::same(6);
        style.spacing.window_margin = Margin::same(16);
        style.spacing.combo_width = 60.0;
        style.spacing.tooltip_width = 420.0;
        style.interaction.selectable_labels = false;
        style.interaction.tooltip_delay = 0.3;
        // No motion but progress.
        style.animation_time = 0.0;
        style
    }

    fn visuals(&self) -> Visuals {
        let mut visuals = if self.dark { Visuals::dark() } else { Visuals::light() };
        visuals.panel_fill = self.panel;
        visuals.window_fill = self.panel;
        visuals.window_stroke = Stroke::new(1.0, self.line);
        visuals.extreme_bg_color = self.canvas;
        visuals.faint_bg_color = self.raised;
        visuals.weak_text_color = Some(self.weak);
        visuals.hyperlink_color = self.accent;
        visuals.warn_fg_color = self.warning;
        visuals.error_fg_color = self.error;
        visuals.window_corner_radius = CornerRadius::same(6);
        visuals.menu_corner_radius = CornerRadius::same(6);
        visuals.selection.bg_fill = self.accent.gamma_multiply(0.30);
        visuals.selection.stroke = Stroke::new(1.0, self.accent);
        let widgets = &mut visuals.widgets;
        for state in [
            &mut widgets.noninteractive,
            &mut widgets.inactive,
            &mut widgets.hovered,
            &mut widgets.active,
            &mut widgets.open,
        ] {
            state.corner_radius = CornerRadius::same(4);
            state.fg_stroke.color = self.text;
            state.expansion = 0.0;
        }
        widgets.noninteractive.bg_stroke = Stroke::new(1.0, self.line);
        widgets.inactive.bg_stroke = Stroke::new(1.0, self.line);
        widgets.inactive.weak_bg_fill = self.raised;
        widgets.inactive.bg_fill = self.raised;
        widgets.hovered.bg_stroke = Stroke::new(1.0, self.weak);
        visuals
    }
}

/// The proportional face lacks arrows and a few signs that the one for numbers has.
fn fonts() -> FontDefinitions {
    let mut fonts = FontDefinitions::default();
    let signs = fonts.families.get(&FontFamily::Monospace).cloned().unwrap_or_default();
    if let Some(faces) = fonts.families.get_mut(&FontFamily::Proportional) {
        let missing: Vec<String> = signs.into_iter().filter(|name| !faces.contains(name)).collect();
        faces.extend(missing);
    }
    fonts
}

/// Relative luminance (WCAG).
pub(crate) fn luminance(color: Color32) -> f64 {
    let linear = |channel: u8| {
        let value = f64::from(channel) / 255.0;
        if value <= 0.040_45 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
    };
    0.2126 * linear(color.r()) + 0.7152 * linear(color.g()) + 0.0722 * linear(color.b())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_verdicts_read_on_every_ground() {
        for theme in [Theme::dark(), Theme::light()] {
            let verdicts = [
                Quadrant::SafeFast,
                Quadrant::SafeSlow,
                Quadrant::UnsafeFast,
                Quadrant::UnsafeSlow,
                Quadrant::SafeUnknown,
                Quadrant::UnsafeUnknown,
                Quadrant::Uncertain,
                Quadrant::Unsupported,
            ];
            let colors = verdicts.map(|quadrant| theme.verdict(quadrant));
            let words = [theme.text, theme.weak, theme.accent, theme.error, theme.warning];
            for color in colors.into_iter().chain(words) {
                for ground in [theme.panel, theme.canvas] {
                    let (a, b) = (luminance(color) + 0.05, luminance(ground) + 0.05);
                    assert!(a.max(b) / a.min(b) >= 4.5, "{color:?} on {ground:?}: {:.2}", a.max(b) / a.min(b));
                }
            }
        }
    }
}
