//! The error metrics.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use super::{Estimate, Gemm};

/// What a view shows and a policy bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// mean |out - ref| / |ref| over the elements with ref != 0.
    Mere,
    /// ||out - ref|| / ||ref||.
    RelL2,
    /// -20 log10(rel L2), dB. Larger is better.
    SqnrDb,
    /// median |out - ref| / |ref|.
    MedianRel,
    /// largest |out - ref|.
    MaxAbs,
    /// rel L2 after bias, tail and the cast for the next site.
    BlockRelL2,
    /// 1/2 E[(g . dy)^2] beyond what BF16 costs, in units of the loss.
    LossCost,
    /// Of dgrad and wgrad: E||error of the gradient||^2 over the trace of its covariance from batch to batch.
    NoiseShare,
    /// Slope of output on reference less one. The nearer to 0 the better.
    Bias,
}

impl Metric {
    pub const ALL: [Self; 9] = [
        Self::Mere,
        Self::RelL2,
        Self::SqnrDb,
        Self::MedianRel,
        Self::MaxAbs,
        Self::BlockRelL2,
        Self::LossCost,
        Self::NoiseShare,
        Self::Bias,
    ];

    /// The column's name in the results and in a policy.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Mere => "mere",
            Self::RelL2 => "rel_l2",
            Self::SqnrDb => "sqnr_db",
            Self::MedianRel => "median_rel",
            Self::MaxAbs => "max_abs",
            Self::BlockRelL2 => "block_rel_l2",
            Self::LossCost => "loss_cost",
            Self::NoiseShare => "noise_share",
            Self::Bias => "bias",
        }
    }

    /// What a person reads.
    pub fn label(self) -> &'static str {
        match self {
            Self::Mere => "MERE",
            Self::RelL2 => "Relative L2",
            Self::SqnrDb => "SQNR (dB)",
            Self::MedianRel => "Median relative",
            Self::MaxAbs => "Max absolute",
            Self::BlockRelL2 => "Block relative L2",
            Self::LossCost => "Loss cost",
            Self::NoiseShare => "Noise share",
            Self::Bias => "Bias",
        }
    }

    /// The estimate as scales show and bounds hold it: how far from 0, of what has a sign.
    #[must_use]
    pub fn on_scale(self, estimate: Estimate) -> Estimate {
        if self == Self::Bias { estimate.magnitude() } else { estimate }
    }

    /// What is shown where this bounds: itself, or relative L2, which all GEMMs have, where it is known of some only.
    #[must_use]
    pub fn shown(self) -> Self {
        if matches!(self, Self::NoiseShare | Self::Bias | Self::LossCost) { Self::RelL2 } else { self }
    }

    /// Of a ratio in decibels; of everything else the smaller value is the better one.
    pub fn larger_is_better(self) -> bool {
        self == Self::SqnrDb
    }

    /// True where scales and axes are logarithmic: decibels are logarithms already.
    pub fn is_log(self) -> bool {
        self != Self::SqnrDb
    }

    /// Larger is worse: of decibels the smaller is.
    pub fn badness(self, value: f64) -> f64 {
        match self {
            Self::Bias => value.abs(),
            _ if self.larger_is_better() => -value,
            _ => value,
        }
    }

    pub fn is_worse(self, value: f64, than: f64) -> bool {
        if self.larger_is_better() { value < than } else { value > than }
    }

    /// The worst of several values; what is no number is left out.
    pub fn worst(self, values: impl IntoIterator<Item = f64>) -> Option<f64> {
        let worse = if self.larger_is_better() { f64::min } else { f64::max };
        values.into_iter().filter(|value| !value.is_nan()).reduce(worse)
    }

    /// The end of an interval that has to keep to a bound.
    pub fn worse_end(self, estimate: Estimate) -> f64 {
        if self.larger_is_better() { estimate.lo } else { estimate.hi }
    }

    /// Beside a bound: `MERE ≤ .2`.
    pub fn sign(self) -> &'static str {
        if self.larger_is_better() { "≥" } else { "≤" }
    }

    /// The same in words: `MERE at most .2`.
    pub fn at_most(self) -> &'static str {
        if self.larger_is_better() { "at least" } else { "at most" }
    }

    /// What a scale's values are, and how they stand on it.
    pub fn unit(self) -> &'static str {
        match self {
            Self::SqnrDb => "dB, higher is better",
            Self::MaxAbs => "output units, log",
            Self::LossCost => "beyond BF16, units of the loss, log",
            Self::NoiseShare => "of the gradient's noise, log",
            Self::Bias => "either way, log",
            Self::Mere | Self::RelL2 | Self::MedianRel | Self::BlockRelL2 => "ratio, log",
        }
    }

    /// Why a row of that GEMM has none, where that lies in the metric; `None`: it was not measured.
    pub fn why_missing(self, gemm: Gemm) -> Option<&'static str> {
        match self {
            Self::BlockRelL2 => Some("no tail follows this GEMM's output"),
            Self::LossCost => Some("only fprop with recorded gradients has a loss cost"),
            Self::NoiseShare if gemm == Gemm::Fprop => {
                Some("only dgrad and wgrad add to the gradient's noise; fprop has a loss cost")
            }
            _ => None,
        }
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Metric {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|metric| metric.as_str() == text).ok_or_else(|| format!("unknown metric '{text}'"))
    }
}
