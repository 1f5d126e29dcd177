//! Which sites a mod is felt through: the chain of feeds from the earliest modified block.

use crate::{
    model::{ModSet, Site, SiteId},
    mods::{Tail, applying},
};

/// Ids of the sites whose modified outputs become `site`'s input, the earliest first; empty when no
/// modified block feeds it. Cycles (a hostile trace) end the walk.
pub fn upstream(sites: &[&Site], site: &SiteId, mods: &ModSet) -> Vec<SiteId> {
    let mut chain: Vec<&Site> = Vec::new();
    let mut current = site;
    while let Some(feeder) = sites.iter().find(|other| other.feeds.contains(current)) {
        if chain.iter().any(|known| known.id == feeder.id) || feeder.id == *site || !Tail::followed(feeder) {
            break;
        }
        chain.push(feeder);
        current = &feeder.id;
    }
    // Blocks before the earliest modified one are as recorded.
    while chain.last().is_some_and(|earliest| applying(mods, earliest).is_empty()) {
        chain.pop();
    }
    chain.iter().rev().map(|site| site.id.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ModKind, TailOp};

    fn site(id: &str, tail: &[&str], feeds: &[&str]) -> Site {
        Site {
            id: SiteId::new(id),
            class: String::new(),
            source: None,
            m: 16,
            k: 16,
            n: 16,
            dtype: "bf16".to_owned(),
            bias: false,
            head: false,
            tail: tail.iter().map(|op| TailOp::plain(op)).collect(),
            feeds: feeds.iter().map(|id| SiteId::new(id)).collect(),
            extra: Default::default(),
        }
    }

    fn ids(sites: &[Site], of: &str, mods: &[ModKind]) -> Vec<String> {
        let all: Vec<&Site> = sites.iter().collect();
        let mods = ModSet(mods.iter().copied().collect());
        upstream(&all, &SiteId::new(of), &mods).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_chain_starts_at_the_earliest_modified_block() {
        let sites = [
            site("a", &["relu"], &["b"]),
            site("b", &["swish"], &["c"]),
            site("c", &["relu"], &["d"]),
            site("d", &[], &[]),
        ];
        assert_eq!(ids(&sites, "d", &[ModKind::HardSwish]), ["b", "c"]);
        assert!(ids(&sites, "b", &[ModKind::HardSwish]).is_empty());
        assert!(ids(&sites, "d", &[]).is_empty());
    }

    #[test]
    fn cycles_and_unknown_operations_end_it() {
        let sites = [site("a", &["swish"], &["b"]), site("b", &["swish"], &["a"])];
        assert_eq!(ids(&sites, "a", &[ModKind::HardSwish]), ["b"]);
        let sites = [site("a", &["swish", "residual"], &["b"]), site("b", &[], &[])];
        assert!(ids(&sites, "b", &[ModKind::HardSwish]).is_empty());
    }
}
