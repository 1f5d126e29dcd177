//! Chains of small made-up models, against the plain walk over all sites; and a model of 100,000.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;

use super::*;
use crate::{
    model::{ModKind, TailOp},
    numerics::rng::Rng,
};

fn site(id: &str, tail: &[&str], feeds: &[&str]) -> Site {
    Site {
        id: SiteId::new(id),
        class: String::new(),
        source: None,
        m: 16,
        k: 16,
        n: 16,
        dtype: "bf16".to_owned(),
        calls: 1,
        forward: None,
        grads: Default::default(),
        bias: false,
        head: false,
        tail: tail.iter().map(|op| TailOp::plain(op)).collect(),
        feeds: feeds.iter().map(|id| SiteId::new(id)).collect(),
        extra: Default::default(),
    }
}

fn set(kinds: &[ModKind]) -> ModSet {
    ModSet(kinds.iter().copied().collect())
}

fn ids(sites: &[Site], of: &str, mods: &SiteMods) -> Vec<String> {
    let upstream = context(sites, &SiteId::new(of), mods).upstream;
    upstream.iter().map(|(id, _)| id.to_string()).collect()
}

fn everywhere(kinds: &[ModKind]) -> SiteMods {
    set(kinds).into()
}

fn at(site: &str, kinds: &[ModKind]) -> SiteMods {
    SiteMods::new(ModSet::none(), [(SiteId::new(site), set(kinds))].into())
}

fn line() -> [Site; 4] {
    [
        site("a", &["swish"], &["b"]),
        site("b", &["swish"], &["c"]),
        site("c", &["relu"], &["d"]),
        site("d", &["layer_norm"], &[]),
    ]
}

#[test]
fn what_a_block_norm_feeds_is_bounded() {
    let mut sites = line();
    sites[1].tail = vec![TailOp::plain("layer_norm"), TailOp::plain("swish")];
    let feeds = Feeds::new(&sites);
    let bound = |of: &str, mods: &SiteMods| feeds.input_bound(&SiteId::new(of), mods);
    assert_eq!(bound("c", &everywhere(&[ModKind::BlockNorm])), Some(4.0), "16 features are one block");
    assert_eq!(bound("c", &at("b", &[ModKind::BlockNorm])), Some(4.0));
    assert_eq!(bound("c", &at("c", &[ModKind::BlockNorm])), None, "its own mods do not change what it reads");
    assert_eq!(bound("a", &everywhere(&[ModKind::BlockNorm])), None, "nothing feeds it");
    assert_eq!(bound("e", &everywhere(&[ModKind::BlockNorm])), None);
}

#[test]
fn the_chain_starts_at_the_earliest_modified_block() {
    let mut sites = line();
    sites[0].tail = vec![TailOp::plain("relu")];
    assert_eq!(ids(&sites, "d", &everywhere(&[ModKind::HardSwish])), ["b", "c"]);
    assert!(ids(&sites, "b", &everywhere(&[ModKind::HardSwish])).is_empty());
    assert!(ids(&sites, "d", &SiteMods::none()).is_empty());
}

#[test]
fn cycles_and_unknown_operations_end_it() {
    let hard_swish = everywhere(&[ModKind::HardSwish]);
    let sites = [site("a", &["swish"], &["b"]), site("b", &["swish"], &["a"])];
    assert_eq!(ids(&sites, "a", &hard_swish), ["b"]);
    let sites = [site("a", &["swish", "residual"], &["b"]), site("b", &[], &[])];
    assert!(ids(&sites, "b", &hard_swish).is_empty());
    let itself = [site("a", &["swish"], &["a", "nowhere"])];
    assert!(ids(&itself, "a", &hard_swish).is_empty());
    assert_eq!(context(&itself, &SiteId::new("nowhere"), &hard_swish).upstream, []);
}

#[test]
fn each_feeder_counts_with_its_own_mods() {
    let sites = line();
    let hard_swish = set(&[ModKind::HardSwish]);
    let only_b = at("b", &[ModKind::HardSwish]);
    assert_eq!(ids(&sites, "d", &only_b), ["b", "c"], "a is as recorded");
    let contexts = contexts(&sites, &only_b);
    let feeders = |names: &[(&str, &ModSet)]| -> Vec<(SiteId, ModSet)> {
        names.iter().map(|(name, set)| (SiteId::new(name), (*set).clone())).collect()
    };
    let none = ModSet::none();
    assert_eq!(contexts[0], SiteContext::default());
    assert_eq!(contexts[1], SiteContext { own: hard_swish.clone(), upstream: Vec::new() });
    assert_eq!(contexts[2].upstream, feeders(&[("b", &hard_swish)]));
    assert_eq!(contexts[3], SiteContext { own: none.clone(), upstream: feeders(&[("b", &hard_swish), ("c", &none)]) });
    // The others have the mod, b alone does not: its block passes modified rows on as it was.
    let all_but_b = everywhere(&[ModKind::HardSwish]).with(ModKind::HardSwish, false, Some(&[SiteId::new("b")]));
    let through = context(&sites, &SiteId::new("c"), &all_but_b).upstream;
    assert_eq!(through, feeders(&[("a", &hard_swish), ("b", &none)]));
}

