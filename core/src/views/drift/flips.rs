//! Takes a site's drift and its rows; gives each kernel's error along the series, as far as it can be derived,
//! and the steps at which its verdict would be another. The derivation is in [`super`].

use serde::{Deserialize, Serialize};

use super::{
    model::{CastLoss, OperandDrift},
    series::at_step,
};
use crate::{
    dispatch::{Bound, Policy, bound_of},
    model::{Estimate, Gemm, Granularity, KernelId, LOSS_COST_RANGE, Metric, OperandCast, ResultRow, Safety},
    views::distribution::{Inspection, Operand},
};

/// How far the derived error may be from a real GEMM's, as a factor (a test holds it).
pub const MODEL_ERROR: f64 = 1.12;

/// The error at the steps of one bucket, from its smallest to its largest.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Predicted {
    pub first_step: i64,
    pub last_step: i64,
    pub low: Estimate,
    pub high: Estimate,
}

/// Steps at which the verdict would be another than the measured one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlipSpan {
    pub first_step: i64,
    pub last_step: i64,
    pub to: Safety,
    /// The error furthest from the measured one.
    pub error: Estimate,
}

/// One kernel at one GEMM.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KernelDrift {
    pub gemm: Gemm,
    pub kernel: KernelId,
    pub metric: Metric,
    pub limit: f64,
    /// `None` also where it is a loss cost outside its range.
    pub measured: Option<Estimate>,
    pub safety: Safety,
    /// Beyond it a derived loss cost is outside its range; `None`: nothing is.
    pub range: Option<f64>,
    /// `Err`: why it cannot be derived.
    pub errors: Result<Vec<Predicted>, String>,
    pub flips: Vec<FlipSpan>,
}

impl KernelDrift {
    /// A derived error that means nothing: a loss cost beyond its range.
    pub fn is_out_of_range(&self, error: Estimate) -> bool {
        is_out_of_range(error, self.range)
    }

    /// The error that is derived at a step, that of the largest amax where several share a point, and the verdict that it
    /// would have.
    pub fn at(&self, step: i64) -> Option<(Estimate, Safety)> {
        let at = at_step(self.errors.as_ref().ok()?, step, |of| (of.first_step, of.last_step))?;
        let flip = self.flips.iter().find(|flip| (flip.first_step..=flip.last_step).contains(&at.first_step));
        Some((at.high, flip.map_or(self.safety, |flip| flip.to)))
    }
}

/// `rows`: of the site under the mods in force. `loss`: the trace's. High-precision kernels are left out.
pub fn kernel_drifts<'a>(
    inspection: &Inspection,
    rows: impl IntoIterator<Item = &'a ResultRow>,
    policy: &Policy,
    loss: f64,
) -> Vec<KernelDrift> {
    let low =
        rows.into_iter().filter(|row| row.site == inspection.site.id && row.supported && row.kernel.is_low_precision());
    low.map(|row| kernel_drift(inspection, row, bound_of(policy, &row.site, row.gemm, loss), loss)).collect()
}

fn kernel_drift(inspection: &Inspection, row: &ResultRow, bound: Bound, loss: f64) -> KernelDrift {
    let measured = row.figure(bound.metric, loss);
    let safety = bound.safety(measured);
    let range = range_of(row, loss).filter(|_| bound.metric == Metric::LossCost);
    let errors = match measured {
        None if bound.metric == Metric::LossCost && row.loss_cost_means_nothing(loss) => {
            Err("the measured loss cost is more than a tenth of the loss, where the estimate means nothing".to_owned())
        }
        measured => predicted(inspection, row, bound.metric, measured, 1.0),
    };
    // A change that the model cannot tell from none flips nothing.
    let certain = predicted(inspection, row, bound.metric, measured, MODEL_ERROR).unwrap_or_default();
    let flips = errors.as_ref().map_or(Vec::new(), |errors| flips(errors, &certain, (bound, range), safety));
    let (gemm, kernel) = (row.gemm, row.kernel.clone());
    KernelDrift { gemm, kernel, metric: bound.metric, limit: bound.limit, measured, safety, range, errors, flips }
}

/// What is charged grows as the cost itself does, which is what has a range.
fn range_of(row: &ResultRow, loss: f64) -> Option<f64> {
    let (charged, cost) = (row.metric(Metric::LossCost)?.value, row.error.as_ref()?.loss_cost?.value);
    (loss > 0.0 && cost > 0.0).then_some(LOSS_COST_RANGE * loss * charged / cost)
}

fn is_out_of_range(error: Estimate, range: Option<f64>) -> bool {
    range.is_some_and(|range| error.value > range || error.value.is_nan())
}

