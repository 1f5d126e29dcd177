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

/// What one batch's gradient of a weight differs in from the next one's. With G_i the gradient of one unit's own loss, a
/// mean over B units has a covariance of trace (xg2 - mean2) / B.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GradientMoments {
    /// Units: examples, or rows where it is not known which rows an example has.
    pub count: u64,
    /// E |G_i|^2
    pub xg2: f64,
    /// |E G_i|^2, unbiased: it may be below 0 where it is next to nothing.
    pub mean2: f64,
    /// True: rows of one example are added up before they are squared.
    pub by_example: bool,
}

/// Everything the trace holds of one site.
#[derive(Clone, Debug, PartialEq)]
pub struct SiteStats {
    pub site: Site,
    pub input: Distribution,
    /// d loss_i / d y_i per example. `None`: then no dgrad, wgrad or loss cost.
    pub grad_output: Option<Distribution>,
    /// `[n, k]`, row-major: covariance of grad_output with input over the same rows.
    /// Where the trace has a low-rank sketch of it, that multiplied out.
    pub cross_cov: Option<Vec<f32>>,
    pub noise: Option<GradientMoments>,
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
