//! Takes a plan and the candidates of its results, gives every way in which what it hands on as codes fits neither
//! the trace, nor the results, nor its own kernels.

use std::collections::BTreeMap;

use crate::{
    dispatch::{
        Arriving, Candidates, Chain, Form, Group, Policy, Target,
        chain::{Codes, Links, codes, extra_us, produces},
    },
    format::short,
    model::{Gemm, SiteId},
};

use super::{Finding, Plan, PlanSite, Rule, Severity};

/// Sums are written with as many digits as they have, but added up in another order.
const NEAR: f64 = 1e-6;

pub(super) struct Chained<'a> {
    policy: &'a Policy,
    target: &'a Target,
    handed_on_us: f64,
    groups: &'a [[Group<'a>; 3]],
    links: Links,
    numbers: BTreeMap<&'a SiteId, usize>,
    /// Sites of the plan that take part.
    planned: BTreeMap<&'a SiteId, &'a PlanSite>,
    /// By whose codes they read.
    readers: BTreeMap<&'a SiteId, Vec<&'a SiteId>>,
}

impl<'a> Chained<'a> {
    pub(super) fn of(plan: &'a Plan, candidates: &'a Candidates<'a>) -> Self {
        let groups = candidates.groups.as_chunks::<3>().0;
        let planned: BTreeMap<_, _> =
            plan.sites.iter().filter(|site| site.chain.is_some()).map(|site| (&site.site, site)).collect();
        // Most plans hand nothing on: nobody need look for who could.
        let (links, numbers) = if planned.is_empty() {
            (Links::default(), BTreeMap::new())
        } else {
            let ids = groups.iter().enumerate().map(|(at, [group, ..])| (&group.site.id, at));
            (Links::of(groups, candidates.target.runtime(), None), ids.collect())
        };
        let mut readers: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for site in planned.values() {
            let from = site.chain.as_ref().filter(|chain| chain.reads_codes()).and_then(|chain| chain.from.as_ref());
            from.into_iter().for_each(|from| readers.entry(from).or_default().push(&site.site));
        }
        let (policy, target, handed_on_us) = (&plan.policy, &candidates.target, plan.totals.handed_on_us);
        Self { policy, target, handed_on_us, groups, links, numbers, planned, readers }
    }

    /// How a site's x reaches it.
    pub(super) fn arriving(&self, site: &PlanSite) -> Arriving {
        let Some(chain) = site.chain.as_ref().filter(|chain| chain.reads_codes()) else { return Arriving::BF16 };
        let (Some(codes), Some((from, stored))) = (self.codes(site), self.feeder(site, chain)) else {
            return Arriving::BF16;
        };
        let beside = stored.stores_bf16();
        Arriving { saved_us: codes.saved_us, extra_us: if beside { extra_us(self.groups[from][0].site) } else { 0.0 } }
    }

    pub(super) fn totals(&self) -> Option<Finding> {
        let sum: f64 = self.planned.values().filter_map(|site| site.chain.as_ref()).map(|chain| chain.saved_us).sum();
        let message = || {
            let (is, sum) = (short(self.handed_on_us), short(sum));
            format!("handing codes on saves {is} us in the totals, {sum} us by the sites")
        };
        (!near(self.handed_on_us, sum)).then(|| Finding::whole(Rule::PlanChain, Severity::Fails, message()))
    }

    pub(super) fn site(&self, site: &PlanSite) -> Vec<Finding> {
        let Some((chain, at)) = site.chain.as_ref().zip(self.numbers.get(&site.site)) else { return Vec::new() };
        let problems = [self.reading(site, chain), self.storing(site, chain, *at), self.time(site, chain, *at)];
        let gemm = Some(Gemm::Fprop);
        let finding = |text| Finding { gemm, ..Finding::at(Rule::PlanChain, Severity::Fails, &site.site, text) };
        problems.into_iter().flatten().map(finding).collect()
    }

