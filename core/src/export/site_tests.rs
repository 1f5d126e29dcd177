//! Sites that are not a plain linear called once with all three GEMMs: what is chosen, counted and said. Expected sums are
//! by hand: BF16 takes 100 us at every GEMM of every site here.

use crate::{
    dispatch::{
        Candidates, Dispatch, Override, Overrides, PassedOver, Policy, PolicyGroup, SitePattern, dispatch,
        testing::{self, Dice, results, row, site_time, site_times},
    },
    export,
    model::{Forward, Gemm, Grads, KernelId, Results, Runtime, SiteId, SiteMods},
    plan::{Plan, Rule, Severity, build, check},
};

const FAST: &str = "te/current";

fn run(results: &Results, policy: &Policy, overrides: &Overrides) -> Dispatch {
    dispatch(&Candidates::new(results, &SiteMods::default()), policy, overrides, 0.5).unwrap()
}

fn by_hand(site: &str, gemm: Gemm) -> Overrides {
    let wanted = Override { kernel: KernelId::new(FAST), reason: "tried".to_owned() };
    Overrides::from([((SiteId::new(site), gemm), wanted)])
}

fn everywhere(sites: &[&str], kernel: &str, error: f64, speedup: f64) -> Results {
    let at = |site: &&str| Gemm::ALL.map(|gemm| row(site, gemm, kernel, error, Some(speedup), 0.0));
    results(sites, sites.iter().flat_map(at).collect())
}

fn planned(results: &Results, overrides: &Overrides) -> Plan {
    build(results, &Policy::paper(), &SiteMods::default(), overrides, "p", "2026-11-20T00:00:00Z").unwrap().plan
}

#[test]
fn a_forward_of_its_own_stays_in_high_precision() {
    let mut results = everywhere(&["plain", "lora"], FAST, 0.1, 1.25);
    let site = &mut results.meta.manifest.sites[1];
    (site.forward, site.class) = (Some(Forward::Own), "peft.lora.Linear".to_owned());
    let decided = run(&results, &Policy::paper(), &Overrides::new());
    for choice in &decided.choices[3..] {
        assert_eq!(choice.kernel.as_str(), "cublaslt/bf16");
        assert_eq!(choice.reason, "high precision: its class peft.lora.Linear has a forward of its own");
        assert_eq!(choice.passed_over[&KernelId::new(FAST)], PassedOver::Forward);
    }
    assert!(decided.choices[..3].iter().all(|choice| choice.kernel.as_str() == FAST));
    // It runs, so it counts: 3 x 100 us of each, and 3 x 80 planned of the plain one.
    assert!((decided.totals.baseline_us - 600.0).abs() < 1e-9 && (decided.totals.planned_us - 540.0).abs() < 1e-9);
}

#[test]
fn a_person_may_insist_and_is_told_by_the_gate_and_by_exports() {
    let mut results = everywhere(&["plain", "lora"], FAST, 0.1, 1.25);
    results.meta.manifest.sites[1].forward = Some(Forward::Parameter);
    let why = "it is no module: a function reads the parameter";
    let decided = run(&results, &Policy::paper(), &by_hand("lora", Gemm::Dgrad));
    assert_eq!(decided.choices[4].reason, format!("override: tried; {why}"));
    let warned = format!("lora:dgrad is overridden with {FAST}, which loka.apply will not run there: {why}");
    assert!(decided.warnings.iter().any(|warning| warning.text == warned), "{:?}", decided.warnings);
    let plan = planned(&results, &by_hand("lora", Gemm::Dgrad));
    assert_eq!(Plan::from_json(&plan.to_json()).unwrap(), plan);
    let found = check(&plan, &results);
    assert_eq!((found.len(), found[0].rule, found[0].severity), (1, Rule::PlanForward, Severity::Warns));
    assert_eq!(found[0].to_string(), format!("lora:dgrad: {FAST} (an override) cannot be applied: {why}"));
    for target in export::Target::ALL.into_iter().filter(|target| *target != export::Target::ModelExplorer) {
        let refusal = export::export(&plan, &export::modules_of(&plan), target, "").unwrap_err();
        assert_eq!(refusal.lines(), [format!("site 'lora' cannot be in FP8: {why}")], "{target}");
    }
    // Without the override nothing names it in FP8.
    let plan = planned(&results, &Overrides::new());
    assert_eq!(check(&plan, &results), []);
    let refused = |target| export::export(&plan, &export::modules_of(&plan), target, "").err();
    let cause = |target| refused(target).map(|refusal| refusal.cause).unwrap_or_default();
    assert!(export::Target::ALL.into_iter().all(|target| !cause(target).contains("cannot be in FP8")));
}

