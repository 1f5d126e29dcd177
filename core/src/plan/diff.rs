//! Takes two plans, or two sets of choices before they are plans, gives what changed between them, site by
//! site, and why.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use serde::Serialize;

use crate::{
    dispatch::{Chain, Choice, ChoiceSource, PassedOver, Policy, Together, Totals, parallel},
    model::{Gemm, Kernel, KernelId, ModSet, SiteId},
};

use super::Plan;

/// Two kernels whose speed-ups differ by less are as fast as each other: the next measurement may
/// swap them, and a reviewer need not look.
pub const NEAR_TIE: f64 = 0.02;

/// What made a GEMM's choice change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Cause {
    /// A person chose, or stopped choosing.
    Override,
    Mod,
    Policy,
    /// The errors are others: what was safe no longer is, or the other way round.
    Error,
    Latency,
    /// A cast that the site's GEMMs share, or no longer do, decides: no kernel became faster or safer.
    #[serde(rename = "shared_casts")]
    Sharing,
    /// Codes that are handed on, or no longer are, decide.
    Chain,
    /// The loss budget is spent elsewhere.
    Budget,
}

impl Cause {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Override => "override",
            Self::Mod => "mod",
            Self::Policy => "policy",
            Self::Error => "error",
            Self::Latency => "latency",
            Self::Sharing => "shared casts",
            Self::Chain => "chain",
            Self::Budget => "budget",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChoiceChange {
    pub site: SiteId,
    pub gemm: Gemm,
    pub before: KernelId,
    pub after: KernelId,
    pub before_speedup: Option<f64>,
    pub after_speedup: Option<f64>,
    pub cause: Cause,
    /// A sentence for a person.
    pub reason: String,
    /// The two are within [`NEAR_TIE`] of each other in speed.
    pub near_tie: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlanDiff {
    /// Changes of the plan as a whole: trace, results, policy; one sentence each.
    pub whole: Vec<String>,
    /// Sites whose mods changed, before and after.
    pub mods: BTreeMap<SiteId, (ModSet, ModSet)>,
    /// Sites that take or hand on codes otherwise, before and after.
    pub chains: BTreeMap<SiteId, (Option<Chain>, Option<Chain>)>,
    pub added: Vec<SiteId>,
    pub removed: Vec<SiteId>,
    /// In the second plan's order.
    pub changes: Vec<ChoiceChange>,
    pub unchanged: usize,
    pub before: Totals,
    pub after: Totals,
}

impl PlanDiff {
    pub fn is_empty(&self) -> bool {
        self.whole.is_empty()
            && self.mods.is_empty()
            && self.chains.is_empty()
            && self.added.is_empty()
            && self.removed.is_empty()
            && self.changes.is_empty()
    }
}

/// What is compared: what every site got, three GEMMs in the order of [`Gemm::ALL`], and what it was decided under.
pub struct Decided<'a> {
    pub policy: &'a Policy,
    /// Sites with at least one mod.
    pub mods: BTreeMap<&'a SiteId, &'a ModSet>,
    /// Sites that take or hand on codes.
    pub chains: BTreeMap<&'a SiteId, &'a Chain>,
    pub picks: Vec<Got<'a>>,
    /// The choice at a place in `picks`: with its words, which are asked for where something changed.
    pub choice: Box<dyn Fn(usize) -> Option<&'a Choice> + Sync + 'a>,
}

/// What one GEMM got.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Got<'a> {
    pub site: &'a SiteId,
    pub gemm: Gemm,
    pub kernel: &'a KernelId,
    pub source: ChoiceSource,
}

impl<'a> From<&'a Plan> for Decided<'a> {
    fn from(plan: &'a Plan) -> Self {
        let chains = plan.sites.iter().filter_map(|site| Some((&site.site, site.chain.as_ref()?))).collect();
        let picks = plan.choices().map(|(site, gemm, choice)| Got::of(site, gemm, (&choice.kernel, choice.source)));
        let choice = |at: usize| Some(plan.sites.get(at / 3)?.choice(Gemm::ALL[at % 3]));
        Self {
            policy: &plan.policy,
            mods: plan.mods.iter().collect(),
            chains,
            picks: picks.collect(),
            choice: Box::new(choice),
        }
    }
}

impl<'a> Got<'a> {
    pub fn of(site: &'a SiteId, gemm: Gemm, (kernel, source): (&'a KernelId, ChoiceSource)) -> Self {
        Self { site, gemm, kernel, source }
    }
}

impl Decided<'_> {
    fn mods_of(&self, site: &SiteId) -> ModSet {
        self.mods.get(site).map(|mods| (*mods).clone()).unwrap_or_default()
    }

    /// Places in `picks`.
    fn by_site(&self) -> HashMap<(&SiteId, Gemm), usize> {
        self.picks.iter().enumerate().map(|(at, of)| ((of.site, of.gemm), at)).collect()
    }
}

