//! Takes a plan, its results and what else is asked for; gives every reason why the plan must not ship: what [`check`]
//! finds, then drafts, approvals, the results' age and machine, and how much of the model they cover.

use std::collections::HashMap;

use super::{ApprovalProblem, Finding, Plan, PlanSite, Rule, SKEW_SECONDS, Severity, check, standing};
use crate::{
    dispatch::{Candidates, Choice, Group, Policy, Target},
    model::{Gemm, KernelId, Moment, Results, Site, SiteId},
    review::{ApprovalRule, KeyRing},
};

/// Whose signatures the gate asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AskedApprovals {
    /// Those that the policy asks for.
    #[default]
    Policy,
    /// The policy's, and this many at least.
    AtLeast(u32),
    Nobody,
}

/// What is asked for beside the policy.
#[derive(Clone, Copy, Debug)]
pub struct Gate<'a> {
    pub now: Moment,
    /// The policy that the plan must have been made by: without it a plan is held to what it says of itself.
    pub policy: Option<&'a Policy>,
    pub keys: Option<&'a KeyRing>,
    pub approvals: AskedApprovals,
    pub max_age_days: Option<u32>,
    /// Empty: a machine without one.
    pub driver: Option<&'a str>,
    pub device: Option<&'a str>,
    /// Of the trace's GEMMs.
    pub coverage_percent: f64,
}

impl Gate<'_> {
    /// What is asked for when nobody says anything else.
    pub fn at(now: Moment) -> Self {
        Self {
            now,
            policy: None,
            keys: None,
            approvals: AskedApprovals::Policy,
            max_age_days: None,
            driver: None,
            device: None,
            coverage_percent: 100.0,
        }
    }

    /// Whether a rule was looked into at all.
    pub fn asks(&self, rule: Rule, plan: &Plan) -> bool {
        let signed = match self.approvals {
            AskedApprovals::Policy => plan.policy.approval.is_some() || !plan.approvals.is_empty(),
            AskedApprovals::AtLeast(_) => true,
            AskedApprovals::Nobody => false,
        };
        match rule {
            Rule::ApprovalMissing | Rule::ApprovalKeys | Rule::ApprovalSignature | Rule::ApprovalReview => signed,
            Rule::ResultsExpired => self.max_age_days.is_some(),
            Rule::ResultsDriver => self.driver.is_some(),
            Rule::ResultsDevice => self.device.is_some(),
            Rule::PolicyPinned => self.policy.is_some(),
            Rule::PolicyBudget => plan.policy.loss_budget.is_some(),
            _ => true,
        }
    }
}

/// Empty: the plan may ship.
pub fn gate(plan: &Plan, results: &Results, asked: &Gate<'_>) -> Vec<Finding> {
    let mut findings = check(plan, results);
    if let Some(why) = &plan.draft {
        let why = if why.is_empty() { String::new() } else { format!(": {why}") };
        findings.push(Finding::whole(Rule::PlanDraft, Severity::Fails, format!("the plan is a draft{why}")));
    }
    findings.extend(asked.policy.and_then(|policy| pinned(&plan.policy, policy)));
    approvals(plan, asked, &mut findings);
    findings.extend(asked.max_age_days.and_then(|days| age(&results.meta.time, days, asked.now)));
    findings.extend(asked.driver.and_then(|driver| machine(Rule::ResultsDriver, &results.meta.driver, driver)));
    findings.extend(asked.device.and_then(|device| machine(Rule::ResultsDevice, &results.meta.device, device)));
    let times = results.meta.site_times.as_ref().filter(|times| !times.rows.is_empty());
    findings.extend(asked.device.zip(times).and_then(|(device, times)| timed_on(&times.device, device)));
    coverage(plan, results, asked.coverage_percent, &mut findings);
    findings
}

/// Every field but the name must agree, in either direction: a plan under a stricter policy was not made by this one
/// either, and which of two bounds is the stricter is not for a gate to guess.
fn pinned(found: &Policy, asked: &Policy) -> Option<Finding> {
    let texts: Vec<String> = found
        .differences(asked)
        .filter(|(field, ..)| *field != "name")
        .map(|(field, is, wanted)| format!("{field} is {is}, not {wanted}"))
        .collect();
    let message = || format!("the plan was made by another policy than '{}': {}", asked.name, texts.join("; "));
    (!texts.is_empty()).then(|| Finding::whole(Rule::PolicyPinned, Severity::Fails, message()))
}

fn approvals(plan: &Plan, asked: &Gate<'_>, findings: &mut Vec<Finding>) {
    let of_policy = plan.policy.approval.clone();
    let rule = match asked.approvals {
        AskedApprovals::Nobody => return,
        AskedApprovals::Policy => of_policy,
        AskedApprovals::AtLeast(least) => {
            let rule = of_policy.unwrap_or_else(|| ApprovalRule::of(least));
            Some(ApprovalRule { approvers: rule.approvers.max(least), ..rule })
        }
    };
    let mut plan = Plan { sites: Vec::new(), ..plan.clone() };
    plan.policy.approval = rule;
    let standing = standing(&plan, asked.keys, Some(asked.now));
    let mut find = |rule, severity, message| findings.push(Finding::whole(rule, severity, message));
    if let (Some(rule), None) = (standing.rule, asked.keys) {
        let message = format!("asked for: {rule}; without a list of keys nobody knows whose a signature is");
        find(Rule::ApprovalKeys, Severity::Fails, message);
    }
    if let Some(missing) = standing.missing() {
        find(Rule::ApprovalMissing, Severity::Fails, format!("the plan has {missing}"));
    }
    for counted in &standing.approvals {
        let Some(problem) = &counted.problem else { continue };
        // Somebody's mistake may stay beside enough good ones; what was forged may not.
        let forged = standing.rule.is_some() && *problem == ApprovalProblem::Signature;
        let severity = if forged { Severity::Fails } else { Severity::Warns };
        let message = format!("the approval of {} does not count: {problem}", counted.approval.name);
        find(Rule::ApprovalSignature, severity, message);
    }
    if standing.review_changed {
        let message = "something was said of the plan after it was signed".to_owned();
        find(Rule::ApprovalReview, Severity::Warns, message);
    }
}

