//! Takes a plan and results, gives every way in which the one does not fit the other: the gate of CI.

use std::collections::{HashMap, HashSet};

use serde::Serialize;

use crate::{
    dispatch::{Arriving, Candidates, Choice, ChoiceSource, Group, Pace, bound_of, judge, paces, short},
    model::{Gemm, Metric, ResultRow, Results, Safety, Site, SiteId},
};

use super::{Plan, PlanSite, Rule, build::confidence_gap, chained::Chained, results_digest};

/// `Fails`: the gate closes. An override that breaks the policy fails too: whoever wants it changes
/// the policy, where a reviewer sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    Fails,
    Warns,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub rule: Rule,
    pub severity: Severity,
    /// `None`: the plan as a whole.
    pub site: Option<SiteId>,
    pub gemm: Option<Gemm>,
    pub message: String,
}

impl Finding {
    pub(super) fn whole(rule: Rule, severity: Severity, message: String) -> Self {
        Self { rule, severity, site: None, gemm: None, message }
    }

    pub(super) fn at(rule: Rule, severity: Severity, site: &SiteId, message: String) -> Self {
        Self { site: Some(site.clone()), ..Self::whole(rule, severity, message) }
    }
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (&self.site, self.gemm) {
            (Some(site), Some(gemm)) => write!(f, "{site}:{gemm}: {}", self.message),
            (Some(site), None) => write!(f, "{site}: {}", self.message),
            _ => f.write_str(&self.message),
        }
    }
}

/// The plan as a whole first, then site by site in forward order. Empty: the plan may ship.
pub fn check(plan: &Plan, results: &Results) -> Vec<Finding> {
    let mut findings = Findings::default();
    findings.digests(plan, results);
    findings.sites(plan, results);
    let mods = plan.site_mods();
    let candidates = Candidates::new(results, &mods);
    let groups: HashMap<(&SiteId, Gemm), &Group> =
        candidates.groups.iter().map(|g| ((&g.site.id, g.gemm), g)).collect();
    let loss = results.meta.manifest.loss.value;
    findings.budget(plan, &groups, loss);
    let chained = Chained::of(plan, &candidates);
    findings.0.extend(chained.totals());
    for site in &plan.sites {
        let [Some(fprop), Some(dgrad), Some(wgrad)] = Gemm::ALL.map(|gemm| groups.get(&(&site.site, gemm)).copied())
        else {
            continue;
        };
        findings.0.extend(chained.site(site));
        findings.site(plan, site, ([fprop, dgrad, wgrad], chained.arriving(site)), loss);
    }
    findings.0
}

