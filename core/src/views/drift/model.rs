//! Takes a histogram and an amax; gives what a tensorwise cast loses with it: shares, and noise against
//! signal. And the same along a recorded series. The reading that it rests on is in [`super`].

use serde::{Deserialize, Serialize};

use super::series::{SeriesView, at_step};
use crate::{
    model::Format,
    numerics::{cast::scale_from_amax, rng::Rng},
    stats::{AmaxTable, copula_of},
    trace::{Distribution, SiteStats},
    views::distribution::{Histogram, Limits, Operand, OperandInspection, Segment, Shares, distribution_of},
};

/// A share of values that became zero which is worth a mark. No policy bounds shares; this is stated on
/// screen.
pub const SHARE_BOUND: f64 = 0.01;

/// A recorded amax this many times beyond every step of its series cannot be of the same quantity.
const OTHER_UNIT: f64 = 16.0;

/// Values in the body of a distribution, by magnitude.
const BODY: f64 = 0.99;

/// Batches drawn for the amax that the probe typically meets.
const BATCHES: usize = 31;

/// What a tensorwise cast with a given amax loses.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CastLoss {
    pub amax: f64,
    /// Not zero before, zero after.
    pub underflow: f64,
    pub subnormal: f64,
    /// Mean square of the cast's error over the mean square of the values.
    pub noise: f64,
    /// The same without the largest hundredth of the values, which may hold nearly all of the energy.
    pub body_noise: f64,
}

/// Steps of one bucket: at their smallest and at their largest amax.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DriftPoint {
    pub first_step: i64,
    pub last_step: i64,
    pub low: CastLoss,
    pub high: CastLoss,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MarkKind {
    /// More than [`SHARE_BOUND`] of the values would become zero; at the recorded amax fewer do.
    Underflow { share: f64 },
    /// The amax is beyond the recorded one: a scale kept from the recorded one would cut it off. No
    /// kernel of the catalogue keeps scales between steps.
    StaticScale { ratio: f64 },
}

/// Consecutive steps with the same finding, at its worst.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DriftMark {
    pub first_step: i64,
    pub last_step: i64,
    pub what: MarkKind,
}

/// One operand under the tensorwise cast that kernels use for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OperandDrift {
    pub operand: Operand,
    pub format: Format,
    /// At the amax of the batches that the probe draws: what measured errors stand on.
    pub probed: Option<CastLoss>,
    pub recorded_amax: Option<f64>,
    /// Along the series; `Err`: why nothing can be said.
    pub points: Result<Vec<DriftPoint>, String>,
    pub marks: Vec<DriftMark>,
}

impl OperandDrift {
    /// At the points that hold a step, or the nearest.
    pub fn at(&self, step: i64) -> Option<&DriftPoint> {
        at_step(self.points.as_ref().ok()?, step, |point| (point.first_step, point.last_step))
    }
}

impl CastLoss {
    /// The scale comes from `amax`, the values from the histogram, which ends at `recorded_amax`.
    pub fn at(histogram: &Histogram, recorded_amax: Option<f64>, format: Format, amax: f64) -> Self {
        let limits = Limits::of(format);
        let scale = f64::from(scale_from_amax(amax as f32, format, false));
        let shares = Shares::of_histogram(histogram, &limits, scale, recorded_amax);
        let (mut all, mut body) = (Energy::default(), Energy::default());
        let (values, mut seen) = (histogram.shares.iter().sum::<f64>(), 0.0);
        for segment in histogram.segments(recorded_amax) {
            let energy =
                Energy { signal: segment.energy(segment.from, segment.to), noise: noise_of(segment, &limits, scale) };
            all.add(energy);
            seen += segment.share;
            if seen <= BODY * values {
                body.add(energy);
            }
        }
        // Too narrow a distribution has no body apart from its largest values.
        let body_noise = if body.signal > 0.0 { body.ratio() } else { all.ratio() };
        Self { amax, underflow: shares.underflow, subnormal: shares.subnormal, noise: all.ratio(), body_noise }
    }
}

/// Sums of squares.
#[derive(Clone, Copy, Default)]
struct Energy {
    signal: f64,
    noise: f64,
}

impl Energy {
    fn add(&mut self, other: Self) {
        (self.signal, self.noise) = (self.signal + other.signal, self.noise + other.noise);
    }

    fn ratio(self) -> f64 {
        if self.signal > 0.0 { self.noise / self.signal } else { 0.0 }
    }
}

