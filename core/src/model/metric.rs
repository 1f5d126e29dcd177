//! The error metrics and an estimate with its interval.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// A value with the interval that holds it at the asked confidence, over draws.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    pub value: f64,
    pub lo: f64,
    pub hi: f64,
}

impl Estimate {
    pub fn new(value: f64, lo: f64, hi: f64) -> Self {
        Self { value, lo, hi }
    }

    pub fn exact(value: f64) -> Self {
        Self { value, lo: value, hi: value }
    }
}

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
    /// 1/2 E[(g . dy)^2], in units of the loss.
    LossCost,
}

impl Metric {
    pub const ALL: [Self; 7] =
        [Self::Mere, Self::RelL2, Self::SqnrDb, Self::MedianRel, Self::MaxAbs, Self::BlockRelL2, Self::LossCost];

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
