//! Takes a site's recorded series, gives how far casts move a weight's gradient in the first and in the last steps
//! (docs/method.md, "A relative error of wgrad changes as a model learns").

use crate::{
    model::{Gemm, StepErrors, kernel},
    trace::{Series, SiteStats},
};

use super::Dependence;

/// Of each recorded step's batch: |G|, what it would be if its examples' gradients had nothing in common, and the error
/// of G from operands in E4M3 with one power of two a tensor.
const NORM: &str = "weight_grad_norm";
const NOISE: &str = "weight_grad_noise";
const ERROR: &str = "weight_grad_e4m3";

/// Those casts in all three GEMMs.
const RECORDED_CASTS: &str = "cublaslt/fp8-delayed";

/// Squared error over square of products, of E4M3 in both operands: what of an error certainly averages out.
const ROUNDING: f64 = 2.0 * 0.0256 * 0.0256;

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

    /// rel L2 of a kernel whose wgrad has this noise share: its casts err in proportion to those that were recorded.
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

/// The same series if a batch had `factor` times as many examples: noise goes with their root, what they agree on stays,
/// and so does an error beyond what averages out.
pub fn at_batch(series: &mut [Series], factor: f64) {
    let place = |name| series.iter().position(|series| series.name == name);
    let (Some(norm), Some(noise)) = (place(NORM), place(NOISE)) else { return };
    let error = place(ERROR);
    for step in 0..series[norm].values.len().min(series[noise].values.len()) {
        let square = |place: usize| f64::from(series[place].values[step]).powi(2);
        let (norm2, noise2) = (square(norm), square(noise));
        let error2 = error.map(|error| (error, square(error)));
        series[norm].values[step] = ((norm2 - noise2).max(0.0) + noise2 / factor).sqrt() as f32;
        series[noise].values[step] = (noise2 / factor).sqrt() as f32;
        if let Some((error, error2)) = error2 {
            let averaged = error2.min(ROUNDING * noise2);
            series[error].values[step] = (error2 - averaged + averaged / factor).sqrt() as f32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(all: [&[f32]; 3]) -> Vec<Series> {
        let of = |(name, values): (&str, &[f32])| Series {
            name: name.to_owned(),
            steps: (0..values.len() as i64).collect(),
            values: values.to_vec(),
        };
        [NORM, NOISE, ERROR].into_iter().zip(all).map(of).collect()
    }

    #[test]
    fn first_and_last_are_of_steps_with_a_gradient() {
        let norm = [f32::NAN, 4.0, 9.0, 1.0, 2.0, 0.0, 4.0, 1.0, 8.0];
        // At the last five: of 1, 1/4, 1/16, 1 and 1/64.
        assert_eq!(first_and_last(&series([&norm, &[1.0; 9], &[1.0; 9]])), Some((1.0 / 16.0, 0.25)));
        assert_eq!(first_and_last(&series([&[0.0], &[0.0], &[0.0]])), None);
        assert_eq!(first_and_last(&[]), None);
        assert_eq!(
            first_and_last(&series([&norm, &[1.0; 9], &[1.0; 9]])[..2]),
            None,
            "from before there was the error"
        );
    }

    #[test]
    fn other_casts_err_in_proportion_to_their_noise_shares() {
        let recorded = SquareOverShare { first: 0.01 / 0.002, last: 0.04 / 0.002 };
        let of = |share| recorded.errors(share).map(|errors| (errors.first as f32, errors.last as f32));
        assert_eq!(of(0.002), Some((0.1, 0.2)));
        assert_eq!(of(0.008), Some((0.2, 0.4)));
        assert_eq!(of(f64::NAN), None);
    }

    #[test]
    fn a_larger_batch_has_less_noise_and_the_same_gradient() {
        let mut four = series([&[5.0, 1.0], &[3.0, 2.0], &[1.0, 0.01]]);
        at_batch(&mut four, 4.0);
        assert_eq!(four[0].values, [(16.0_f32 + 9.0 / 4.0).sqrt(), 1.0], "less than noise is noise");
        assert_eq!(four[1].values, [1.5, 1.0]);
        let expected = (1.0 - 0.75 * ROUNDING * 9.0).sqrt();
        assert!((f64::from(four[2].values[0]) - expected).abs() < 1e-7, "{:?}", four[2].values);
        assert_eq!(four[2].values[1], 0.005, "all of it averages out");
    }
}
