//! Takes an operand's recorded distribution and the rows of a step, or a bound on its values; gives the E4M3 scale
//! that is known before the operand is, and how likely a step saturates with it.
//!
//! P(amax of m rows <= a) is that of [`super::AmaxTable`], with two differences. Tails go on beyond the recorded amax:
//! a larger value may come that was not seen yet. And what *was* seen counts: below the recorded amax at least one of
//! the recorded rows reached beyond, whatever the fitted tails say.

use crate::{
    model::{Format, StaticScale},
    numerics::{CopulaMap, fp8::format_max},
    trace::Distribution,
};

use super::extreme::{Reach, Spread};

/// The most often that a step may saturate: one in a thousand. The step's amax is then an outlier that a batch does
/// not miss much of, and another factor of two in the scale would cost every element's subnormal range.
pub const MOST_SATURATION: f64 = 1e-3;

/// Exponents of scales: from where other recipes floor theirs (1e-12), to where FP32 still squares.
const EXPONENTS: std::ops::RangeInclusive<i32> = -39..=60;

/// Rounding to BF16 may lift a value above its bound by this factor.
const ROUNDED_UP: f64 = 1.0 + 1.0 / 256.0;

/// The smallest power of two with which a step of `rows` rows saturates with a probability of no more than
/// [`MOST_SATURATION`]. `None`: no scale is large enough, or the statistics are not numbers.
pub fn static_scale(distribution: &Distribution, copula: Option<&CopulaMap>, rows: usize) -> Option<StaticScale> {
    let spread = Spread::of(distribution);
    let at = |exponent: i32| {
        let scale = 2f32.powi(exponent);
        let largest = f64::from(format_max(Format::E4m3)) * f64::from(scale);
        StaticScale { scale, saturation: saturation(distribution, &spread, copula, rows as f64, largest) }
    };
    // NaN is not within.
    let within = |known: &StaticScale| known.saturation <= MOST_SATURATION;
    let (mut low, mut high) = EXPONENTS.into_inner();
    let mut found = Some(at(high)).filter(within)?;
    while low < high {
        let middle = low + (high - low).div_euclid(2);
        match Some(at(middle)).filter(within) {
            Some(known) => (found, high) = (known, middle),
            None => low = middle + 1,
        }
    }
    Some(found)
}

/// The smallest power of two that holds every value of at most `bound`: nothing saturates.
pub fn static_scale_within(bound: f64) -> Option<StaticScale> {
    let fits = |scale: &f32| bound * ROUNDED_UP <= f64::from(format_max(Format::E4m3)) * f64::from(*scale);
    let scale = EXPONENTS.map(|exponent| 2f32.powi(exponent)).find(fits)?;
    Some(StaticScale { scale, saturation: 0.0 })
}

/// P that a step of `rows` rows saturates with that scale.
pub fn saturation_at(distribution: &Distribution, copula: Option<&CopulaMap>, rows: usize, scale: f32) -> f64 {
    let largest = f64::from(format_max(Format::E4m3)) * f64::from(scale);
    saturation(distribution, &Spread::of(distribution), copula, rows as f64, largest)
}

