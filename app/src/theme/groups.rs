//! Takes a group's number, gives its colour: Okabe–Ito, moved until each reads on this theme's ground. Groups
//! are told by their names in a legend too; shapes stay with the verdict.

use egui::Color32;

use super::Theme;

const DARK: [(u8, u8, u8); 8] = [
    (230, 159, 0),
    (86, 180, 233),
    (26, 178, 134),
    (240, 228, 66),
    (90, 140, 230),
    (240, 118, 40),
    (214, 136, 180),
    (190, 190, 190),
];
const LIGHT: [(u8, u8, u8); 8] = [
    (140, 92, 0),
    (0, 110, 170),
    (0, 118, 86),
    (104, 98, 0),
    (40, 60, 190),
    (178, 74, 0),
    (160, 60, 120),
    (90, 90, 90),
];

impl Theme {
    /// The first eight groups; all further ones are "other", in the tone of what is less important.
    pub fn group(&self, number: usize) -> Color32 {
        let hues = if self.dark { DARK } else { LIGHT };
        hues.get(number).map_or(self.weak, |(r, g, b)| Color32::from_rgb(*r, *g, *b))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::theme::luminance;

    #[test]
    fn groups_read_on_every_ground() {
        for theme in [Theme::dark(), Theme::light()] {
            for color in (0..9).map(|number| theme.group(number)) {
                for ground in [theme.panel, theme.canvas] {
                    let (a, b) = (luminance(color) + 0.05, luminance(ground) + 0.05);
                    assert!(a.max(b) / a.min(b) >= 4.5, "{color:?} on {ground:?}");
                }
            }
        }
    }
}
