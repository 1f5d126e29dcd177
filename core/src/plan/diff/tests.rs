//! What changed between two plans, and its cause.

use super::*;
use crate::{
    dispatch::{
        Override, Overrides, Policy,
        testing::{results, row},
    },
    model::{ModKind, ResultRow, SiteMods},
    plan::build,
    review::ApprovalRule,
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
    let [metric, bound] = ["policy metric: rel_l2 instead of mere", "policy max_error: 0.05 instead of 0.2"];
    assert_eq!(found[1..], [metric, bound, "policy max_bias: 0.01 instead of none"]);
    let signed = Policy { max_bias: Some(0.01), approval: Some(ApprovalRule::of(2)), ..Policy::paper() };
    let signed = plan_with(rows.clone(), &signed, &SiteMods::default(), &Overrides::new());
    let found = diff(&before, &signed).whole;
    assert_eq!(found[0], "policy max_bias: 0.01 instead of none");
    assert!(found[1].starts_with("policy approval: {\"approvers\":2"), "{found:?}");

    let high = Override { kernel: KernelId::new("cublaslt/bf16"), reason: "launch week".to_owned() };
    let overrides = Overrides::from([((SiteId::new("a"), Gemm::Fprop), high)]);
    let overridden = plan_with(rows.clone(), &Policy::paper(), &SiteMods::default(), &overrides);
    let change = only(&before, &overridden);
    assert_eq!((change.cause, change.reason.as_str()), (Cause::Override, "override: launch week"));
    assert_eq!(only(&overridden, &before).cause, Cause::Override);

    let set = ModSet([ModKind::NoBias].into());
    let modified: Vec<ResultRow> =
        [FAST, OTHER].iter().map(|kernel| ResultRow { mods: set.clone(), ..fprop(kernel, 0.1, 1.4) }).collect();
    let after = plan_with([rows, vec![modified[1].clone()]].concat(), &Policy::paper(), &set.into(), &Overrides::new());
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
    let read = Plan::from_json(&shared.to_json()).unwrap();
    assert_eq!((read.sites[0].fprop.together, &read), (Some(Together::Sharing), &shared), "a file tells it, too");
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
