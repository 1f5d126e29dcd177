//! The three GEMMs of a linear and their dimensions.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// Which of a linear's GEMMs. Forward, input gradient, weight gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Gemm {
    /// `y[m,n] = x[m,k] W[n,k]^T`, reduced over `k`.
    Fprop,
    /// `dx[m,k] = dy[m,n] W[n,k]`, reduced over `n`.
    Dgrad,
    /// `dW[n,k] = dy[m,n]^T x[m,k]`, reduced over `m`.
    Wgrad,
}

impl Gemm {
    pub const ALL: [Self; 3] = [Self::Fprop, Self::Dgrad, Self::Wgrad];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fprop => "fprop",
            Self::Dgrad => "dgrad",
            Self::Wgrad => "wgrad",
        }
    }
}

impl fmt::Display for Gemm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Gemm {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|gemm| gemm.as_str() == text)
            .ok_or_else(|| format!("unknown GEMM '{text}' (fprop, dgrad or wgrad)"))
    }
}

/// The linear's own dimensions `m`, `k`, `n`, the same for its three GEMMs: the GEMM's direction
/// says which of them is reduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GemmShape {
    pub m: usize,
    pub k: usize,
    pub n: usize,
}

impl GemmShape {
    /// (rows of the output, length of the reduction, columns of the output).
    pub fn rows_reduced_cols(self, gemm: Gemm) -> (usize, usize, usize) {
        match gemm {
            Gemm::Fprop => (self.m, self.k, self.n),
            Gemm::Dgrad => (self.m, self.n, self.k),
            Gemm::Wgrad => (self.n, self.m, self.k),
        }
    }

    /// Multiply-adds counted as two operations; the same for all three GEMMs.
    pub fn flop(self) -> f64 {
        2.0 * self.m as f64 * self.k as f64 * self.n as f64
    }
}
