//! Takes the range of a value, gives where a value stands on it (0 to 1), its colour, and the values to write beside it:
//! for the window's legends and axes and the report's alike. Logarithmic but for decibels.

use crate::model::Metric;

use super::colour::{diverging, sequential};

/// Where what is no error at all stands: a logarithm has no zero.
const SMALLEST: f64 = 1e-12;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    lo: f64,
    hi: f64,
    log: bool,
    larger_is_better: bool,
    /// Both ends are as far from no change, in the middle.
    diverging: bool,
}

impl Scale {
    pub fn new(metric: Metric, range: (f64, f64)) -> Self {
        Self::of(metric.is_log(), metric.larger_is_better(), range)
    }

    /// Of speed-ups.
    pub fn ratio(range: (f64, f64)) -> Self {
        Self::of(true, true, range)
    }

    /// With no good end: for recorded values.
    pub fn plain(range: (f64, f64)) -> Self {
        Self::of(true, false, range)
    }

    /// Around 1, for ratios to a baseline: blue is better than it, orange is worse.
    pub fn relative(metric: Metric, (lo, hi): (f64, f64)) -> Self {
        let reach = hi.max(1.0 / lo.max(1e-300)).max(1.05);
        let ends = Self::of(true, metric.larger_is_better(), (1.0 / reach, reach));
        Self { diverging: true, ..ends }
    }

    /// One value alone has room on both sides, and so has none: nothing is divided by a range of zero.
    fn of(log: bool, larger_is_better: bool, (lo, hi): (f64, f64)) -> Self {
        let nothing = !(lo.is_finite() && hi.is_finite()) || (lo, hi) == (0.0, 0.0) || (log && hi <= 0.0);
        let (lo, hi) = match hi > lo {
            _ if nothing => (0.0, 1.0),
            true => (lo, hi),
            false => (hi - 0.1 * hi.abs(), lo + 0.1 * lo.abs()),
        };
        let lo = if log && lo <= 0.0 { SMALLEST.min(0.1 * hi) } else { lo };
        Self { lo, hi, log, larger_is_better, diverging: false }
    }

    /// With some room around.
    #[must_use]
    pub fn widened(self, share: f64) -> Self {
        let (lo, hi) = (self.place(self.lo), self.place(self.hi));
        let room = share * (hi - lo);
        let back = |at: f64| if self.log { 10f64.powf(at) } else { at };
        Self { lo: back(lo - room), hi: back(hi + room), ..self }
    }

    pub fn ends(&self) -> (f64, f64) {
        (self.lo, self.hi)
    }

    pub fn has(&self, value: f64) -> bool {
        (self.lo..=self.hi).contains(&value)
    }

    fn place(&self, value: f64) -> f64 {
        if self.log { value.max(1e-300).log10() } else { value }
    }

    /// From the low end to the high one, 0 to 1; what is no number is at 0.
    pub fn share(&self, value: f64) -> f64 {
        let share = (self.place(value) - self.place(self.lo)) / (self.place(self.hi) - self.place(self.lo));
        if share.is_nan() { 0.0 } else { share.clamp(0.0, 1.0) }
    }

    /// From the best to the worst, 0 to 1, at that share of the legend.
    pub fn badness_at(&self, share: f64) -> f64 {
        if self.larger_is_better { 1.0 - share } else { share }
    }

    pub fn color(&self, value: f64) -> [u8; 3] {
        self.color_at(self.share(value))
    }

    /// The colour at that share of the legend.
    pub fn color_at(&self, share: f64) -> [u8; 3] {
        let badness = self.badness_at(share);
        if self.diverging { diverging(badness) } else { sequential(badness) }
    }

    /// For a shader: the low end and the span, as powers of two where it is a log scale.
    pub fn axis(&self) -> (f64, f64, bool) {
        let of = |value: f64| if self.log { value.max(1e-37).log2() } else { value };
        (of(self.lo), of(self.hi) - of(self.lo), self.log)
    }

    /// Round values in range, `most` of them: powers of ten, with digits between them where there is room; even steps in
    /// decibels. The ends where nothing round is between them.
    pub fn ticks(&self, most: usize) -> Vec<f64> {
        let found = ticks(self.ends(), self.log, most);
        if found.len() < 2 { vec![self.lo, self.hi] } else { found }
    }
}

/// What each power of ten is divided by, the finest first, with the most decades that it is for.
const DIGITS: [(f64, &[f64]); 4] = [
    (0.25, &[1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8, 1.9, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]),
    (0.7, &[1.0, 1.2, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]),
    (3.2, &[1.0, 2.0, 5.0]),
    (f64::INFINITY, &[1.0]),
];

/// Round values from `lo` to `hi`, at most `most` of them.
pub fn ticks(range: (f64, f64), log: bool, most: usize) -> Vec<f64> {
    if log { log_ticks(range, most) } else { even_ticks(range, most) }
}

