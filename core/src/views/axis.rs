//! Takes a speed-up or an error, gives where it stands on its axis, and back: logarithms, or decibels as they
//! are. Points, lines and the pointer all go by this one rule.

use crate::model::Metric;

/// Below this an error is as good as none: an axis that is logarithmic has no zero.
const SMALLEST_ERROR: f64 = 1e-12;
const SMALLEST_SPEEDUP: f64 = 1e-6;

pub fn speedup_place(speedup: f64) -> f64 {
    speedup.max(SMALLEST_SPEEDUP).log10()
}

pub fn speedup_at(place: f64) -> f64 {
    10f64.powf(place)
}

/// How errors of one metric are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorAxis {
    decibels: bool,
}

impl Default for ErrorAxis {
    fn default() -> Self {
        Self::of(Metric::Mere)
    }
}

impl ErrorAxis {
    pub fn of(metric: Metric) -> Self {
        Self { decibels: !metric.is_log() }
    }

    pub fn is_log(self) -> bool {
        !self.decibels
    }

    /// True where what stands higher is the better.
    pub fn higher_is_better(self) -> bool {
        self.decibels
    }

    pub fn place(self, error: f64) -> f64 {
        if self.decibels { error } else { error.max(SMALLEST_ERROR).log10() }
    }

    pub fn error_at(self, place: f64) -> f64 {
        if self.decibels { place } else { 10f64.powf(place) }
    }

    /// A threshold some small steps further up its axis: as much on screen wherever it stands.
    pub fn nudged(self, error: f64, steps: f64) -> f64 {
        let step = if self.decibels { 0.5 } else { 0.01 };
        readable(self.error_at(self.place(error) + steps * step)).max(0.0)
    }
}

/// The same along the axis of speed-ups, about a hundredth a step.
pub fn nudged_speedup(speedup: f64, steps: f64) -> f64 {
    readable(speedup_at(speedup_place(speedup) + steps * 0.004_5))
}

/// A threshold that a person can read: three digits at most, away from the noise of binary fractions (.2,
/// not .20000000000000001).
pub fn readable(value: f64) -> f64 {
    let place = value.abs().max(1e-300).log10().floor() as i32 - 2;
    let text = if place >= 0 {
        let unit = 10f64.powi(place);
        format!("{}", (value / unit).round() * unit)
    } else {
        format!("{value:.decimals$}", decimals = place.unsigned_abs() as usize)
    };
    text.parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_lead_back() {
        for axis in [ErrorAxis::of(Metric::Mere), ErrorAxis::of(Metric::SqnrDb)] {
            assert!((axis.error_at(axis.place(27.5)) - 27.5).abs() < 1e-9);
        }
        assert!((speedup_at(speedup_place(1.19)) - 1.19).abs() < 1e-12);
        assert!(ErrorAxis::of(Metric::Mere).place(0.0).is_finite(), "no error at all still has a place");
    }

    #[test]
    fn a_nudge_moves_and_its_opposite_leads_back() {
        let axis = ErrorAxis::of(Metric::Mere);
        let up = axis.nudged(0.2, 1.0);
        assert!(up > 0.2 && up < 0.21, "{up}");
        assert!((axis.nudged(up, -1.0) - 0.2).abs() < 0.002);
        assert_eq!(ErrorAxis::of(Metric::SqnrDb).nudged(30.0, -2.0), 29.0);
        assert!(nudged_speedup(1.05, 1.0) > 1.05 && nudged_speedup(1.05, -1.0) < 1.05);
    }

    #[test]
    fn thresholds_are_readable() {
        for (value, text) in [(0.200_499, "0.2"), (1.054_9, "1.05"), (0.036_68, "0.0367"), (1234.5, "1230")] {
            assert_eq!(format!("{}", readable(value)), text);
        }
        assert_eq!(readable(3.141_5e-9), 3.14e-9);
        assert_eq!(readable(0.0), 0.0);
    }
}
