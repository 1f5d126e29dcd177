//! What follows a linear, as numerics: applied to rows of outputs in FP32.

use crate::{
    model::{Format, Granularity, Matrix, OperandCast, Site, TailOp},
    numerics::Step,
    stats::static_scale_within,
    trace::SiteStats,
};

use super::block_norm::block_of;

/// PyTorch's default for layer norm.
const DEFAULT_EPS: f64 = 1e-5;

/// Operations that have numerics here.
const KNOWN: [&str; 9] =
    ["layer_norm", "rms_norm", "block_norm", "swish", "hard_swish", "relu", "sigmoid", "tanh", "gelu"];

pub(super) fn eps_of(op: &TailOp) -> f32 {
    op.eps.unwrap_or(DEFAULT_EPS) as f32
}

/// The steps after a linear of `features` outputs.
#[derive(Clone, Debug, PartialEq)]
pub struct Tail {
    pub features: usize,
    pub steps: Vec<Step>,
    /// The operation that we cannot follow (a residual, an unknown one): numerics end before it.
    pub ended_by: Option<String>,
}

impl Tail {
    pub(super) fn of(stats: &SiteStats) -> Self {
        let mut tail = Self { features: stats.site.n, steps: Vec::new(), ended_by: None };
        tail.steps.extend(stats.bias.clone().map(Step::Bias));
        for op in &stats.site.tail {
            let eps = eps_of(op);
            // `affine` missing means what was recorded: a gain if there is one.
            let affine = op.affine != Some(false);
            let gamma = stats.gamma.clone().filter(|_| affine);
            tail.steps.push(match op.op.as_str() {
                "layer_norm" => Step::LayerNorm { eps, gamma, beta: stats.beta.clone().filter(|_| affine) },
                "rms_norm" => Step::RmsNorm { eps, gamma },
                "block_norm" => Step::BlockNorm { eps, block: op.block.unwrap_or_else(|| block_of(stats.site.n)) },
                "swish" => Step::Swish,
                "hard_swish" => Step::HardSwish,
                "relu" => Step::Relu,
                "sigmoid" => Step::Sigmoid,
                "tanh" => Step::Tanh,
                "gelu" => Step::Gelu,
                unknown => {
                    tail.ended_by = Some(unknown.to_owned());
                    break;
                }
            });
        }
        tail
    }

    /// True when every operation of a site's tail can be followed.
    pub fn followed(site: &Site) -> bool {
        site.tail.iter().all(|op| KNOWN.contains(&op.op.as_str()))
    }

    /// True when something other than a bias follows: then there is a block error to measure.
    pub fn has_operations(&self) -> bool {
        self.steps.iter().any(|step| !matches!(step, Step::Bias(_)))
    }

    /// The largest magnitude that can come out, whatever goes in: a norm holds it, and gains, biases and activations
    /// after one. `None` without a norm, and where the tail was not followed to its end.
    pub fn bound(&self) -> Option<f64> {
        let largest = |values: &Option<Vec<f32>>, none: f64| {
            values
                .as_ref()
                .map_or(none, |values| values.iter().fold(0.0, |most, value| f64::from(value.abs()).max(most)))
        };
        let row = (self.features as f64).sqrt();
        let after = |bound: Option<f64>, step: &Step| match step {
            Step::Bias(bias) => bound.map(|bound| bound + largest(&Some(bias.clone()), 0.0)),
            Step::LayerNorm { gamma, beta, .. } => Some(row * largest(gamma, 1.0) + largest(beta, 0.0)),
            Step::RmsNorm { gamma, .. } => Some(row * largest(gamma, 1.0)),
            Step::BlockNorm { block, .. } if *block > 0 && self.features.is_multiple_of(*block) => {
                Some((*block as f64).sqrt())
            }
            Step::BlockNorm { .. } => Some(row),
            Step::Sigmoid | Step::Tanh => Some(1.0),
            Step::Swish | Step::HardSwish | Step::Relu | Step::Gelu => bound,
        };
        self.steps.iter().fold(None, after).filter(|_| self.ended_by.is_none())
    }