/// The integral of the squared error, in units of x: what becomes zero loses itself; elsewhere the error is
/// even over a step, and steps double from binade to binade of the *scaled* value, which do not begin where
/// the histogram's do.
fn noise_of(segment: Segment, limits: &Limits, scale: f64) -> f64 {
    let zero = limits.zero_to * scale;
    let Segment { from, to, .. } = segment;
    let mut noise = if from < zero { segment.energy(from, to.min(zero)) } else { 0.0 };
    let mut at = from.max(zero);
    while at < to {
        let stored = at / scale;
        let step = limits.step_at(stored) * scale;
        // The binade's end; below the normal numbers all have one step.
        let binade = 2f64.powi(stored.max(limits.smallest_normal).log2().floor() as i32 + 1) * scale;
        let end = if binade > at { to.min(binade) } else { to };
        noise += segment.mass(at, end) * step * step / 12.0;
        at = end;
    }
    noise
}

/// Input and weight in E4M3, the gradient in E5M2, as every tensorwise kernel casts them.
pub(in crate::views) fn operand_drifts(
    stats: &SiteStats,
    probs: &[f64],
    operands: &[OperandInspection],
) -> Vec<OperandDrift> {
    let series = super::series_views(stats);
    let drift = |inspected: &OperandInspection| {
        let operand = inspected.operand;
        let format = if operand == Operand::GradOutput { Format::E5m2 } else { Format::E4m3 };
        let recorded_amax = inspected.amax.as_ref().ok().map(|(amax, _)| *amax);
        let histogram = inspected.histogram.as_ref();
        let probed_amax = match distribution_of(stats, operand) {
            Some(distribution) => Some(typical_amax(distribution, probs, stats)),
            None => recorded_amax,
        };
        let at = |amax: f64| histogram.ok().map(|histogram| CastLoss::at(histogram, recorded_amax, format, amax));
        let probed = probed_amax.filter(|amax| amax.is_finite()).and_then(at);
        let found = series.iter().find(|series| series.name == operand.series());
        let points = points(found, histogram, recorded_amax, format, operand);
        let marks = points.as_ref().map_or(Vec::new(), |points| marks(points, probed, recorded_amax));
        OperandDrift { operand, format, probed, recorded_amax, points, marks }
    };
    operands.iter().map(drift).collect()
}

/// The median amax of batches as the engines draw them.
fn typical_amax(distribution: &Distribution, probs: &[f64], stats: &SiteStats) -> f64 {
    let copula = copula_of(distribution, probs);
    let table = AmaxTable::new(distribution, copula.as_ref());
    let mut rng = Rng::new(0, &[stats.site.id.as_str().as_bytes(), b"typical amax"]);
    let mut drawn: Vec<f32> = (0..BATCHES).map(|_| table.draw(stats.site.m as f64, &mut rng)).collect();
    drawn.sort_by(f32::total_cmp);
    f64::from(drawn[BATCHES / 2])
}

fn points(
    series: Option<&SeriesView>,
    histogram: Result<&Histogram, &String>,
    recorded_amax: Option<f64>,
    format: Format,
    operand: Operand,
) -> Result<Vec<DriftPoint>, String> {
    let histogram = histogram.map_err(String::clone)?;
    let series = series.ok_or_else(|| format!("the trace has no series {}", operand.series()))?;
    let Some((_, most)) = series.range else { return Err("no value of the series is finite".to_owned()) };
    if let Some(amax) = recorded_amax.filter(|amax| *amax > OTHER_UNIT * most) {
        return Err(format!(
            "the series never comes near the recorded amax (at most {most:.3e}, recorded {amax:.3e}): it is in \
             another unit, as gradients divided by the batch are"
        ));
    }
    let loss = |amax: f64| CastLoss::at(histogram, recorded_amax, format, amax);
    let point = |bucket: &super::Bucket| {
        let (low, high) = bucket.range?;
        let (first_step, last_step) = (bucket.first_step, bucket.last_step);
        Some(DriftPoint { first_step, last_step, low: loss(low), high: loss(high) })
    };
    Ok(series.points.iter().filter_map(point).collect())
}

fn marks(points: &[DriftPoint], probed: Option<CastLoss>, recorded_amax: Option<f64>) -> Vec<DriftMark> {
    let lost_before = probed.is_some_and(|loss| loss.underflow > SHARE_BOUND);
    let sinks = |point: &DriftPoint| {
        let share = point.high.underflow;
        (!lost_before && share > SHARE_BOUND).then_some(MarkKind::Underflow { share })
    };
    let beyond = |point: &DriftPoint| {
        let ratio = point.high.amax / recorded_amax?;
        // A series is FP32, and so is the recorded amax: equal to a rounding.
        (ratio > 1.0 + 1e-5).then_some(MarkKind::StaticScale { ratio })
    };
    let mut marks = joined(points, &sinks);
    marks.extend(joined(points, &beyond));
    marks
}

