//! A value with its interval.

use serde::{Deserialize, Serialize};

/// A value with the interval that holds it at the asked confidence, over draws.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    pub value: f64,
    pub lo: f64,
    pub hi: f64,
}

impl Estimate {
    pub fn new(value: f64, lo: f64, hi: f64) -> Self {
        Self { value, lo, hi }
    }

    pub fn exact(value: f64) -> Self {
        Self { value, lo: value, hi: value }
    }

    /// Scaled up, interval and all, where its value is less than that.
    #[must_use]
    pub fn at_least(self, least: f64) -> Self {
        if self.value >= least || self.value.is_nan() {
            return self;
        }
        if self.value <= 0.0 {
            return Self { value: least, lo: least, hi: self.hi.max(least) };
        }
        let factor = least / self.value;
        Self { value: least, lo: factor * self.lo, hi: factor * self.hi }
    }

    /// Moved down, where its value is more than that: nothing is known of the rest of the interval.
    #[must_use]
    pub fn at_most(self, most: f64) -> Self {
        if self.value <= most { self } else { Self { value: most, lo: self.lo.min(most), hi: most } }
    }

    /// How far from 0: what a scale shows and a bound holds of a value with a sign.
    #[must_use]
    pub fn magnitude(self) -> Self {
        let (lo, hi) = (self.lo.abs(), self.hi.abs());
        let least = if self.lo <= 0.0 && self.hi >= 0.0 { 0.0 } else { lo.min(hi) };
        Self { value: self.value.abs(), lo: least, hi: lo.max(hi) }
    }

    /// What there is of it beyond `other`. `itself`: it is what it is held against, and so nothing beyond, whatever the
    /// draws say.
    #[must_use]
    pub fn beyond(self, other: f64, itself: bool) -> Self {
        let part = |value: f64| if itself { 0.0 } else { (value - other).max(0.0) };
        Self { value: part(self.value), lo: part(self.lo), hi: part(self.hi) }
    }
}
