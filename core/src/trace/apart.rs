//! Takes a trace of several ranks, gives those that stand out at any of its sites: what a maximum over ranks hides.

use std::collections::BTreeMap;

use super::{Trace, ranks::StandsOut};
use crate::model::SiteId;

/// A rank that stands out somewhere.
#[derive(Clone, Debug, PartialEq)]
pub struct RankApart {
    pub rank: u64,
    /// How many sites: at x, or at dy.
    pub num_sites: usize,
    /// Where it reaches farthest.
    pub site: SiteId,
    pub of_gradient: bool,
    pub most: StandsOut,
}

/// Of all ranks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RanksApart {
    /// Ranks of which any site has extremes; 0: of one rank, or not kept.
    pub num_ranks: usize,
    /// The farthest first.
    pub apart: Vec<RankApart>,
}

impl RanksApart {
    /// Reads a few numbers a rank and site. A site that cannot be used says nothing.
    pub fn of(trace: &Trace) -> Self {
        let (mut num_ranks, mut by_rank): (usize, BTreeMap<u64, RankApart>) = (0, BTreeMap::new());
        for entry in trace.sites() {
            let id = &entry.site.id;
            let Ok(Some(of)) = trace.site_ranks(id) else { continue };
            num_ranks = num_ranks.max(of.ranks.len());
            let input = of.input.stand_out(&of.ranks).into_iter().map(|found| (false, found));
            let grads = of.grad_output.iter().flat_map(|grads| grads.stand_out(&of.ranks)).map(|found| (true, found));
            let mut here: BTreeMap<u64, (bool, StandsOut)> = BTreeMap::new();
            for (of_gradient, found) in input.chain(grads) {
                let most = here.entry(found.rank).or_insert((of_gradient, found));
                if found.ratio > most.1.ratio {
                    *most = (of_gradient, found);
                }
            }
            for (rank, (of_gradient, most)) in here {
                let site = id.clone();
                let known =
                    by_rank.entry(rank).or_insert_with(|| RankApart { rank, num_sites: 0, site, of_gradient, most });
                known.num_sites += 1;
                if most.ratio > known.most.ratio {
                    (known.site, known.of_gradient, known.most) = (id.clone(), of_gradient, most);
                }
            }
        }
        let mut apart: Vec<RankApart> = by_rank.into_values().collect();
        apart.sort_by(|a, b| b.most.ratio.total_cmp(&a.most.ratio).then(a.rank.cmp(&b.rank)));
        Self { num_ranks, apart }
    }
}