#[derive(Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn fails(&mut self, rule: Rule, message: String) {
        self.0.push(Finding::whole(rule, Severity::Fails, message));
    }

    fn digests(&mut self, plan: &Plan, results: &Results) {
        if plan.trace_digest != results.meta.trace_digest {
            let (of_plan, of_results) = (&plan.trace_digest, &results.meta.trace_digest);
            let message = format!("the plan is for another trace: {of_plan}, the results are of {of_results}");
            self.fails(Rule::PlanTrace, message);
        }
        let found = results_digest(&results.rows);
        if plan.results_digest != found {
            let message = format!("the plan was made from other results: {}, these are {found}", plan.results_digest);
            self.fails(Rule::PlanResults, message);
        }
        if let Some(gap) = confidence_gap(results, &plan.policy) {
            self.fails(Rule::PolicyConfidence, gap);
        }
    }

    fn sites(&mut self, plan: &Plan, results: &Results) {
        let planned: HashSet<&SiteId> = plan.sites.iter().map(|site| &site.site).collect();
        let traced: HashSet<&SiteId> = results.meta.manifest.sites.iter().map(|site| &site.id).collect();
        let of_trace = results.meta.manifest.sites.iter().map(|site| &site.id);
        for site in of_trace.filter(|site| !planned.contains(site)) {
            self.0.push(Finding::at(Rule::PlanSites, Severity::Fails, site, "missing from the plan".to_owned()));
        }
        for site in plan.sites.iter().map(|site| &site.site).filter(|site| !traced.contains(site)) {
            self.0.push(Finding::at(Rule::PlanSites, Severity::Fails, site, "not in the trace".to_owned()));
        }
    }

    fn budget(&mut self, plan: &Plan, groups: &HashMap<(&SiteId, Gemm), &Group>, loss: f64) {
        let Some(share) = plan.policy.loss_budget else { return };
        let forward = plan.choices().filter(|(_, gemm, _)| *gemm == Gemm::Fprop);
        let row = |(site, gemm, choice): (&SiteId, Gemm, &Choice)| groups.get(&(site, gemm))?.row(&choice.kernel);
        let spent: f64 =
            forward.filter_map(row).filter_map(|row| row.metric(Metric::LossCost)).map(|cost| cost.hi.max(0.0)).sum();
        let budget = share * loss;
        if spent.is_nan() || spent > budget * (1.0 + 1e-9) {
            let message = format!("the plan costs up to {} of loss, the budget is {}", short(spent), short(budget));
            self.fails(Rule::PolicyBudget, message);
        }
    }

    fn site(&mut self, plan: &Plan, site: &PlanSite, (groups, x): ([&Group; 3], Arriving), loss: f64) {
        self.shape(site, groups[0].site);
        let choices = Gemm::ALL.map(|gemm| site.choice(gemm));
        let by_hand = choices.map(|choice| choice.source == ChoiceSource::Override);
        let paces = paces(groups, choices.map(|choice| &choice.kernel), by_hand, (&plan.policy, x));
        for ((group, choice), pace) in groups.into_iter().zip(choices).zip(paces) {
            self.choice(plan, group, choice, pace, loss);
        }
    }

    /// Plans of before there were shapes in them say nothing.
    fn shape(&mut self, planned: &PlanSite, traced: &Site) {
        for (name, is, of_trace) in [("m", planned.m, traced.m), ("k", planned.k, traced.k), ("n", planned.n, traced.n)]
        {
            if let Some(is) = is.filter(|is| *is != of_trace) {
                let message = format!("{name} is {is} in the plan, {of_trace} in the trace");
                self.0.push(Finding::at(Rule::PlanShape, Severity::Fails, &planned.site, message));
            }
        }
    }

    fn choice(&mut self, plan: &Plan, group: &Group, choice: &Choice, pace: Pace, loss: f64) {
        // The baseline may always run: it is what low precision is compared with.
        if choice.kernel == plan.policy.baseline {
            return;
        }
        let mut report = |rule, severity, message| {
            let gemm = Some(group.gemm);
            self.0.push(Finding { gemm, ..Finding::at(rule, severity, &group.site.id, message) });
        };
        let kernel = &choice.kernel;
        let Some(row) = group.row(kernel) else {
            return report(Rule::PlanKernel, Severity::Fails, format!("{kernel} is not in the results"));
        };
        if !row.supported {
            let reason = row.reason.as_deref().unwrap_or("no reason was given");
            return report(Rule::PlanKernel, Severity::Fails, format!("{kernel} does not run there: {reason}"));
        }
        let by = if choice.source == ChoiceSource::Override { " (an override)" } else { "" };
        let (safety, ..) = judge(row, &plan.policy, loss);
        if let Some(broken) = breaks(plan, row, safety, loss) {
            report(Rule::PolicyError, Severity::Fails, format!("{kernel}{by} breaks the policy: {broken}"));
        }
        if !pace.enough {
            let severity = if by.is_empty() { Severity::Fails } else { Severity::Warns };
            let least = short(plan.policy.min_speedup);
            let shared = pace.shared_speedup.map(|times| format!(" ({times:.2}x with the casts that it shares)"));
            let is = row.speedup().map_or_else(
                || "has no known latency".to_owned(),
                |times| format!("is {times:.2}x{}", shared.unwrap_or_default()),
            );
            let together = pace.shared_speedup.is_some_and(|shared| shared > plan.policy.min_speedup);
            let of = if together { " of all that share" } else { "" };
            let message = format!("{kernel}{by} {is}, the policy asks for more than {least}x{of}");
            report(Rule::PolicySpeed, severity, message);
        }
    }
}

