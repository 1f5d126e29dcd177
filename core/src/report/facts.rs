//! Takes a plan with its standing and results, gives what the first lines say: where it stands, what it buys, what it
//! costs, what warns.

use std::collections::BTreeMap;

use crate::{
    dispatch::{Choice, PolicyGroup},
    format::{
        NAME, SENTENCE, line,
        number::{count, counted_as},
        short,
    },
    model::{Gemm, LatencySource, Quadrant, SiteId},
    mods::MUST_BE_TRAINED,
    plan::{Finding, Plan, Rule, Severity, check},
};

use super::{
    Source,
    entries::{Entry, by_gemm},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Approved,
    Waiting,
    Draft,
    /// Nobody has to sign.
    Unasked,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    pub state: State,
    pub text: String,
}

pub fn status(source: &Source<'_>) -> Status {
    let plan = source.plan;
    let release = plan.release.map(|release| format!("release {release}"));
    let (state, text) = if let Some(why) = &plan.draft {
        (State::Draft, format!("Draft: {}", line(why, SENTENCE)))
    } else if source.standing.is_approved() {
        (State::Approved, release.map_or_else(|| "Approved".to_owned(), |release| format!("Approved, {release}")))
    } else if let Some(missing) = source.standing.missing() {
        let what = release.unwrap_or_else(|| "not submitted for approval".to_owned());
        (State::Waiting, format!("Not approved: {missing} ({what})"))
    } else {
        let what = release.map_or_else(String::new, |release| format!(", {release}"));
        (State::Unasked, format!("The policy asks for no approval{what}"))
    };
    Status { state, text }
}