    /// How what comes out is cast for the next site by a kernel that casts its own input so, and the scale of it where
    /// that is static: one that holds the tail's bound. Without a bound the scale follows the rows, to a power of two
    /// too: E4M3's relative step does not depend on it.
    pub fn next_cast(&self, cast: OperandCast) -> (OperandCast, Option<f32>) {
        if cast.granularity != Granularity::Static {
            return (cast, None);
        }
        match self.bound().and_then(static_scale_within) {
            Some(known) => (cast, Some(known.scale)),
            None => (OperandCast::scaled_pow2(Format::E4m3, Granularity::Tensor), None),
        }
    }

    /// Applies every step to rows of `features` outputs, in place.
    pub fn apply(&self, rows: &mut Matrix) {
        for row in rows.data.chunks_exact_mut(self.features.max(1)) {
            for step in &self.steps {
                step.apply(row);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(step: Step, row: &[f32]) -> Vec<f32> {
        let tail = Tail { features: row.len(), steps: vec![step], ended_by: None };
        let mut rows = Matrix { rows: 1, cols: row.len(), data: row.to_vec() };
        tail.apply(&mut rows);
        rows.data
    }

    #[test]
    fn steps_by_hand() {
        assert_eq!(after(Step::Bias(vec![1.0, -1.0]), &[2.0, 2.0]), [3.0, 1.0]);
        assert_eq!(after(Step::HardSwish, &[-4.0, -1.5, 0.0, 1.5, 4.0]), [0.0, -0.375, 0.0, 1.125, 4.0]);
        let normed =
            after(Step::LayerNorm { eps: 0.0, gamma: Some(vec![2.0, 2.0]), beta: Some(vec![1.0, 1.0]) }, &[1.0, 3.0]);
        assert_eq!(normed, [-1.0, 3.0]);
        assert_eq!(after(Step::BlockNorm { eps: 0.0, block: 2 }, &[3.0, 3.0, -5.0, 5.0]), [1.0, 1.0, -1.0, 1.0]);
        let swish = after(Step::Swish, &[1.0]);
        assert!((swish[0] - 0.731_058_6).abs() < 1e-6);
        let gelu = after(Step::Gelu, &[1.0]);
        assert!((gelu[0] - 0.841_344_8).abs() < 1e-6);
    }

    #[test]
    fn a_bound_is_reached_and_not_passed() {
        let bound = |steps: &[Step]| Tail { features: 512, steps: steps.to_vec(), ended_by: None }.bound();
        let norm = Step::BlockNorm { eps: 0.0, block: 256 };
        assert_eq!(bound(&[Step::Bias(vec![9.0]), norm.clone(), Step::HardSwish]), Some(16.0));
        assert_eq!(bound(&[norm.clone(), Step::Bias(vec![0.5, -2.0])]), Some(18.0));
        assert_eq!(bound(&[Step::Relu]), None);
        assert_eq!(bound(&[Step::Tanh, Step::Relu]), Some(1.0));
        let gained = Step::LayerNorm { eps: 0.0, gamma: Some(vec![-2.0, 1.0]), beta: Some(vec![3.0, 0.0]) };
        assert!((bound(&[gained]).unwrap() - (2.0 * 512f64.sqrt() + 3.0)).abs() < 1e-12);
        let cut = Tail { features: 512, steps: vec![norm], ended_by: Some("residual".to_owned()) };
        assert_eq!(cut.bound(), None);
    }

    #[test]
    fn the_next_cast_holds_the_bound() {
        let tail = |steps: &[Step]| Tail { features: 512, steps: steps.to_vec(), ended_by: None };
        let given = OperandCast::scaled_pow2(Format::E4m3, Granularity::Static);
        let bounded = tail(&[Step::BlockNorm { eps: 0.0, block: 256 }, Step::HardSwish]);
        assert_eq!(bounded.next_cast(given), (given, Some(0.0625)));
        let row = OperandCast::scaled(Format::E4m3, Granularity::Row);
        assert_eq!(bounded.next_cast(row), (row, None));
        let follows = OperandCast::scaled_pow2(Format::E4m3, Granularity::Tensor);
        assert_eq!(tail(&[Step::Swish]).next_cast(given), (follows, None));
    }

    #[test]
    fn block_norm_bounds_its_output() {
        let mut row = vec![0.0; 512];
        row[7] = 1e6;
        let out = after(Step::BlockNorm { eps: f32::EPSILON, block: 256 }, &row);
        assert!((out[7] - 16.0).abs() < 1e-4);
    }
}
