//! Takes two plans, or two sets of choices before they are plans, gives what changed between them, site by
//! site, and why.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use crate::{
    dispatch::{Choice, ChoiceSource, PassedOver, Policy, Totals},
    model::{Gemm, KernelId, ModSet, SiteId},
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
            && self.added.is_empty()
            && self.removed.is_empty()
            && self.changes.is_empty()
    }
}

/// What is compared: the choices of every site, three a site in the order of [`Gemm::ALL`], and what they
/// were made under.
pub struct Decided<'a> {
    pub policy: &'a Policy,
    /// Sites with at least one mod.
    pub mods: BTreeMap<&'a SiteId, &'a ModSet>,
    pub choices: Vec<(&'a SiteId, Gemm, &'a Choice)>,
}

impl<'a> From<&'a Plan> for Decided<'a> {
    fn from(plan: &'a Plan) -> Self {
        Self { policy: &plan.policy, mods: plan.mods.iter().collect(), choices: plan.choices().collect() }
    }
}

impl Decided<'_> {
    fn mods_of(&self, site: &SiteId) -> ModSet {
        self.mods.get(site).map(|mods| (*mods).clone()).unwrap_or_default()
    }

    fn by_site(&self) -> HashMap<(&SiteId, Gemm), &Choice> {
        self.choices.iter().map(|(site, gemm, choice)| ((*site, *gemm), *choice)).collect()
    }
}

/// What changed from choice to choice.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// Sites whose mods changed, before and after.
    pub mods: BTreeMap<SiteId, (ModSet, ModSet)>,
    pub added: Vec<SiteId>,
    pub removed: Vec<SiteId>,
    /// In the second one's order.
    pub changes: Vec<ChoiceChange>,
    pub unchanged: usize,
}

pub fn changes(before: &Decided, after: &Decided) -> Changes {
    let (old, new) = (before.by_site(), after.by_site());
    let missing_in = |of: &Decided, other: &HashMap<(&SiteId, Gemm), &Choice>| {
        let firsts = of.choices.iter().filter(|(_, gemm, _)| *gemm == Gemm::Fprop);
        firsts.map(|(site, ..)| *site).filter(|site| !other.contains_key(&(*site, Gemm::Fprop))).cloned().collect()
    };
    let mut found = Changes {
        mods: mods(before, after),
        added: missing_in(after, &old),
        removed: missing_in(before, &new),
        ..Changes::default()
    };
    for (site, gemm, choice) in &after.choices {
        let Some(was) = old.get(&(*site, *gemm)) else { continue };
        if was.kernel == choice.kernel && was.source == choice.source {
            found.unchanged += 1;
        } else {
            found.changes.push(change(before, after, (site, *gemm), (was, choice)));
        }
    }
    found
}

pub fn diff(before: &Plan, after: &Plan) -> PlanDiff {
    let Changes { mods, added, removed, changes, unchanged } = changes(&before.into(), &after.into());
    let (whole, before, after) = (whole(before, after), before.totals, after.totals);
    PlanDiff { whole, mods, added, removed, changes, unchanged, before, after }
}

fn whole(before: &Plan, after: &Plan) -> Vec<String> {
    let mut lines = Vec::new();
    if before.trace_digest != after.trace_digest {
        lines.push(format!("another trace: {} instead of {}", after.trace_digest, before.trace_digest));
    }
    if before.results_digest != after.results_digest {
        lines.push(format!("other results: {} instead of {}", after.results_digest, before.results_digest));
    }
    let (old, new) = (&before.policy, &after.policy);
    let mut compare = |what: &str, was: String, is: String| {
        if was != is {
            lines.push(format!("policy {what}: {is} instead of {was}"));
        }
    };
    compare("name", old.name.clone(), new.name.clone());
    compare("metric", old.metric.to_string(), new.metric.to_string());
    compare("max_error", old.max_error.to_string(), new.max_error.to_string());
    compare("min_speedup", old.min_speedup.to_string(), new.min_speedup.to_string());
    compare("confidence", old.confidence.to_string(), new.confidence.to_string());
    let budget = |budget: Option<f64>| budget.map_or_else(|| "none".to_owned(), |share| share.to_string());
    compare("loss_budget", budget(old.loss_budget), budget(new.loss_budget));
    compare("baseline", old.baseline.to_string(), new.baseline.to_string());
    lines
}

