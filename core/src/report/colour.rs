//! The colours that the report and the workbench share: takes a verdict or a place on a scale, gives red, green and
//! blue for a light or a dark ground.

use std::fmt::Write as _;

use crate::model::Quadrant;

/// Cividis (Nuñez, Anderton, Renslow 2018) at eleven even steps: the colour-blind read it as well as anyone.
pub const CIVIDIS: [[u8; 3]; 11] = [
    [0, 34, 78],
    [8, 51, 112],
    [53, 69, 108],
    [79, 87, 108],
    [102, 105, 112],
    [125, 124, 120],
    [148, 142, 119],
    [174, 163, 113],
    [200, 184, 102],
    [229, 207, 82],
    [254, 232, 56],
];

/// Classes of errors, as the report tells them apart: one path each.
pub const STEPS: usize = 24;

/// Okabe–Ito hues, moved until they read on this ground (WCAG AA, tests hold it).
pub fn verdict(quadrant: Quadrant, dark: bool) -> [u8; 3] {
    let (on_dark, on_light) = match quadrant {
        Quadrant::SafeFast => ([26, 178, 134], [0, 118, 86]),
        Quadrant::SafeSlow | Quadrant::SafeUnknown => ([86, 180, 233], [0, 104, 160]),
        Quadrant::UnsafeFast => ([240, 118, 40], [178, 74, 0]),
        Quadrant::UnsafeSlow | Quadrant::UnsafeUnknown => ([152, 152, 152], [98, 98, 98]),
        Quadrant::Uncertain => ([214, 196, 120], [112, 92, 10]),
        Quadrant::Unsupported => ([134, 140, 150], [104, 110, 120]),
    };
    if dark { on_dark } else { on_light }
}

/// Between the steps of a table, `share` from 0 to 1.
pub fn mixed(colours: &[[u8; 3]], share: f64) -> [u8; 3] {
    let share = if share.is_nan() { 0.0 } else { share.clamp(0.0, 1.0) };
    let at = share * (colours.len() - 1) as f64;
    let (below, rest) = (at.floor() as usize, at.fract());
    let (from, to) = (colours[below], colours[(below + 1).min(colours.len() - 1)]);
    [0, 1, 2].map(|channel| {
        let (from, to) = (f64::from(from[channel]), f64::from(to[channel]));
        (from + (to - from) * rest).round() as u8
    })
}

fn hex([red, green, blue]: [u8; 3]) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

/// The style of verdicts (`.v0` to `.v7`, as [`number`] has them) and of error classes (`.h0` to `.h23`). Good is dark
/// blue and bad is yellow on any ground, in decibels as elsewhere: classes count from the best.
pub fn style(dark: bool) -> String {
    let mut text = String::new();
    for quadrant in Quadrant::BEST_FIRST {
        let (at, colour) = (number(quadrant), hex(verdict(quadrant, dark)));
        let _ = write!(text, ".v{at}{{color:{colour}}}");
    }
    for step in 0..STEPS {
        let share = step as f64 / (STEPS - 1) as f64;
        let colour = hex(mixed(&CIVIDIS, share));
        let _ = write!(text, ".h{step}{{fill:{colour}}}");
    }
    text
}

/// Of a verdict's class.
pub fn number(quadrant: Quadrant) -> usize {
    quadrant.rank()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn luminance(colour: [u8; 3]) -> f64 {
        let [r, g, b] = colour.map(|channel| {
            let value = f64::from(channel) / 255.0;
            if value <= 0.040_45 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        });
        0.2126 * r + 0.7152 * g + 0.0722 * b
    }

    #[test]
    fn verdicts_read_on_the_reports_grounds() {
        for (dark, ground) in [(false, [255, 255, 255]), (false, [246, 247, 249]), (true, [24, 27, 32])] {
            for quadrant in Quadrant::BEST_FIRST {
                let (a, b) = (luminance(verdict(quadrant, dark)) + 0.05, luminance(ground) + 0.05);
                assert!(a.max(b) / a.min(b) >= 4.5, "{quadrant:?} on {ground:?}");
            }
        }
    }

    #[test]
    fn every_class_has_a_colour_and_good_is_dark_on_any_ground() {
        for style in [style(false), style(true)] {
            assert!(style.contains(".h0{fill:#00224e}") && style.contains(".h23{fill:#fee838}"), "{style}");
            assert_eq!(style.matches(".v").count(), 8);
        }
    }
}
