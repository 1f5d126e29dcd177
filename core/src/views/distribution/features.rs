//! Takes quantiles of every feature, or rows to count them from; gives bands over the features sorted by
//! how far they reach, at most 512 columns of them, and the features that stand out by name.

use serde::{Deserialize, Serialize};

use crate::{model::Matrix, numerics::special::normal_quantile, trace::Distribution};

use super::operand::Origin;

/// Columns of the picture.
const MAX_COLUMNS: usize = 512;

/// Features named.
const MAX_OUTLIERS: usize = 10;

/// Reaching this many times as far as the median feature makes an outlier: one power of two.
pub const OUTLIER_FACTOR: f64 = 2.0;

/// The five probabilities asked for: extremes, band, median.
const WANTED: [f64; 5] = [0.0, 0.05, 0.5, 0.95, 1.0];

/// One column: a feature, or neighbours in the order by spread. Of several, every part reaches as far as
/// that of any, so that no feature is lost.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Band {
    /// The widest of the column's features, by its index in the site.
    pub feature: usize,
    pub num_features: usize,
    pub extremes: (f64, f64),
    pub band: (f64, f64),
    /// Smallest and largest median.
    pub median: (f64, f64),
}

/// A feature that reaches much further than the others.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outlier {
    pub feature: usize,
    pub median: f64,
    /// The larger magnitude of its two extreme quantiles.
    pub reach: f64,
    /// Over the median feature's reach.
    pub factor: f64,
}

/// All features of an operand.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Features {
    /// By spread, the widest first.
    pub columns: Vec<Band>,
    pub num_features: usize,
    /// The furthest first.
    pub outliers: Vec<Outlier>,
    pub num_outliers: usize,
    /// Which quantiles: lower extreme, lower end of the band, median, upper end, upper extreme. 0 and 1 are
    /// the smallest and the largest value.
    pub probs: [f64; 5],
    /// The median feature's reach and distance between its extremes.
    pub typical_reach: f64,
    pub typical_spread: f64,
    pub largest_reach: f64,
    pub origin: Origin,
}

type Five = [f64; 5];

impl Features {
    /// The recorded quantiles nearest to the wanted ones; the normal ones where none were recorded.
    pub(super) fn recorded(distribution: &Distribution, probs: &[f64]) -> Result<Self, String> {
        let features = distribution.mean.len();
        match &distribution.quantiles {
            Some(quantiles) if probs.len() >= 3 && quantiles.len() == features * probs.len() => {
                let picks = nearest(probs);
                let rows = quantiles.chunks_exact(probs.len());
                let five = rows.map(|row| picks.map(|at| f64::from(row[at])));
                Self::from_quantiles(&five.collect::<Vec<_>>(), picks.map(|at| probs[at]), Origin::Recorded)
            }
            _ => {
                let probs = [0.001, 0.05, 0.5, 0.95, 0.999];
                let scores = probs.map(normal_quantile);
                let deviations = distribution.cov.variances(features).into_iter().map(|v| v.max(0.0).sqrt());
                let five = distribution.mean.iter().zip(deviations).map(|(mean, d)| scores.map(|z| mean + z * d));
                Self::from_quantiles(&five.collect::<Vec<_>>(), probs, Origin::Normal)
            }
        }
    }

    /// Of a weight: every output feature over its own row.
    pub(super) fn of_rows(values: &Matrix, origin: Origin) -> Result<Self, String> {
        let five = |row: &[f32]| {
            let mut row: Vec<f32> = row.iter().copied().filter(|value| value.is_finite()).collect();
            row.sort_by(f32::total_cmp);
            let last = row.len().saturating_sub(1) as f64;
            WANTED.map(|p| row.get((p * last).round() as usize).map_or(0.0, |value| f64::from(*value)))
        };
        let all = values.data.chunks_exact(values.cols.max(1)).map(five);
        Self::from_quantiles(&all.collect::<Vec<_>>(), WANTED, origin)
    }

    fn from_quantiles(all: &[Five], probs: Five, origin: Origin) -> Result<Self, String> {
        if all.iter().flatten().any(|value| !value.is_finite()) {
            return Err("a quantile is not finite".to_owned());
        }
        let mut order: Vec<usize> = (0..all.len()).collect();
        order.sort_by(|a, b| spread(&all[*b]).total_cmp(&spread(&all[*a])).then(a.cmp(b)));
        let per_column = all.len().div_ceil(MAX_COLUMNS).max(1);
        let columns = order.chunks(per_column).map(|group| column(group, all)).collect();
        let reaches: Vec<f64> = all.iter().map(reach).collect();
        let typical_reach = median(reaches.clone());
        let (outliers, num_outliers) = outliers(all, &reaches, typical_reach);
        Ok(Self {
            columns,
            num_features: all.len(),
            outliers,
            num_outliers,
            probs,
            typical_reach,
            typical_spread: median(all.iter().map(spread).collect()),
            largest_reach: reaches.iter().copied().fold(0.0, f64::max),
            origin,
        })
    }
}

