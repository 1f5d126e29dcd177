//! Takes a site's statistics, gives what the errors of its backward GEMMs are held against: how much the gradient of one
//! batch differs from the next one's anyway (docs/concepts/method.md, "Noise share").

use crate::{
    model::{NoiseBasis, Site},
    trace::{Distribution, Scaling, SiteStats, WeightStats},
};

/// The noise of a batch's gradient, as far as the trace tells.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GradientNoise {
    /// Of wgrad: `m E[|x|^2 |g|^2]`, which errors of products grow with, over the trace of the gradient's covariance.
    /// `None`: the trace says that there is none.
    pub energy_over_noise: Option<f64>,
    /// Of dgrad: |E dx|^2, the part of E|dx|^2 that is no noise.
    pub dx_mean2: f64,
    pub basis: NoiseBasis,
}

impl GradientNoise {
    /// `None` without gradients.
    pub fn of(stats: &SiteStats) -> Option<Self> {
        let grads = stats.grad_output.as_ref()?;
        let (energy_over_noise, basis) = match &stats.noise {
            Some(noise) => {
                let rows_per_unit = stats.input.count as f64 / noise.count as f64;
                // A whole example's gradient has products between its rows in it, which errors of single products do not
                // grow with.
                let energy = match &noise.magnitudes {
                    Some(magnitudes) if has_several_rows_an_example(&stats.site) => {
                        magnitudes.input(Scaling::Tensor).iter().sum()
                    }
                    Some(_) => noise.xg2,
                    None if noise.by_example && rows_per_unit > 1.0 => {
                        rows_per_unit * second_moment(&stats.input) * second_moment(grads)
                    }
                    None => noise.xg2,
                };
                (over(energy, noise.xg2, noise.mean2), NoiseBasis::Recorded)
            }
            None => {
                let energy = second_moment(&stats.input) * second_moment(grads);
                (over(energy, energy, mean_gradient2(stats, grads)), NoiseBasis::Independent)
            }
        };
        Some(Self { energy_over_noise, dx_mean2: dx_mean2(stats, grads), basis })
    }
}

/// Where the trace says how many examples a forward has.
fn has_several_rows_an_example(site: &Site) -> bool {
    site.extra.contains_key("examples") && (site.calls * site.m) as u64 > site.examples()
}

fn over(energy: f64, second: f64, mean2: f64) -> Option<f64> {
    let noise = second - mean2.max(0.0);
    (noise > 0.0).then(|| energy / noise)
}

/// E|x|^2
pub(super) fn second_moment(of: &Distribution) -> f64 {
    let variance: f64 = of.cov.variances(of.mean.len()).iter().sum();
    variance + of.mean.iter().map(|mean| mean * mean).sum::<f64>()
}

/// |E[g x^T]|^2; without a cross-covariance of independent x and g.
fn mean_gradient2(stats: &SiteStats, grads: &Distribution) -> f64 {
    let (x, k) = (&stats.input.mean, stats.input.mean.len());
    let row = |(i, g): (usize, &f64)| -> f64 {
        let cross = stats.cross_cov.as_ref().map(|cross| &cross[i * k..(i + 1) * k]);
        let entry = |(j, x): (usize, &f64)| (g * x + cross.map_or(0.0, |cross| f64::from(cross[j]))).powi(2);
        x.iter().enumerate().map(entry).sum()
    };
    grads.mean.iter().enumerate().map(row).sum()
}

/// |W^T E g|^2
fn dx_mean2(stats: &SiteStats, grads: &Distribution) -> f64 {
    let k = stats.site.k;
    let mut mean = vec![0.0; k];
    let mut add = |g: f64, row: &mut dyn Iterator<Item = f64>| {
        mean.iter_mut().zip(row).for_each(|(mean, weight)| *mean += g * weight);
    };
    for (i, g) in grads.mean.iter().enumerate() {
        match &stats.weight {
            WeightStats::Snapshot(weight) => add(*g, &mut weight[i * k..(i + 1) * k].iter().map(|w| f64::from(*w))),
            WeightStats::MatrixNormal { mean, .. } => add(*g, &mut mean[i * k..(i + 1) * k].iter().copied()),
        }
    }
    mean.iter().map(|mean| mean * mean).sum()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::trace::{Covariance, GradientMoments};

    fn distribution(mean: Vec<f64>, variances: [f64; 2]) -> Distribution {
        let cov = Covariance::Full(vec![variances[0], 0.0, 0.0, variances[1]]);
        Distribution { count: 100, mean, cov, quantiles: None, hist: None, amax: None }
    }

    /// E|x|^2 = 1 + 4 + 2 = 7, E|g|^2 = 9 + 2 = 11; E g = (3, 0), W^T E g = (3, 6).
    fn stats() -> SiteStats {
        let site = json!({"id": "s", "m": 64, "k": 2, "n": 2, "dtype": "f32"});
        let weight = WeightStats::Snapshot(vec![1.0, 2.0, 5.0, 5.0]);
        let input = distribution(vec![1.0, 2.0], [1.0, 1.0]);
        let plain = SiteStats::new(serde_json::from_value(site).unwrap(), input, weight);
        SiteStats { grad_output: Some(distribution(vec![3.0, 0.0], [1.0, 1.0])), ..plain }
    }

    #[test]
    fn without_a_record_input_and_gradient_are_independent() {
        let noise = GradientNoise::of(&stats()).unwrap();
        // 77 / (77 - |E g|^2 |E x|^2 = 45)
        assert_eq!((noise.energy_over_noise, noise.basis), (Some(77.0 / 32.0), NoiseBasis::Independent));
        assert_eq!(noise.dx_mean2, 45.0);
        let correlated = SiteStats { cross_cov: Some(vec![1.0, 0.0, 0.0, -2.0]), ..stats() };
        // E[g x^T] = [[3 + 1, 6], [0, -2]]: 16 + 36 + 4.
        assert_eq!(GradientNoise::of(&correlated).unwrap().energy_over_noise, Some(77.0 / 21.0));
    }

    #[test]
    fn what_was_recorded_goes_first() {
        let recorded = |count, xg2, mean2, by_example| {
            let noise = Some(GradientMoments { count, xg2, mean2, by_example, magnitudes: None });
            GradientNoise::of(&SiteStats { noise, ..stats() }).unwrap()
        };
        assert_eq!(recorded(100, 60.0, 20.0, true).energy_over_noise, Some(1.5));
        assert_eq!(recorded(100, 60.0, 20.0, true).basis, NoiseBasis::Recorded);
        assert_eq!(recorded(100, 60.0, -2.0, true).energy_over_noise, Some(1.0), "a mean that is next to nothing");
        assert_eq!(recorded(100, 60.0, 60.0, true).energy_over_noise, None, "every example has the same gradient");
        // Four rows an example, whose products belong together: errors of single products go with 4 x 77.
        assert_eq!(recorded(25, 1000.0, 40.0, true).energy_over_noise, Some(308.0 / 960.0));
        assert_eq!(recorded(25, 1000.0, 40.0, false).energy_over_noise, Some(1000.0 / 960.0));
    }
}
