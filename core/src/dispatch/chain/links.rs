//! Takes the candidates of every site, gives which site may hand its output on as codes to which: the trees that
//! have to be decided together. Nothing where no kernel stores codes.

use std::collections::{BTreeMap, HashMap};

use crate::model::{Gemm, ResultRow, Runtime, SiteId};

use super::{Group, handoff_cost};
use crate::dispatch::{JudgedRows, parallel};

/// Whom a site's codes may go to.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Feeder {
    /// By number, sorted.
    pub readers: Vec<usize>,
    /// BF16 need not be stored where all of them read codes: the results are of inference, and the trace names
    /// no other reader.
    pub may_drop_bf16: bool,
}

/// Sites that are decided together, in the order of their first ones.
pub(crate) struct Units {
    sites: Vec<usize>,
    ends: Vec<usize>,
}

impl Units {
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// In forward order, the one that feeds all others first.
    pub(crate) fn get(&self, unit: usize) -> &[usize] {
        let from = unit.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        &self.sites[from..self.ends[unit]]
    }
}

/// By a site's number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Links {
    feeders: BTreeMap<usize, Feeder>,
    feeder_of: BTreeMap<usize, usize>,
}

impl Links {
    /// `rows`: judged, where somebody has done so; they say by themselves where no kernel could store codes.
    pub(crate) fn of(groups: &[[Group; 3]], runtime: Runtime, rows: Option<&JudgedRows>) -> Self {
        let may = |at: usize| rows.is_none_or(|rows| rows.has_static(at, Gemm::Fprop));
        let produces = |at: &usize| {
            may(*at) && !groups[*at][0].site.feeds.is_empty() && any(&groups[*at], &handoff_cost::produces)
        };
        let producing = parallel::map_ranges(groups.len(), |range| range.filter(produces).collect());
        if producing.is_empty() {
            return Self::default();
        }
        let index = index(groups);
        let fed = times_fed(groups, &index);
        let has_backward =
            || groups.iter().any(|[_, backward @ ..]| backward.iter().any(|group| !group.rows.is_empty()));
        let training = runtime != Runtime::Inference && has_backward();
        let mut links = Self::default();
        for at in producing {
            let site = groups[at][0].site;
            let reads = |to: usize| {
                let reader = groups[to][0].site;
                // What runs twice stores two outputs, and its codes' scale is of one.
                let once = site.calls == 1 && reader.calls == 1;
                to > at
                    && once
                    && fed[to] == 1
                    && (reader.m, reader.k) == (site.m, site.n)
                    && any(&groups[to], &|row| handoff_cost::reads(row, runtime))
            };
            let known: Vec<Option<usize>> = site.feeds.iter().map(|id| index.get(id).copied()).collect();
            let mut readers: Vec<usize> = known.iter().flatten().copied().filter(|to| reads(*to)).collect();
            readers.sort_unstable();
            readers.dedup();
            if readers.is_empty() {
                continue;
            }
            let every_one = known.iter().all(|to| to.is_some_and(|to| readers.contains(&to)));
            links.feeder_of.extend(readers.iter().map(|reader| (*reader, at)));
            links.feeders.insert(at, Feeder { readers, may_drop_bf16: !training && every_one });
        }
        links
    }

    pub(crate) fn feeder(&self, at: usize) -> Option<&Feeder> {
        self.feeders.get(&at)
    }

    pub(crate) fn feeder_of(&self, at: usize) -> Option<usize> {
        self.feeder_of.get(&at).copied()
    }

    /// Every site once, those that are decided together beside one another.
    pub(crate) fn units(&self, num_sites: usize) -> Units {
        let mut units = Units { sites: Vec::with_capacity(num_sites), ends: Vec::with_capacity(num_sites) };
        for at in (0..num_sites).filter(|at| !self.feeder_of.contains_key(at)) {
            if self.feeders.contains_key(&at) {
                units.sites.extend(self.tree(at));
            } else {
                units.sites.push(at);
            }
            units.ends.push(units.sites.len());
        }
        units
    }

    /// A site and all that is handed on from there.
    pub(crate) fn tree(&self, root: usize) -> Vec<usize> {
        let mut tree = vec![root];
        let mut next = 0;
        while let Some(at) = tree.get(next).copied() {
            tree.extend(self.feeder(at).into_iter().flat_map(|feeder| &feeder.readers));
            next += 1;
        }
        tree.sort_unstable();
        tree
    }

    /// Where a site's tree begins.
    pub(crate) fn root_of(&self, mut at: usize) -> usize {
        while let Some(feeder) = self.feeder_of(at) {
            at = feeder;
        }
        at
    }
}

fn any(site: &[Group; 3], is: &dyn Fn(&ResultRow) -> bool) -> bool {
    site[Gemm::Fprop as usize].rows.iter().any(is)
}

fn index<'a>(groups: &[[Group<'a>; 3]]) -> HashMap<&'a SiteId, usize> {
    let mut index = HashMap::with_capacity(groups.len());
    for (at, [group, ..]) in groups.iter().enumerate() {
        index.entry(&group.site.id).or_insert(at);
    }
    index
}

/// How many sites feed each.
fn times_fed(groups: &[[Group; 3]], index: &HashMap<&SiteId, usize>) -> Vec<usize> {
    let mut fed = vec![0; groups.len()];
    for [group, ..] in groups {
        let mut to: Vec<usize> = group.site.feeds.iter().filter_map(|id| index.get(id).copied()).collect();
        to.sort_unstable();
        to.dedup();
        to.into_iter().for_each(|to| fed[to] += 1);
    }
    fed
}