#[test]
fn a_mod_that_changes_nothing_upstream_is_no_context() {
    let sites = line();
    let before = contexts(&sites, &everywhere(&[ModKind::HardSwish]));
    // No site before d has a norm or a bias.
    let after = contexts(&sites, &everywhere(&[ModKind::HardSwish, ModKind::BlockNorm]));
    for (before, after) in before.iter().zip(&after) {
        assert_eq!(before.upstream, after.upstream);
        assert_ne!(before.own, after.own, "rows carry the set that was asked for");
    }
}

#[test]
fn a_context_as_json() {
    let of = |mods: &SiteMods| context(&line(), &SiteId::new("c"), mods);
    let (plain, fed) = (of(&at("c", &[ModKind::NoBias])), of(&at("b", &[ModKind::HardSwish])));
    assert_eq!(serde_json::to_string(&plain).unwrap(), r#"{"own":["no_bias"],"upstream":[]}"#);
    assert_eq!(serde_json::to_string(&fed).unwrap(), r#"{"own":[],"upstream":[["b",["hard_swish"]]]}"#);
    for context in [plain, fed] {
        let text = serde_json::to_string(&context).unwrap();
        assert_eq!(serde_json::from_str::<SiteContext>(&text).unwrap(), context);
    }
}

/// The walk as it reads in the documentation, over all sites at every step.
fn plain_walk(sites: &[Site], site: &SiteId, mods: &SiteMods) -> Vec<SiteId> {
    let mut chain: Vec<&Site> = Vec::new();
    let mut current = site;
    while let Some(feeder) = sites.iter().find(|other| other.feeds.contains(current)) {
        if chain.iter().any(|known| known.id == feeder.id) || feeder.id == *site || !Tail::followed(feeder) {
            break;
        }
        chain.push(feeder);
        current = &feeder.id;
    }
    while chain.last().is_some_and(|earliest| applying(mods.of(&earliest.id), earliest).is_empty()) {
        chain.pop();
    }
    chain.iter().rev().map(|site| site.id.clone()).collect()
}

#[test]
fn random_models_agree_with_the_plain_walk() {
    let tails: [&[&str]; 5] = [&["swish"], &["layer_norm"], &["relu"], &["residual"], &[]];
    let mut longest = 0;
    for seed in 0..200u64 {
        let mut rng = Rng::new(seed, &[b"models"]);
        let mut below = |of: usize| rng.subset(1, of)[0];
        let names: Vec<String> = (0..12).map(|index| format!("s{index}")).collect();
        let sites: Vec<Site> = names
            .iter()
            .map(|name| {
                let to = [&*names[below(12)], &*names[below(12)]];
                let mut site = site(name, tails[below(tails.len())], &to[..below(3)]);
                site.bias = below(4) == 0;
                site
            })
            .collect();
        let sets: BTreeMap<SiteId, ModSet> =
            names.iter().map(|name| (SiteId::new(name), set(&ModKind::ALL[..below(4)]))).collect();
        let mods = SiteMods::new(ModSet::none(), sets);
        let all = contexts(&sites, &mods);
        for (site, of_all) in sites.iter().zip(&all) {
            let walked = plain_walk(&sites, &site.id, &mods);
            assert_eq!(of_all.upstream.iter().map(|(id, _)| id.clone()).collect::<Vec<_>>(), walked);
            assert_eq!(*of_all, context(&sites, &site.id, &mods));
            longest = longest.max(walked.len());
        }
    }
    assert!(longest >= 4, "chains were walked: {longest}");
}

#[test]
fn a_hundred_thousand_sites_take_a_moment() {
    let mods = everywhere(&[ModKind::HardSwish]);
    // Blocks of eight, as models have them; then all in one chain, as none has.
    for (count, chain) in [(100_000, 8), (20_000, 20_000)] {
        let sites: Vec<Site> = (0..count)
            .map(|at| {
                let next = format!("s{}", at + 1);
                let feeds: &[&str] = if (at + 1) % chain == 0 { &[] } else { &[&next] };
                site(&format!("s{at}"), &["swish"], feeds)
            })
            .collect();
        let started = std::time::Instant::now();
        let contexts = contexts(&sites, &mods);
        // A walk over all sites at every step would take hours.
        assert!(started.elapsed().as_secs() < 20, "{:?}", started.elapsed());
        assert_eq!((contexts[7].upstream.len(), contexts[8].upstream.len()), (7, 8 % chain));
        let last = &contexts[count - 1].upstream;
        assert_eq!(last.len(), (chain - 1).min(MOST_FEEDERS));
        assert_eq!(last.last().unwrap().0, SiteId::new(&format!("s{}", count - 2)));
    }
}
