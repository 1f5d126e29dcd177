//! What a person may do: each role may do what those before it may.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Looks. What a person may who is said nothing of.
    #[default]
    Viewer,
    /// Marks sites and comments.
    Reviewer,
    /// Signs.
    Approver,
    /// Decides: policy, mods, overrides, what is probed, what is submitted for approval.
    Owner,
}

impl Role {
    pub const ALL: [Self; 4] = [Self::Viewer, Self::Reviewer, Self::Approver, Self::Owner];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Reviewer => "reviewer",
            Self::Approver => "approver",
            Self::Owner => "owner",
        }
    }

    /// With its article.
    pub fn one(self) -> &'static str {
        match self {
            Self::Viewer => "a viewer",
            Self::Reviewer => "a reviewer",
            Self::Approver => "an approver",
            Self::Owner => "an owner",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|role| role.as_str() == text);
        found.ok_or_else(|| format!("'{text}' is no role (viewer, reviewer, approver or owner)"))
    }
}
