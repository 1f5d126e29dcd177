//! Takes choices of mods, for all sites or for some; gives the set in force at each site.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{ModKind, ModSet, SiteId};

/// The mods in force: one set for all sites, with exceptions. An exception always differs from that set, so
/// that values which say the same of every site compare equal, whichever edits led to them.
///
/// As JSON: `{"default": ["no_bias"], "sites": {"net.top.0": []}}`, sites sorted by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "Written")]
pub struct SiteMods {
    default: ModSet,
    sites: BTreeMap<SiteId, ModSet>,
}

/// As a file has it: written by hand it may repeat the set for all sites.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Written {
    default: ModSet,
    sites: BTreeMap<SiteId, ModSet>,
}

impl From<Written> for SiteMods {
    fn from(Written { default, sites }: Written) -> Self {
        Self::new(default, sites)
    }
}

impl From<ModSet> for SiteMods {
    fn from(default: ModSet) -> Self {
        Self { default, sites: BTreeMap::new() }
    }
}

impl SiteMods {
    /// `default` everywhere but at `sites`, which have their own sets.
    pub fn new(default: ModSet, mut sites: BTreeMap<SiteId, ModSet>) -> Self {
        sites.retain(|_, set| *set != default);
        Self { default, sites }
    }

    pub fn none() -> Self {
        Self::default()
    }

    /// The set in force at `site`.
    pub fn of(&self, site: &SiteId) -> &ModSet {
        self.sites.get(site).unwrap_or(&self.default)
    }

    /// The set of every site that is no exception.
    pub fn of_others(&self) -> &ModSet {
        &self.default
    }

    /// Sites with another set than the others, by name.
    pub fn exceptions(&self) -> impl ExactSizeIterator<Item = (&SiteId, &ModSet)> {
        self.sites.iter()
    }

    /// These with `kind` on or off at `sites`; `None`: at every site, the exceptions too.
    #[must_use]
    pub fn with(&self, kind: ModKind, on: bool, sites: Option<&[SiteId]>) -> Self {
        let mut changed = self.clone();
        match sites {
            Some(sites) => {
                for site in sites {
                    changed.sites.insert(site.clone(), self.of(site).with(kind, on));
                }
            }
            None => {
                changed.default = changed.default.with(kind, on);
                changed.sites.values_mut().for_each(|set| *set = set.with(kind, on));
            }
        }
        Self::new(changed.default, changed.sites)
    }

    /// True when every site has the same set.
    pub fn is_uniform(&self) -> bool {
        self.sites.is_empty()
    }

    /// True when no mod is on anywhere.
    pub fn is_empty(&self) -> bool {
        self.default.is_empty() && self.sites.is_empty()
    }

    /// Every kind that is on somewhere.
    pub fn union(&self) -> ModSet {
        let sets = std::iter::once(&self.default).chain(self.sites.values());
        ModSet(sets.flat_map(|set| set.0.iter().copied()).collect())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn id(name: &str) -> SiteId {
        SiteId::new(name)
    }

    fn set(kinds: &[ModKind]) -> ModSet {
        ModSet(kinds.iter().copied().collect())
    }

    #[test]
    fn an_edit_at_some_sites_leaves_the_others() {
        let mods = SiteMods::none().with(ModKind::NoBias, true, Some(&[id("a"), id("b")]));
        assert_eq!((mods.of(&id("a")), mods.of(&id("c"))), (&set(&[ModKind::NoBias]), &ModSet::none()));
        assert!(!mods.is_uniform() && !mods.is_empty());
        let more = mods.with(ModKind::HardSwish, true, Some(&[id("b")]));
        assert_eq!(more.of(&id("b")), &set(&[ModKind::NoBias, ModKind::HardSwish]));
        assert_eq!(more.of(&id("a")), mods.of(&id("a")));
        assert_eq!(more.union(), set(&[ModKind::NoBias, ModKind::HardSwish]));
    }

    #[test]
    fn an_edit_at_all_sites_reaches_the_exceptions_too() {
        let mods = SiteMods::from(set(&[ModKind::BlockNorm])).with(ModKind::NoBias, true, Some(&[id("a")]));
        let all = mods.with(ModKind::NoBias, true, None);
        assert_eq!(all, SiteMods::from(set(&[ModKind::BlockNorm, ModKind::NoBias])), "the exception agrees now");
        let other = mods.with(ModKind::HardSwish, true, None);
        assert_eq!(other.of(&id("a")), &ModSet::all(), "what it had besides stays");
        assert_eq!(other.exceptions().len(), 1);
    }

    #[test]
    fn the_same_meaning_is_the_same_value() {
        let there_and_back = SiteMods::none().with(ModKind::NoBias, true, Some(&[id("a")])).with(
            ModKind::NoBias,
            false,
            Some(&[id("a")]),
        );
        assert_eq!(there_and_back, SiteMods::none());
        assert!(there_and_back.is_empty() && there_and_back.is_uniform());
        let spelt_out = SiteMods::new(ModSet::none(), [(id("a"), ModSet::none())].into());
        assert_eq!(spelt_out, SiteMods::none());
        let off_at_one = SiteMods::from(ModSet::all()).with(ModKind::NoBias, false, Some(&[id("a")]));
        assert!(!off_at_one.is_empty());
        assert_eq!(off_at_one.with(ModKind::NoBias, true, None), SiteMods::from(ModSet::all()));
        // An exception without any mod is one, where the others have some.
        let bare = SiteMods::new(ModSet::all(), [(id("a"), ModSet::none())].into());
        assert!(!bare.is_uniform() && bare.of(&id("a")).is_empty());
    }

    #[test]
    fn json_is_sorted_and_read_back_normalised() {
        let mods = SiteMods::from(set(&[ModKind::NoBias]))
            .with(ModKind::HardSwish, true, Some(&[id("z"), id("b")]))
            .with(ModKind::NoBias, false, Some(&[id("b")]));
        let text = r#"{"default":["no_bias"],"sites":{"b":["hard_swish"],"z":["hard_swish","no_bias"]}}"#;
        assert_eq!(serde_json::to_string(&mods).unwrap(), text);
        assert_eq!(serde_json::from_str::<SiteMods>(text).unwrap(), mods);
        let spelt_out = r#"{"default": ["no_bias"], "sites": {"a": ["no_bias"]}}"#;
        assert_eq!(serde_json::from_str::<SiteMods>(spelt_out).unwrap(), SiteMods::from(set(&[ModKind::NoBias])));
        assert_eq!(serde_json::from_str::<SiteMods>("{}").unwrap(), SiteMods::none());
        // A misspelt field would silently be no mods at all.
        assert!(serde_json::from_str::<SiteMods>(r#"{"site": {}}"#).is_err());
        assert!(serde_json::from_str::<SiteMods>(r#"{"default": ["no_biass"]}"#).is_err());
    }
}