/// A time that cannot be read or has not come yet says nothing of an age.
fn age(time: &str, days: u32, now: Moment) -> Option<Finding> {
    let fails = |message| Some(Finding::whole(Rule::ResultsExpired, Severity::Fails, message));
    let Some(made) = Moment::parse(time) else { return fails(format!("the results' time '{time}' is no time")) };
    let seconds = now.seconds_since(made);
    if seconds < -SKEW_SECONDS {
        return fails(format!("the results are of the future, by their clock ({made}; it is {now})"));
    }
    let old = seconds / 86_400;
    // To the second: 30 days and an hour are more than 30 days.
    (seconds > i64::from(days) * 86_400)
        .then(|| fails(format!("the results are {old} days old ({made}), at most {days} are asked for")))
        .flatten()
}

fn machine(rule: Rule, found: &str, asked: &str) -> Option<Finding> {
    let what = if rule == Rule::ResultsDriver { "driver" } else { "device" };
    let named = |name: &str| if name.is_empty() { format!("no {what}") } else { format!("{what} {name}") };
    let message = || format!("the results are of {}, {} is asked for", named(found), named(asked));
    (found != asked).then(|| Finding::whole(rule, Severity::Fails, message()))
}

/// What whole sites take decides, and it is of one device alone.
fn timed_on(found: &str, asked: &str) -> Option<Finding> {
    let message = || format!("the site times are of device {found}, device {asked} is asked for");
    (found != asked).then(|| Finding::whole(Rule::ResultsDevice, Severity::Fails, message()))
}

/// A GEMM is covered when its chosen kernel was probed and, where the policy wants speed, timed.
fn coverage(plan: &Plan, results: &Results, percent: f64, findings: &mut Vec<Finding>) {
    let mods = plan.site_mods();
    let candidates = Candidates::at(results, &mods, plan.runtime);
    let planned: HashMap<&SiteId, &PlanSite> = plan.sites.iter().map(|site| (&site.site, site)).collect();
    let (mut covered, mut gaps) = (0, Vec::new());
    for groups in candidates.groups.chunks_exact(Gemm::ALL.len()) {
        let site = groups[0].site;
        let lacks: Vec<(Gemm, Lack)> = match planned.get(&site.id) {
            Some(planned) => groups
                .iter()
                .filter_map(|group| {
                    Some((group.gemm, lack(plan, group, planned.choice(group.gemm), &candidates.target)?))
                })
                .collect(),
            // Named already: it is not in the plan.
            None => Gemm::ALL.map(|gemm| (gemm, Lack::Named)).to_vec(),
        };
        covered += Gemm::ALL.len() - lacks.len();
        gaps.extend(of_site(site, &lacks, groups[0].problem));
    }
    let all = candidates.groups.len();
    // Down to a tenth: what is short of all is never called all.
    let has = if all == 0 { 100.0 } else { (1000.0 * covered as f64 / all as f64).floor() / 10.0 };
    let enough = all == 0 || 100.0 * covered as f64 >= percent * all as f64 - 1e-9;
    if !enough {
        let message = format!("{has} % of the GEMMs are covered ({covered} of {all}), {percent} % are asked for");
        findings.push(Finding::whole(Rule::CoverageShare, Severity::Fails, message));
    }
    let severity = if enough { Severity::Warns } else { Severity::Fails };
    findings.extend(gaps.into_iter().map(|gap| Finding { severity, ..gap }));
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Lack {
    Rows,
    Latency,
    /// Another finding says it.
    Named,
}

fn lack(plan: &Plan, group: &Group<'_>, choice: &Choice, target: &Target) -> Option<Lack> {
    if !plan.runtime.runs(group.gemm) || !group.site.runs(group.gemm) {
        return None;
    }
    let is_baseline = |kernel: &KernelId| *kernel == plan.policy.baseline;
    let Some(row) = group.row(&choice.kernel).filter(|row| row.supported) else {
        return Some(if is_baseline(&choice.kernel) { Lack::Rows } else { Lack::Named });
    };
    if row.error.as_ref().is_none_or(|error| error.draws == 0) {
        return Some(Lack::Rows);
    }
    let alone = row.latency.latency_us.is_some_and(|us| us > 0.0 && us.is_finite());
    let timed = alone || target.times(row);
    (plan.policy.min_speedup > 0.0 && !timed).then_some(Lack::Latency)
}

/// One finding a site and rule: three GEMMs of 10,000 sites would be nobody's reading.
fn of_site(site: &Site, lacks: &[(Gemm, Lack)], problem: Option<&str>) -> Vec<Finding> {
    let at = |rule, of: Lack, text: &str| {
        let gemms: Vec<&str> = lacks.iter().filter(|(_, lack)| *lack == of).map(|(gemm, _)| gemm.as_str()).collect();
        let message = || format!("{text} ({})", gemms.join(", "));
        (!gemms.is_empty()).then(|| Finding::at(rule, Severity::Fails, &site.id, message()))
    };
    let why = problem.map_or_else(|| "not probed".to_owned(), |problem| format!("not probed, {problem}"));
    let rows = at(Rule::CoverageRows, Lack::Rows, &why);
    rows.into_iter().chain(at(Rule::CoverageLatency, Lack::Latency, "no latency is known")).collect()
}

#[cfg(test)]
mod tests;
