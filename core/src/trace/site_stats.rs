//! What a trace holds of one site, checked and widened: the input of the samplers.

use crate::model::{Matrix, Site};

/// Covariance of a feature vector.
#[derive(Clone, Debug, PartialEq)]
pub enum Covariance {
    /// `[k, k]`, row-major, unbiased.
    Full(Vec<f64>),
    /// `Sigma = F F^T + diag(d)`; `factor` is `[k, rank]`, row-major.
    Factor { factor: Vec<f64>, rank: usize, diag: Vec<f64> },
}

/// Second-order statistics of rows of `features` values.
#[derive(Clone, Debug, PartialEq)]
pub struct Distribution {
    /// Rows accumulated.
    pub count: u64,
    pub mean: Vec<f64>,
    pub cov: Covariance,
    /// `[features, probs]`, row-major; the probabilities are the manifest's.
    pub quantiles: Option<Vec<f32>>,
    /// Bin 0: exact zeros; 1..=80: floor(log2|x|) = -40..=39, clamped; 81: not finite.
    pub hist: Option<Vec<u64>>,
    pub amax: Option<f64>,
}

/// The weight `[n, k]`, row-major: as it was, or as a matrix normal.
#[derive(Clone, Debug, PartialEq)]
pub enum WeightStats {
    Snapshot(Vec<f32>),
    /// `MN(mean, row_cov [n,n], col_cov [k,k])`.
    MatrixNormal {
        mean: Vec<f64>,
        row_cov: Covariance,
        col_cov: Covariance,
    },
}

/// One recorded series: `steps` and `values` have the same length.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    pub name: String,
    pub steps: Vec<i64>,
    pub values: Vec<f32>,
}

/// Everything the trace holds of one site.
#[derive(Clone, Debug, PartialEq)]
pub struct SiteStats {
    pub site: Site,
    pub input: Distribution,
    /// d loss_i / d y_i per example. `None`: then no dgrad, wgrad or loss cost.
    pub grad_output: Option<Distribution>,
    /// `[n, k]`, row-major: covariance of grad_output with input over the same rows.
    pub cross_cov: Option<Vec<f32>>,
    pub weight: WeightStats,
    pub weight_hist: Option<Vec<u64>>,
    pub weight_amax: Option<f64>,
    pub bias: Option<Vec<f32>>,
    /// Gain and shift of an affine norm in the tail, `[n]`.
    pub gamma: Option<Vec<f32>>,
    pub beta: Option<Vec<f32>>,
    /// Held-out raw rows: inputs `[s, k]` and output gradients `[s, n]`, same rows in both.
    pub heldout_input: Option<Matrix>,
    pub heldout_grad_output: Option<Matrix>,
    pub series: Vec<Series>,
}
