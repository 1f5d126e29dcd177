//! What a trace holds of one site, checked and widened: the input of the samplers.

use std::sync::Arc;

use super::ranks::RankExtremes;
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
#[derive(Clone, Debug, PartialEq)]
pub struct GradientMoments {
    /// Units: examples, or rows where it is not known which rows an example has.
    pub count: u64,
    /// E |G_i|^2
    pub xg2: f64,
    /// |E G_i|^2, unbiased: it may be below 0 where it is next to nothing.
    pub mean2: f64,
    /// True: rows of one example are added up before they are squared.
    pub by_example: bool,
    /// `None`: not recorded.
    pub magnitudes: Option<Arc<Magnitudes>>,
}

/// Octaves below the amax, the amax itself apart. Bin 0: as large as it; bin b: [2^-b, 2^(1-b)) of it; the last: all
/// below.
pub const MAGNITUDE_BINS: usize = 40;

/// Which largest value is an operand's amax, and what its squares are weighted by: the other operand's |row|^2, or 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scaling {
    /// Of the call's tensor.
    Tensor,
    /// Of each feature over the call's rows.
    Feature,
    /// Of 128 rows of a feature.
    Block,
    /// Of the call's tensor, weighted by 1.
    Alone,
}

/// Rows of [`Magnitudes`], in the order of [`Scaling`].
pub const MAGNITUDE_ROWS: usize = 4;

/// Where squares of x and dy lie below their amax: means over examples of the sums over their rows, `[4, 40]` each.
#[derive(Clone, Debug, PartialEq)]
pub struct Magnitudes {
    pub input: Vec<f64>,
    pub grad_output: Vec<f64>,
}

impl Magnitudes {
    pub fn input(&self, scaling: Scaling) -> &[f64] {
        Self::row(&self.input, scaling)
    }

    pub fn grad_output(&self, scaling: Scaling) -> &[f64] {
        Self::row(&self.grad_output, scaling)
    }

    fn row(of: &[f64], scaling: Scaling) -> &[f64] {
        &of[scaling as usize * MAGNITUDE_BINS..][..MAGNITUDE_BINS]
    }
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
    /// Of the ranks that were merged into this; `None`: of one rank, or not kept.
    pub ranks: Option<RankExtremes>,
}

impl SiteStats {
    /// What every site has; nothing of what may be missing.
    pub fn new(site: Site, input: Distribution, weight: WeightStats) -> Self {
        Self {
            site,
            input,
            grad_output: None,
            cross_cov: None,
            noise: None,
            weight,
            weight_hist: None,
            weight_amax: None,
            bias: None,
            gamma: None,
            beta: None,
            heldout_input: None,
            heldout_grad_output: None,
            series: Vec::new(),
            ranks: None,
        }
    }
}
