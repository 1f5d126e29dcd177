//! The mods and a set of them, as the results and the plan spell it: names joined by `+`, sorted.

use std::{collections::BTreeSet, fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// A model change that makes low precision safer or faster (LoKA §IV).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModKind {
    BlockNorm,
    HardSwish,
    NoBias,
}

impl ModKind {
    /// In the paper's order, as views list them.
    pub const ALL: [Self; 3] = [Self::NoBias, Self::BlockNorm, Self::HardSwish];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::BlockNorm => "block_norm",
            Self::HardSwish => "hard_swish",
            Self::NoBias => "no_bias",
        }
    }

    pub fn label(self) -> &'static str {
        match self {
            Self::BlockNorm => "BlockNorm",
            Self::HardSwish => "Hard swish",
            Self::NoBias => "No bias",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown mod '{0}' (no_bias, block_norm or hard_swish)")]
pub struct UnknownMod(pub String);

impl FromStr for ModKind {
    type Err = UnknownMod;

    fn from_str(text: &str) -> Result<Self, UnknownMod> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text).ok_or_else(|| UnknownMod(text.to_owned()))
    }
}

/// A set of mods. Displays as `""` or `block_norm+no_bias`; parses that and comma lists.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ModSet(pub BTreeSet<ModKind>);

impl ModSet {
    pub fn none() -> Self {
        Self::default()
    }

    pub fn all() -> Self {
        Self(ModKind::ALL.into())
    }

    pub fn contains(&self, kind: ModKind) -> bool {
        self.0.contains(&kind)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn toggled(&self, kind: ModKind) -> Self {
        let mut set = self.0.clone();
        if !set.remove(&kind) {
            set.insert(kind);
        }
        Self(set)
    }

    /// These with `kind` on or off.
    #[must_use]
    pub fn with(&self, kind: ModKind, on: bool) -> Self {
        if self.contains(kind) == on { self.clone() } else { self.toggled(kind) }
    }
}

impl fmt::Display for ModSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.0.iter().map(|kind| kind.as_str()).collect();
        f.write_str(&names.join("+"))
    }
}

impl FromStr for ModSet {
    type Err = UnknownMod;

    fn from_str(text: &str) -> Result<Self, UnknownMod> {
        text.split([',', '+'])
            .map(str::trim)
            .filter(|name| !name.is_empty())
            .map(str::parse)
            .collect::<Result<_, _>>()
            .map(Self)
    }
}
