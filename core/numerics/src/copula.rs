//! The Gaussian copula's second half: a correlated normal score through each feature's own quantile
//! function.
//!
//! Between recorded probabilities the quantile function is taken linear in the *normal score*, so a
//! Gaussian feature comes out exact; beyond the outermost probabilities the last slope goes on, up to
//! the recorded amax. The map is a sum of clamped ramps and so has no branch.

use super::{special::normal_quantile, vectorized::vectorized};

/// Maps Gaussian deviations from the mean to values, per feature.
#[derive(Clone, Debug)]
pub struct CopulaMap {
    /// Normal scores of the recorded probabilities, ascending, `q` of them.
    scores: Vec<f32>,
    /// 1 / standard deviation of each feature.
    inverse_deviation: Vec<f32>,
    /// Value at the first score, `[features]`.
    first: Vec<f32>,
    /// Slope of each of the `q - 1` segments, `[q - 1][features]`.
    slopes: Vec<f32>,
    amax: f32,
}

/// Features mapped side by side.
const LANES: usize = 16;

/// A map's numbers, for a device that maps by the same rule.
#[derive(Clone, Copy, Debug)]
pub struct CopulaParts<'a> {
    pub scores: &'a [f32],
    pub inverse_deviation: &'a [f32],
    pub first: &'a [f32],
    pub slopes: &'a [f32],
    pub amax: f32,
}

/// How far a score has come along one segment.
#[derive(Clone, Copy, Debug)]
struct Ramp {
    start: f32,
    low: f32,
    high: f32,
}

impl Ramp {
    #[inline(always)]
    fn along(&self, score: f32) -> f32 {
        let above = if score > self.low { score } else { self.low };
        (if above < self.high { above } else { self.high }) - self.start
    }
}

impl CopulaMap {
    /// `variances`: `[features]`; `quantiles`: `[features, probs]`; `amax`: beyond which nothing goes. `None` without at
    /// least two recorded quantiles.
    pub fn new(variances: &[f64], quantiles: &[f32], probs: &[f64], amax: Option<f64>) -> Option<Self> {
        let features = variances.len();
        if probs.len() < 2 || quantiles.len() != features * probs.len() {
            return None;
        }
        let scores: Vec<f32> = probs.iter().map(|p| normal_quantile(*p) as f32).collect();
        let q = probs.len();
        let segments = 0..q - 1;
        let slopes = segments
            .flat_map(|s| {
                let width = scores[s + 1] - scores[s];
                (0..features).map(move |j| (quantiles[j * q + s + 1] - quantiles[j * q + s]) / width)
            })
            .collect();
        let inverse = |variance: &f64| if *variance > 0.0 { variance.sqrt().recip() as f32 } else { 0.0 };
        Some(Self {
            scores,
            inverse_deviation: variances.iter().map(inverse).collect(),
            first: (0..features).map(|j| quantiles[j * q]).collect(),
            slopes,
            amax: amax.filter(|amax| *amax > 0.0).map_or(f32::MAX, |amax| amax as f32),
        })
    }

