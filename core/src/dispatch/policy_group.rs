//! A part of the model that a policy holds to another bound: takes a pattern of site names, gives which sites it is
//! about.

use std::fmt;

use globset::{Glob, GlobMatcher};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::model::SiteId;

/// Names of sites with `*`, `?`, `[…]` and `{a,b}`; a dot is a character like others, so `tokens.*` is everything below
/// `tokens`. Written as its text.
#[derive(Clone, Debug)]
pub struct SitePattern(GlobMatcher);

impl SitePattern {
    /// # Errors
    /// What is no pattern, in one line.
    pub fn new(text: &str) -> Result<Self, String> {
        match Glob::new(text) {
            _ if text.is_empty() => Err("a pattern of sites is empty".to_owned()),
            Ok(glob) => Ok(Self(glob.compile_matcher())),
            Err(error) => Err(format!("'{text}' is no pattern of sites: {}", error.kind())),
        }
    }

    pub fn as_str(&self) -> &str {
        self.0.glob().glob()
    }

    /// By the whole name; a name that the pattern spells character by character matches whatever its brackets would mean.
    pub fn matches(&self, site: &SiteId) -> bool {
        self.as_str() == site.as_str() || self.0.is_match(site.as_str())
    }
}

impl PartialEq for SitePattern {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for SitePattern {}

impl fmt::Display for SitePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for SitePattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for SitePattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::new(&text).map_err(serde::de::Error::custom)
    }
}

/// Sites with a bound of their own, stricter or looser than the policy's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyGroup {
    pub sites: SitePattern,
    /// In the policy's metric, in place of the policy's `max_error`.
    pub max_error: f64,
}

impl PolicyGroup {
    pub(super) fn problem(&self) -> Option<String> {
        // `!(>=)`: a NaN must not pass.
        let sound = self.max_error >= 0.0 && self.max_error.is_finite();
        let (sites, is) = (&self.sites, self.max_error);
        (!sound).then(|| format!("max_error of the group {sites} is {is}, it must be a number of at least 0"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_of_whole_names_and_goes_below_dots() {
        let matches = |pattern: &str, site: &str| SitePattern::new(pattern).unwrap().matches(&SiteId::new(site));
        assert!(matches("tokens.*", "tokens.bottom.0") && !matches("tokens.*", "net.tokens.0"));
        assert!(matches("*.0", "net.layers.0") && !matches("layers.?", "layers.10"));
        assert!(matches("{a,b}.w", "b.w") && matches("a[0]", "a[0]"), "a name is itself");
        assert_eq!(
            SitePattern::new("a[").unwrap_err(),
            "'a[' is no pattern of sites: unclosed character class; missing ']'"
        );
        assert_eq!(SitePattern::new("").unwrap_err(), "a pattern of sites is empty");
    }
}
