//! Takes a site's statistics, gives what the errors of its backward GEMMs are held against: how much the gradient of one
//! batch differs from the next one's anyway (docs/concepts/method.md, "Noise share").

use crate::{
    model::NoiseBasis,
    trace::{Distribution, GradientMoments, Magnitudes, Scaling, SiteStats, WeightStats},
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
                let energy = energy(stats, noise, grads);
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

/// What errors of single products grow with, an example. A whole example's gradient has products between its rows in it, which
/// they do not grow with.
fn energy(stats: &SiteStats, noise: &GradientMoments, grads: &Distribution) -> f64 {
    let rows_per_unit = stats.input.count as f64 / noise.count as f64;
    match &noise.magnitudes {
        Some(magnitudes) if rows_an_example(stats) > 1.0 => magnitudes.input(Scaling::Tensor).iter().sum(),
        Some(_) => noise.xg2,
        None if noise.by_example && rows_per_unit > 1.0 => {
            rows_per_unit * second_moment(&stats.input) * second_moment(grads)
        }
        None => noise.xg2,
    }
}

/// In the mean; 1 where the trace does not say. Below 1 where not every example comes to the site.
fn rows_an_example(stats: &SiteStats) -> f64 {
    let site = &stats.site;
    let of_a_call = site.m as f64 / site.examples().max(1) as f64;
    if site.calls == 1 {
        return of_a_call;
    }
    // A forward may call the site several times, and a step may have several forwards: which of the two calls are, the squares
    // of an example's rows say.
    let squares = |magnitudes: &Magnitudes| magnitudes.input(Scaling::Alone).iter().sum::<f64>();
    let magnitudes = stats.noise.as_ref().and_then(|noise| noise.magnitudes.as_deref());
    let seen = magnitudes.map_or(f64::NAN, |known| squares(known) / second_moment(&stats.input));
    let calls = if seen.is_finite() { (seen / of_a_call).round().clamp(1.0, site.calls as f64) } else { 1.0 };
    calls * of_a_call
}

/// The rows that an example has at a site: its tokens, or what a routed expert gets of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExampleRows {
    /// In the mean; below 1 where not every example comes here.
    pub count: f64,
    /// E|G_i|^2 over what it were if the products g x^T of an example's rows were independent: between 1 and `count` where rows
    /// agree. 1 where the trace does not know which rows an example has.
    pub agreement: f64,
}

impl Default for ExampleRows {
    /// Each example has one.
    fn default() -> Self {
        Self { count: 1.0, agreement: 1.0 }
    }
}

impl ExampleRows {
    pub fn of(stats: &SiteStats) -> Self {
        // Not of the statistics' rows: these are some of a step's.
        let count = rows_an_example(stats);
        let agreement = stats.noise.as_ref().zip(stats.grad_output.as_ref()).map_or(1.0, |(noise, grads)| {
            if noise.by_example && count > 1.0 { noise.xg2 / energy(stats, noise, grads) } else { 1.0 }
        });
        Self { count, agreement: if agreement.is_finite() { agreement } else { 1.0 } }
    }
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
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::{
        model::Site,
        trace::{Covariance, MAGNITUDE_BINS},
    };

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

    #[test]
    fn rows_of_an_example_are_counted_and_may_agree() {
        let of = |examples: u64, noise: Option<(f64, bool)>| {
            let mut site = stats().site;
            site.extra.insert("examples".to_owned(), examples.into());
            let moments = |(xg2, by_example)| {
                let (count, mean2) = (25, 0.0);
                GradientMoments { count, xg2, mean2, by_example, magnitudes: None }
            };
            ExampleRows::of(&SiteStats { site, noise: noise.map(moments), ..stats() })
        };
        assert_eq!(ExampleRows::of(&stats()), ExampleRows::default());
        assert_eq!(of(64, Some((60.0, true))), ExampleRows::default(), "an example's only row agrees with itself");
        // Four rows an example: 308 if they were independent.
        assert_eq!(of(16, Some((616.0, true))), ExampleRows { count: 4.0, agreement: 2.0 });
        assert_eq!(of(16, Some((616.0, false))), ExampleRows { count: 4.0, agreement: 1.0 });
        assert_eq!(of(16, None), ExampleRows { count: 4.0, agreement: 1.0 });
        assert_eq!(
            of(256, Some((60.0, true))),
            ExampleRows { count: 0.25, agreement: 1.0 },
            "an expert that few come to"
        );
    }

    #[test]
    fn calls_of_a_forward_are_rows_of_an_example_and_forwards_of_a_step_are_not() {
        // E|x|^2 = 7, and an example's rows have this much together.
        let of = |calls: usize, squares: Option<f64>| {
            let site = Site { calls, ..stats().site };
            let mut input = vec![0.0; 4 * MAGNITUDE_BINS];
            input[Scaling::Alone as usize * MAGNITUDE_BINS] = squares.unwrap_or_default();
            let magnitudes = squares.map(|_| Arc::new(Magnitudes { grad_output: input.clone(), input }));
            let noise = GradientMoments { count: 100, xg2: 60.0, mean2: 20.0, by_example: true, magnitudes };
            ExampleRows::of(&SiteStats { site, noise: Some(noise), ..stats() }).count
        };
        assert_eq!(of(2, Some(14.5)), 2.0, "two views of each example");
        assert_eq!(of(2, Some(6.5)), 1.0, "two micro-batches");
        assert_eq!(of(8, Some(13.0)), 2.0, "four micro-batches of two views");
        assert_eq!((of(2, Some(100.0)), of(2, None)), (2.0, 1.0));
    }
}