/// Runs of neighbouring points with a finding become one mark with the worst of it.
fn joined(points: &[DriftPoint], find: &dyn Fn(&DriftPoint) -> Option<MarkKind>) -> Vec<DriftMark> {
    let mut marks: Vec<DriftMark> = Vec::new();
    let mut open = false;
    for point in points {
        match (find(point), marks.last_mut().filter(|_| open)) {
            (Some(what), Some(mark)) => {
                mark.last_step = point.last_step;
                mark.what = worse(mark.what, what);
            }
            (Some(what), None) => {
                marks.push(DriftMark { first_step: point.first_step, last_step: point.last_step, what });
                open = true;
            }
            (None, _) => open = false,
        }
    }
    marks
}

fn worse(a: MarkKind, b: MarkKind) -> MarkKind {
    let size = |mark: MarkKind| match mark {
        MarkKind::Underflow { share } => share,
        MarkKind::StaticScale { ratio } => ratio,
    };
    if size(b) > size(a) { b } else { a }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{numerics::round, views::distribution::Origin};

    /// Magnitudes over many octaves, as activations after a norm and a swish are.
    fn samples() -> Vec<f32> {
        let mut values = vec![0f32; 200_000];
        Rng::new(5, &[b"drift"]).fill_normal(&mut values);
        let pairs: Vec<f32> = values.chunks_exact(2).map(|pair| pair[0] * (1.4 * pair[1]).exp()).collect();
        let largest = pairs.iter().fold(0f32, |a, v| a.max(v.abs()));
        pairs.into_iter().map(|value| value / largest).collect()
    }

    /// What really happens to the values under the scale of another amax.
    fn direct(values: &[f32], format: Format, amax: f32) -> (f64, f64, f64) {
        let scale = scale_from_amax(amax, format, false);
        let mut cast = vec![0f32; values.len()];
        round::divide(format, values, scale, &mut cast);
        let n = values.len() as f64;
        let normal = Limits::of(format).smallest_normal as f32;
        let zero = cast.iter().zip(values).filter(|(q, x)| **q == 0.0 && **x != 0.0).count() as f64 / n;
        let subnormal = cast.iter().filter(|q| **q != 0.0 && q.abs() < normal).count() as f64 / n;
        let error = |(q, x): (&f32, &f32)| (f64::from(q * scale) - f64::from(*x)).powi(2);
        let noise: f64 = cast.iter().zip(values).map(error).sum();
        let signal: f64 = values.iter().map(|x| f64::from(*x).powi(2)).sum();
        (zero, subnormal, noise / signal)
    }

    #[test]
    fn the_model_agrees_with_casting_real_samples() {
        let values = samples();
        let histogram = Histogram::count(&values, Origin::Recorded);
        for format in [Format::E4m3, Format::E5m2] {
            for amax in [1.0f32, 1.7, 4.0, 30.0, 1000.0, 40_000.0] {
                let model = CastLoss::at(&histogram, Some(1.0), format, f64::from(amax));
                let (zero, subnormal, noise) = direct(&values, format, amax);
                let near = |a: f64, b: f64, share: f64| (a - b).abs() <= share * b.max(a) + 2e-4;
                assert!(near(model.underflow, zero, 0.08), "{format:?} {amax}: {} {zero}", model.underflow);
                assert!(near(model.subnormal, subnormal, 0.08), "{format:?} {amax}: {} {subnormal}", model.subnormal);
                let ratio = model.noise / noise;
                // The largest few values hold much of the energy, and where they fall in a binade is chance.
                assert!((0.85..1.17).contains(&ratio), "{format:?} {amax}: noise {} {noise}", model.noise);
            }
        }
    }

    #[test]
    fn marks_join_neighbours_and_keep_the_worst() {
        let loss = |amax, underflow| CastLoss { amax, underflow, subnormal: 0.0, noise: 0.0, body_noise: 0.0 };
        let of = |(at, share): (usize, &f64)| {
            let step = at as i64;
            DriftPoint { first_step: step, last_step: step, low: loss(1.0, 0.0), high: loss(2.0 + share, *share) }
        };
        let points: Vec<DriftPoint> = [0.0, 0.02, 0.05, 0.03, 0.001, 0.02].iter().enumerate().map(of).collect();
        let marks = marks(&points, Some(loss(1.0, 0.0)), Some(2.04));
        let spans: Vec<_> = marks.iter().map(|mark| (mark.first_step, mark.last_step)).collect();
        assert_eq!(spans, [(1, 3), (5, 5), (2, 2)]);
        assert_eq!(marks[0].what, MarkKind::Underflow { share: 0.05 });
        assert!(matches!(marks[2].what, MarkKind::StaticScale { ratio } if (ratio - 2.05 / 2.04).abs() < 1e-12));
        assert!(super::marks(&points, Some(loss(1.0, 0.5)), None).is_empty(), "it was lost before");
    }
}
