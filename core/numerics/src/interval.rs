//! Estimates with intervals, from per-draw sums.
//!
//! **Ratios** (rel L2, loss cost) use the delta method over draws with Student's t.
//!
//! **MERE** needs care. With a reference whose density at zero is positive, P(|e|/|ref| > t) falls as
//! `c / t`: the mean does not exist, the mean over N outputs grows as `c ln N`, and its scatter from
//! batch to batch has the same 1/t tail. So the estimand is fixed as *the median, over batches, of the
//! MERE of a full-size output* (N = all outputs of the site's GEMM), and estimated in two parts:
//! the mean of the body up to [`TAIL_START`], which has all moments, and the tail, whose constant is
//! counted (`p` = share of outputs beyond) and whose contribution is known. The sum of N p Pareto(1)
//! values, divided by its count n, is `ln n + 1 - gamma + L` with L Landau-distributed (Uchaikin and
//! Zolotarev, "Chance and Stability", ch. 2), median 1.3558; so
//!
//! ```text
//! MERE = body + TAIL_START p (ln(N p) + 0.4228 + 1.3558)
//! ```
//!
//! Both parts have finite variance over draws, so that a t interval holds (tests show its coverage),
//! rows and columns can be subsampled without bias, and the value is one that a full run would show.

use crate::Estimate;

use super::{error_stats::TAIL_START, special::t_two_sided};

/// 1 - Euler's gamma + the median of the standard Landau distribution.
const LANDAU_SHIFT: f64 = 0.422_784 + 1.355_780;

/// One draw's part of a ratio of sums.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    pub numerator: f64,
    pub denominator: f64,
}

/// One draw's part of MERE: mean of the body over all outputs with ref != 0, share beyond.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MereDraw {
    pub body: f64,
    pub tail_share: f64,
}

/// sqrt(sum numerators / sum denominators), e.g. rel L2.
pub fn root_ratio(draws: &[Ratio], confidence: f64) -> Estimate {
    let n = draws.len().max(1) as f64;
    let numerator = draws.iter().map(|draw| draw.numerator).sum::<f64>() / n;
    let denominator = draws.iter().map(|draw| draw.denominator).sum::<f64>() / n;
    if denominator <= 0.0 {
        return Estimate::exact(if numerator > 0.0 { f64::INFINITY } else { 0.0 });
    }
    let value = (numerator / denominator).sqrt();
    if value == 0.0 {
        return Estimate::exact(0.0);
    }
    let influence = |draw: &Ratio| (draw.numerator - value * value * draw.denominator) / (2.0 * value * denominator);
    around(value, draws.iter().map(influence), confidence)
}

/// sum numerators / sum denominators: a share of a variance, or, with a sign, a slope. `None`: of nothing.
pub fn ratio(draws: &[Ratio], confidence: f64) -> Option<Estimate> {
    let n = draws.len().max(1) as f64;
    let numerator = draws.iter().map(|draw| draw.numerator).sum::<f64>() / n;
    let denominator = draws.iter().map(|draw| draw.denominator).sum::<f64>() / n;
    // A NaN is passed on: it is a finding.
    if denominator <= 0.0 {
        return None;
    }
    let value = numerator / denominator;
    let influences = draws.iter().map(|draw| (draw.numerator - value * draw.denominator) / denominator);
    Some(match half_width(influences, confidence) {
        Some(half) => Estimate::new(value, value - half, value + half),
        None => Estimate::new(value, f64::NEG_INFINITY, f64::INFINITY),
    })
}

/// The plain mean.
pub fn mean(values: &[f64], confidence: f64) -> Estimate {
    let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
    around(mean, values.iter().map(|value| value - mean), confidence)
}

/// The median MERE of an output with `outputs` elements.
pub fn mere(draws: &[MereDraw], outputs: f64, confidence: f64) -> Estimate {
    let n = draws.len().max(1) as f64;
    let body = draws.iter().map(|draw| draw.body).sum::<f64>() / n;
    let share = draws.iter().map(|draw| draw.tail_share).sum::<f64>() / n;
    let start = f64::from(TAIL_START);
    let growth = if share > 0.0 { (outputs * share).ln() + LANDAU_SHIFT } else { 0.0 };
    // With hardly any output beyond (N p below .17) the median output has none.
    let value = body + start * share * growth.max(0.0);
    let slope = start * (growth + 1.0).max(0.0);
    let influence = |draw: &MereDraw| draw.body - body + slope * (draw.tail_share - share);
    around(value, draws.iter().map(influence), confidence)
}

