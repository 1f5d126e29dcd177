//! Takes the sites that are decided together (one alone, or a tree that codes are handed on in), gives what the
//! optimiser may choose from, and for its choice the kernels and links of every site.

use crate::{
    dispatch::{
        Group, JudgedRows, Override,
        joint::{SiteOptions, Triple, forward_cost_hi},
        judged::{Judged, Terms},
        knapsack::Item,
    },
    model::Gemm,
};

use super::{
    Links, MOST_ENDS, extra_us,
    path::{PathState, PathStep, Paths, Stop, Stored, paths},
    produces,
};

/// What one site of a unit takes part in.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ChainLink {
    /// Whose codes its x is, by number, and what the forward GEMM saves by them.
    pub from: Option<(usize, f64)>,
    pub store: Option<Store>,
    /// Without the chain the forward GEMM would have another kernel.
    pub decided: bool,
    /// What would be lost with the codes that are stored.
    pub credit_us: f64,
    /// What arriving codes save was timed.
    pub is_timed: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Store {
    pub scale: f64,
    /// BF16 is stored too, and the codes take this.
    pub beside_us: Option<f64>,
    /// By number, sorted.
    pub readers: Vec<usize>,
}

/// One site's kernels.
#[derive(Clone, Debug)]
pub(crate) struct Picked<'a> {
    pub triple: Triple<'a>,
    pub link: Option<ChainLink>,
}

/// One site of a unit, judged.
struct Member<'c, 'a> {
    at: usize,
    judged: [Judged<'c, 'a>; 3],
    /// Parallel to its stop's ways, with what codes save.
    triples: Vec<(Triple<'a>, f64)>,
    /// The forward kernel without chains; `None`: not known, under a budget.
    plain: Option<Triple<'a>>,
    /// Where the whole site was timed, in BF16.
    timed_us: Option<f64>,
}

impl Member<'_, '_> {
    /// Of the site a step.
    fn calls(&self) -> f64 {
        self.judged[0].group.site.calls as f64
    }
}

pub(crate) struct Unit<'c, 'a> {
    members: Vec<Member<'c, 'a>>,
    /// `None`: one site alone.
    paths: Option<Paths>,
    items: Vec<Item>,
}

impl<'c, 'a> Unit<'c, 'a> {
    /// `sites`: as [`Links::units`] gives them. `wanted`: of every site of the trace, or of none. `rows`: judged by the same
    /// terms, where somebody has done so.
    pub(crate) fn new(
        sites: &[usize],
        (groups, wanted): (&'c [[Group<'a>; 3]], &[[Option<&Override>; 3]]),
        links: &Links,
        (terms, rows): (Terms<'_>, Option<&JudgedRows>),
    ) -> Self {
        let policy = terms.policy;
        let judged = |at: &usize| {
            let rows = rows.map(|rows| Gemm::ALL.map(|gemm| rows.at(*at, gemm)));
            Judged::of_site(&groups[*at], terms, rows)
        };
        let options = |at: usize, judged: &[Judged<'c, 'a>; 3]| {
            SiteOptions::new(judged, wanted.get(at).copied().unwrap_or_default(), terms, sites.len() > 1)
        };
        let [at] = sites else { return Self::tree(sites, groups, judged, options, links, terms) };
        let judged = judged(at);
        let options = options(*at, &judged);
        let triples = match policy.loss_budget {
            Some(_) => options.by_forward(),
            None => options.fastest().into_iter().collect(),
        };
        // Sites are weighed against one another by what they take a step.
        let calls = judged[0].group.site.calls as f64;
        let item = |triple: &Triple| Item { cost: forward_cost_hi(triple, &judged, terms), time: calls * triple.us };
        let items = triples.iter().map(item).collect();
        let triples = triples.into_iter().map(|triple| (triple, 0.0)).collect();
        let timed_us = terms.table(judged[0].group).map(|table| table.bf16_us);
        Self { members: vec![Member { at: *at, judged, triples, plain: None, timed_us }], paths: None, items }
    }

