//! The workbench's colours as a style sheet: a class a verdict, and a class a step of an error's scale.

use std::fmt::Write as _;

use crate::{
    model::Quadrant,
    views::{sequential, verdict_colour},
};

/// Classes of errors, as the report tells them apart: one path each.
pub const STEPS: usize = 24;

/// Of a place on a scale from the best to the worst.
pub fn class(badness: f64) -> usize {
    ((badness * STEPS as f64) as usize).min(STEPS - 1)
}

fn hex([red, green, blue]: [u8; 3]) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

/// The style of verdicts (`.v0` to `.v7`, as [`Quadrant::rank`] has them) and of error classes (`.h0` to `.h23`). Good is dark
/// blue and bad is yellow on any ground, in decibels as elsewhere: classes count from the best.
pub fn style(dark: bool) -> String {
    let mut text = String::new();
    for quadrant in Quadrant::BEST_FIRST {
        let (at, colour) = (quadrant.rank(), hex(verdict_colour(quadrant, dark)));
        let _ = write!(text, ".v{at}{{color:{colour}}}");
    }
    for step in 0..STEPS {
        let share = step as f64 / (STEPS - 1) as f64;
        let colour = hex(sequential(share));
        let _ = write!(text, ".h{step}{{fill:{colour}}}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{model::Metric, views::Scale};

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
                let (a, b) = (luminance(verdict_colour(quadrant, dark)) + 0.05, luminance(ground) + 0.05);
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

    #[test]
    fn classes_count_from_the_best() {
        let class = |metric, range, value| {
            let scale = Scale::new(metric, range);
            super::class(scale.badness_at(scale.share(value)))
        };
        let error = |value| class(Metric::Mere, (0.01, 1.0), value);
        assert_eq!([error(0.01), error(1.0), error(9.0)], [0, STEPS - 1, STEPS - 1]);
        let decibels = |value| class(Metric::SqnrDb, (10.0, 40.0), value);
        assert_eq!([decibels(40.0), decibels(10.0)], [0, STEPS - 1]);
    }
}
