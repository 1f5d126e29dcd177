//! Stage 2. Takes one site's recorded statistics; gives samplers of its input, output gradient and
//! weight.

mod copula;
mod dependence;
mod extreme;
mod gradient_noise;
mod gradient_norm;
mod joint;
mod matrix_normal;
mod rows;
mod static_scale;

pub use copula::copula_of;
pub use dependence::{Dependence, loss_cost_factor};
pub use extreme::AmaxTable;
pub use gradient_noise::{ExampleRows, GradientNoise};
pub use gradient_norm::SquareOverShare;
pub use joint::ColumnSampler;
pub use matrix_normal::{MatrixNormal, MatrixNormalSampler};
pub use rows::{Root, RowSampler};
pub use static_scale::{MOST_SATURATION, saturation_at, static_scale, static_scale_within};

use serde::{Deserialize, Serialize};

use crate::trace::{Covariance, Distribution};

/// The shape that sampled features take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SamplerKind {
    /// Multivariate normal with the recorded mean and covariance (LoKA §III-A).
    Gaussian,
    /// The same correlations, each feature through its own recorded quantiles. Falls back to the
    /// Gaussian where a trace has no quantiles.
    #[default]
    Copula,
}

impl SamplerKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Gaussian => "gaussian",
            Self::Copula => "copula",
        }
    }

    /// What will really be used for a distribution.
    pub fn available(self, distribution: &Distribution) -> Self {
        if distribution.quantiles.is_some() { self } else { Self::Gaussian }
    }
}

impl std::str::FromStr for SamplerKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        [Self::Gaussian, Self::Copula]
            .into_iter()
            .find(|kind| kind.as_str() == text)
            .ok_or_else(|| format!("unknown sampler '{text}' (gaussian or copula)"))
    }
}

/// Why a site cannot be sampled.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{what} cannot be sampled: {source}")]
pub struct SampleError {
    pub what: &'static str,
    pub source: crate::numerics::linalg::NotPositiveDefinite,
}

impl Covariance {
    pub fn entry(&self, features: usize, i: usize, j: usize) -> f64 {
        match self {
            Self::Full(full) => full[i * features + j],
            Self::Factor { factor, rank, diag } => {
                let row = |i: usize| &factor[i * rank..(i + 1) * rank];
                let low_rank = crate::numerics::linalg::dot(row(i), row(j));
                if i == j { low_rank + diag[i] } else { low_rank }
            }
        }
    }

    pub fn variances(&self, features: usize) -> Vec<f64> {
        (0..features).map(|i| self.entry(features, i, i)).collect()
    }

    pub fn to_full(&self, features: usize) -> Vec<f64> {
        match self {
            Self::Full(full) => full.clone(),
            Self::Factor { .. } => {
                (0..features).flat_map(|i| (0..features).map(move |j| self.entry(features, i, j))).collect()
            }
        }
    }
}