/// What changed from choice to choice.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// Sites whose mods changed, before and after.
    pub mods: BTreeMap<SiteId, (ModSet, ModSet)>,
    /// Sites of both that take or hand on codes otherwise, before and after.
    pub chains: BTreeMap<SiteId, (Option<Chain>, Option<Chain>)>,
    pub added: Vec<SiteId>,
    pub removed: Vec<SiteId>,
    /// In the second one's order.
    pub changes: Vec<ChoiceChange>,
    pub unchanged: usize,
}

pub fn changes(before: &Decided, after: &Decided) -> Changes {
    let is_same = |(a, b): (&Got, &Got)| a.site == b.site && a.gemm == b.gemm;
    // Mostly the same GEMMs in the same order: then nothing is looked up, by 60,000 names.
    if before.picks.len() == after.picks.len() && before.picks.iter().zip(&after.picks).all(is_same) {
        let in_both: HashSet<&SiteId> = match before.chains.is_empty() && after.chains.is_empty() {
            true => HashSet::new(),
            false => after.picks.iter().map(|of| of.site).collect(),
        };
        let (mods, chains) = (mods(before, after), chains(before, after, |site| in_both.contains(site)));
        let mut found = Changes { mods, chains, ..Changes::default() };
        found.take(before, after, (0..after.picks.len()).map(|at| (at, at)));
        return found;
    }
    let (old, new) = (before.by_site(), after.by_site());
    let missing_in = |of: &Decided, other: &HashMap<(&SiteId, Gemm), usize>| {
        let firsts = of.picks.iter().filter(|of| of.gemm == Gemm::Fprop).map(|of| of.site);
        firsts.filter(|site| !other.contains_key(&(*site, Gemm::Fprop))).cloned().collect()
    };
    let mut found = Changes {
        mods: mods(before, after),
        chains: chains(before, after, |site| {
            let there = (site, Gemm::Fprop);
            old.contains_key(&there) && new.contains_key(&there)
        }),
        added: missing_in(after, &old),
        removed: missing_in(before, &new),
        ..Changes::default()
    };
    let both = after.picks.iter().enumerate().filter_map(|(at, of)| Some((*old.get(&(of.site, of.gemm))?, at)));
    found.take(before, after, both);
    found
}

impl Changes {
    /// `both`: the places of a GEMM before and after.
    fn take(&mut self, before: &Decided, after: &Decided, both: impl Iterator<Item = (usize, usize)>) {
        let is_another = |(was, is): &(usize, usize)| {
            let (then, now) = (&before.picks[*was], &after.picks[*is]);
            then.kernel != now.kernel || then.source != now.source
        };
        let (changed, unchanged): (Vec<_>, Vec<_>) = both.partition(is_another);
        // Where words are asked for, they may have to be made.
        let told = parallel::map(changed.len(), |at| {
            let (was, is) = changed[at];
            let now = &after.picks[is];
            Some(change(before, after, (now.site, now.gemm), ((before.choice)(was)?, (after.choice)(is)?)))
        });
        self.unchanged = unchanged.len();
        self.changes = told.into_iter().flatten().collect();
    }
}

pub fn diff(before: &Plan, after: &Plan) -> PlanDiff {
    let Changes { mods, chains, added, removed, changes, unchanged } = changes(&before.into(), &after.into());
    let (whole, before, after) = (whole(before, after), before.totals, after.totals);
    PlanDiff { whole, mods, chains, added, removed, changes, unchanged, before, after }
}

fn whole(before: &Plan, after: &Plan) -> Vec<String> {
    let mut lines = Vec::new();
    if before.trace_digest != after.trace_digest {
        lines.push(format!("another trace: {} instead of {}", after.trace_digest, before.trace_digest));
    }
    if before.results_digest != after.results_digest {
        lines.push(format!("other results: {} instead of {}", after.results_digest, before.results_digest));
    }
    if before.runtime != after.runtime {
        lines.push(format!("another runtime: {} instead of {}", after.runtime, before.runtime));
    }
    if before.device != after.device {
        let of = |plan: &Plan| plan.device.clone().unwrap_or_else(|| "as probed".to_owned());
        lines.push(format!("times of another device: {} instead of {}", of(after), of(before)));
    }
    let policy = after.policy.differences(&before.policy);
    lines.extend(policy.map(|(what, is, was)| format!("policy {what}: {is} instead of {was}")));
    lines
}

fn mods(before: &Decided, after: &Decided) -> BTreeMap<SiteId, (ModSet, ModSet)> {
    let sites = before.mods.keys().chain(after.mods.keys());
    let both = sites.map(|site| ((*site).clone(), (before.mods_of(site), after.mods_of(site))));
    both.filter(|(_, (was, is))| was != is).collect()
}

