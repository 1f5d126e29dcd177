//! Takes a site's recorded series, gives how far casts and fast accumulation move a weight's gradient in the first and in the
//! last steps (docs/concepts/method.md, "A relative error of wgrad changes as a model learns").

use crate::{
    model::{Gemm, StepErrors, kernel},
    trace::{Series, SiteStats},
};

use super::Dependence;

/// Of each recorded step's batch: |G|, the error of G from operands in E4M3 with one power of two a tensor, and what fast
/// accumulation cuts off it.
const NORM: &str = "weight_grad_norm";
const ERROR: &str = "weight_grad_e4m3";
const CUT: &str = "weight_grad_fast";

/// Those casts in all three GEMMs.
const RECORDED_CASTS: &str = "cublaslt/fp8-delayed";

/// Steps that the end of a recording is a median over: one step's gradient is mostly chance.
const LAST_STEPS: usize = 5;

/// Squared relative error of a weight's gradient in a step, over the noise share of the same casts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SquareOverShare {
    first: f64,
    last: f64,
    /// rel L2 of fast accumulation, whatever the casts are; `None`: not recorded.
    cut: Option<StepErrors>,
}

impl SquareOverShare {
    /// `None`: not recorded, or no step has a gradient.
    pub fn of(stats: &SiteStats, dependence: &Dependence) -> Option<Self> {
        let share = dependence.wgrad_noise_share(kernel(RECORDED_CASTS)?.numerics(Gemm::Wgrad), [None; 2])?;
        let (first, last) = first_and_last(&stats.series, ERROR)?;
        let cut = first_and_last(&stats.series, CUT)
            .map(|(first, last)| StepErrors { first: first.sqrt(), last: last.sqrt() });
        (share > 0.0).then(|| Self { first: first / share, last: last / share, cut })
    }

    /// rel L2 of a wgrad whose casts alone have this noise share: they err in proportion to those that were recorded.
    pub fn errors(self, share: f64) -> Option<StepErrors> {
        let found = StepErrors { first: (share * self.first).sqrt(), last: (share * self.last).sqrt() };
        (found.first.is_finite() && found.last.is_finite()).then_some(found)
    }

    #[cfg(test)]
    pub(crate) fn with_cut(cut: Option<StepErrors>) -> Self {
        Self { first: 1.0, last: 1.0, cut }
    }

    /// What fast accumulation adds to them: it errs the same way in every step, and casts do not.
    pub fn cut(self) -> Option<StepErrors> {
        self.cut
    }
}

impl StepErrors {
    /// Two errors that have nothing to do with each other.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self { first: self.first.hypot(other.first), last: self.last.hypot(other.last) }
    }
}

/// Squared relative errors of a kind in the first step that has a gradient, and in the last ones.
fn first_and_last(series: &[Series], kind: &str) -> Option<(f64, f64)> {
    let values = |name| Some(&series.iter().find(|series| series.name == name)?.values);
    let (norms, errors) = (values(NORM)?, values(kind)?);
    let square = |(norm, error): (&f32, &f32)| (f64::from(*error) / f64::from(*norm)).powi(2);
    let squares: Vec<f64> = norms.iter().zip(errors).map(square).filter(|square| square.is_finite()).collect();
    let mut last = squares[squares.len().saturating_sub(LAST_STEPS)..].to_vec();
    last.sort_by(f64::total_cmp);
    Some((*squares.first()?, last[last.len() / 2]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(all: [&[f32]; 2]) -> Vec<Series> {
        let of = |(name, values): (&str, &[f32])| Series {
            name: name.to_owned(),
            steps: (0..values.len() as i64).collect(),
            values: values.to_vec(),
        };
        [NORM, ERROR].into_iter().zip(all).map(of).collect()
    }

    #[test]
    fn first_and_last_are_of_steps_with_a_gradient() {
        let norm = [f32::NAN, 4.0, 9.0, 1.0, 2.0, 0.0, 4.0, 1.0, 8.0];
        // At the last five: of 1, 1/4, 1/16, 1 and 1/64.
        assert_eq!(first_and_last(&series([&norm, &[1.0; 9]]), ERROR), Some((1.0 / 16.0, 0.25)));
        assert_eq!(first_and_last(&series([&[0.0], &[0.0]]), ERROR), None);
        assert_eq!(first_and_last(&[], ERROR), None);
        assert_eq!(first_and_last(&series([&norm, &[1.0; 9]])[..1], ERROR), None, "from before there was the error");
    }

    #[test]
    fn other_casts_err_in_proportion_to_their_noise_shares() {
        let recorded = SquareOverShare { first: 0.01 / 0.002, last: 0.04 / 0.002, cut: None };
        let of = |share| recorded.errors(share).map(|errors| (errors.first as f32, errors.last as f32));
        assert_eq!(of(0.002), Some((0.1, 0.2)));
        assert_eq!(of(0.008), Some((0.2, 0.4)));
        assert_eq!(of(f64::NAN), None);
        let both = StepErrors { first: 0.03, last: 0.05 }.and(StepErrors { first: 0.04, last: 0.0 });
        assert!((both.first - 0.05).abs() < 1e-12 && (both.last - 0.05).abs() < 1e-12);
    }
}