fn predicted(
    inspection: &Inspection,
    row: &ResultRow,
    metric: Metric,
    measured: Option<Estimate>,
    doubt: f64,
) -> Result<Vec<Predicted>, String> {
    let measured = measured.ok_or_else(|| format!("{} was not measured", metric.label()))?;
    match metric {
        Metric::BlockRelL2 => {
            return Err("the error after the tail does not follow from the cast's noise alone".to_owned());
        }
        Metric::MaxAbs => return Err("the largest error follows the largest values, not the cast's noise".to_owned()),
        _ => {}
    }
    let (a, b) = operands(inspection, row)?;
    let (a_points, b_points) = (points(a)?, points(b)?);
    if a_points.len() != b_points.len() {
        return Err("the two operands' series are not of the same steps".to_owned());
    }
    let (Some(a_now), Some(b_now)) = (a.probed, b.probed) else {
        return Err("the amax of a batch is not known".to_owned());
    };
    if a_now.noise + b_now.noise <= 0.0 {
        return Err("the casts make no noise at the probed amax".to_owned());
    }
    let pairs = || a_points.iter().zip(b_points);
    let mut ends = pairs().flat_map(|(a, b)| [(a.low, b.low), (a.high, b.high)]);
    if matches!(metric, Metric::Mere | Metric::MedianRel) && ends.any(|at| is_split(at, (a_now, b_now))) {
        return Err("a hundredth of the values holds the energy: the typical output does not follow it".to_owned());
    }
    let of = |a: CastLoss, b: CastLoss| {
        let factor = ((a.noise + b.noise) / (a_now.noise + b_now.noise)).sqrt();
        let least = if factor > 1.0 { (factor / doubt).max(1.0) } else { (factor * doubt).min(1.0) };
        scaled(measured, metric, least)
    };
    Ok(pairs()
        .map(|(a, b)| Predicted {
            first_step: a.first_step,
            last_step: a.last_step,
            low: of(a.low, b.low),
            high: of(a.high, b.high),
        })
        .collect())
}

/// Whether the body's noise changes otherwise than that of all values, by more than the model may err: then
/// errors relative to each output, most of which have no large value in them, do not follow the energy.
fn is_split(at: (CastLoss, CastLoss), now: (CastLoss, CastLoss)) -> bool {
    let all = |(a, b): (CastLoss, CastLoss)| a.noise + b.noise;
    let body = |(a, b): (CastLoss, CastLoss)| a.body_noise + b.body_noise;
    let apart = (all(at) / all(now) / (body(at) / body(now))).sqrt();
    !(1.0 / MODEL_ERROR..=MODEL_ERROR).contains(&apart)
}

fn points(drift: &OperandDrift) -> Result<&[super::DriftPoint], String> {
    drift.points.as_deref().map_err(|reason| format!("{}: {reason}", drift.operand.label().to_lowercase()))
}

/// Left and right operand, where both have one scale for the tensor.
fn operands<'a>(inspection: &'a Inspection, row: &ResultRow) -> Result<(&'a OperandDrift, &'a OperandDrift), String> {
    let (a, b) = match row.gemm {
        Gemm::Fprop => (Operand::Input, Operand::Weight),
        Gemm::Dgrad => (Operand::GradOutput, Operand::Weight),
        Gemm::Wgrad => (Operand::GradOutput, Operand::Input),
    };
    let numerics = row.kernel.known().ok_or("the kernel is not in the catalogue")?.numerics(row.gemm);
    for cast in [numerics.a, numerics.b] {
        if let Some(reason) = underivable(cast) {
            return Err(reason.to_owned());
        }
    }
    let find = |operand: Operand, cast: OperandCast| {
        inspection
            .drift(operand)
            .filter(|drift| drift.format == cast.format)
            .ok_or_else(|| format!("the trace has no {operand}"))
    };
    Ok((find(a, numerics.a)?, find(b, numerics.b)?))
}

fn underivable(cast: OperandCast) -> Option<&'static str> {
    match cast.granularity {
        Granularity::Tensor if cast.power_of_two => Some("a power-of-two scale moves in jumps that a series hides"),
        Granularity::Tensor => None,
        Granularity::Static => Some("a static scale does not follow the amax: the error jumps where values saturate"),
        Granularity::Row => Some("a row's scale follows that row's amax; the series has the tensor's only"),
        Granularity::Block1x128 | Granularity::Block128x128 => {
            Some("a block's scale follows that block's amax; the series has the tensor's only")
        }
        Granularity::None => Some("without a scale nothing follows the amax"),
    }
}

/// The metric when the output's error grows by `factor`.
fn scaled(estimate: Estimate, metric: Metric, factor: f64) -> Estimate {
    let map = |value: f64| match metric {
        Metric::SqnrDb => value - 20.0 * factor.log10(),
        Metric::LossCost => value * factor * factor,
        _ => value * factor,
    };
    Estimate::new(map(estimate.value), map(estimate.lo), map(estimate.hi))
}

/// Runs of neighbouring buckets with the same other verdict. `certain`: the errors with the model's own doubt
/// in favour of no change; verdicts follow those.
fn flips(
    errors: &[Predicted],
    certain: &[Predicted],
    (bound, range): (Bound, Option<f64>),
    measured: Safety,
) -> Vec<FlipSpan> {
    let safety = |error: Estimate| bound.safety(Some(error).filter(|error| !is_out_of_range(*error, range)));
    let mut spans: Vec<FlipSpan> = Vec::new();
    let mut open: Option<Safety> = None;
    for (at, certain) in errors.iter().zip(certain) {
        // The larger error first: a peak matters more than a dip in the same bucket.
        let ends = [(safety(certain.high), at.high), (safety(certain.low), at.low)];
        let found = ends.into_iter().find(|(safety, _)| *safety != measured);
        match (found, spans.last_mut()) {
            (Some((to, error)), Some(span)) if open == Some(to) => {
                span.last_step = at.last_step;
                if further(error, span.error, to) {
                    span.error = error;
                }
            }
            (Some((to, error)), _) => {
                spans.push(FlipSpan { first_step: at.first_step, last_step: at.last_step, to, error });
            }
            (None, _) => {}
        }
        open = found.map(|(to, _)| to);
    }
    spans
}

fn further(error: Estimate, than: Estimate, to: Safety) -> bool {
    if to == Safety::Safe { error.value < than.value } else { error.value > than.value }
}

#[cfg(test)]
mod tests;