/// Another time alone is no change: plans of two measurements would differ everywhere.
fn chains(
    before: &Decided,
    after: &Decided,
    in_both: impl Fn(&SiteId) -> bool,
) -> BTreeMap<SiteId, (Option<Chain>, Option<Chain>)> {
    let sites: BTreeSet<&SiteId> = before.chains.keys().chain(after.chains.keys()).copied().collect();
    let of = |plan: &Decided, site: &SiteId| plan.chains.get(site).map(|chain| (*chain).clone());
    let both = sites.into_iter().map(|site| (site.clone(), (of(before, site), of(after, site))));
    let alike = |was: &Option<Chain>, is: &Option<Chain>| match (was, is) {
        (Some(was), Some(is)) => was.is_like(is),
        (was, is) => was == is,
    };
    both.filter(|(site, (was, is))| in_both(site) && !alike(was, is)).collect()
}

fn change(
    before: &Decided,
    after: &Decided,
    (site, gemm): (&SiteId, Gemm),
    (was, is): (&Choice, &Choice),
) -> ChoiceChange {
    let (cause, reason) = explain(before, after, site, was, is);
    let near_tie = match (speed_of(before, was), speed_of(after, is)) {
        // One of the two may have the site's tail in it: then the two speed-ups are not of the same.
        (Some(a), Some(b)) if has_tail(was) == has_tail(is) => {
            was.kernel != is.kernel && (a / b - 1.0).abs() < NEAR_TIE
        }
        _ => false,
    };
    ChoiceChange {
        site: site.clone(),
        gemm,
        before: was.kernel.clone(),
        after: is.kernel.clone(),
        before_speedup: was.speedup,
        after_speedup: is.speedup,
        cause,
        reason: if near_tie { format!("{reason} (a near tie)") } else { reason },
        near_tie,
    }
}

fn has_tail(choice: &Choice) -> bool {
    choice.kernel.known().is_some_and(Kernel::has_tail)
}

fn speed_of(plan: &Decided, choice: &Choice) -> Option<f64> {
    if choice.kernel == plan.policy.baseline { Some(1.0) } else { choice.speedup }
}

/// What a person did outweighs what was asked for, which outweighs what was measured: with another
/// policy the errors may have changed too, but the policy is why one looks.
fn explain(before: &Decided, after: &Decided, site: &SiteId, was: &Choice, is: &Choice) -> (Cause, String) {
    if is.source == ChoiceSource::Override {
        return (Cause::Override, is.reason.clone());
    }
    if was.source == ChoiceSource::Override {
        return (Cause::Override, format!("the override of {} is gone: {}", was.kernel, is.reason));
    }
    let (old, new) = (before.mods_of(site), after.mods_of(site));
    if old != new {
        let named = |set: ModSet| if set.is_empty() { "none".to_owned() } else { set.to_string() };
        return (Cause::Mod, format!("mods {} instead of {}: {}", named(new), named(old), is.reason));
    }
    if before.policy != after.policy {
        return (Cause::Policy, format!("another policy: {}", is.reason));
    }
    measured(was, is)
}

/// Why the old choice lost, or else what kept the new one from winning before.
fn measured(was: &Choice, is: &Choice) -> (Cause, String) {
    match (is.passed_over.get(&was.kernel), was.passed_over.get(&is.kernel)) {
        (Some(why @ (PassedOver::Unsafe | PassedOver::Uncertain)), _) => {
            (Cause::Error, format!("{} is {} now: {}", was.kernel, why.as_str(), is.reason))
        }
        (Some(why @ (PassedOver::Runtime | PassedOver::Forward)), _) => {
            (Cause::Latency, format!("{} is {} now: {}", was.kernel, why.as_str(), is.reason))
        }
        (Some(why), _) => (Cause::Budget, format!("{} is {} now: {}", was.kernel, why.as_str(), is.reason)),
        (None, Some(why @ (PassedOver::Unsafe | PassedOver::Uncertain))) => {
            (Cause::Error, format!("{} was {} before: {}", is.kernel, why.as_str(), is.reason))
        }
        (None, Some(why @ (PassedOver::Runtime | PassedOver::Forward))) => {
            (Cause::Latency, format!("{} was {} before: {}", is.kernel, why.as_str(), is.reason))
        }
        (None, Some(why)) => (Cause::Budget, format!("{} was {} before: {}", is.kernel, why.as_str(), is.reason)),
        (None, None) => unshared(was, is),
    }
}

/// Neither was ruled out: the times decided, of one GEMM, of the site's GEMMs together, or of a chain of sites.
fn unshared(was: &Choice, is: &Choice) -> (Cause, String) {
    let no_longer = |by: &str| format!("{} is no longer favoured by a {by}: {}", was.kernel, is.reason);
    match (was.together, is.together) {
        (_, Some(Together::Chain)) => (Cause::Chain, is.reason.clone()),
        (Some(Together::Chain), _) => (Cause::Chain, no_longer("chain")),
        (_, Some(Together::Sharing)) => (Cause::Sharing, is.reason.clone()),
        (Some(Together::Sharing), None) => (Cause::Sharing, no_longer("shared cast")),
        (None, None) => (Cause::Latency, is.reason.clone()),
    }
}

#[cfg(test)]
mod tests;
