//! The colours that tell something, for window, page and report alike: of a verdict on a light or a dark ground, and of
//! a place on a scale. Red, green and blue.

use crate::model::Quadrant;

/// Cividis (Nuñez, Anderton, Renslow 2018) at eleven even steps: the colour-blind read it as well as anyone.
const CIVIDIS: [[u8; 3]; 11] = [
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

/// Blue, white, orange (after Okabe and Ito) at seven even steps: around a value of no change.
const DIVERGING: [[u8; 3]; 7] =
    [[0, 84, 140], [44, 133, 190], [148, 196, 226], [245, 245, 245], [247, 196, 128], [226, 133, 36], [166, 74, 0]];

/// Dark blue is good and yellow is bad, on any ground; `badness` from 0 to 1.
pub fn sequential(badness: f64) -> [u8; 3] {
    mixed(&CIVIDIS, badness)
}

/// Blue is better than no change, orange is worse; white in the middle.
pub fn diverging(badness: f64) -> [u8; 3] {
    mixed(&DIVERGING, badness)
}

/// Okabe–Ito hues, moved until they read on this ground (WCAG AA, tests hold it).
pub fn verdict_colour(quadrant: Quadrant, dark: bool) -> [u8; 3] {
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

/// The word beside a verdict's shape.
pub fn verdict_word(quadrant: Quadrant) -> &'static str {
    match quadrant {
        Quadrant::SafeFast => "safe & fast",
        Quadrant::SafeSlow => "safe & slow",
        Quadrant::UnsafeFast => "unsafe & fast",
        Quadrant::UnsafeSlow => "unsafe & slow",
        Quadrant::SafeUnknown => "safe, speed unknown",
        Quadrant::UnsafeUnknown => "unsafe, speed unknown",
        Quadrant::Uncertain => "uncertain",
        Quadrant::Unsupported => "unsupported",
    }
}

/// Between the steps of a table, `share` from 0 to 1.
fn mixed(colours: &[[u8; 3]], share: f64) -> [u8; 3] {
    let share = if share.is_nan() { 0.0 } else { share.clamp(0.0, 1.0) };
    let at = share * (colours.len() - 1) as f64;
    let (below, rest) = (at.floor() as usize, at.fract());
    let (from, to) = (colours[below], colours[(below + 1).min(colours.len() - 1)]);
    [0, 1, 2].map(|channel| {
        let (from, to) = (f64::from(from[channel]), f64::from(to[channel]));
        (from + (to - from) * rest).round() as u8
    })
}
