//! A plan that hands codes on passes its own gate, and no other one.

use super::*;
use crate::{
    dispatch::{
        Overrides,
        testing::{block, fed, results, row, site_time, site_times, with_codes},
    },
    model::{GemmShape, Results, Runtime, SiteMods, SiteTime, Spread},
    plan::{build_for, check, diff},
};

const SCALE: f32 = 0.0625;

/// b is slow, but for codes.
fn made() -> Results {
    let rows = vec![
        with_codes(block("a", 0.1, 60.0, 20.0, 0.0), SCALE, 50.0, 50.0),
        with_codes(row("b", Gemm::Fprop, "loka/fp8-static+fast", 0.1, Some(0.98), 0.0), SCALE, 98.0, 60.0),
    ];
    fed(results(&["a", "b"], rows), &[("a", &["b"])])
}

fn plan_of(results: &Results) -> Plan {
    let named = ("p", "2026-11-20T00:00:00Z");
    let overrides = Overrides::new();
    build_for(Runtime::Graph, results, &Policy::paper(), &SiteMods::default(), &overrides, named).unwrap().plan
}

fn messages(plan: &Plan, results: &Results) -> Vec<String> {
    check(plan, results).iter().map(|found| format!("{} {found}", found.rule.id())).collect()
}

#[test]
fn what_dispatch_plans_passes_and_is_under_the_digest() {
    let results = made();
    let plan = plan_of(&results);
    assert_eq!(messages(&plan, &results), [""; 0]);
    let text = plan.to_json();
    assert!(text.contains(r#""stores": ["#) && text.contains(r#""handed_on_us": 37.0"#), "{text}");
    assert_eq!(Plan::from_json(&text).unwrap(), plan);
    let other = text.replacen(r#""reads": "e4m3""#, r#""reads": "bf16""#, 1);
    assert!(Plan::from_json(&other).unwrap_err().to_string().starts_with("the plan was changed after it was made"));
    let without = fed(made(), &[]);
    assert!(!plan_of(&without).to_json().contains("chain"), "nothing is said where nothing is handed on");
}

const STATIC: &str = "loka/fp8-static+fast";
const DELAYED: &str = "cublaslt/fp8-delayed+fast";

/// BF16 takes 100 us, a kernel whose scale is known beforehand 60, a block 70 with the cast that its reader makes, and
/// `codes_us` without.
fn served(known: &str, codes_us: Option<f64>) -> Plan {
    let mut results = made();
    let site = &results.meta.manifest.sites[0];
    let shape = GemmShape { m: site.m, k: site.k, n: site.n };
    let spread = |us: f64| Spread { us, p10_us: us, p90_us: us };
    let timed = |kernel: &str, us: f64, codes: Option<f64>| SiteTime {
        shape,
        codes: codes.map(spread),
        ..site_time(Runtime::Inference, [kernel, "cublaslt/bf16", "cublaslt/bf16"], 100.0, us)
    };
    let rows = vec![timed("loka/fp8-block+fast", 70.0, codes_us), timed(known, 60.0, None)];
    let known = |site: &str| with_codes(row(site, Gemm::Fprop, known, 0.1, Some(1.2), 0.0), SCALE, 70.0, 60.0);
    results.rows.retain(|row| row.kernel.as_str() != STATIC);
    results.rows.extend(["a", "b"].map(known));
    results.rows.iter_mut().for_each(|row| row.shape = shape);
    results.meta.site_times = Some(site_times(rows));
    let (named, overrides) = (("p", "2026-11-20T00:00:00Z"), Overrides::new());
    let policy = Policy::paper();
    let plan = build_for(Runtime::Inference, &results, &policy, &SiteMods::default(), &overrides, named).unwrap().plan;
    assert_eq!(messages(&plan, &results), [""; 0]);
    plan
}

#[test]
fn where_sites_were_timed_codes_save_what_was_timed_where_they_are_stored() {
    let forward = |plan: &Plan| plan.sites.iter().map(|site| site.fprop.kernel.to_string()).collect::<Vec<_>>();
    for known in [STATIC, DELAYED] {
        let fast = served(known, Some(55.0));
        assert_eq!(forward(&fast), ["loka/fp8-block+fast", known]);
        let (planned_us, saved_us) = (fast.totals.planned_us, fast.totals.handed_on_us);
        assert!(near(planned_us, 70.0 + 60.0 - 15.0) && near(saved_us, 15.0), "{:?}", fast.totals);
        let reason = &fast.sites[1].fprop.reason;
        assert!(reason.contains("x arrives as codes from a: no cast, 15 us less (measured)"), "{reason}");
    }
    // 70 + 60 - 9 is more than 60 + 60; and what was not timed storing codes stores none.
    for codes_us in [Some(61.0), None] {
        let plan = served(STATIC, codes_us);
        assert_eq!(forward(&plan), [STATIC; 2]);
        assert!(near(plan.totals.planned_us, 120.0) && plan.sites.iter().all(|site| site.chain.is_none()));
    }
}

#[test]
fn chains_that_do_not_fit_are_refused() {
    let results = made();
    let broken = |edit: fn(&mut [PlanSite])| {
        let mut plan = plan_of(&results);
        edit(&mut plan.sites);
        plan.totals.handed_on_us = plan.sites.iter().filter_map(|site| site.chain.as_ref()).map(|of| of.saved_us).sum();
        messages(&plan, &results)
    };
    fn chain(site: &mut PlanSite) -> &mut Chain {
        site.chain.as_mut().unwrap()
    }
    let slow = "policy/speed b:fprop: loka/fp8-static+fast is 0.98x, the policy asks for more than 1.05x";
    assert_eq!(
        broken(|sites| chain(&mut sites[0]).store_scale = Some(0.125)),
        ["plan/chain b:fprop: reads codes of scale .0625, a stores them of scale .125"]
    );
    assert_eq!(
        broken(|sites| sites[0].chain = None),
        ["plan/chain b:fprop: reads codes from a, which by the trace and the results cannot hand it any", slow]
    );
    assert_eq!(broken(|sites| sites[1].chain = None), ["plan/chain a:fprop: stores codes that nobody reads", slow]);
    assert_eq!(
        broken(|sites| chain(&mut sites[1]).from = Some(SiteId::new("c")))[1],
        "plan/chain b:fprop: reads codes from c, which by the trace and the results cannot hand it any"
    );
    assert_eq!(
        broken(|sites| chain(&mut sites[0]).stores = vec![Form::E4m3])[0],
        "plan/chain a:fprop: stores no BF16, which something reads"
    );
    assert_eq!(
        broken(|sites| sites[0].fprop.kernel = sites[0].dgrad.kernel.clone()),
        ["plan/chain a:fprop: stores codes, which cublaslt/bf16 cannot"]
    );
    assert_eq!(
        broken(|sites| sites[1].fprop.kernel = sites[1].dgrad.kernel.clone()),
        ["plan/chain b:fprop: reads codes, which cublaslt/bf16 cannot, or without gaining by it"]
    );
    assert_eq!(
        broken(|sites| chain(&mut sites[1]).saved_us = 50.0),
        ["plan/chain b:fprop: saves 50 us by codes in the plan, 38 us by the results"]
    );
    let mut plan = plan_of(&results);
    plan.totals.handed_on_us = 0.0;
    assert_eq!(messages(&plan, &results), ["plan/chain handing codes on saves 0 us in the totals, 37 us by the sites"]);
}

#[test]
fn other_results_of_the_same_rows_close_the_gate() {
    let plan = plan_of(&made());
    let unlinked = messages(&plan, &fed(made(), &[]));
    assert!(unlinked[0].contains("cannot hand it any") || unlinked[1].contains("cannot hand it any"), "{unlinked:?}");
}

#[test]
fn a_changed_chain_is_a_change() {
    let (linked, alone) = (plan_of(&made()), plan_of(&fed(made(), &[])));
    let found = diff(&linked, &alone);
    assert_eq!(found.chains.len(), 2);
    assert_eq!(found.changes[0].cause, crate::plan::Cause::Chain, "{:?}", found.changes);
    assert!(found.changes[0].reason.starts_with("loka/fp8-static+fast is no longer favoured by a chain"));
    assert_eq!(diff(&alone, &linked).changes[0].cause, crate::plan::Cause::Chain);
    assert!(diff(&linked, &linked).is_empty());
    let mut later = linked.clone();
    later.sites[1].chain.as_mut().unwrap().saved_us = 37.5;
    assert!(diff(&linked, &later).chains.is_empty(), "another time is no other chain");
}