/// A t interval from influence values that sum to zero, of a metric that is never negative.
fn around(value: f64, influences: impl Iterator<Item = f64> + Clone, confidence: f64) -> Estimate {
    match half_width(influences, confidence) {
        Some(half) => Estimate::new(value, (value - half).max(0.0), value + half),
        None => Estimate::new(value, 0.0, f64::INFINITY),
    }
}

/// `None`: one draw says nothing of the scatter.
fn half_width(influences: impl Iterator<Item = f64> + Clone, confidence: f64) -> Option<f64> {
    let n = influences.clone().count();
    if n < 2 {
        return None;
    }
    let variance = influences.map(|influence| influence * influence).sum::<f64>() / (n as f64 * (n as f64 - 1.0));
    Some(t_two_sided(confidence, n - 1) * variance.sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    /// |e| / |r| of a centred Gaussian pair: the case the paper calls normal inputs.
    fn ratios(rng: &mut Rng, sigma: f32, count: usize) -> Vec<f32> {
        let mut normals = vec![0f32; 2 * count];
        rng.fill_normal(&mut normals);
        normals.as_chunks::<2>().0.iter().map(|[e, r]| sigma * e.abs() / r.abs()).collect()
    }

    fn draw_of(ratios: &[f32]) -> MereDraw {
        let n = ratios.len() as f64;
        let body = ratios.iter().filter(|r| **r <= TAIL_START).map(|r| f64::from(*r)).sum::<f64>() / n;
        MereDraw { body, tail_share: ratios.iter().filter(|r| **r > TAIL_START).count() as f64 / n }
    }

    fn median(mut values: Vec<f64>) -> f64 {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    }

    #[test]
    fn subsampled_draws_find_the_full_size_median() {
        // The truth: the median over 400 batches of 2^16 outputs of the plain mean.
        let full = 1 << 16;
        let mut rng = Rng::new(3, &[b"truth"]);
        let truth = median(
            (0..400)
                .map(|_| ratios(&mut rng, 0.037, full).iter().map(|r| f64::from(*r)).sum::<f64>() / full as f64)
                .collect(),
        );
        // The estimate: draws of 2^12 outputs.
        let mut rng = Rng::new(4, &[b"draws"]);
        let draws: Vec<MereDraw> = (0..400).map(|_| draw_of(&ratios(&mut rng, 0.037, 1 << 12))).collect();
        let estimate = mere(&draws, full as f64, 0.95);
        assert!((estimate.value / truth - 1.0).abs() < 0.02, "{estimate:?} against {truth}");
    }

    #[test]
    fn the_interval_covers() {
        // The limit of many draws is the truth; 16 draws a trial, 600 trials. A coverage of 95 % would
        // show at least 92.9 % with probability .99.
        let (draws, trials, outputs) = (16, 600, 1e6);
        let mut rng = Rng::new(5, &[b"coverage"]);
        let all: Vec<MereDraw> = (0..draws * trials).map(|_| draw_of(&ratios(&mut rng, 0.037, 2048))).collect();
        let truth = mere(&all, outputs, 0.95).value;
        let covered = all
            .chunks_exact(draws)
            .filter(|draws| {
                let estimate = mere(draws, outputs, 0.95);
                estimate.lo <= truth && truth <= estimate.hi
            })
            .count();
        assert!(covered as f64 >= 0.929 * trials as f64, "{covered} of {trials}");
        assert!(covered < trials, "an interval that always covers says nothing");
    }

    #[test]
    fn a_ratio_has_a_sign() {
        let draws = [Ratio { numerator: -1.0, denominator: 4.0 }, Ratio { numerator: -3.0, denominator: 4.0 }];
        let slope = ratio(&draws, 0.95).unwrap();
        // Influences are 1/4 and -1/4: half is t(1) / 4.
        assert_eq!(slope.value, -0.5);
        assert!((slope.hi + 0.5 - 12.706 / 4.0).abs() < 1e-3 && slope.lo == -1.0 - slope.hi, "{slope:?}");
        assert_eq!(ratio(&[Ratio { numerator: 1.0, denominator: 0.0 }], 0.95), None);
        assert_eq!(ratio(&draws[..1], 0.95).unwrap().hi, f64::INFINITY);
    }

    #[test]
    fn root_ratio_by_hand() {
        let draws = [Ratio { numerator: 1.0, denominator: 4.0 }, Ratio { numerator: 1.0, denominator: 4.0 }];
        assert_eq!(root_ratio(&draws, 0.95), Estimate::exact(0.5));
        assert_eq!(root_ratio(&draws[..1], 0.95), Estimate::new(0.5, 0.0, f64::INFINITY));
    }
}