/// P(amax of `rows` rows > `largest`).
fn saturation(
    distribution: &Distribution,
    spread: &Spread<'_>,
    copula: Option<&CopulaMap>,
    rows: f64,
    largest: f64,
) -> f64 {
    // From 0, so that nothing is 0 and not -0.
    let modelled = 0.0 - (rows * spread.ln_within(largest, copula, Reach::Open)).exp_m1();
    let was_seen = distribution.amax.is_some_and(|amax| amax > largest);
    let count = distribution.count.max(1) as f64;
    let seen = if was_seen { -(rows * (-1.0 / count).ln_1p()).exp_m1() } else { 0.0 };
    // Not `f64::max`, which would drop a NaN.
    if modelled < seen { seen } else { modelled }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        numerics::{rng::Rng, special::normal_quantile},
        stats::{RowSampler, SamplerKind, copula_of},
        trace::Covariance,
    };

    fn normal(mean: &[f64], deviations: &[f64]) -> Distribution {
        let features = mean.len();
        let cov = (0..features * features).map(|at| {
            let (i, j) = (at / features, at % features);
            if i == j { deviations[i] * deviations[i] } else { 0.0 }
        });
        Distribution {
            count: 1_000_000,
            mean: mean.to_vec(),
            cov: Covariance::Full(cov.collect()),
            quantiles: None,
            hist: None,
            amax: None,
        }
    }

    #[test]
    fn one_standard_normal_feature_by_hand() {
        // 448 * 2^-7 = 3.5: 1 - (1 - 2 * 2.3263e-4)^1000 = .3721. 448 * 2^-6 = 7: 1000 * 2 * 1.2798e-12 = 2.56e-9.
        let distribution = normal(&[0.0], &[1.0]);
        let known = static_scale(&distribution, None, 1000).unwrap();
        assert_eq!(known.scale, 0.015_625);
        assert!((known.saturation / 2.5596e-9 - 1.0).abs() < 1e-3, "{known:?}");
        let finer = saturation(&distribution, &Spread::of(&distribution), None, 1000.0, 3.5);
        assert!((finer - 0.3721).abs() < 1e-4, "{finer}");
    }

    #[test]
    fn what_was_seen_counts_whatever_the_tails_say() {
        let mut distribution = normal(&[0.0], &[1.0]);
        distribution.amax = Some(20.0);
        // Once in a million rows: 1000 rows reach it in .0999 % of steps, which is allowed; 2000 in .1998 %.
        let known = static_scale(&distribution, None, 1000).unwrap();
        assert_eq!(known.scale, 0.015_625);
        assert!((known.saturation - 9.995e-4).abs() < 1e-7, "{known:?}");
        let known = static_scale(&distribution, None, 2000).unwrap();
        assert_eq!(known.scale, 0.0625, "448 * 2^-4 = 28 holds the 20 that was seen");
        assert!(known.saturation < 1e-9);
    }

    #[test]
    fn the_probability_is_how_often_steps_saturate() {
        let probs = [0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999];
        let mut heavy = normal(&[0.0, 0.5, -1.0], &[1.0, 2.0, 0.5]);
        // Tails of t with 3 degrees, roughly: the sampler and the probability share one quantile function.
        let quantile = |p: f64| (normal_quantile(p) * (1.0 + 0.1 * normal_quantile(p).powi(2))) as f32;
        heavy.quantiles = Some((0..3).flat_map(|j| probs.map(|p| quantile(p) * (j + 1) as f32)).collect());
        for (distribution, kind) in
            [(normal(&[0.0, 1.0, -0.5], &[1.0, 1.5, 0.7]), SamplerKind::Gaussian), (heavy, SamplerKind::Copula)]
        {
            let sampler = RowSampler::new("input", &distribution, &probs, kind).unwrap();
            let mut rng = Rng::new(4, &[b"saturation"]);
            let mut amaxes: Vec<f32> =
                (0..4000).map(|_| sampler.rows(64, &mut rng).data.iter().fold(0f32, |a, v| a.max(v.abs()))).collect();
            amaxes.sort_by(f32::total_cmp);
            let spread = Spread::of(&distribution);
            for share in [0.5, 0.1, 0.02] {
                let bound = f64::from(amaxes[((1.0 - share) * 4000.0) as usize]);
                let stated = saturation(&distribution, &spread, sampler.copula(), 64.0, bound);
                let error = 4.0 * (share * (1.0 - share) / 4000.0_f64).sqrt();
                assert!((stated - share).abs() < error, "{kind:?}: {stated} stated, {share} happened");
            }
        }
    }

    #[test]
    fn tails_go_on_beyond_the_recorded_amax() {
        let probs = [0.1, 0.5, 0.9];
        let mut distribution = normal(&[0.0], &[1.0]);
        distribution.quantiles = Some(probs.map(|p| normal_quantile(p) as f32).to_vec());
        distribution.amax = Some(3.0);
        let copula = copula_of(&distribution, &probs).unwrap();
        let known = static_scale(&distribution, Some(&copula), 1000).unwrap();
        assert_eq!(known.scale, 0.015_625, "a normal tail, though no value above 3 was seen");
        assert!(known.saturation > 0.0);
    }

    #[test]
    fn a_bound_holds_what_it_bounds() {
        assert_eq!(static_scale_within(16.0), Some(StaticScale { scale: 0.0625, saturation: 0.0 }));
        assert_eq!(static_scale_within(1.0).unwrap().scale, 2f32.powi(-8));
        // 448 exactly, and BF16's rounding above it.
        assert_eq!(static_scale_within(448.0).unwrap().scale, 2.0);
        assert_eq!(static_scale_within(f64::NAN), None);
        assert_eq!(static_scale_within(f64::INFINITY), None);
    }

    #[test]
    fn what_is_no_number_has_no_scale_and_zeros_have_the_floor() {
        assert_eq!(static_scale(&normal(&[f64::NAN], &[1.0]), None, 10), None);
        let zeros = static_scale(&normal(&[0.0], &[0.0]), None, 10).unwrap();
        assert_eq!((zeros.scale, zeros.saturation.to_bits()), (2f32.powi(-39), 0));
    }
}
