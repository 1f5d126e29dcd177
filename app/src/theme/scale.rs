//! Takes a value and a range, gives a colour: cividis, which the colour-blind read as well as anyone; around a
//! value of no change, blue to white to orange.

use egui::Color32;
use loka_core::{model::Metric, report::CIVIDIS};

/// Blue, white, orange (after Okabe and Ito) at seven even steps.
const DIVERGING: [[u8; 3]; 7] =
    [[0, 84, 140], [44, 133, 190], [148, 196, 226], [245, 245, 245], [247, 196, 128], [226, 133, 36], [166, 74, 0]];

/// Maps one metric's values to colours: good is dark blue and bad is yellow, on any ground.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    lo: f64,
    hi: f64,
    log: bool,
    /// Decibels: the larger value is the better one.
    larger_is_better: bool,
    /// Both ends are as far from no change, in the middle.
    diverging: bool,
}

impl Scale {
    pub fn new(metric: Metric, (lo, hi): (f64, f64)) -> Self {
        let log = metric != Metric::SqnrDb;
        let (lo, hi) = if hi > lo { (lo, hi) } else { (lo * 0.9, hi * 1.1) };
        Self { lo, hi, log, larger_is_better: metric == Metric::SqnrDb, diverging: false }
    }

    /// Log, around 1: for ratios to a baseline. Blue is better than it, orange is worse.
    pub fn relative(metric: Metric, (lo, hi): (f64, f64)) -> Self {
        let reach = hi.max(1.0 / lo.max(1e-300)).max(1.05);
        let larger_is_better = metric == Metric::SqnrDb;
        Self { lo: 1.0 / reach, hi: reach, log: true, larger_is_better, diverging: true }
    }

    /// Log, with no good end: for recorded values.
    pub fn plain((lo, hi): (f64, f64)) -> Self {
        Self::new(Metric::MaxAbs, (lo, hi))
    }

    /// For the shader: the low end and the span, as powers of two where it is a log scale.
    pub fn axis(&self) -> (f64, f64, bool) {
        let of = |value: f64| if self.log { value.max(1e-37).log2() } else { value };
        (of(self.lo), of(self.hi) - of(self.lo), self.log)
    }

    /// Where a value lies between the two ends, 0 to 1.
    pub fn share(&self, value: f64) -> f64 {
        let of = |value: f64| if self.log { value.max(1e-300).log10() } else { value };
        ((of(value) - of(self.lo)) / (of(self.hi) - of(self.lo))).clamp(0.0, 1.0)
    }

    pub fn color(&self, value: f64) -> Color32 {
        self.color_at(self.share(value))
    }

    /// The colour at that share of the legend.
    pub fn color_at(&self, share: f64) -> Color32 {
        let share = if self.larger_is_better { 1.0 - share } else { share };
        if self.diverging { mixed(&DIVERGING, share) } else { mixed(&CIVIDIS, share) }
    }

    /// Values to label on the legend: powers of ten, or even steps in decibels.
    pub fn ticks(&self) -> Vec<f64> {
        if !self.log {
            let step = if self.hi - self.lo > 30.0 { 20.0 } else { 10.0 };
            let first = (self.lo / step).ceil() as i64;
            return (first..).map(|at| at as f64 * step).take_while(|value| *value <= self.hi).collect();
        }
        if self.hi / self.lo < 10.0 {
            return [self.lo, (self.lo * self.hi).sqrt(), self.hi].map(two_digits).to_vec();
        }
        let (from, to) = (self.lo.log10().ceil() as i32, self.hi.log10().floor() as i32);
        let every = ((to - from) / 6).max(0) + 1;
        (from..=to).step_by(every as usize).map(|power| 10f64.powi(power)).collect()
    }

    pub fn ends(&self) -> (f64, f64) {
        (self.lo, self.hi)
    }
}

fn mixed(colors: &[[u8; 3]], share: f64) -> Color32 {
    let [red, green, blue] = loka_core::report::mixed(colors, share);
    Color32::from_rgb(red, green, blue)
}

fn two_digits(value: f64) -> f64 {
    let place = 10f64.powf(value.abs().max(1e-300).log10().floor() - 1.0);
    (value / place).round() * place
}

/// Black or white, whichever reads better on `ground`.
pub fn text_on(ground: Color32) -> Color32 {
    let light = super::luminance(ground) > 0.18;
    if light { Color32::from_gray(16) } else { Color32::from_gray(245) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_is_dark_and_bad_is_yellow() {
        for (metric, range, good, bad) in
            [(Metric::Mere, (1e-3, 1.0), 1e-3, 1.0), (Metric::SqnrDb, (10.0, 40.0), 40.0, 10.0)]
        {
            let scale = Scale::new(metric, range);
            let luminance = |value| super::super::luminance(scale.color(value));
            assert!(luminance(good) < 0.1 && luminance(bad) > 0.6, "{metric}");
        }
    }

    #[test]
    fn no_change_is_white_and_both_ends_are_as_far() {
        let scale = Scale::relative(Metric::Mere, (0.5, 8.0));
        assert_eq!(scale.color(1.0), Color32::from_rgb(245, 245, 245));
        assert_eq!(scale.ends(), (0.125, 8.0));
        let (better, worse) = (scale.color(0.2), scale.color(5.0));
        assert!(better.b() > better.r() && worse.r() > worse.b());
        let decibels = Scale::relative(Metric::SqnrDb, (0.5, 8.0));
        assert!(decibels.color(0.2).r() > decibels.color(0.2).b(), "fewer decibels are worse");
    }

    #[test]
    fn ticks_are_powers_of_ten_in_range() {
        assert_eq!(Scale::new(Metric::Mere, (0.002, 3.0)).ticks(), [0.01, 0.1, 1.0]);
        assert_eq!(Scale::new(Metric::SqnrDb, (25.0, 62.0)).ticks(), [40.0, 60.0]);
    }
}