fn outliers(all: &[Five], reaches: &[f64], typical: f64) -> (Vec<Outlier>, usize) {
    let factor = |reach: f64| if typical > 0.0 { reach / typical } else { 0.0 };
    let far = (0..all.len()).filter(|at| factor(reaches[*at]) >= OUTLIER_FACTOR);
    let name = |at: usize| Outlier { feature: at, median: all[at][2], reach: reaches[at], factor: factor(reaches[at]) };
    let mut outliers: Vec<Outlier> = far.map(name).collect();
    outliers.sort_by(|a, b| b.reach.total_cmp(&a.reach).then(a.feature.cmp(&b.feature)));
    let count = outliers.len();
    outliers.truncate(MAX_OUTLIERS);
    (outliers, count)
}

fn spread(five: &Five) -> f64 {
    five[4] - five[0]
}

fn reach(five: &Five) -> f64 {
    five[0].abs().max(five[4].abs())
}

/// The indices of the recorded probabilities nearest to the wanted ones; the extremes are the outermost.
fn nearest(probs: &[f64]) -> [usize; 5] {
    WANTED.map(|wanted| {
        let distance = |at: &usize| (probs[*at] - wanted).abs();
        (0..probs.len()).min_by(|a, b| distance(a).total_cmp(&distance(b))).unwrap_or(0)
    })
}

/// `group`: neighbours in the order by spread, the widest first; not empty.
fn column(group: &[usize], all: &[Five]) -> Band {
    let lowest = |at: usize| group.iter().map(|feature| all[*feature][at]).fold(f64::INFINITY, f64::min);
    let highest = |at: usize| group.iter().map(|feature| all[*feature][at]).fold(f64::NEG_INFINITY, f64::max);
    Band {
        feature: group[0],
        num_features: group.len(),
        extremes: (lowest(0), highest(4)),
        band: (lowest(1), highest(3)),
        median: (lowest(2), highest(2)),
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Covariance;

    fn many(features: usize, odd: usize, reach: f64) -> Vec<Five> {
        let of = |feature: usize| {
            let size = if feature == odd { reach } else { 1.0 + feature as f64 * 1e-5 };
            [-size, -0.5, 0.0, 0.5, size * 0.5]
        };
        (0..features).map(of).collect()
    }

    #[test]
    fn downsampling_loses_no_outlier() {
        for odd in [0, 1, 777, 4_999] {
            let features = Features::from_quantiles(&many(5_000, odd, 40.0), WANTED, Origin::Recorded).unwrap();
            assert!(features.columns.len() <= MAX_COLUMNS);
            assert_eq!(features.columns.iter().map(|column| column.num_features).sum::<usize>(), 5_000);
            assert_eq!(features.columns[0].feature, odd, "the widest comes first");
            assert_eq!(features.columns[0].extremes.0, -40.0);
            assert_eq!(features.outliers.len(), 1);
            let outlier = features.outliers[0];
            assert_eq!((outlier.feature, outlier.reach), (odd, 40.0));
            assert!((outlier.factor - 40.0 / features.typical_reach).abs() < 1e-12 && outlier.factor > 38.0);
        }
    }

    #[test]
    fn a_feature_far_off_with_little_spread_is_named_too() {
        let mut all = many(2_000, 0, 1.0);
        all[1_234] = [30.0, 30.0, 30.1, 30.2, 30.2];
        let features = Features::from_quantiles(&all, WANTED, Origin::Recorded).unwrap();
        assert_eq!(features.outliers[0].feature, 1_234);
        let last = features.columns.last().unwrap();
        assert_eq!(last.extremes.1, 30.2, "its column reaches as far");
    }

    #[test]
    fn the_recorded_probabilities_nearest_are_taken_and_said() {
        let probs = [0.001, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999];
        let row: Vec<f32> = (0..9).map(|i| i as f32).collect();
        let cov = Covariance::Full(vec![4.0]);
        let mut distribution =
            Distribution { count: 9, mean: vec![1.0], cov, quantiles: Some(row), hist: None, amax: None };
        let features = Features::recorded(&distribution, &probs).unwrap();
        assert_eq!(features.probs, [0.001, 0.01, 0.5, 0.99, 0.999]);
        assert_eq!((features.columns[0].extremes, features.columns[0].band), ((0.0, 8.0), (1.0, 7.0)));
        distribution.quantiles = None;
        let features = Features::recorded(&distribution, &probs).unwrap();
        assert_eq!(features.origin, Origin::Normal);
        assert!((features.columns[0].extremes.1 - (1.0 + 2.0 * 3.0902)).abs() < 1e-3);
    }

    #[test]
    fn a_weights_rows_are_counted() {
        let matrix = Matrix { rows: 2, cols: 5, data: vec![0.0, 1.0, -3.0, 2.0, 0.5, 9.0, 9.0, 9.0, 9.0, 9.0] };
        let features = Features::of_rows(&matrix, Origin::Snapshot).unwrap();
        assert_eq!(features.columns[0].extremes, (-3.0, 2.0));
        assert_eq!(features.columns[0].median, (0.5, 0.5));
        assert_eq!((features.columns[1].feature, features.largest_reach), (1, 9.0));
    }
}
