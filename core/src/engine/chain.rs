//! Takes a model's sites and the mods at each; gives what every site's rows depend on: its own mods, and the
//! chain of feeds from the earliest modified block before it.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::{
    model::{ModSet, Site, SiteId, SiteMods},
    mods::{Tail, applying, output_bound},
};

/// Most blocks that rows are pushed through before a site; those further away are as recorded. Far more than
/// models stack without a residual between them: it keeps a hostile trace of one long chain from costing the
/// square of its sites.
const MOST_FEEDERS: usize = 64;

/// All of the mods that one site's rows depend on. Mods that give a site equal contexts give it equal rows.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SiteContext {
    /// The site's own set, which its rows carry.
    pub own: ModSet,
    /// The sites whose outputs become this one's input, from the earliest modified one on, each with those
    /// of its mods that change it. Empty: the site reads what was recorded.
    pub upstream: Vec<(SiteId, ModSet)>,
}

/// Which site feeds which, looked up once for any number of questions.
#[derive(Clone, Debug)]
pub struct Feeds<'a> {
    sites: &'a [Site],
    index: HashMap<&'a SiteId, usize>,
    /// The site that feeds each, if its tail can be followed.
    feeder: Vec<Option<usize>>,
}

impl<'a> Feeds<'a> {
    pub fn new(sites: &'a [Site]) -> Self {
        let mut index = HashMap::with_capacity(sites.len());
        for (at, site) in sites.iter().enumerate() {
            index.entry(&site.id).or_insert(at);
        }
        let mut feeder = vec![None; sites.len()];
        let mut fed = vec![false; sites.len()];
        for (at, site) in sites.iter().enumerate() {
            let followed = Tail::followed(site);
            for to in site.feeds.iter().filter_map(|id| index.get(id)) {
                // Of several feeders (a trace that is wrong) the first counts, also when it cannot be followed.
                if !std::mem::replace(&mut fed[*to], true) && followed {
                    feeder[*to] = Some(at);
                }
            }
        }
        Self { sites, index, feeder }
    }

    /// What the rows of `site` depend on under `mods`.
    pub fn context(&self, site: &SiteId, mods: &SiteMods) -> SiteContext {
        let felt = |at: usize| felt(&self.sites[at], mods);
        let upstream = self.index.get(site).map_or(Vec::new(), |at| self.upstream(*at, &felt));
        SiteContext { own: mods.of(site).clone(), upstream }
    }

    /// The largest magnitude of what `site` reads under `mods`, where the block that feeds it holds it.
    pub fn input_bound(&self, site: &SiteId, mods: &SiteMods) -> Option<f64> {
        let feeder = &self.sites[self.feeder[*self.index.get(site)?]?];
        output_bound(feeder, mods.of(&feeder.id))
    }

    /// The same of every site, in their order: what it costs grows with the sites and the chains it gives.
    pub fn contexts(&self, mods: &SiteMods) -> Vec<SiteContext> {
        let felt: Vec<ModSet> = self.sites.iter().map(|site| felt(site, mods)).collect();
        let felt = |at: usize| felt[at].clone();
        let context = |(at, site): (usize, &Site)| {
            let upstream = if mods.is_empty() { Vec::new() } else { self.upstream(at, &felt) };
            SiteContext { own: mods.of(&site.id).clone(), upstream }
        };
        self.sites.iter().enumerate().map(context).collect()
    }

    /// Cycles (a hostile trace) end the walk.
    fn upstream(&self, site: usize, felt: &impl Fn(usize) -> ModSet) -> Vec<(SiteId, ModSet)> {
        let mut chain: Vec<usize> = Vec::new();
        let mut current = site;
        while let Some(feeder) = self.feeder[current] {
            if feeder == site || chain.contains(&feeder) || chain.len() == MOST_FEEDERS {
                break;
            }
            chain.push(feeder);
            current = feeder;
        }
        // Blocks before the earliest modified one are as recorded.
        let from_earliest = chain.into_iter().rev().map(|at| (at, felt(at))).skip_while(|(_, felt)| felt.is_empty());
        from_earliest.map(|(at, felt)| (self.sites[at].id.clone(), felt)).collect()
    }
}

/// The mods in force at `site` that change it.
fn felt(site: &Site, mods: &SiteMods) -> ModSet {
    ModSet(applying(mods.of(&site.id), site).into_iter().collect())
}

/// What the rows of one site depend on. For many sites, [`Feeds`] or [`contexts`] look the feeds up once.
pub fn context(sites: &[Site], site: &SiteId, mods: &SiteMods) -> SiteContext {
    Feeds::new(sites).context(site, mods)
}

/// What the rows of every site depend on, in the order of `sites`.
pub fn contexts(sites: &[Site], mods: &SiteMods) -> Vec<SiteContext> {
    Feeds::new(sites).contexts(mods)
}

#[cfg(test)]
#[path = "chain_tests.rs"]
mod tests;