fn mods(before: &Decided, after: &Decided) -> BTreeMap<SiteId, (ModSet, ModSet)> {
    let sites = before.mods.keys().chain(after.mods.keys());
    let both = sites.map(|site| ((*site).clone(), (before.mods_of(site), after.mods_of(site))));
    both.filter(|(_, (was, is))| was != is).collect()
}

fn change(
    before: &Decided,
    after: &Decided,
    (site, gemm): (&SiteId, Gemm),
    (was, is): (&Choice, &Choice),
) -> ChoiceChange {
    let (cause, reason) = explain(before, after, site, was, is);
    let near_tie = match (speed_of(before, was), speed_of(after, is)) {
        (Some(a), Some(b)) => was.kernel != is.kernel && (a / b - 1.0).abs() < NEAR_TIE,
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
        (Some(why), _) => (Cause::Budget, format!("{} is {} now: {}", was.kernel, why.as_str(), is.reason)),
        (None, Some(why @ (PassedOver::Unsafe | PassedOver::Uncertain))) => {
            (Cause::Error, format!("{} was {} before: {}", is.kernel, why.as_str(), is.reason))
        }
        (None, Some(why)) => (Cause::Budget, format!("{} was {} before: {}", is.kernel, why.as_str(), is.reason)),
        (None, None) => unshared(was, is),
    }
}

