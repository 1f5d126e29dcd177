//! Takes recorded bins or values; gives shares by power of two of |x|, and sums of them up to a limit.

use serde::{Deserialize, Serialize};

use crate::numerics::{FIRST_EXPONENT, NUM_EXPONENTS, count_exponents};

use super::operand::Origin;

/// Shares of all values, zeros and what is not finite included.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Histogram {
    /// Of `2^(FIRST_EXPONENT + i) <= |x| < 2^(FIRST_EXPONENT + i + 1)`; the outermost hold what lies
    /// beyond them, too.
    pub shares: Vec<f64>,
    pub zeros: f64,
    pub not_finite: f64,
    pub num_values: u64,
    pub origin: Origin,
}

/// Values between two magnitudes. Their density falls or rises as a power of x that follows from the bins
/// around: within the outermost bins, where most of the energy is, it is far from even.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::views) struct Segment {
    pub from: f64,
    pub to: f64,
    pub share: f64,
    /// Density ~ x^(slope - 1); 1 is even.
    slope: f64,
}

/// Steeper than this neighbouring bins tell the few values in them rather than a density.
const STEEPEST: f64 = 6.0;

impl Segment {
    /// The share between two magnitudes inside the segment.
    pub fn mass(&self, from: f64, to: f64) -> f64 {
        self.share * powers(self.slope, from, to) / powers(self.slope, self.from, self.to)
    }

    /// The integral of x^2 between them.
    pub fn energy(&self, from: f64, to: f64) -> f64 {
        self.share * powers(self.slope + 2.0, from, to) / powers(self.slope, self.from, self.to)
    }
}

/// The integral of x^(power - 1).
fn powers(power: f64, from: f64, to: f64) -> f64 {
    if power.abs() < 1e-9 { (to / from).ln() } else { (to.powf(power) - from.powf(power)) / power }
}

impl Histogram {
    /// The trace's 82 bins: zeros, 80 powers of two, not finite. `None` when they hold nothing.
    pub(super) fn from_bins(bins: &[u64], origin: Origin) -> Option<Self> {
        let num_values: u64 = bins.iter().sum();
        if num_values == 0 || bins.len() != NUM_EXPONENTS + 2 {
            return None;
        }
        let share = |count: &u64| *count as f64 / num_values as f64;
        let shares = bins[1..=NUM_EXPONENTS].iter().map(share).collect();
        let (zeros, not_finite) = (share(&bins[0]), share(&bins[NUM_EXPONENTS + 1]));
        Some(Self { shares, zeros, not_finite, num_values, origin })
    }

    /// Counted as a recorder counts.
    pub(crate) fn count(values: &[f32], origin: Origin) -> Self {
        let shares = vec![0.0; NUM_EXPONENTS];
        let empty = Self { shares, zeros: 0.0, not_finite: 0.0, num_values: 0, origin };
        Self::from_bins(&count_exponents(values), origin).unwrap_or(empty)
    }

    /// Bins that hold something, smallest first; none reaches beyond `amax`, where that is known.
    pub(in crate::views) fn segments(&self, amax: Option<f64>) -> impl Iterator<Item = Segment> {
        let held = self.shares.iter().enumerate().filter(|(_, share)| **share > 0.0);
        held.map(move |(bin, share)| {
            let exponent = FIRST_EXPONENT + bin as i32;
            // What is clamped into the lowest bin lies anywhere below its end.
            let from = if bin == 0 { 0.0 } else { 2f64.powi(exponent) };
            let end = 2f64.powi(exponent + 1);
            let to = amax.filter(|amax| *amax > from).map_or(end, |amax| end.min(amax));
            Segment { from, to, share: *share, slope: self.slope_at(bin) }
        })
    }

    /// Of the density around a bin, from the shares beside it.
    fn slope_at(&self, bin: usize) -> f64 {
        let share = |at: Option<usize>| at.and_then(|at| self.shares.get(at)).copied().filter(|share| *share > 0.0);
        let (before, after) = (share(bin.checked_sub(1)), share(Some(bin + 1)));
        let slope = match (before, after) {
            // The lowest bin begins at zero, where no other power has an integral.
            _ if bin == 0 => 1.0,
            (Some(before), Some(after)) => (after / before).log2() / 2.0,
            // The topmost may end anywhere: its own share tells nothing of the density.
            (Some(before), None) => share(bin.checked_sub(2)).map_or(1.0, |earlier| (before / earlier).log2()),
            (None, _) => 1.0,
        };
        slope.clamp(-STEEPEST, STEEPEST)
    }

