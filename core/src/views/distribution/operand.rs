//! The operands of a linear, and what a number about one was counted from.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What a number of this view was counted from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// While the model trained, over every row that was recorded.
    Recorded,
    /// Over the weight in the trace.
    Snapshot,
    /// Over the held-out rows in the trace.
    HeldOut,
    /// Over values drawn from the recorded statistics, as the probe draws them.
    Sampled,
    /// From the recorded mean and variance alone, as if it were normal.
    Normal,
}

impl Origin {
    /// True for what was inferred rather than counted.
    pub fn is_derived(self) -> bool {
        matches!(self, Self::Sampled | Self::Normal)
    }

    /// Said beside every number.
    pub fn words(self) -> &'static str {
        match self {
            Self::Recorded => "recorded over all rows",
            Self::Snapshot => "of the weight in the trace",
            Self::HeldOut => "of the held-out rows",
            Self::Sampled => "derived: drawn from the recorded statistics",
            Self::Normal => "derived: normal, from mean and variance",
        }
    }
}

/// One of a linear's three operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operand {
    #[default]
    Input,
    Weight,
    GradOutput,
}

impl Operand {
    pub const ALL: [Self; 3] = [Self::Input, Self::Weight, Self::GradOutput];

    pub fn label(self) -> &'static str {
        match self {
            Self::Input => "Input",
            Self::Weight => "Weight",
            Self::GradOutput => "Gradient",
        }
    }

    /// What a row of the operand is, and what its features are.
    pub fn row(self) -> &'static str {
        if self == Self::Weight { "output feature" } else { "example" }
    }

    /// The recorded series of its amax.
    pub fn series(self) -> &'static str {
        match self {
            Self::Input => "input_amax",
            Self::Weight => "weight_amax",
            Self::GradOutput => "grad_amax",
        }
    }
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}