#[test]
fn a_parameter_that_loka_alone_reaches_is_planned_and_no_export_names_it() {
    let mut results = everywhere(&["plain", "kernels.0"], FAST, 0.1, 1.25);
    results.meta.manifest.sites[1].forward = Some(Forward::Matmul);
    let plan = planned(&results, &Overrides::new());
    assert_eq!(plan.sites[1].fprop.kernel.as_str(), FAST);
    assert_eq!(plan.sites[1].forward, Some(Forward::Matmul), "loka.apply is told how it is read");
    assert_eq!(Plan::from_json(&plan.to_json()).unwrap(), plan);
    assert_eq!(check(&plan, &results), []);
    let modules = export::modules_of(&plan);
    assert_eq!(modules.len(), 1);
    let exported = export::export(&plan, &modules, export::Target::Torchao, "").unwrap();
    let said = "loka.apply alone runs these in FP8";
    assert!(exported.losses.iter().any(|loss| loss.to_string().contains(said)), "{:?}", exported.losses);
    assert!(!exported.files[0].text.contains("kernels.0\""), "{}", exported.files[0].text);
}

#[test]
fn a_plan_of_before_the_mark_fails_the_gate() {
    let results = everywhere(&["lora"], FAST, 0.1, 1.25);
    let plan = planned(&results, &Overrides::new());
    let mut marked = results.clone();
    marked.meta.manifest.sites[0].forward = Some(Forward::Own);
    let found: Vec<_> = check(&plan, &marked).into_iter().filter(|of| of.rule == Rule::PlanForward).collect();
    assert_eq!(found.len(), 3);
    assert!(found.iter().all(|of| of.severity == Severity::Fails));
    assert_eq!(found[0].message, format!("{FAST} cannot be applied: its class has a forward of its own"));
}

#[test]
fn a_tower_that_runs_twice_counts_twice() {
    let mut results = everywhere(&["tower", "head"], FAST, 0.1, 1.25);
    results.meta.manifest.sites[0].calls = 2;
    let decided = run(&results, &Policy::paper(), &Overrides::new());
    let totals = decided.totals;
    // 2 x 3 x 100 + 3 x 100, all of it at 1.25x.
    assert!((totals.baseline_us - 900.0).abs() < 1e-9, "{totals:?}");
    assert!((totals.planned_us - 720.0).abs() < 1e-9 && (totals.saved_us - 180.0).abs() < 1e-9, "{totals:?}");
    assert_eq!(totals.num_gemms, 6, "GEMMs to choose a kernel for, not runs of them");
    assert!(decided.choices[0].reason.ends_with("; 2 calls a step"), "{}", decided.choices[0].reason);
    assert!(!decided.choices[3].reason.contains("calls"));
}

#[test]
fn a_budget_is_spent_where_a_step_gains_most() {
    // Two sites alike; the budget of .5 x .0002 has room for one of them at 9e-5 at most.
    let cost = |site: &str| row(site, Gemm::Fprop, FAST, 0.01, Some(1.25), 8e-5);
    let mut results = results(&["a", "b"], vec![cost("a"), cost("b")]);
    let kernels = |results: &Results| -> Vec<String> {
        let decided = run(results, &Policy::loss_budget(), &Overrides::new());
        [0, 3].map(|at: usize| decided.choices[at].kernel.to_string()).to_vec()
    };
    for twice in [0, 1] {
        results.meta.manifest.sites.iter_mut().for_each(|site| site.calls = 1);
        results.meta.manifest.sites[twice].calls = 2;
        let found = kernels(&results);
        assert_eq!((found[twice].as_str(), found[1 - twice].as_str()), (FAST, "cublaslt/bf16"));
    }
}

#[test]
fn calls_scale_every_sum_as_copies_of_the_site_would() {
    let mut dice = Dice::new(11);
    for _ in 0..40 {
        let mut rows = Vec::new();
        for gemm in Gemm::ALL {
            for kernel in [FAST, "te/blockwise", "cublaslt/fp8-tensorwise+fast"] {
                let speedup = (dice.unit() < 0.9).then(|| 0.6 + dice.unit());
                rows.push(testing::with_gemm_us(row("s", gemm, kernel, 0.3 * dice.unit(), speedup, 0.0), 50.0));
            }
        }
        let copies: Vec<_> = rows
            .iter()
            .flat_map(|row| {
                ["s", "t", "u"].map(|site| crate::model::ResultRow { site: SiteId::new(site), ..row.clone() })
            })
            .collect();
        let mut once = results(&["s"], rows);
        once.meta.manifest.sites[0].calls = 3;
        let [called, copied] = [once, results(&["s", "t", "u"], copies)].map(|results| {
            let totals = run(&results, &Policy::paper(), &Overrides::new()).totals;
            [totals.baseline_us, totals.planned_us, totals.saved_us, totals.speedup.unwrap()]
        });
        assert!(called.iter().zip(&copied).all(|(a, b)| (a - b).abs() < 1e-9), "{called:?} {copied:?}");
    }
}

