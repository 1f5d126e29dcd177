//! Takes a plan and results, gives every way in which the one does not fit the other: the gate of CI.

use std::collections::{HashMap, HashSet};

use serde::Serialize;

use crate::{
    dispatch::{
        Arriving, Barred, Candidates, Choice, ChoiceSource, Group, SpeedCheck, Terms, decided_by, how, judge, paces,
    },
    format::short,
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
    let candidates = Candidates::at(results, &mods, plan.runtime);
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
        let terms = Terms { policy: &plan.policy, loss, target: &candidates.target };
        findings.site(plan, site, ([fprop, dgrad, wgrad], chained.arriving(site)), terms);
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
        let costs = forward.filter_map(row).filter_map(|row| row.charged_loss_cost(loss));
        let spent: f64 = costs.map(|cost| cost.hi.max(0.0)).sum();
        let budget = share * loss;
        if spent.is_nan() || spent > budget * (1.0 + 1e-9) {
            let message = format!("the plan costs up to {} of loss, the budget is {}", short(spent), short(budget));
            self.fails(Rule::PolicyBudget, message);
        }
    }

    fn site(&mut self, plan: &Plan, site: &PlanSite, (groups, x): ([&Group; 3], Arriving), terms: Terms<'_>) {
        self.shape(site, groups[0].site);
        let choices = Gemm::ALL.map(|gemm| site.choice(gemm));
        let by_hand = choices.map(|choice| choice.source == ChoiceSource::Override);
        let paces = paces(groups, choices.map(|choice| &choice.kernel), by_hand, (terms, x));
        for ((group, choice), pace) in groups.into_iter().zip(choices).zip(paces) {
            self.choice(plan, group, choice, (pace, terms));
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

    fn choice(&mut self, plan: &Plan, group: &Group, choice: &Choice, (pace, terms): (SpeedCheck, Terms<'_>)) {
        let loss = terms.loss;
        // The baseline may always run: it is what low precision is compared with.
        if choice.kernel == plan.policy.baseline {
            return;
        }
        let mut report = |rule, severity, message| {
            let gemm = Some(group.gemm);
            self.0.push(Finding { gemm, ..Finding::at(rule, severity, &group.site.id, message) });
        };
        let kernel = &choice.kernel;
        if !group.site.runs(group.gemm) {
            return report(Rule::PlanKernel, Severity::Fails, format!("{kernel} is planned, and the GEMM never runs"));
        }
        let Some(row) = group.row(kernel) else {
            return report(Rule::PlanKernel, Severity::Fails, format!("{kernel} is not in the results"));
        };
        if !row.supported {
            let reason = row.reason.as_deref().unwrap_or("no reason was given");
            return report(Rule::PlanKernel, Severity::Fails, format!("{kernel} does not run there: {reason}"));
        }
        let by = if choice.source == ChoiceSource::Override { " (an override)" } else { "" };
        if let Some(fixed) = group.site.fixed() {
            // A person may have rewritten the module since; nobody else can say so.
            let severity = if by.is_empty() { Severity::Fails } else { Severity::Warns };
            report(Rule::PlanForward, severity, format!("{kernel}{by} cannot be applied: {fixed}"));
        }
        if let Some(barred) = terms.bars(terms.device(group), row) {
            // A person may try what nobody timed; what cannot be applied is refused whoever wants it.
            let severity = match barred {
                Barred::NotApplied(_) | Barred::Fixed => Severity::Fails,
                Barred::NotTimed
                | Barred::NeverLaunched
                | Barred::HighPrecision
                | Barred::OtherGpu
                | Barred::NotHere => Severity::Warns,
            };
            report(Rule::PlanRuntime, severity, format!("{kernel}{by} {}", barred.why(plan.runtime)));
        }
        let (safety, ..) = judge(row, &plan.policy, loss);
        if let Some(broken) = breaks(plan, row, safety, loss) {
            report(Rule::PolicyError, Severity::Fails, format!("{kernel}{by} breaks the policy: {broken}"));
        }
        if let (Some(timed), false) = (pace.timed, pace.enough) {
            let severity = if by.is_empty() { Severity::Fails } else { Severity::Warns };
            let (us, bf16_us, least) = (short(timed.us), short(timed.bf16_us), short(plan.policy.min_speedup));
            let measured = format!("the site takes {us} us, {bf16_us} in BF16 (measured, {})", how(plan.runtime));
            let message = format!("{kernel}{by} does not earn the policy's {least}x: {measured}");
            report(Rule::PolicySpeed, severity, message);
        } else if !pace.enough {
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
    let (_, bound) = decided_by(row, &plan.policy, loss);
    if bound.metric == Metric::LossCost && row.loss_cost_means_nothing(loss) {
        return Some(crate::dispatch::out_of_range(row));
    }
    (safety != Safety::Safe).then(|| crate::dispatch::against(bound, row.metric(bound.metric)))
}

#[cfg(test)]
mod tests;