    /// Share of values other than zero up to `limit`, and whether a bin had to be split for it.
    pub(super) fn up_to(&self, limit: f64, amax: Option<f64>) -> (f64, bool) {
        let mut split = false;
        let part = |segment: Segment| {
            if limit >= segment.to {
                return segment.share;
            }
            if limit <= segment.from {
                return 0.0;
            }
            split = true;
            segment.mass(segment.from, limit)
        };
        let sum = self.segments(amax).map(part).sum();
        (sum, split)
    }

    /// The smallest and the largest power of two that hold something: what an axis must show.
    pub fn extent(&self) -> Option<(i32, i32)> {
        let first = self.shares.iter().position(|share| *share > 0.0)?;
        let last = self.shares.iter().rposition(|share| *share > 0.0)?;
        Some((FIRST_EXPONENT + first as i32, FIRST_EXPONENT + last as i32 + 1))
    }

    /// The same without bins at the ends that hold less than a millionth of the values: a few stray ones
    /// would take half of an axis.
    pub fn main_extent(&self) -> Option<(i32, i32)> {
        let first = self.shares.iter().position(|share| *share >= 1e-6)?;
        let (_, last) = self.extent()?;
        Some((FIRST_EXPONENT + first as i32, last))
    }

    pub fn largest_share(&self) -> f64 {
        self.shares.iter().copied().fold(0.0, f64::max)
    }

    /// Mean number of powers of two by which values have moved: the earth mover's distance on the log2
    /// axis, among values that are finite and not zero. `None` when one of the two has none.
    pub fn octaves_from(&self, other: &Self) -> Option<f64> {
        let total = |histogram: &Self| histogram.shares.iter().sum::<f64>();
        let (mine, theirs) = (total(self), total(other));
        if mine <= 0.0 || theirs <= 0.0 {
            return None;
        }
        let (mut ahead, mut moved) = (0.0, 0.0);
        for (a, b) in self.shares.iter().zip(&other.shares) {
            ahead += a / mine - b / theirs;
            moved += f64::abs(ahead);
        }
        Some(moved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_fall_into_the_bins_of_the_format() {
        let values = [0.0, -0.0, 1.0, -1.999, 2.0, 0.25, f32::NAN, f32::INFINITY, 1e-30, 1e30];
        let histogram = Histogram::count(&values, Origin::Snapshot);
        let at = |power: i32| (histogram.shares[(power - FIRST_EXPONENT) as usize] * 10.0).round();
        assert_eq!((histogram.zeros, histogram.not_finite, histogram.num_values), (0.2, 0.2, 10));
        assert_eq!((at(0), at(1), at(-2), at(-40), at(39)), (2.0, 1.0, 1.0, 1.0, 1.0));
        assert_eq!(histogram.extent(), Some((-40, 40)));
    }

    #[test]
    fn a_straddled_bin_is_split_and_said() {
        let histogram = Histogram::count(&[1.0, 1.5, 3.0, 0.0], Origin::Snapshot);
        assert_eq!(histogram.up_to(1.0, None), (0.0, false));
        assert_eq!(histogram.up_to(1.5, None), (0.25, true));
        assert_eq!(histogram.up_to(2.0, None), (0.5, false));
        // Nothing lies above the amax: the last bin ends there.
        assert_eq!(histogram.up_to(2.5, Some(3.0)), (0.5 + 0.125, true));
        assert_eq!(histogram.up_to(3.0, Some(3.0)), (0.75, false));
    }

    #[test]
    fn distance_is_in_octaves() {
        let of = |values: &[f32]| Histogram::count(values, Origin::Snapshot);
        assert_eq!(of(&[1.0, 4.0]).octaves_from(&of(&[2.0, 8.0])), Some(1.0));
        assert_eq!(of(&[1.0]).octaves_from(&of(&[1.0, 0.0])), Some(0.0));
        assert_eq!(of(&[1.0]).octaves_from(&of(&[0.0])), None);
    }
}