/// One number with its name.
pub type Total = (&'static str, String);

pub fn totals(plan: &Plan) -> Vec<Total> {
    let totals = &plan.totals;
    let low = plan.choices().filter(|(.., choice)| choice.kernel.is_low_precision()).count();
    let mut all =
        vec![("Speed-up of all GEMMs", totals.speedup.map_or("unknown".to_owned(), |of| format!("{of:.3}×")))];
    if totals.speedup.is_some() {
        all.push((
            "Planned, with BF16 alone",
            format!("{} of {} µs", micros(totals.planned_us), micros(totals.baseline_us)),
        ));
    }
    all.push(("GEMMs in FP8", format!("{} of {}", count(low), count(totals.num_gemms))));
    let cost = totals.loss_cost.map_or("unknown".to_owned(), short);
    let most = totals.loss_cost_hi.map_or(String::new(), |hi| format!(", at most {}", short(hi)));
    all.push(("Loss cost", format!("{cost}{most}")));
    if totals.num_cost_out_of_range > 0 {
        all.push(("Loss cost outside its range", counted_as(totals.num_cost_out_of_range, "GEMM", "GEMMs")));
    }
    all.push(("Sites", count(plan.sites.len())));
    all
}

fn micros(value: f64) -> String {
    if (1000.0..1e15).contains(&value) { count(value.round() as usize) } else { short(value) }
}

/// "Policy paper: …" as a sentence.
pub fn policy(plan: &Plan) -> String {
    let policy = &plan.policy;
    let worst = policy.metric.at_most();
    let bias = policy.max_bias.map_or(String::new(), |most| format!(", bias at most {} either way", short(most)));
    let of_group =
        |group: &PolicyGroup| format!(", at {} {worst} {}", line(group.sites.as_str(), NAME), short(group.max_error));
    let groups: String = policy.groups.iter().map(of_group).collect();
    let error = format!("{} {worst} {}{groups}{bias}", policy.metric.label(), short(policy.max_error));
    let confidence = format!("intervals at {} %", short(100.0 * policy.confidence));
    let rule = policy.approval.as_ref().map_or(String::new(), |rule| format!(" It asks for {rule}."));
    match policy.loss_budget {
        Some(share) => format!(
            "Least time with a loss cost of all forward GEMMs of at most {} % of the loss; backward GEMMs with {error} \
             and more than {}× BF16; {confidence}.{rule}",
            short(100.0 * share),
            short(policy.min_speedup)
        ),
        None => format!(
            "The fastest kernel with {error} and more than {}× BF16, else BF16; {confidence}.{rule}",
            short(policy.min_speedup)
        ),
    }
}

/// Warnings of one kind: a sentence, and whom it concerns.
#[derive(Clone, Debug, PartialEq)]
pub struct Warning {
    pub title: String,
    /// It closes the gate of `loka check`.
    pub fails: bool,
    pub at: Vec<String>,
}

pub fn warnings(source: &Source<'_>, entries: &[Entry]) -> Vec<Warning> {
    let plan = source.plan;
    let mut all = Vec::new();
    let mut add = |title: String, at: Vec<String>| all.push(Warning { title, fails: false, at });
    let coverage = source.results.and_then(|results| results.meta.manifest.flop_coverage().ok());
    if let Some(coverage) = coverage.filter(|coverage| !coverage.unseen.is_empty()) {
        let title = format!("The sites are {} of the model's matmul FLOPs", coverage.percent(coverage.sites));
        add(title, coverage.missing().map(|missing| line(&missing, SENTENCE)).collect());
    }
    if source.standing.review_changed {
        add("The review was written on after somebody signed".to_owned(), Vec::new());
    }
    if plan.totals.num_without_latency > 0 {
        let num = counted_as(plan.totals.num_without_latency, "GEMM has", "GEMMs have");
        add(format!("{num} no latency: in neither sum, the speed-up is of the rest"), Vec::new());
    }
    if plan.totals.num_cost_out_of_range > 0 {
        let num = counted_as(plan.totals.num_cost_out_of_range, "forward GEMM has", "forward GEMMs have");
        add(
            format!("{num} a loss cost of more than a tenth of the loss: it means nothing, and is in no total"),
            Vec::new(),
        );
    }
    let modelled = entries.iter().filter(|entry| entry.chosen.is_some() && entry.source == LatencySource::Modelled);
    let (low, high): (Vec<&Entry>, Vec<&Entry>) = modelled.partition(|entry| entry.low);
    if !low.is_empty() {
        let num = counted_as(low.len(), "GEMM in FP8 has a modelled latency", "GEMMs in FP8 have modelled latencies");
        let also = if high.is_empty() { String::new() } else { format!(", {} in BF16", count(high.len())) };
        add(format!("{num}{also}: nobody timed them at these shapes"), Vec::new());
    } else if !high.is_empty() {
        add(format!("{} with a modelled BF16 latency", counted_as(high.len(), "GEMM", "GEMMs")), Vec::new());
    }
    let uncertain = uncertain(plan, entries);
    if !uncertain.is_empty() {
        let num = counted_as(uncertain.len(), "GEMM stays", "GEMMs stay");
        add(
            format!("{num} in BF16 as no kernel is certainly safe, though one may be: more draws would tell"),
            uncertain,
        );
    }
    if !plan.mods.is_empty() {
        add(MUST_BE_TRAINED.trim_end_matches('.').to_owned(), Vec::new());
    }
    let mut findings = source.results.map(|results| findings(&check(plan, results))).unwrap_or_default();
    findings.append(&mut all);
    findings
}

/// What a kind of finding says of one choice, and of many.
const BREAKS: (&str, &str) = ("breaks the policy", "break the policy");
const SLOW: (&str, &str) = ("is slower than the policy asks for", "are slower than the policy asks for");
const NOT_RUN: (&str, &str) = ("may not run where the plan runs", "may not run where the plan runs");

/// What `loka check` says, those of a kind together.
fn findings(found: &[Finding]) -> Vec<Warning> {
    let mut all: BTreeMap<(Severity, (&str, &str)), Vec<String>> = BTreeMap::new();
    let mut whole = Vec::new();
    for finding in found {
        let text = line(&finding.to_string(), SENTENCE);
        let fails = finding.severity == Severity::Fails;
        if finding.site.is_none() {
            whole.push(Warning { title: text, fails, at: Vec::new() });
            continue;
        }
        let kind = match finding.rule {
            Rule::PolicyError => BREAKS,
            Rule::PolicySpeed => SLOW,
            Rule::PlanForward | Rule::PlanRuntime => NOT_RUN,
            _ => ("does not fit the results", "do not fit the results"),
        };
        all.entry((finding.severity, kind)).or_default().push(text);
    }
    whole.extend(all.into_iter().map(|((severity, (one, many)), at)| {
        let title = counted_as(at.len(), &format!("choice {one}"), &format!("choices {many}"));
        Warning { title, fails: severity == Severity::Fails, at }
    }));
    whole
}

/// GEMMs that stay in high precision where the best that low precision offers is too close to call.
fn uncertain(plan: &Plan, entries: &[Entry]) -> Vec<String> {
    let mut found = Vec::new();
    for gemm in by_gemm(entries) {
        let low = || gemm.iter().filter(|entry| entry.low && entry.supported);
        let safe =
            |entry: &Entry| matches!(entry.quadrant, Quadrant::SafeFast | Quadrant::SafeSlow | Quadrant::SafeUnknown);
        let chosen_low = low().any(|entry| entry.chosen.is_some());
        if !chosen_low && !low().any(safe) && low().any(|entry| entry.quadrant == Quadrant::Uncertain) {
            found.push(place(&plan.sites[gemm[0].site as usize].site, gemm[0].gemm));
        }
    }
    found
}

pub fn place(site: &SiteId, gemm: Gemm) -> String {
    format!("{} · {gemm}", line(site.as_str(), NAME))
}

/// A person's choices, in forward order.
pub fn overrides(plan: &Plan) -> Vec<(&SiteId, Gemm, &Choice)> {
    plan.choices().filter(|(.., choice)| choice.source == crate::dispatch::ChoiceSource::Override).collect()
}

/// Who decided, as far as a plan says.
pub fn authors(plan: &Plan) -> Option<String> {
    let names: Vec<String> = plan.authors.iter().take(50).map(|name| line(name, NAME)).collect();
    (!names.is_empty()).then(|| names.join(", "))
}
