//! What the gate asks for beside the policy.

use super::*;
use crate::{
    dispatch::{
        Overrides, Policy,
        testing::{results, row},
    },
    model::SiteMods,
    plan::build,
    review::{Approval, Keyed, Role, SecretKey, Statement},
};

const AT: &str = "2026-11-20T12:00:00Z";
const FAST: &str = "cublaslt/fp8-rowwise+fast";

fn at(text: &str) -> Moment {
    Moment::parse(text).unwrap()
}

fn made(sites: &[&str], rule: Option<ApprovalRule>) -> (Plan, Results) {
    let rows = sites.iter().map(|site| row(site, Gemm::Fprop, FAST, 0.1, Some(1.3), 0.0)).collect();
    let results = results(sites, rows);
    let policy = Policy { approval: rule, ..Policy::paper() };
    let mut plan = build(&results, &policy, &SiteMods::default(), &Overrides::new(), "p", "").unwrap().plan;
    plan.stamp(AT.to_owned());
    (plan, results)
}

fn found(plan: &Plan, results: &Results, asked: &Gate<'_>) -> Vec<(&'static str, Severity, String)> {
    gate(plan, results, asked).iter().map(|found| (found.rule.id(), found.severity, found.to_string())).collect()
}

fn only(plan: &Plan, results: &Results, asked: &Gate<'_>) -> (&'static str, Severity, String) {
    let mut all = found(plan, results, asked);
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

fn signed(plan: &Plan, name: &str, role: Role) -> Approval {
    let key = SecretKey::new(name, &[name.len() as u8; 32]).unwrap();
    let (digest, review_digest, note) = (plan.digest.clone(), plan.review_digest(), String::new());
    Approval::sign(Statement { digest, review_digest, name: name.to_owned(), role, at: at(AT), note }, &key)
}

fn ring(people: &[(&str, Role)]) -> KeyRing {
    let key = |name: &str| SecretKey::new(name, &[name.len() as u8; 32]).unwrap().public();
    let of = |(name, role): &(&str, Role)| Keyed { name: (*name).to_owned(), key: key(name), role: *role };
    KeyRing::new(people.iter().map(of).collect()).unwrap()
}

#[test]
fn a_plan_of_whole_and_recent_results_passes() {
    let (plan, results) = made(&["a", "b"], None);
    let asked = Gate {
        max_age_days: Some(1),
        driver: Some(""),
        device: Some("a test"),
        ..Gate::at(at("2026-11-20T23:00:00Z"))
    };
    assert!(found(&plan, &results, &asked).is_empty());
}

#[test]
fn a_draft_does_not_ship() {
    let (mut plan, results) = made(&["a"], None);
    plan.draft = Some("not approved".to_owned());
    let (rule, severity, text) = only(&plan, &results, &Gate::at(at(AT)));
    assert_eq!((rule, severity, text.as_str()), ("plan/draft", Severity::Fails, "the plan is a draft: not approved"));
}

#[test]
fn old_results_of_another_machine_are_expired() {
    let (plan, mut results) = made(&["a"], None);
    let asked = |now: &str| Gate { max_age_days: Some(30), ..Gate::at(at(now)) };
    // The results are of 2026-11-20T00:00:00Z.
    assert!(found(&plan, &results, &asked("2026-12-20T00:00:00Z")).is_empty());
    let (rule, _, text) = only(&plan, &results, &asked("2026-12-20T00:00:01Z"));
    assert_eq!(rule, "results/expired");
    assert_eq!(text, "the results are 30 days old (2026-11-20T00:00:00Z), at most 30 are asked for");
    assert!(found(&plan, &results, &asked("2026-11-19T23:56:00Z")).is_empty(), "clocks differ");
    let (.., text) = only(&plan, &results, &asked("2026-11-19T00:00:00Z"));
    assert!(text.starts_with("the results are of the future"), "{text}");
    results.meta.time = "yesterday".to_owned();
    assert_eq!(only(&plan, &results, &asked(AT)).2, "the results' time 'yesterday' is no time");
    let other = Gate { driver: Some("570.1"), device: Some("NVIDIA H200"), ..Gate::at(at(AT)) };
    let texts: Vec<_> = found(&plan, &results, &other).into_iter().map(|(rule, _, text)| (rule, text)).collect();
    assert_eq!(texts[0], ("results/driver", "the results are of no driver, driver 570.1 is asked for".to_owned()));
    assert_eq!(
        texts[1],
        ("results/device", "the results are of device a test, device NVIDIA H200 is asked for".to_owned())
    );
}

#[test]
fn signatures_count_by_a_list_of_keys_alone() {
    let (mut plan, results) = made(&["a"], Some(ApprovalRule::of(1)));
    let al = signed(&plan, "Al", Role::Approver);
    let keys = ring(&[("Al", Role::Approver)]);
    let gate_with = |keys| Gate { keys, ..Gate::at(at(AT)) };
    let rules = |plan: &Plan, asked: &Gate<'_>| -> Vec<(&'static str, Severity)> {
        found(plan, &results, asked).into_iter().map(|(rule, severity, _)| (rule, severity)).collect()
    };
    assert_eq!(
        rules(&plan, &gate_with(None)),
        [("approval/keys", Severity::Fails), ("approval/missing", Severity::Fails)]
    );
    plan.approvals = vec![al.clone()];
    assert_eq!(rules(&plan, &gate_with(None)), [("approval/keys", Severity::Fails)]);
    assert!(rules(&plan, &gate_with(Some(&keys))).is_empty());
    let strangers = ring(&[("Bob", Role::Owner)]);
    let found = found(&plan, &results, &gate_with(Some(&strangers)));
    assert_eq!(found[0].2, "the plan has 0 of 1 approval by an approver or an owner, not by an author");
    assert_eq!(found[1].2, "the approval of Al does not count: the key is not in the list of keys");
    assert_eq!(found[1].1, Severity::Warns);
    // A forged one fails, also beside enough good ones.
    plan.approvals.push(Approval { note: "and more".to_owned(), ..al });
    assert_eq!(rules(&plan, &gate_with(Some(&keys))), [("approval/signature", Severity::Fails)]);
    let nobody = Gate { approvals: AskedApprovals::Nobody, ..gate_with(None) };
    assert!(rules(&plan, &nobody).is_empty() && !nobody.asks(Rule::ApprovalMissing, &plan));
}