    fn reading(&self, site: &PlanSite, chain: &Chain) -> Option<String> {
        match (&chain.from, chain.reads_codes()) {
            (None, false) => return None,
            (Some(from), false) => return Some(format!("reads BF16, and codes from {from}")),
            (None, true) => return Some("reads codes, and nobody's".to_owned()),
            (Some(_), true) => {}
        }
        let from = chain.from.as_ref()?;
        let Some((_, stored)) = self.feeder(site, chain) else {
            return Some(format!("reads codes from {from}, which by the trace and the results cannot hand it any"));
        };
        let Some(codes) = self.codes(site) else {
            return Some(format!("reads codes, which {} cannot, or without gaining by it", site.fprop.kernel));
        };
        let scale = short(codes.scale);
        match stored.store_scale {
            Some(stored) if stored == codes.scale => None,
            Some(stored) => {
                Some(format!("reads codes of scale {scale}, {from} stores them of scale {}", short(stored)))
            }
            None => Some(format!("reads codes from {from}, which stores none")),
        }
    }

    fn storing(&self, site: &PlanSite, chain: &Chain, at: usize) -> Option<String> {
        let known = [&[Form::Bf16][..], &[Form::Bf16, Form::E4m3], &[Form::E4m3]];
        if !known.contains(&chain.stores.as_slice()) {
            return Some("stores neither BF16 nor codes, or one of them twice".to_owned());
        }
        if !chain.stores_codes() {
            let scale = chain.store_scale.map(|_| "stores no codes, of some scale".to_owned());
            return scale.or_else(|| (!chain.reads_codes()).then(|| "neither reads nor stores codes".to_owned()));
        }
        let readers = self.readers.get(&site.site).map_or(&[][..], Vec::as_slice);
        let row = self.groups[at][0].row(&site.fprop.kernel);
        let every_one = || self.groups[at][0].site.feeds.iter().all(|to| readers.contains(&to));
        let may_drop_bf16 = || self.links.feeder(at).is_some_and(|feeder| feeder.may_drop_bf16) && every_one();
        if chain.store_scale.is_none() {
            Some("stores codes, and no scale is said".to_owned())
        } else if !row.is_some_and(produces) {
            Some(format!("stores codes, which {} cannot", site.fprop.kernel))
        } else if readers.is_empty() {
            Some("stores codes that nobody reads".to_owned())
        } else if chain.stores_bf16() || may_drop_bf16() {
            None
        } else {
            Some("stores no BF16, which something reads".to_owned())
        }
    }

    fn time(&self, site: &PlanSite, chain: &Chain, at: usize) -> Option<String> {
        let saved_us = if chain.reads_codes() { self.codes(site)?.saved_us } else { 0.0 };
        let both = chain.stores_codes() && chain.stores_bf16();
        let is = saved_us - if both { extra_us(self.groups[at][0].site) } else { 0.0 };
        let message = || {
            let (said, is) = (short(chain.saved_us), short(is));
            format!("saves {said} us by codes in the plan, {is} us by the results")
        };
        (!near(chain.saved_us, is)).then(message)
    }

    /// Whose codes a site reads: by the trace and the results, and as the plan has them.
    fn feeder(&self, site: &PlanSite, chain: &Chain) -> Option<(usize, &'a Chain)> {
        let from = self.links.feeder_of(*self.numbers.get(&site.site)?)?;
        let planned = self.planned.get(chain.from.as_ref()?)?;
        (planned.site == self.groups[from][0].site.id).then_some((from, planned.chain.as_ref()?))
    }

    fn codes(&self, site: &PlanSite) -> Option<Codes> {
        let at = *self.numbers.get(&site.site)?;
        let (group, from) = (&self.groups[at][Gemm::Fprop as usize], self.links.feeder_of(at)?);
        let num_readers = self.links.feeder(from).map_or(1, |feeder| feeder.readers.len());
        let saved = self.target.saved_by_codes((group, &self.groups[from][0]), num_readers, self.policy);
        codes(
            group.row(&site.fprop.kernel)?,
            group.reference_us(&self.policy.baseline)?,
            (saved, self.target.runtime()),
        )
    }
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= NEAR * a.abs().max(b.abs()) + 1e-9
}

#[cfg(test)]
mod tests;