    fn tree(
        sites: &[usize],
        groups: &[[Group<'a>; 3]],
        judged: impl Fn(&usize) -> [Judged<'c, 'a>; 3],
        options: impl Fn(usize, &[Judged<'c, 'a>; 3]) -> SiteOptions<'a>,
        links: &Links,
        terms: Terms<'_>,
    ) -> Self {
        let policy = terms.policy;
        let (mut members, mut stops) = (Vec::with_capacity(sites.len()), Vec::with_capacity(sites.len()));
        let place = |at: &usize| sites.binary_search(at).ok();
        for at in sites {
            let judged = judged(at);
            let options = options(*at, &judged);
            let feeder = links.feeder(*at);
            let mut stop = Stop {
                readers: feeder.into_iter().flat_map(|feeder| &feeder.readers).filter_map(place).collect(),
                extra_us: extra_us(judged[0].group.site),
                may_drop_bf16: feeder.is_some_and(|feeder| feeder.may_drop_bf16),
                ..Stop::default()
            };
            let mut triples = Vec::new();
            let mut add = |triple: Triple<'a>, reads: Stored, saved_us: f64| {
                // Without a budget nothing is held against a kernel's loss cost.
                let cost = policy.loss_budget.map_or(0.0, |_| forward_cost_hi(&triple, &judged, terms));
                let stores = feeder.is_some() && triple.rows[Gemm::Fprop as usize].is_some_and(produces);
                stop.ways.push(PathState { reads, time: triple.us, cost, produces: stores });
                triples.push((triple, saved_us));
            };
            options.by_forward().into_iter().for_each(|triple| add(triple, Stored::Bf16, 0.0));
            if let Some(before) = links.feeder_of(*at) {
                // Its feeder has been looked at: it is before it.
                let extra_us =
                    place(&before).and_then(|before| stops.get(before)).map_or(0.0, |stop: &Stop| stop.extra_us);
                let num_readers = links.feeder(before).map_or(1, |feeder| feeder.readers.len());
                let saved = terms.saved_by_codes(judged[0].group, &groups[before][0], num_readers);
                for (codes, triple) in options.by_forward_on_codes(extra_us, saved) {
                    add(triple, Stored::Both(codes.scale), codes.saved_us);
                }
                if links.feeder(before).is_some_and(|feeder| feeder.may_drop_bf16) {
                    for (codes, triple) in options.by_forward_on_codes(0.0, saved) {
                        add(triple, Stored::Codes(codes.scale), codes.saved_us);
                    }
                }
            }
            let plain = options.fastest().filter(|_| policy.loss_budget.is_none());
            stops.push(stop);
            let timed_us = terms.table(judged[0].group).map(|table| table.bf16_us);
            members.push(Member { at: *at, judged, triples, plain, timed_us });
        }
        let paths = paths(stops, MOST_ENDS);
        let items = paths.ends.iter().map(|end| Item { cost: end.cost, time: end.time }).collect();
        Self { members, paths: Some(paths), items }
    }

    /// What the optimiser chooses from; without a loss budget the fastest alone.
    pub(crate) fn items(&self) -> &[Item] {
        &self.items
    }

    /// How much faster than the items the unit may be at the same cost.
    pub(crate) fn slack_us(&self) -> f64 {
        self.paths.as_ref().map_or(0.0, |paths| paths.slack_us)
    }

    /// Of all its sites, with the whole site where that was timed.
    pub(crate) fn baseline_us(&self) -> f64 {
        let of_gemms = |member: &Member| member.judged.iter().filter_map(|group| group.reference_us).sum();
        let of_site = |member: &Member| member.timed_us.unwrap_or_else(|| of_gemms(member));
        self.members.iter().map(|member| member.calls() * of_site(member)).sum()
    }

    /// Every site's number and judged GEMMs.
    pub(crate) fn sites(&self) -> impl ExactSizeIterator<Item = (usize, &[Judged<'c, 'a>; 3])> {
        self.members.iter().map(|member| (member.at, &member.judged))
    }

    /// Without an item: every site as it is when nothing may be spent. One a site; empty: nothing can be chosen.
    pub(crate) fn picked(&self, item: Option<usize>) -> Vec<Picked<'a>> {
        let alone = |triple: Triple<'a>| Picked { triple, link: None };
        match (&self.paths, item) {
            (Some(paths), Some(item)) => self.linked(&paths.steps(item)),
            (None, Some(item)) => {
                self.members.iter().filter_map(|of| of.triples.get(item)).map(|of| alone(of.0)).collect()
            }
            (_, None) => self.members.iter().filter_map(|of| of.triples.first()).map(|of| alone(of.0)).collect(),
        }
    }

    fn linked(&self, steps: &[PathStep]) -> Vec<Picked<'a>> {
        let mut links: Vec<Option<ChainLink>> = vec![None; self.members.len()];
        let way = |place: usize| self.members[place].triples.get(steps[place].way);
        let stops = self.paths.as_ref().map_or(&[][..], |paths| &paths.stops);
        for (place, (step, stop)) in steps.iter().zip(stops).enumerate() {
            let (scale, beside_us) = match step.stored {
                Stored::Bf16 => continue,
                Stored::Both(scale) => (scale, Some(stop.extra_us)),
                Stored::Codes(scale) => (scale, None),
            };
            let reading = |reader: &&usize| stops[**reader].ways[steps[**reader].way].reads == step.stored;
            let readers: Vec<usize> = stop.readers.iter().filter(reading).copied().collect();
            let mut credit_us = -beside_us.unwrap_or(0.0);
            for reader in &readers {
                let (is_timed, saved_us) = way(*reader).map_or((false, 0.0), |(of, us)| (of.timed.is_some(), *us));
                credit_us += saved_us;
                let link = links[*reader].get_or_insert_default();
                (link.from, link.is_timed) = (Some((self.members[place].at, saved_us)), is_timed);
            }
            let readers = readers.into_iter().map(|reader| self.members[reader].at).collect();
            let link = links[place].get_or_insert_default();
            link.store = Some(Store { scale, beside_us, readers });
            link.credit_us = credit_us;
        }
        let picked = links.into_iter().enumerate().filter_map(|(place, link)| {
            let (triple, _) = *way(place)?;
            let name = |triple: &Triple<'a>| triple.rows[Gemm::Fprop as usize].map(|row| &row.kernel);
            let plain = self.members[place].plain.as_ref();
            let decided = plain.is_some_and(|plain| name(plain) != name(&triple));
            Some(Picked { triple, link: link.map(|link| ChainLink { decided, ..link }) })
        });
        picked.collect()
    }
}
