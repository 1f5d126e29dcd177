//! The Gaussian copula's second half: a correlated normal score through each feature's own quantile
//! function.
//!
//! Between recorded probabilities the quantile function is taken linear in the *normal score*, so a
//! Gaussian feature comes out exact; beyond the outermost probabilities the last slope goes on, up to
//! the recorded amax. The map is a sum of clamped ramps and so has no branch.

use crate::{
    numerics::{special::normal_quantile, vectorized},
    trace::Distribution,
};

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
    /// `None` without at least two recorded quantiles.
    pub fn new(distribution: &Distribution, probs: &[f64]) -> Option<Self> {
        let features = distribution.mean.len();
        let quantiles = distribution.quantiles.as_ref()?;
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
            inverse_deviation: distribution.cov.variances(features).iter().map(inverse).collect(),
            first: (0..features).map(|j| quantiles[j * q]).collect(),
            slopes,
            amax: distribution.amax.filter(|amax| *amax > 0.0).map_or(f32::MAX, |amax| amax as f32),
        })
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

    /// A row of deviations from the mean, in place; `[features]`.
    pub fn map_row(&self, row: &mut [f32]) {
        let ramps: Vec<Ramp> = self.ramps().collect();
        let mut sums = self.first.clone();
        vectorized!((map: &'a CopulaMap = self, ramps: &'a [Ramp] = &ramps, row: &'a mut [f32] = row,
                     sums: &'a mut [f32] = &mut sums) -> () {
            for (value, inverse) in row.iter_mut().zip(&map.inverse_deviation) {
                *value *= inverse;
            }
            for (ramp, slopes) in ramps.iter().zip(map.slopes.chunks_exact(sums.len())) {
                for ((sum, slope), score) in sums.iter_mut().zip(slopes).zip(row.iter()) {
                    *sum += slope * ramp.along(*score);
                }
            }
            for (value, sum) in row.iter_mut().zip(sums) {
                *value = sum.clamp(-map.amax, map.amax);
            }
        });
    }

    /// Deviations of one feature over many rows, in place.
    pub fn map_feature(&self, feature: usize, values: &mut [f32]) {
        let features = self.first.len();
        let slopes: Vec<f32> = self.slopes.iter().skip(feature).step_by(features).copied().collect();
        let ramps: Vec<(f32, Ramp)> = slopes.into_iter().zip(self.ramps()).collect();
        let (inverse, first, amax) = (self.inverse_deviation[feature], self.first[feature], self.amax);
        vectorized!((ramps: &'a [(f32, Ramp)] = &ramps, inverse: f32 = inverse, first: f32 = first, amax: f32 = amax,
                     values: &'a mut [f32] = values) -> () {
            // A stretch at a time, so that it stays in registers while the ramps add up.
            for chunk in values.chunks_mut(64) {
                let mut sums = [first; 64];
                let mut scores = [0f32; 64];
                for (score, value) in scores.iter_mut().zip(chunk.iter()) {
                    *score = value * inverse;
                }
                for (slope, ramp) in ramps {
                    for (sum, score) in sums.iter_mut().zip(&scores) {
                        *sum += slope * ramp.along(*score);
                    }
                }
                for (value, sum) in chunk.iter_mut().zip(&sums) {
                    *value = sum.clamp(-amax, amax);
                }
            }
        });
    }

    /// The normal scores `(low, high)` between which a feature's magnitude stays within `bound`.
    pub fn scores_within(&self, feature: usize, bound: f32) -> (f64, f64) {
        (self.score_where(feature, -bound), self.score_where(feature, bound))
    }

    /// The score at which the (rising) map reaches `value`; infinite where it never does.
    fn score_where(&self, feature: usize, value: f32) -> f64 {
        let features = self.first.len();
        if value.abs() >= self.amax {
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
    use crate::trace::Covariance;

    fn gaussian(probs: &[f64], mean: f64, deviation: f64) -> Distribution {
        let quantiles = probs.iter().map(|p| (mean + deviation * normal_quantile(*p)) as f32).collect();
        Distribution {
            count: 100,
            mean: vec![mean],
            cov: Covariance::Full(vec![deviation * deviation]),
            quantiles: Some(quantiles),
            hist: None,
            amax: None,
        }
    }

    #[test]
    fn a_gaussian_feature_is_left_alone() {
        let probs = [0.001, 0.1, 0.5, 0.9, 0.999];
        let map = CopulaMap::new(&gaussian(&probs, 2.0, 3.0), &probs).unwrap();
        for deviation in [-14.0f32, -3.0, 0.0, 0.4, 9.0, 20.0] {
            let mut row = [deviation];
            map.map_row(&mut row);
            assert!((row[0] - (2.0 + deviation)).abs() < 1e-3, "{deviation}: {row:?}");
            let mut column = [deviation];
            map.map_feature(0, &mut column);
            assert_eq!(row, column);
            let (_, high) = map.scores_within(0, (2.0 + deviation).abs());
            assert!((high - f64::from(((2.0 + deviation).abs() - 2.0) / 3.0)).abs() < 1e-3, "{deviation}: {high}");
        }
    }

    #[test]
    fn rectified_features_keep_their_zeros() {
        let probs = [0.1, 0.5, 0.9];
        let distribution = Distribution {
            count: 100,
            mean: vec![0.4],
            cov: Covariance::Full(vec![1.0]),
            quantiles: Some(vec![0.0, 0.0, 1.3]),
            hist: None,
            amax: Some(2.0),
        };
        let map = CopulaMap::new(&distribution, &probs).unwrap();
        let mut row = [-2.5f32];
        map.map_row(&mut row);
        assert_eq!(row, [0.0]);
        let mut row = [9.0f32];
        map.map_row(&mut row);
        assert_eq!(row, [2.0], "never beyond the recorded amax");
        assert_eq!(map.scores_within(0, 3.0), (f64::NEG_INFINITY, f64::INFINITY));
    }
}
