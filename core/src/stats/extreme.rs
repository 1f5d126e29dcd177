//! The largest magnitude of a whole batch, when only some of its rows were drawn.
//!
//! A tensorwise scale follows the amax of all `m` rows: a scale from a few rows would be too fine and
//! the error too small. With features taken as independent, P(amax <= a) over n rows is
//! prod_j P(|x_j| <= a)^n; a draw inverts it. (Correlated features would make it smaller still, so
//! the error errs on the safe side.)

use crate::{
    numerics::{CopulaMap, rng::Rng, special::normal_upper},
    trace::Distribution,
};

const POINTS: usize = 48;

/// Normal scores beyond which a feature's probability adds nothing to the sum in FP64.
const NEVER: f64 = 8.5;

/// How far a copula's tails go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// To the recorded amax, as rows are drawn.
    Recorded,
    /// On beyond it with the last slope: what was not seen yet may still come.
    Open,
}

/// Means and deviations of a distribution's features.
pub(super) struct Spread<'a> {
    mean: &'a [f64],
    deviations: Vec<f64>,
}

impl<'a> Spread<'a> {
    pub fn of(distribution: &'a Distribution) -> Self {
        let variances = distribution.cov.variances(distribution.mean.len());
        Self { mean: &distribution.mean, deviations: variances.iter().map(|v| v.max(0.0).sqrt()).collect() }
    }

    /// ln P(all features of one row within `bound`), features taken as independent.
    pub fn ln_within(&self, bound: f64, copula: Option<&CopulaMap>, reach: Reach) -> f64 {
        let of = |(j, (mean, deviation)): (usize, (&f64, &f64))| {
            let (low, high) = match (copula, reach) {
                (Some(copula), Reach::Recorded) => copula.scores_within(j, bound as f32),
                (Some(copula), Reach::Open) => copula.open_scores_within(j, bound as f32),
                (None, _) => {
                    let deviation = deviation.max(f64::MIN_POSITIVE);
                    ((-bound - mean) / deviation, (bound - mean) / deviation)
                }
            };
            if high > NEVER && low < -NEVER {
                return 0.0;
            }
            let outside = normal_upper(high) + normal_upper(-low);
            if outside < 1.0 { (-outside).ln_1p() } else { -745.0 }
        };
        self.mean.iter().zip(&self.deviations).enumerate().map(of).sum()
    }
}

/// ln P(all features of one row within `a`), on a grid of `a`.
#[derive(Clone, Debug)]
pub struct AmaxTable {
    bounds: Vec<f64>,
    ln_within: Vec<f64>,
}

impl AmaxTable {
    pub fn new(distribution: &Distribution, copula: Option<&CopulaMap>) -> Self {
        let spread = Spread::of(distribution);
        let deviations = &spread.deviations;
        let reach = |sigmas: f64| {
            let ends =
                distribution.mean.iter().zip(deviations).map(|(mean, deviation)| mean.abs() + sigmas * deviation);
            ends.fold(f64::MIN_POSITIVE, f64::max)
        };
        // Copula tails reach further than sigmas tell, but never past the recorded amax.
        let far = match (copula, distribution.amax) {
            (Some(_), Some(amax)) if amax > 0.0 => amax.max(reach(2.0)),
            _ => reach(9.0),
        };
        let near = reach(1.0).min(far) * 0.5;
        let bounds: Vec<f64> = (0..POINTS).map(|i| near * (far / near).powf(i as f64 / (POINTS - 1) as f64)).collect();
        let ln_within = bounds.iter().map(|bound| spread.ln_within(*bound, copula, Reach::Recorded)).collect();
        Self { bounds, ln_within }
    }

    /// Draws the amax of `rows` rows.
    pub fn draw(&self, rows: f64, rng: &mut Rng) -> f32 {
        if rows <= 0.0 {
            return 0.0;
        }
        let target = rng.uniform().ln() / rows;
        let above = self.ln_within.partition_point(|value| *value < target);
        let bound = match above {
            0 => self.bounds[0],
            _ if above == POINTS => self.bounds[POINTS - 1],
            _ => {
                let (lo, hi) = (self.ln_within[above - 1], self.ln_within[above]);
                // Between points -ln falls exponentially with the bound: interpolate its logarithm.
                let share = ((-lo).ln() - (-target).ln()) / ((-lo).ln() - (-hi).max(1e-300).ln());
                self.bounds[above - 1] + (self.bounds[above] - self.bounds[above - 1]) * share.clamp(0.0, 1.0)
            }
        };
        bound as f32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        stats::{RowSampler, SamplerKind},
        trace::Covariance,
    };

    #[test]
    fn draws_follow_the_real_maximum() {
        let distribution = Distribution {
            count: 100,
            mean: vec![0.0, 1.0, -0.5, 0.0],
            cov: Covariance::Full(vec![1., 0., 0., 0., 0., 2., 0., 0., 0., 0., 1., 0., 0., 0., 0., 0.1]),
            quantiles: None,
            hist: None,
            amax: None,
        };
        let table = AmaxTable::new(&distribution, None);
        let sampler = RowSampler::new("input", &distribution, &[], SamplerKind::Gaussian).unwrap();
        let (mut drawn, mut real) = (0.0, 0.0);
        let mut rng = Rng::new(2, &[b"amax"]);
        for _ in 0..300 {
            drawn += f64::from(table.draw(1000.0, &mut rng));
            let rows = sampler.rows(1000, &mut rng);
            real += f64::from(rows.data.iter().fold(0f32, |a, v| a.max(v.abs())));
        }
        assert!((drawn / real - 1.0).abs() < 0.02, "{} against {}", drawn / 300.0, real / 300.0);
    }
}
