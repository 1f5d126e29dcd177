//! The verdicts on one row: is it safe, is it fast.

use serde::{Deserialize, Serialize};

/// Against the policy's largest error. Dispatch treats `Uncertain` as unsafe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Safety {
    /// The interval's upper end is within the bound.
    Safe,
    /// The interval straddles the bound, or there is no error yet.
    Uncertain,
    /// The interval's lower end is beyond the bound.
    Unsafe,
}

impl Safety {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Safe => "safe",
            Self::Uncertain => "uncertain",
            Self::Unsafe => "unsafe",
        }
    }
}

/// Against the policy's smallest speed-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Speed {
    Fast,
    Slow,
    /// No latency is known.
    Unknown,
}

/// Where a row stands in the quadrant view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Quadrant {
    SafeFast,
    SafeSlow,
    UnsafeFast,
    UnsafeSlow,
    /// Safe or unsafe for certain, but nobody knows how fast.
    SafeUnknown,
    UnsafeUnknown,
    /// The error's interval straddles the bound.
    Uncertain,
    Unsupported,
}

impl Quadrant {
    /// The best first.
    pub const BEST_FIRST: [Self; 8] = [
        Self::SafeFast,
        Self::SafeSlow,
        Self::SafeUnknown,
        Self::Uncertain,
        Self::UnsafeFast,
        Self::UnsafeSlow,
        Self::UnsafeUnknown,
        Self::Unsupported,
    ];

    /// Its place in [`Self::BEST_FIRST`].
    pub fn rank(self) -> usize {
        Self::BEST_FIRST.iter().position(|of| *of == self).unwrap_or(Self::BEST_FIRST.len() - 1)
    }
}
