//! What follows a linear, on one row of its outputs in FP32.

use super::{special, vectorized::vectorized};

#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    Bias(Vec<f32>),
    LayerNorm { eps: f32, gamma: Option<Vec<f32>>, beta: Option<Vec<f32>> },
    RmsNorm { eps: f32, gamma: Option<Vec<f32>> },
    BlockNorm { eps: f32, block: usize },
    Swish,
    HardSwish,
    Relu,
    Sigmoid,
    Tanh,
    Gelu,
}

impl Step {
    /// `row`: all outputs of one example, in place.
    pub fn apply(&self, row: &mut [f32]) {
        match self {
            Step::Bias(bias) => row.iter_mut().zip(bias).for_each(|(value, bias)| *value += bias),
            Step::LayerNorm { eps, gamma, beta } => {
                let mean = (sum(row, |value| value) / row.len() as f64) as f32;
                row.iter_mut().for_each(|value| *value -= mean);
                scale_to_unit_rms(row, *eps);
                gain(row, gamma.as_deref(), beta.as_deref());
            }
            Step::RmsNorm { eps, gamma } => {
                scale_to_unit_rms(row, *eps);
                gain(row, gamma.as_deref(), None);
            }
            Step::BlockNorm { eps, block } => {
                // As in the paper: view(-1, block). A block that does not divide the row is one block.
                let block = if *block > 0 && row.len().is_multiple_of(*block) { *block } else { row.len() };
                row.chunks_mut(block.max(1)).for_each(|block| scale_to_unit_rms(block, *eps));
            }
            Step::Swish => vectorized!((row: &'a mut [f32] = row) -> () { map(row, |x| x * sigmoid(x)) }),
            Step::Sigmoid => vectorized!((row: &'a mut [f32] = row) -> () { map(row, sigmoid) }),
            Step::HardSwish => map(row, |x| x * (x + 3.0).clamp(0.0, 6.0) / 6.0),
            Step::Relu => map(row, |x| x.max(0.0)),
            Step::Tanh => map(row, f32::tanh),
            Step::Gelu => {
                map(row, |x| 0.5 * x * special::erfc(-f64::from(x) / std::f64::consts::SQRT_2) as f32);
            }
        }
    }
}

#[inline(always)]
fn map(row: &mut [f32], function: impl Fn(f32) -> f32) {
    for value in row {
        *value = function(*value);
    }
}

#[inline(always)]
fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + special::exp(-x))
}

/// A sum in FP64 with running sums side by side.
#[inline(always)]
fn sum(values: &[f32], term: impl Fn(f64) -> f64) -> f64 {
    let mut sums = [0f64; 16];
    let (chunks, rest) = values.as_chunks::<16>();
    for chunk in chunks {
        for (sum, value) in sums.iter_mut().zip(chunk) {
            *sum += term(f64::from(*value));
        }
    }
    sums.iter().sum::<f64>() + rest.iter().map(|value| term(f64::from(*value))).sum::<f64>()
}

fn scale_to_unit_rms(values: &mut [f32], eps: f32) {
    let squares = vectorized!((values: &'a [f32] = values) -> f64 { sum(values, |value| value * value) });
    let inverse = (squares / values.len().max(1) as f64 + f64::from(eps)).sqrt().recip() as f32;
    values.iter_mut().for_each(|value| *value *= inverse);
}

fn gain(row: &mut [f32], gamma: Option<&[f32]>, beta: Option<&[f32]>) {
    if let Some(gamma) = gamma {
        row.iter_mut().zip(gamma).for_each(|(value, gamma)| *value *= gamma);
    }
    if let Some(beta) = beta {
        row.iter_mut().zip(beta).for_each(|(value, beta)| *value += beta);
    }
}
