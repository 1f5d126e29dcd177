//! The colours of a value on its scale, as egui has colours, and what reads on them.

use egui::Color32;
pub use loka_core::views::Scale;

pub fn rgb([red, green, blue]: [u8; 3]) -> Color32 {
    Color32::from_rgb(red, green, blue)
}

/// Black or white, whichever reads better on `ground`.
pub fn text_on(ground: Color32) -> Color32 {
    let light = super::luminance(ground) > 0.18;
    if light { Color32::from_gray(16) } else { Color32::from_gray(245) }
}
