//! Takes the range of an error, gives where a value stands on it: a place from 0 to 1, a class of colour, and the
//! values to write beside it. Logarithmic but for decibels.

use crate::model::Metric;

use super::{colour::STEPS, entries::larger_is_better};

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    pub lo: f64,
    pub hi: f64,
    log: bool,
    larger_is_better: bool,
}

impl Scale {
    pub fn new(metric: Metric, (lo, hi): (f64, f64)) -> Self {
        let larger_is_better = larger_is_better(metric);
        Self::of(!larger_is_better, larger_is_better, (lo, hi))
    }

    /// Of speed-ups.
    pub fn ratio(range: (f64, f64)) -> Self {
        Self::of(true, true, range)
    }

    fn of(log: bool, larger_is_better: bool, (lo, hi): (f64, f64)) -> Self {
        let (lo, hi) = if hi > lo {
            (lo, hi)
        } else if lo == 0.0 {
            (0.0, 1.0)
        } else {
            (lo - 0.1 * lo.abs(), hi + 0.1 * hi.abs())
        };
        Self { lo, hi, log, larger_is_better }
    }

    fn axis(&self, value: f64) -> f64 {
        if self.log { value.max(1e-12).log10() } else { value }
    }

    /// With some room around.
    #[must_use]
    pub fn widened(self, share: f64) -> Self {
        let (lo, hi) = (self.axis(self.lo), self.axis(self.hi));
        let room = share * (hi - lo);
        let back = |at: f64| if self.log { 10f64.powf(at) } else { at };
        Self { lo: back(lo - room), hi: back(hi + room), ..self }
    }

    /// From the low end to the high one, 0 to 1.
    pub fn share(&self, value: f64) -> f64 {
        let share = (self.axis(value) - self.axis(self.lo)) / (self.axis(self.hi) - self.axis(self.lo));
        if share.is_nan() { 0.0 } else { share.clamp(0.0, 1.0) }
    }

    pub fn has(&self, value: f64) -> bool {
        (self.lo..=self.hi).contains(&value)
    }

    /// Of colours, the best first.
    pub fn class(&self, value: f64) -> usize {
        self.class_at(self.share(value))
    }

    pub fn class_at(&self, share: f64) -> usize {
        let badness = if self.larger_is_better { 1.0 - share } else { share };
        ((badness * STEPS as f64) as usize).min(STEPS - 1)
    }

    /// Values to write: powers of ten; 1, 2 and 5 of each where there are few; even steps in decibels.
    pub fn ticks(&self) -> Vec<f64> {
        if !self.log {
            let step = if self.hi - self.lo > 60.0 {
                20.0
            } else if self.hi - self.lo > 12.0 {
                10.0
            } else {
                2.0
            };
            let first = (self.lo / step).ceil() as i64;
            return (first..).map(|at| at as f64 * step).take_while(|value| *value <= self.hi).take(40).collect();
        }
        let (from, to) = (self.axis(self.lo).floor() as i32, self.axis(self.hi).ceil() as i32);
        let decades = self.axis(self.hi) - self.axis(self.lo);
        let of_each: &[f64] = match decades {
            ..=0.6 => &[1.0, 1.2, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0],
            ..=3.2 => &[1.0, 2.0, 5.0],
            _ => &[1.0],
        };
        let every = ((to - from) / 8).max(0) as usize + 1;
        // Written as text and read back: 2e-1, not .2 and some noise.
        let value = |power: i32, digit: &f64| format!("{digit}e{power}").parse().unwrap_or(0.0);
        let all = (from..=to).step_by(every).flat_map(|power| of_each.iter().map(move |digit| value(power, digit)));
        let found: Vec<f64> = all.filter(|value| self.has(*value)).collect();
        if found.len() < 2 { vec![self.lo, self.hi] } else { found }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_count_from_the_best() {
        let error = Scale::new(Metric::Mere, (0.01, 1.0));
        assert_eq!((error.class(0.01), error.class(1.0), error.class(9.0)), (0, STEPS - 1, STEPS - 1));
        let decibels = Scale::new(Metric::SqnrDb, (10.0, 40.0));
        assert_eq!((decibels.class(40.0), decibels.class(10.0)), (0, STEPS - 1));
        assert!((error.share(0.1) - 0.5).abs() < 1e-12);
        assert_eq!(error.share(f64::NAN), 0.0);
    }

    #[test]
    fn ticks_are_round_and_in_range() {
        assert_eq!(Scale::new(Metric::Mere, (0.03, 1.2)).ticks(), [0.05, 0.1, 0.2, 0.5, 1.0]);
        assert_eq!(Scale::new(Metric::Mere, (1e-6, 1.0)).ticks().len(), 7);
        assert_eq!(Scale::new(Metric::SqnrDb, (25.0, 62.0)).ticks(), [30.0, 40.0, 50.0, 60.0]);
        assert!(Scale::new(Metric::Mere, (0.2, 0.2)).ticks().len() > 1);
        assert!(Scale::new(Metric::Mere, (0.0, 0.0)).ticks().len() > 1, "no error at all");
    }
}