#[test]
fn more_may_be_asked_for_than_the_policy_asks() {
    let keys = ring(&[("Al", Role::Approver), ("Bob", Role::Owner)]);
    for rule in [None, Some(ApprovalRule::of(1))] {
        let (mut plan, results) = made(&["a"], rule);
        plan.approvals = vec![signed(&plan, "Al", Role::Approver)];
        let two = Gate { keys: Some(&keys), approvals: AskedApprovals::AtLeast(2), ..Gate::at(at(AT)) };
        assert_eq!(only(&plan, &results, &two).0, "approval/missing");
        plan.approvals.push(signed(&plan, "Bob", Role::Owner));
        assert!(found(&plan, &results, &two).is_empty());
    }
    let (mut plan, results) = made(&["a"], Some(ApprovalRule::of(2)));
    plan.approvals = vec![signed(&plan, "Al", Role::Approver)];
    let one = Gate { keys: Some(&keys), approvals: AskedApprovals::AtLeast(1), ..Gate::at(at(AT)) };
    assert_eq!(only(&plan, &results, &one).0, "approval/missing", "the policy's rule stays");
}

#[test]
fn what_is_not_covered_is_named_and_weighed() {
    let (plan, mut results) = made(&["a", "b", "c", "d"], None);
    results.rows.retain(|row| row.site.as_str() != "b" || row.gemm == Gemm::Fprop);
    results.meta.problems.push((SiteId::new("b"), "input.cov is not symmetric".to_owned()));
    for row in results.rows.iter_mut().filter(|row| row.site.as_str() == "c" && row.gemm == Gemm::Wgrad) {
        row.latency.latency_us = None;
    }
    let asked = |coverage_percent| Gate { coverage_percent, ..Gate::at(at(AT)) };
    let of_coverage = |percent| -> Vec<(&'static str, Severity, String)> {
        found(&plan, &results, &asked(percent)).into_iter().filter(|(rule, ..)| rule.starts_with("coverage")).collect()
    };
    let texts: Vec<_> = of_coverage(100.0).into_iter().map(|(rule, _, text)| (rule, text)).collect();
    assert_eq!(
        texts,
        [
            ("coverage/share", "75 % of the GEMMs are covered (9 of 12), 100 % are asked for".to_owned()),
            ("coverage/rows", "b: not probed, input.cov is not symmetric (dgrad, wgrad)".to_owned()),
            ("coverage/latency", "c: no latency is known (wgrad)".to_owned()),
        ]
    );
    assert!(of_coverage(100.0).iter().all(|(_, severity, _)| *severity == Severity::Fails));
    let enough = of_coverage(75.0);
    assert_eq!(enough.len(), 2);
    assert!(enough.iter().all(|(_, severity, _)| *severity == Severity::Warns));
    // Nearly all is not all.
    let (rows, all) = (std::mem::take(&mut results.rows), Gate::at(at(AT)));
    results.rows = rows.into_iter().filter(|row| row.site.as_str() != "d" || row.gemm != Gemm::Dgrad).collect();
    assert!(found(&plan, &results, &all).iter().any(|(.., text)| text.starts_with("66.6 % of the GEMMs")));
}