fn breaks(plan: &Plan, row: &ResultRow, safety: Safety, loss: f64) -> Option<String> {
    let bound = bound_of(&plan.policy, row.gemm, loss);
    (safety != Safety::Safe).then(|| crate::dispatch::against(bound, row.metric(bound.metric)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        dispatch::{
            Override, Overrides, Policy,
            testing::{Dice, results, row, unsupported, with_gemm_us},
        },
        model::{KernelId, SiteMods},
        plan::build,
    };

    const FAST: &str = "cublaslt/fp8-rowwise+fast";
    const TENSORWISE: &str = "cublaslt/fp8-tensorwise+fast";

    fn plan_of(results: &Results, policy: &Policy, overrides: &Overrides) -> Plan {
        build(results, policy, &SiteMods::default(), overrides, "p", "2026-11-20T00:00:00Z").unwrap().plan
    }

    fn messages(plan: &Plan, results: &Results) -> Vec<String> {
        check(plan, results).iter().map(ToString::to_string).collect()
    }

    fn override_fprop(kernel: &str) -> Overrides {
        Overrides::from([(
            (SiteId::new("a"), Gemm::Fprop),
            Override { kernel: KernelId::new(kernel), reason: "why not".to_owned() },
        )])
    }

    #[test]
    fn what_dispatch_plans_passes() {
        let mut dice = Dice::new(5);
        for _ in 0..50 {
            let names: Vec<String> = (0..10).map(|site| format!("s{site}")).collect();
            let mut rows = Vec::new();
            for (name, gemm) in names.iter().flat_map(|name| Gemm::ALL.map(|gemm| (name, gemm))) {
                for kernel in [FAST, "te/current", "te/blockwise", TENSORWISE, "cublaslt/fp8-tensorwise"] {
                    let speedup = (dice.unit() < 0.9).then(|| 0.5 + dice.unit());
                    let cost = if gemm == Gemm::Fprop { 1e-5 * dice.unit() } else { 0.0 };
                    let row = row(name, gemm, kernel, 0.3 * dice.unit(), speedup, cost);
                    rows.push(with_gemm_us(row, 60.0 * dice.unit()));
                }
            }
            let results = results(&names.iter().map(String::as_str).collect::<Vec<_>>(), rows);
            for policy in [Policy::paper(), Policy::rel_l2(), Policy::loss_budget()] {
                assert_eq!(messages(&plan_of(&results, &policy, &Overrides::new()), &results), [""; 0]);
            }
        }
    }

    /// Each takes 101 us where BF16 takes 100; 60 of these are casts, and one cast each saves 50 of 303.
    #[test]
    fn a_kernel_that_only_sharing_makes_fast_passes_until_it_shares_no_more() {
        let tensorwise = |gemm_us: Option<f64>| {
            let rows = Gemm::ALL.map(|gemm| {
                let mut row = row("a", gemm, TENSORWISE, 0.1, Some(100.0 / 101.0), 0.0);
                row.latency.gemm_us = gemm_us;
                row
            });
            results(&["a"], rows.to_vec())
        };
        let with = tensorwise(Some(41.0));
        let plan = plan_of(&with, &Policy::paper(), &Overrides::new());
        assert!(plan.choices().all(|(_, _, choice)| choice.kernel.as_str() == TENSORWISE));
        assert!((plan.totals.planned_us - 252.6).abs() < 1e-9, "{:?}", plan.totals);
        assert_eq!(messages(&plan, &with), [""; 0]);

        let bare = messages(&plan, &tensorwise(None));
        let of = |gemm| format!("a:{gemm}: {TENSORWISE} is 0.99x, the policy asks for more than 1.05x");
        assert_eq!(bare[1..], Gemm::ALL.map(of));
        let little = messages(&plan, &tensorwise(Some(91.0)));
        let why = "is 0.99x (1.02x with the casts that it shares), the policy asks for more than 1.05x";
        assert_eq!(little[1..], [format!("a:dgrad: {TENSORWISE} {why}")]);
        let together = messages(&plan, &tensorwise(Some(82.0)));
        let why =
            "is 0.99x (1.06x with the casts that it shares), the policy asks for more than 1.05x of all that share";
        assert!(together.contains(&format!("a:dgrad: {TENSORWISE} {why}")), "{together:?}");
    }

    #[test]
    fn another_shape_is_noticed() {
        let results = results(&["a"], vec![]);
        let mut plan = plan_of(&results, &Policy::paper(), &Overrides::new());
        plan.sites[0].k = Some(48);
        assert_eq!(messages(&plan, &results), ["a: k is 48 in the plan, 32 in the trace"]);
        plan.sites[0].k = None;
        assert!(messages(&plan, &results).is_empty());
    }

    #[test]
    fn other_traces_and_results_are_noticed() {
        let made_from = results(&["a", "b"], vec![]);
        let plan = plan_of(&made_from, &Policy::paper(), &Overrides::new());
        let mut other = results(&["a", "c"], vec![]);
        other.meta.trace_digest = "sha256:11".to_owned();
        let found = messages(&plan, &other);
        assert_eq!(found[0], "the plan is for another trace: sha256:00, the results are of sha256:11");
        assert!(found[1].starts_with("the plan was made from other results: sha256:"), "{found:?}");
        assert_eq!(found[2..], ["c: missing from the plan", "b: not in the trace"]);
    }

    #[test]
    fn worse_results_close_the_gate() {
        let good = results(&["a"], vec![row("a", Gemm::Fprop, FAST, 0.1, Some(1.2), 0.0)]);
        let plan = plan_of(&good, &Policy::paper(), &Overrides::new());
        let now = |changed: ResultRow| messages(&plan, &results(&["a"], vec![changed]))[1..].to_vec();
        let fprop = |error, speedup| row("a", Gemm::Fprop, FAST, error, speedup, 0.0);
        assert_eq!(
            now(fprop(0.4, Some(1.2))),
            [format!("a:fprop: {FAST} breaks the policy: MERE .4 (.36 to .44) > .2")]
        );
        assert_eq!(
            now(fprop(0.2, Some(1.2))),
            [format!("a:fprop: {FAST} breaks the policy: MERE .2 (.18 to .22) around .2")]
        );
        assert_eq!(
            now(fprop(0.1, Some(1.0))),
            [format!("a:fprop: {FAST} is 1.00x, the policy asks for more than 1.05x")]
        );
        assert_eq!(
            now(fprop(0.1, None)),
            [format!("a:fprop: {FAST} has no known latency, the policy asks for more than 1.05x")]
        );
        assert_eq!(
            now(unsupported("a", Gemm::Fprop, FAST, "no GPU")),
            [format!("a:fprop: {FAST} does not run there: no GPU")]
        );
        assert_eq!(
            now(row("a", Gemm::Fprop, "te/current", 0.1, Some(1.2), 0.0)),
            [format!("a:fprop: {FAST} is not in the results")]
        );
    }

    #[test]
    fn an_override_that_breaks_the_policy_fails_and_a_slow_one_warns() {
        let rows = vec![
            row("a", Gemm::Fprop, FAST, 0.4, Some(1.2), 0.0),
            row("a", Gemm::Fprop, "te/current", 0.1, Some(0.9), 0.0),
        ];
        let results = results(&["a"], rows);
        let found = |kernel| check(&plan_of(&results, &Policy::paper(), &override_fprop(kernel)), &results);
        let unsafe_one = found(FAST);
        assert_eq!(unsafe_one[0].severity, Severity::Fails);
        assert_eq!(
            unsafe_one[0].to_string(),
            format!("a:fprop: {FAST} (an override) breaks the policy: MERE .4 (.36 to .44) > .2")
        );
        let slow = found("te/current");
        assert_eq!((slow.len(), slow[0].severity), (1, Severity::Warns));
        assert!(found("cublaslt/bf16").is_empty());
    }

    #[test]
    fn a_broken_budget_fails() {
        let results = results(&["a"], vec![row("a", Gemm::Fprop, FAST, 0.1, Some(1.2), 9.5e-5)]);
        let plan = plan_of(&results, &Policy::loss_budget(), &override_fprop(FAST));
        let found = messages(&plan, &results);
        assert_eq!(found[0], "the plan costs up to 1.0e-4 of loss, the budget is 1.0e-4");
        assert!(found[1].contains("(an override) breaks the policy: Loss cost"), "{found:?}");
    }
}