#[test]
fn what_training_does_not_need_is_neither_chosen_nor_counted() {
    let mut results = everywhere(&["first", "frozen"], FAST, 0.1, 1.25);
    results.meta.manifest.sites[0].grads = Grads { input: false, weight: true };
    results.meta.manifest.sites[1].grads = Grads { input: true, weight: false };
    let decided = run(&results, &Policy::paper(), &Overrides::new());
    let [dgrad, wgrad] = [&decided.choices[1], &decided.choices[5]];
    assert_eq!(dgrad.reason, "high precision: never runs, training needs no gradient of its input");
    assert_eq!(wgrad.reason, "high precision: never runs, training needs no gradient of its weight");
    assert!(dgrad.error.is_empty() && dgrad.speedup.is_none() && dgrad.passed_over.is_empty());
    // Four of the six GEMMs run.
    let totals = decided.totals;
    assert_eq!((totals.num_gemms, totals.num_without_latency), (4, 0));
    assert!((totals.baseline_us - 400.0).abs() < 1e-9 && (totals.planned_us - 320.0).abs() < 1e-9, "{totals:?}");
    let plan = planned(&results, &Overrides::new());
    assert_eq!(check(&plan, &results), []);
    let refused = dispatch(
        &Candidates::new(&results, &SiteMods::default()),
        &Policy::paper(),
        &by_hand("first", Gemm::Dgrad),
        0.5,
    );
    assert_eq!(
        refused.unwrap_err().to_string(),
        "override of first:dgrad, which never runs: training does not need it"
    );
    // A plan that has a kernel there, of before the trace said so.
    let before = planned(&everywhere(&["first", "frozen"], FAST, 0.1, 1.25), &Overrides::new());
    let found: Vec<String> = check(&before, &results).iter().map(ToString::to_string).collect();
    assert!(found.contains(&format!("first:dgrad: {FAST} is planned, and the GEMM never runs")), "{found:?}");
}

#[test]
fn times_of_whole_sites_are_of_sites_with_all_their_gemms() {
    let timed = site_time(Runtime::Launched, [FAST, "cublaslt/bf16", "cublaslt/bf16"], 300.0, 270.0);
    let rows = vec![
        row("whole", Gemm::Fprop, FAST, 0.1, Some(1.25), 0.0),
        row("first", Gemm::Fprop, FAST, 0.1, Some(1.25), 0.0),
    ];
    let mut results = results(&["whole", "first"], rows);
    results.meta.manifest.sites[1].grads.input = false;
    results.meta.site_times = Some(site_times(vec![timed]));
    let totals = run(&results, &Policy::paper(), &Overrides::new()).totals;
    // 300 as measured, and 2 x 100 by rows; 270, and 80 + 100.
    assert_eq!((totals.measured_sites, totals.modelled_sites), (1, 1));
    assert!((totals.baseline_us - 500.0).abs() < 1e-9 && (totals.planned_us - 450.0).abs() < 1e-9, "{totals:?}");
    results.meta.manifest.sites[0].calls = 3;
    let totals = run(&results, &Policy::paper(), &Overrides::new()).totals;
    assert!((totals.baseline_us - 1100.0).abs() < 1e-9 && (totals.planned_us - 990.0).abs() < 1e-9, "{totals:?}");
}

#[test]
fn a_group_has_its_own_bound_in_choices_reasons_and_the_gate() {
    let results = everywhere(&["net.0", "tokens.0", "tokens.top"], FAST, 0.15, 1.25);
    let group = |sites: &str, max_error| PolicyGroup { sites: SitePattern::new(sites).unwrap(), max_error };
    let policy = Policy {
        groups: vec![group("tokens.top", 0.2), group("tokens.*", 0.1), group("none.*", 1.0)],
        ..Policy::paper()
    };
    let decided = run(&results, &policy, &Overrides::new());
    let kernels = [0, 3, 6].map(|at: usize| decided.choices[at].kernel.as_str());
    assert_eq!(kernels, [FAST, "cublaslt/bf16", FAST]);
    assert_eq!(
        decided.choices[3].reason,
        format!(
            "none is safe; best is {FAST}: MERE .15 (.135 to .165) > .1; by the policy's group tokens.*, at most .1"
        )
    );
    assert!(!decided.choices[0].reason.contains("group"));
    assert!(decided.warnings.iter().any(|warning| warning.text == "the policy's group none.* matches no site"));
    // A looser plan under the stricter policy: the gate sees each site's own bound.
    let mut plan = planned(&results, &Overrides::new());
    plan.policy = policy;
    let found: Vec<String> = check(&plan, &results).iter().map(ToString::to_string).collect();
    assert_eq!(found[0], format!("tokens.0:fprop: {FAST} breaks the policy: MERE .15 (.135 to .165) > .1"));
    assert_eq!(found.len(), 3);
}
