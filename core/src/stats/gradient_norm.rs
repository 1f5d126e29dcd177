//! Takes a site's recorded series, gives how far casts move a weight's gradient in the first and in the last steps
//! (docs/method.md, "A relative error of wgrad changes as a model learns").

use crate::{
    model::{Gemm, StepErrors, kernel},
    trace::{Series, SiteStats},
};

use super::Dependence;

/// Of each recorded step's batch: |G|, and the error of G from operands in E4M3 with one power of two a tensor.
const NORM: &str = "weight_grad_norm";
const ERROR: &str = "weight_grad_e4m3";

/// Those casts in all three GEMMs.
const RECORDED_CASTS: &str = "cublaslt/fp8-delayed";

/// Steps that the end of a recording is a median over: one step's gradient is mostly chance.
const LAST_STEPS: usize = 5;

/// Squared relative error of a weight's gradient in a step, over the noise share of the same casts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SquareOverShare {
    first: f64,
    last: f64,
}

impl SquareOverShare {
    /// `None`: not recorded, or no step has a gradient.
    pub fn of(stats: &SiteStats, dependence: &Dependence) -> Option<Self> {
        let share = dependence.wgrad_noise_share(kernel(RECORDED_CASTS)?.numerics(Gemm::Wgrad), [None; 2])?;
        let (first, last) = first_and_last(&stats.series)?;
        (share > 0.0).then(|| Self { first: first / share, last: last / share })
    }

    /// rel L2 of a wgrad whose casts alone have this noise share: they err in proportion to those that were recorded.
    pub fn errors(self, share: f64) -> Option<StepErrors> {
        let found = StepErrors { first: (share * self.first).sqrt(), last: (share * self.last).sqrt() };
        (found.first.is_finite() && found.last.is_finite()).then_some(found)
    }
}

/// Squared relative errors of the casts in the first step that has a gradient, and in the last ones.
fn first_and_last(series: &[Series]) -> Option<(f64, f64)> {
    let values = |name| Some(&series.iter().find(|series| series.name == name)?.values);
    let (norms, errors) = (values(NORM)?, values(ERROR)?);
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
        assert_eq!(first_and_last(&series([&norm, &[1.0; 9]])), Some((1.0 / 16.0, 0.25)));
        assert_eq!(first_and_last(&series([&[0.0], &[0.0]])), None);
        assert_eq!(first_and_last(&[]), None);
        assert_eq!(first_and_last(&series([&norm, &[1.0; 9]])[..1]), None, "from before there was the error");
    }

    #[test]
    fn other_casts_err_in_proportion_to_their_noise_shares() {
        let recorded = SquareOverShare { first: 0.01 / 0.002, last: 0.04 / 0.002 };
        let of = |share| recorded.errors(share).map(|errors| (errors.first as f32, errors.last as f32));
        assert_eq!(of(0.002), Some((0.1, 0.2)));
        assert_eq!(of(0.008), Some((0.2, 0.4)));
        assert_eq!(of(f64::NAN), None);
    }
}