    pub fn parts(&self) -> CopulaParts<'_> {
        let Self { scores, inverse_deviation, first, slopes, amax } = self;
        CopulaParts { scores, inverse_deviation, first, slopes, amax: *amax }
    }

    fn ramps(&self) -> impl Iterator<Item = Ramp> + '_ {
        let last = self.scores.len() - 2;
        (0..=last).map(move |s| Ramp {
            start: self.scores[s],
            // The outermost segments are open.
            low: if s == 0 { f32::MIN } else { self.scores[s] },
            high: if s == last { f32::MAX } else { self.scores[s + 1] },
        })
    }

    /// The map of some of the features, in the given order.
    pub fn restricted(&self, features: &[usize]) -> Self {
        let pick = |values: &[f32]| features.iter().map(|feature| values[*feature]).collect::<Vec<f32>>();
        let all = self.first.len();
        Self {
            scores: self.scores.clone(),
            inverse_deviation: pick(&self.inverse_deviation),
            first: pick(&self.first),
            slopes: self.slopes.chunks_exact(all).flat_map(pick).collect(),
            amax: self.amax,
        }
    }

    /// Rows of deviations from the mean, in place; `[rows, features]`.
    pub fn map_rows(&self, rows: &mut [f32]) {
        let ramps: Vec<Ramp> = self.ramps().collect();
        vectorized!((map: &'a CopulaMap = self, ramps: &'a [Ramp] = &ramps, rows: &'a mut [f32] = rows) -> () {
            let features = map.first.len();
            for row in rows.chunks_exact_mut(features) {
                let (chunks, rest) = row.as_chunks_mut::<LANES>();
                let whole = chunks.len() * LANES;
                for (index, chunk) in chunks.iter_mut().enumerate() {
                    map.map_lanes(ramps, index * LANES, chunk);
                }
                for (index, value) in rest.iter_mut().enumerate() {
                    let mut one = [*value];
                    map.map_lanes(ramps, whole + index, &mut one);
                    *value = one[0];
                }
            }
        });
    }

    /// Features `first..first + N` of one row.
    #[inline(always)]
    fn map_lanes<const N: usize>(&self, ramps: &[Ramp], first: usize, values: &mut [f32; N]) {
        let features = self.first.len();
        let inverse = &self.inverse_deviation[first..first + N];
        let mut scores = [0f32; N];
        let mut sums = [0f32; N];
        sums.copy_from_slice(&self.first[first..first + N]);
        for lane in 0..N {
            scores[lane] = values[lane] * inverse[lane];
        }
        for (ramp, slopes) in ramps.iter().zip(self.slopes.chunks_exact(features)) {
            let slopes = &slopes[first..first + N];
            for lane in 0..N {
                sums[lane] += slopes[lane] * ramp.along(scores[lane]);
            }
        }
        for lane in 0..N {
            values[lane] = sums[lane].clamp(-self.amax, self.amax);
        }
    }

    /// The normal scores `(low, high)` between which a feature's magnitude stays within `bound`.
    pub fn scores_within(&self, feature: usize, bound: f32) -> (f64, f64) {
        (self.score_where(feature, -bound, self.amax), self.score_where(feature, bound, self.amax))
    }

    /// The same as if the last slopes went on beyond the recorded amax.
    pub fn open_scores_within(&self, feature: usize, bound: f32) -> (f64, f64) {
        (self.score_where(feature, -bound, f32::MAX), self.score_where(feature, bound, f32::MAX))
    }

    /// The score at which the (rising) map reaches `value`; infinite where it never does, as from `end` on.
    fn score_where(&self, feature: usize, value: f32, end: f32) -> f64 {
        let features = self.first.len();
        if value.abs() >= end {
            return if value > 0.0 { f64::INFINITY } else { f64::NEG_INFINITY };
        }
        let last = self.scores.len() - 2;
        let mut start = self.first[feature];
        for s in 0..=last {
            let slope = self.slopes[s * features + feature];
            let end = start + slope * (self.scores[s + 1] - self.scores[s]);
            let inside = value <= end || s == last;
            if inside && slope > 0.0 {
                return f64::from(self.scores[s] + (value - start) / slope);
            }
            if inside && value < start {
                return f64::NEG_INFINITY;
            }
            if inside && s == last {
                return f64::INFINITY;
            }
            if value <= end {
                return f64::from(self.scores[s]);
            }
            start = end;
        }
        f64::INFINITY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gaussian_feature_is_left_alone() {
        let probs = [0.001, 0.1, 0.5, 0.9, 0.999];
        let quantiles: Vec<f32> = probs.iter().map(|p| (2.0 + 3.0 * normal_quantile(*p)) as f32).collect();
        let map = CopulaMap::new(&[9.0], &quantiles, &probs, None).unwrap();
        for deviation in [-14.0f32, -3.0, 0.0, 0.4, 9.0, 20.0] {
            let mut row = [deviation];
            map.map_rows(&mut row);
            assert!((row[0] - (2.0 + deviation)).abs() < 1e-3, "{deviation}: {row:?}");
            let (_, high) = map.scores_within(0, (2.0 + deviation).abs());
            assert!((high - f64::from(((2.0 + deviation).abs() - 2.0) / 3.0)).abs() < 1e-3, "{deviation}: {high}");
        }
    }

    #[test]
    fn rectified_features_keep_their_zeros() {
        let map = CopulaMap::new(&[1.0], &[0.0, 0.0, 1.3], &[0.1, 0.5, 0.9], Some(2.0)).unwrap();
        let mut row = [-2.5f32];
        map.map_rows(&mut row);
        assert_eq!(row, [0.0]);
        let mut row = [9.0f32];
        map.map_rows(&mut row);
        assert_eq!(row, [2.0], "never beyond the recorded amax");
        assert_eq!(map.scores_within(0, 3.0), (f64::NEG_INFINITY, f64::INFINITY));
    }
}