/// Neither was ruled out: the times decided, of one GEMM or of the site's GEMMs together.
fn unshared(was: &Choice, is: &Choice) -> (Cause, String) {
    match (was.is_decided_by_sharing(), is.is_decided_by_sharing()) {
        (false, false) => (Cause::Latency, is.reason.clone()),
        (_, true) => (Cause::Sharing, is.reason.clone()),
        (true, false) => {
            (Cause::Sharing, format!("{} is no longer favoured by a shared cast: {}", was.kernel, is.reason))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        dispatch::{
            Override, Overrides, Policy,
            testing::{results, row},
        },
        model::{ModKind, ResultRow, SiteMods},
        plan::build,
    };

    const FAST: &str = "cublaslt/fp8-rowwise+fast";
    const OTHER: &str = "te/current";

    fn fprop(kernel: &str, error: f64, speedup: f64) -> ResultRow {
        row("a", Gemm::Fprop, kernel, error, Some(speedup), 0.0)
    }

    fn plan_with(rows: Vec<ResultRow>, policy: &Policy, mods: &SiteMods, overrides: &Overrides) -> Plan {
        build(&results(&["a"], rows), policy, mods, overrides, "p", "2026-11-20T00:00:00Z").unwrap().plan
    }

    fn plan(rows: Vec<ResultRow>) -> Plan {
        plan_with(rows, &Policy::paper(), &SiteMods::default(), &Overrides::new())
    }

    fn only(before: &Plan, after: &Plan) -> ChoiceChange {
        let mut diff = diff(before, after);
        assert_eq!((diff.changes.len(), diff.unchanged), (1, 2));
        diff.changes.remove(0)
    }

    #[test]
    fn a_plan_does_not_differ_from_itself() {
        let same = plan(vec![fprop(FAST, 0.1, 1.3)]);
        assert!(diff(&same, &same).is_empty());
        assert_eq!(diff(&same, &same).unchanged, 3);
    }

    #[test]
    fn the_cause_is_what_changed() {
        let before = plan(vec![fprop(FAST, 0.1, 1.3), fprop(OTHER, 0.1, 1.2)]);
        let cause = |rows| only(&before, &plan(rows)).cause;
        assert_eq!(cause(vec![fprop(FAST, 0.5, 1.3), fprop(OTHER, 0.1, 1.2)]), Cause::Error);
        assert_eq!(cause(vec![fprop(FAST, 0.1, 1.1), fprop(OTHER, 0.1, 1.2)]), Cause::Latency);
        assert_eq!(cause(vec![fprop(FAST, 0.1, 1.01), fprop(OTHER, 0.1, 1.02)]), Cause::Latency);
        let was_unsafe = plan(vec![fprop(FAST, 0.5, 1.3)]);
        let change = only(&was_unsafe, &before);
        assert_eq!((change.cause, change.after_speedup), (Cause::Error, Some(1.3)));
        assert_eq!(
            change.reason,
            format!("{FAST} was unsafe before: fastest of 2 that are safe: MERE .1 (.09 to .11) <= .2, 1.30x")
        );
    }

    #[test]
    fn policies_mods_and_overrides_are_causes() {
        let rows = vec![fprop(FAST, 0.1, 1.3)];
        let before = plan(rows.clone());
        let strict = plan_with(rows.clone(), &Policy::rel_l2(), &SiteMods::default(), &Overrides::new());
        assert_eq!(only(&before, &strict).cause, Cause::Policy);
        let found = diff(&before, &strict).whole;
        assert_eq!(found[0], "policy name: rel-l2 instead of paper");
        assert_eq!(found[1..], ["policy metric: rel_l2 instead of mere", "policy max_error: 0.05 instead of 0.2"]);

        let high = Override { kernel: KernelId::new("cublaslt/bf16"), reason: "launch week".to_owned() };
        let overrides = Overrides::from([((SiteId::new("a"), Gemm::Fprop), high)]);
        let overridden = plan_with(rows.clone(), &Policy::paper(), &SiteMods::default(), &overrides);
        let change = only(&before, &overridden);
        assert_eq!((change.cause, change.reason.as_str()), (Cause::Override, "override: launch week"));
        assert_eq!(only(&overridden, &before).cause, Cause::Override);

        let set = ModSet([ModKind::NoBias].into());
        let modified: Vec<ResultRow> =
            [FAST, OTHER].iter().map(|kernel| ResultRow { mods: set.clone(), ..fprop(kernel, 0.1, 1.4) }).collect();
        let after =
            plan_with([rows, vec![modified[1].clone()]].concat(), &Policy::paper(), &set.into(), &Overrides::new());
        assert_eq!(only(&before, &after).cause, Cause::Mod);
        assert_eq!(diff(&before, &after).mods.len(), 1);
    }

    #[test]
    fn a_cast_that_is_no_longer_shared_is_the_cause() {
        // Forward is 98 of 100 and shares the cast of x with wgrad, which turns unsafe.
        let tensorwise = |gemm, error| {
            let row = row("a", gemm, "cublaslt/fp8-tensorwise", error, Some(100.0 / 98.0), 0.0);
            crate::dispatch::testing::with_gemm_us(row, 60.0)
        };
        let shared = plan(vec![tensorwise(Gemm::Fprop, 0.1), tensorwise(Gemm::Wgrad, 0.1)]);
        let alone = plan(vec![tensorwise(Gemm::Fprop, 0.1), tensorwise(Gemm::Wgrad, 0.5)]);
        let causes = |before: &Plan, after: &Plan| -> Vec<(Gemm, Cause)> {
            diff(before, after).changes.iter().map(|change| (change.gemm, change.cause)).collect()
        };
        assert_eq!(causes(&shared, &alone), [(Gemm::Fprop, Cause::Sharing), (Gemm::Wgrad, Cause::Error)]);
        assert_eq!(causes(&alone, &shared)[0], (Gemm::Fprop, Cause::Sharing));
        assert!(diff(&shared, &alone).changes[0].reason.contains("is no longer favoured by a shared cast"));
        assert_eq!(serde_json::to_value(Cause::Sharing).unwrap(), "shared_casts");
    }

    #[test]
    fn near_ties_are_marked() {
        let before = plan(vec![fprop(FAST, 0.1, 1.30), fprop(OTHER, 0.1, 1.29)]);
        let after = plan(vec![fprop(FAST, 0.1, 1.29), fprop(OTHER, 0.1, 1.31)]);
        let change = only(&before, &after);
        assert!(change.near_tie && change.reason.ends_with("(a near tie)"));
        let clear = plan(vec![fprop(FAST, 0.1, 1.29), fprop(OTHER, 0.1, 1.41)]);
        assert!(!only(&before, &clear).near_tie);
    }

    #[test]
    fn sites_come_and_go() {
        let (before, mut after) = (plan(vec![]), plan(vec![]));
        after.sites[0].site = SiteId::new("b");
        let found = diff(&before, &after);
        assert_eq!((found.added, found.removed), (vec![SiteId::new("b")], vec![SiteId::new("a")]));
    }
}