fn log_ticks((lo, hi): (f64, f64), most: usize) -> Vec<f64> {
    let decades = hi.log10() - lo.log10();
    let (from, to) = (lo.log10().floor() as i32, hi.log10().ceil() as i32);
    // Written as text and read back: 2e-1, not .2 and some noise.
    let value = |power: i32, digit: f64| format!("{digit}e{power}").parse().unwrap_or(0.0);
    let with = |digits: &[f64], every: usize| -> Vec<f64> {
        let powers = (from..=to).step_by(every);
        let all = powers.flat_map(|power| digits.iter().map(move |digit| value(power, *digit)));
        all.filter(|value| (lo..=hi).contains(value)).collect()
    };
    let mut fine = DIGITS.iter().filter(|(widest, _)| decades <= *widest).map(|(_, digits)| with(digits, 1));
    let fits = |found: &Vec<f64>| found.len() <= most;
    let every = (to - from).unsigned_abs() as usize / most.max(2) + 1;
    fine.find(fits).unwrap_or_else(|| with(&[1.0], every))
}

fn even_ticks((lo, hi): (f64, f64), most: usize) -> Vec<f64> {
    let step = [2.0, 10.0, 20.0, 100.0].into_iter().find(|step| (hi - lo) / step <= most.min(6) as f64);
    let step = step.unwrap_or((hi - lo) / most.max(2) as f64);
    let first = (lo / step).ceil() as i64;
    (first..).map(|at| at as f64 * step).take_while(|value| *value <= hi).take(most).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_go_from_the_low_end_to_the_high_one() {
        let error = Scale::new(Metric::Mere, (0.01, 1.0));
        assert!((error.share(0.1) - 0.5).abs() < 1e-12);
        assert_eq!(
            [error.share(0.01), error.share(1.0), error.share(9.0), error.share(f64::NAN)],
            [0.0, 1.0, 1.0, 0.0]
        );
        assert_eq!([error.badness_at(0.25), Scale::new(Metric::SqnrDb, (10.0, 40.0)).badness_at(0.25)], [0.25, 0.75]);
    }

    #[test]
    fn good_is_dark_and_bad_is_yellow() {
        for (metric, range, good, bad) in
            [(Metric::Mere, (1e-3, 1.0), 1e-3, 1.0), (Metric::SqnrDb, (10.0, 40.0), 40.0, 10.0)]
        {
            let scale = Scale::new(metric, range);
            assert_eq!((scale.color(good), scale.color(bad)), ([0, 34, 78], [254, 232, 56]), "{metric}");
        }
    }

    #[test]
    fn no_change_is_white_and_both_ends_are_as_far() {
        let scale = Scale::relative(Metric::Mere, (0.5, 8.0));
        assert_eq!(scale.color(1.0), [245, 245, 245]);
        assert_eq!(scale.ends(), (0.125, 8.0));
        let ([red, _, blue], [worse, _, less]) = (scale.color(0.2), scale.color(5.0));
        assert!(blue > red && worse > less);
        let [red, _, blue] = Scale::relative(Metric::SqnrDb, (0.5, 8.0)).color(0.2);
        assert!(red > blue, "fewer decibels are worse");
    }

    #[test]
    fn ticks_are_round_and_in_range() {
        let error = |range| Scale::new(Metric::Mere, range).ticks(7);
        assert_eq!(error((0.03, 1.2)), [0.05, 0.1, 0.2, 0.5, 1.0]);
        assert_eq!(error((0.002, 3.0)), [0.01, 0.1, 1.0], "digits where there is room alone");
        assert_eq!(error((1e-6, 1.0)).len(), 7);
        assert_eq!(error((1e-40, 1.0)).len(), 7);
        assert_eq!(error((0.15, 0.35)), [0.15, 0.2, 0.3]);
        assert_eq!(Scale::new(Metric::SqnrDb, (25.0, 62.0)).ticks(7), [30.0, 40.0, 50.0, 60.0]);
        assert_eq!(Scale::new(Metric::SqnrDb, (-5.0, 4.0)).ticks(7), [-4.0, -2.0, 0.0, 2.0, 4.0]);
        assert_eq!(Scale::ratio((0.8, 1.9)).ticks(12), [0.8, 0.9, 1.0, 1.2, 1.5]);
    }

    #[test]
    fn a_range_of_nothing_has_a_scale() {
        for metric in [Metric::Mere, Metric::SqnrDb, Metric::LossCost] {
            for range in
                [(0.0, 0.0), (0.2, 0.2), (-3.0, -3.0), (0.0, 1e-15), (f64::NAN, f64::NAN), (0.0, f64::INFINITY)]
            {
                let scale = Scale::new(metric, range);
                let (lo, hi) = scale.ends();
                assert!(lo < hi, "{metric} {range:?}");
                let ticks = scale.ticks(7);
                assert!((2..=7).contains(&ticks.len()), "{metric} {range:?}: {ticks:?}");
                for value in [0.0, lo, hi, f64::NAN, f64::NEG_INFINITY, f64::MAX] {
                    assert!((0.0..=1.0).contains(&scale.share(value)), "{metric} {range:?}: {value}");
                }
                let (low, span, _) = scale.axis();
                assert!(low.is_finite() && span != 0.0, "{metric} {range:?}");
            }
        }
        // Costs may be far below what an axis calls none.
        assert!((Scale::new(Metric::LossCost, (1e-16, 1e-14)).share(1e-15) - 0.5).abs() < 1e-9);
    }
}
