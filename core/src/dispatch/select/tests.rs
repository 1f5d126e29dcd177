//! Choices, reasons and runners-up of small made-up results.

use super::*;
use crate::{
    dispatch::{
        ChoiceSource, PassedOver,
        testing::{results, row, unsupported},
    },
    model::{KernelId, Latency, LatencySource, Metric, ModKind, ModSet, ResultRow, Results, SiteId, SiteMods},
};

const FAST: &str = "cublaslt/fp8-rowwise+fast";
const OTHER: &str = "te/current";
const TORCHAO: &str = "torchao/tensorwise";
const THIRD: &str = "fbgemm/rowwise";

fn run(results: &Results, policy: &Policy, overrides: &Overrides) -> Dispatch {
    dispatch(&Candidates::new(results, &SiteMods::default()), policy, overrides, 0.5).unwrap()
}

fn forward(rows: Vec<ResultRow>, policy: &Policy) -> Choice {
    run(&results(&["s"], rows), policy, &Overrides::new()).choices.remove(0)
}

fn fprop(kernel: &str, error: f64, speedup: Option<f64>) -> ResultRow {
    row("s", Gemm::Fprop, kernel, error, speedup, 0.0)
}

fn override_of(site: &str, gemm: Gemm, kernel: &str) -> Overrides {
    Overrides::from([(
        (SiteId::new(site), gemm),
        Override { kernel: KernelId::new(kernel), reason: "tried".to_owned() },
    )])
}

#[test]
fn takes_the_fastest_that_is_safe() {
    let choice = forward(
        vec![fprop(FAST, 0.1, Some(1.2)), fprop(OTHER, 0.1, Some(1.3)), fprop(THIRD, 0.5, Some(1.5))],
        &Policy::paper(),
    );
    assert_eq!(choice.kernel.as_str(), OTHER);
    assert_eq!(choice.reason, "fastest of 2 that are safe: MERE .1 (.09 to .11) <= .2, 1.30x");
    assert_eq!(choice.runners_up, [KernelId::new(FAST), KernelId::new("cublaslt/bf16")]);
    assert_eq!(choice.passed_over, BTreeMap::from([(KernelId::new(THIRD), PassedOver::Unsafe)]));
    assert_eq!(choice.error[&Metric::Mere], 0.1);
    assert_eq!((choice.rel_l2_lo, choice.rel_l2_hi), (Some(0.9 * 0.1), Some(1.1 * 0.1)));
    assert_eq!((choice.source, choice.speedup), (ChoiceSource::Dispatch, Some(1.3)));
}

#[test]
fn what_is_fast_on_another_gpu_is_left_to_a_person() {
    let on = |gpu: &str, row: ResultRow| {
        let note = format!("recorded on {gpu}, driver 580, loka 0.1.0").into();
        ResultRow { latency: Latency { note, ..row.latency }, ..row }
    };
    let (h100, h200) = ("NVIDIA H100 80GB HBM3", "NVIDIA H200");
    let chosen = |gpu: &str, fast: Option<f64>, overrides: &Overrides| {
        let rows = vec![on(h200, fprop(FAST, 0.1, fast)), on(gpu, fprop(TORCHAO, 0.1, Some(1.3)))];
        let mut results = results(&["s"], rows);
        results.rows.iter_mut().filter(|row| row.kernel.as_str() == "cublaslt/bf16").for_each(|row| {
            *row = on(h200, row.clone());
        });
        run(&results, &Policy::paper(), overrides).choices.remove(0)
    };
    let none = Overrides::new();
    assert_eq!(chosen(h200, Some(1.2), &none).kernel.as_str(), TORCHAO);
    let choice = chosen(h100, Some(1.2), &none);
    assert_eq!(choice.kernel.as_str(), FAST);
    assert_eq!(choice.reason, "the only one that is safe and fast: MERE .1 (.09 to .11) <= .2, 1.20x");
    assert_eq!((choice.passed_over.len(), choice.runners_up.len()), (0, 1));
    // Nor does it stand in for what is known of the kernels beside it.
    let stays = chosen(h100, Some(0.9), &none);
    assert_eq!(stays.reason, format!("no safe kernel is faster than 1.05x; best is {FAST} at 0.90x"));
    assert_eq!(chosen(h100, Some(1.2), &override_of("s", Gemm::Fprop, TORCHAO)).kernel.as_str(), TORCHAO);
}

#[test]
fn a_library_that_was_recorded_elsewhere_is_left_to_a_person_until_it_was_tried_here() {
    let from = |source: LatencySource, word: &str, row: ResultRow| {
        let note = format!("{word} on NVIDIA H200, driver 580, loka 0.2.0").into();
        ResultRow { latency: Latency { note, source, ..row.latency }, ..row }
    };
    let chosen = |source: LatencySource, word: &str, kernel: &str| {
        let rows = vec![
            from(LatencySource::Recorded, "recorded", fprop(FAST, 0.1, Some(1.2))),
            from(source, word, fprop(kernel, 0.1, Some(1.3))),
        ];
        run(&results(&["s"], rows), &Policy::paper(), &Overrides::new()).choices.remove(0)
    };
    for kernel in ["te/current", "te/blockwise", "fbgemm/rowwise", "deepgemm/blockwise"] {
        assert_eq!(chosen(LatencySource::Recorded, "recorded", kernel).kernel.as_str(), FAST, "{kernel}");
        assert_eq!(chosen(LatencySource::Measured, "measured here", kernel).kernel.as_str(), kernel);
    }
    // Comes with PyTorch, or is one wheel beside it.
    assert_eq!(chosen(LatencySource::Recorded, "recorded", TORCHAO).kernel.as_str(), TORCHAO);
}

#[test]
fn every_reason_to_stay_is_told() {
    let policy = Policy::paper();
    let reason = |rows| forward(rows, &policy).reason;
    assert_eq!(
        reason(vec![fprop(FAST, 0.1, Some(0.87))]),
        format!("no safe kernel is faster than 1.05x; best is {FAST} at 0.87x")
    );
    assert_eq!(
        reason(vec![fprop(FAST, 0.4, Some(2.0))]),
        format!("none is safe; best is {FAST}: MERE .4 (.36 to .44) > .2")
    );
    assert_eq!(
        reason(vec![fprop(FAST, 0.2, Some(2.0))]),
        format!("none is certainly safe; best is {FAST}: MERE .2 (.18 to .22) around .2")
    );
    assert_eq!(
        reason(vec![fprop(FAST, 0.1, None)]),
        format!("no latency is known for the 1 that are safe ({FAST}: a test)")
    );
    let refused = unsupported("s", Gemm::Fprop, FAST, "n = 1 is not a multiple of 16");
    assert_eq!(
        reason(vec![refused]),
        format!("no low-precision kernel runs here ({FAST}: n = 1 is not a multiple of 16)")
    );
    assert_eq!(reason(vec![]), "no other kernel was probed");
}

#[test]
fn a_site_without_rows_stays_high_with_its_problem() {
    let mut broken = results(&["s"], vec![]);
    broken.rows.clear();
    broken.meta.problems.push((SiteId::new("s"), "input.mean is not finite".to_owned()));
    let dispatch = run(&broken, &Policy::paper(), &Overrides::new());
    assert_eq!(dispatch.choices[0].kernel.as_str(), "cublaslt/bf16");
    assert_eq!(dispatch.choices[0].reason, "high precision: not probed, input.mean is not finite");
    assert_eq!(dispatch.totals.num_without_latency, 3);
    assert_eq!(dispatch.totals.speedup, None);
    assert_eq!(dispatch.warnings, ["3 of 3 GEMMs have no latency and are not in the totals"]);
}

#[test]
fn only_rows_of_the_mods_in_force_count() {
    let mut modified = fprop(FAST, 0.1, Some(1.4));
    modified.mods = ModSet([ModKind::NoBias].into());
    let all = results(&["s"], vec![modified]);
    let kernel = |mods: ModSet| {
        let candidates = Candidates::new(&all, &mods.into());
        dispatch(&candidates, &Policy::paper(), &Overrides::new(), 0.5).unwrap().choices[0].kernel.clone()
    };
    assert_eq!(kernel(ModSet::none()).as_str(), "cublaslt/bf16");
    assert_eq!(kernel(ModSet([ModKind::NoBias].into())).as_str(), FAST);
}

#[test]
fn totals_apply_each_speedup_to_one_reference() {
    let mut eager = fprop("pytorch/fp8-rowwise+fast", 0.1, Some(2.0));
    eager.latency.latency_us = Some(1000.0);
    eager.latency.baseline_us = Some(2000.0);
    let totals = run(&results(&["s"], vec![eager]), &Policy::paper(), &Overrides::new()).totals;
    assert_eq!((totals.baseline_us, totals.planned_us), (300.0, 250.0));
    assert_eq!(totals.speedup, Some(1.2));
}

#[test]
fn overrides_survive_and_are_marked() {
    let all = results(&["s"], vec![fprop(FAST, 0.1, Some(1.2)), fprop(OTHER, 0.4, Some(1.3))]);
    let dispatch = run(&all, &Policy::paper(), &override_of("s", Gemm::Fprop, OTHER));
    assert_eq!(dispatch.choices[0].source, ChoiceSource::Override);
    assert_eq!(dispatch.choices[0].reason, "override: tried; breaks the policy: MERE .4 (.36 to .44) > .2");
    assert_eq!(
        dispatch.warnings,
        [format!("s:fprop is overridden with {OTHER}, which breaks the policy: MERE .4 (.36 to .44) > .2").as_str()]
    );

    let kept = run(&all, &Policy::paper(), &override_of("s", Gemm::Fprop, "cublaslt/bf16"));
    assert_eq!(kept.choices[0].reason, "override: tried");
    assert_eq!(kept.choices[0].passed_over[&KernelId::new(FAST)], PassedOver::Override);
    assert!(kept.warnings.is_empty());
}

#[test]
fn impossible_overrides_are_refused() {
    let all = results(&["s"], vec![unsupported("s", Gemm::Fprop, FAST, "k = 8 is not a multiple of 16")]);
    let message = |overrides: &Overrides| {
        dispatch(&Candidates::new(&all, &SiteMods::default()), &Policy::paper(), overrides, 0.5)
            .unwrap_err()
            .to_string()
    };
    assert_eq!(message(&override_of("t", Gemm::Fprop, FAST)), "override of an unknown site 't'");
    assert_eq!(message(&override_of("s", Gemm::Dgrad, "x/y")), "override of s:dgrad with an unknown kernel 'x/y'");
    assert_eq!(
        message(&override_of("s", Gemm::Dgrad, OTHER)),
        format!("override of s:dgrad with {OTHER}, which was not probed there")
    );
    assert_eq!(
        message(&override_of("s", Gemm::Fprop, FAST)),
        format!("override of s:fprop with {FAST}, which does not run there: k = 8 is not a multiple of 16")
    );
}

/// Two sites, budget 1e-4 (.0002 of a loss of .5): both fast kernels together cost too much.
fn two_sites() -> Results {
    results(
        &["a", "b"],
        vec![
            row("a", Gemm::Fprop, FAST, 9.0, Some(2.0), 6e-5),
            row("b", Gemm::Fprop, FAST, 9.0, Some(1.5), 6e-5),
            row("b", Gemm::Fprop, OTHER, 9.0, Some(1.2), 1e-5),
            row("a", Gemm::Dgrad, FAST, 9.0, Some(2.0), 0.0),
            row("b", Gemm::Dgrad, FAST, 0.01, Some(2.0), 0.0),
        ],
    )
}

#[test]
fn a_loss_budget_is_spent_where_it_buys_most() {
    let dispatch = run(&two_sites(), &Policy::loss_budget(), &Overrides::new());
    let kernels: Vec<&str> = dispatch.choices.iter().map(|choice| choice.kernel.as_str()).collect();
    let bf16 = "cublaslt/bf16";
    assert_eq!(kernels, [FAST, bf16, bf16, OTHER, FAST, bf16], "backward is bounded by rel L2");
    let optimum = dispatch.optimum.unwrap();
    assert!(optimum.proven && optimum.loss_cost_hi <= optimum.budget);
    assert_eq!(
        dispatch.choices[0].reason,
        "least time within the loss budget: 2.00x for at most 6.6e-5 of loss, 66 % of the budget"
    );
    assert_eq!(dispatch.choices[3].passed_over[&KernelId::new(FAST)], PassedOver::Budget);
}

#[test]
fn overrides_are_paid_from_the_budget_first() {
    let dispatch = run(&two_sites(), &Policy::loss_budget(), &override_of("b", Gemm::Fprop, FAST));
    assert_eq!(dispatch.choices[0].kernel.as_str(), "cublaslt/bf16");
    assert!(
        dispatch.choices[0].reason.starts_with("the loss budget buys more elsewhere"),
        "{}",
        dispatch.choices[0].reason
    );
    assert_eq!(dispatch.choices[3].kernel.as_str(), FAST);
}

#[test]
fn a_budget_that_cannot_be_kept_is_said() {
    let all = results(&["s", "t"], vec![row("s", Gemm::Fprop, FAST, 0.1, Some(2.0), 1e-5)]);
    let policy = Policy { loss_budget: Some(0.0), ..Policy::loss_budget() };
    let dispatch = run(&all, &policy, &override_of("s", Gemm::Fprop, FAST));
    let said = "the overrides alone break the loss budget of 0: nothing else is chosen within it";
    assert!(dispatch.warnings.iter().any(|warning| *warning == said), "{:?}", dispatch.warnings);
    assert_eq!(dispatch.choices[3].kernel.as_str(), "cublaslt/bf16");
}

#[test]
fn a_share_of_no_loss_is_said_to_be_nothing() {
    let (results, policy) = (two_sites(), Policy::loss_budget());
    let candidates = Candidates::new(&results, &SiteMods::default());
    let says = |loss: f64| {
        let dispatch = dispatch(&candidates, &policy, &Overrides::new(), loss).unwrap();
        let said = dispatch.warnings.iter().any(|warning| warning.text.starts_with("the trace has no loss"));
        (said, dispatch.choices[0].kernel.as_str() == FAST)
    };
    assert_eq!((says(0.0), says(0.5)), ((true, false), (false, true)));
}

/// BF16's own cost, and a kernel's at a site where no figure means anything, take nothing from the others.
#[test]
fn only_what_is_beyond_bf16_and_means_something_is_charged() {
    let cost = |site: &str, kernel: &str, value: f64| row(site, Gemm::Fprop, kernel, 0.1, Some(2.0), value);
    let mut all = results(
        &["a", "b", "c"],
        vec![cost("a", FAST, 9e-5), cost("b", FAST, 34_000.0), cost("c", FAST, 9e-5), cost("c", OTHER, 7.0)],
    );
    for row in all.rows.iter_mut().filter(|row| row.gemm == Gemm::Fprop && row.kernel.as_str() == "cublaslt/bf16") {
        let of_bf16 = match row.site.as_str() {
            "a" => 2e-5,
            "b" => 13_580.0,
            _ => 8.5e-5,
        };
        row.error.as_mut().unwrap().loss_cost = Some(crate::model::Estimate::exact(of_bf16));
    }
    crate::model::charge_excess(&mut all.rows);
    // .0002 of .5: 9.9e-5 - 2e-5 at a, 9.9e-5 - 8.5e-5 at c.
    let dispatch = run(&all, &Policy::loss_budget(), &Overrides::new());
    let chosen = [0, 3, 6].map(|at| dispatch.choices[at].kernel.as_str());
    assert_eq!(chosen, [FAST, "cublaslt/bf16", FAST]);
    let optimum = dispatch.optimum.unwrap();
    assert!((optimum.loss_cost_hi - 9.3e-5).abs() < 1e-12, "{optimum:?}");
    let left = "the loss cost of cublaslt/bf16 would be 13580, more than a tenth of the loss, where the estimate means nothing";
    assert_eq!(dispatch.choices[3].reason, format!("left out of the loss budget: {left}"));
    assert!(dispatch.warnings.iter().any(|warning| warning.text == format!("b leaves the loss budget: {left}")));
    assert_eq!(dispatch.totals.num_cost_out_of_range, 0);

    let high = run(&all, &Policy { min_speedup: 9.0, ..Policy::loss_budget() }, &Overrides::new());
    assert_eq!((high.totals.loss_cost, high.totals.loss_cost_hi), (Some(0.0), Some(0.0)), "all in BF16 costs nothing");

    // A person may want it all the same: it is told, and in no total.
    let wanted = run(&all, &Policy::loss_budget(), &override_of("b", Gemm::Fprop, FAST));
    assert_eq!(wanted.totals.num_cost_out_of_range, 1);
    assert!(wanted.totals.loss_cost_hi.unwrap() < 1e-4, "{:?}", wanted.totals);
    assert!(
        wanted.choices[3].reason.contains("would be 34000, more than a tenth of the loss"),
        "{}",
        wanted.choices[3].reason
    );
    assert_eq!(wanted.choices[6].kernel.as_str(), FAST);
    let other = run(&all, &Policy::loss_budget(), &override_of("c", Gemm::Fprop, OTHER));
    assert_eq!((other.choices[0].kernel.as_str(), other.totals.num_cost_out_of_range), (FAST, 1));
}

/// The GEMM's own BF16 may be in range where no FP8 kernel is: it is not what keeps them out.
#[test]
fn what_means_nothing_is_told_of_the_kernel_that_it_is_of() {
    let cost = |kernel: &str, value: f64| row("a", Gemm::Fprop, kernel, 0.1, Some(2.0), value);
    let mut all = results(&["a"], vec![cost(FAST, 34.0), cost(OTHER, 7.0)]);
    for row in all.rows.iter_mut().filter(|row| row.gemm == Gemm::Fprop && row.kernel.as_str() == "cublaslt/bf16") {
        row.error.as_mut().unwrap().loss_cost = Some(crate::model::Estimate::exact(0.0138));
    }
    crate::model::charge_excess(&mut all.rows);
    let found = run(&all, &Policy::loss_budget(), &Overrides::new());
    assert_eq!(found.choices[0].kernel.as_str(), "cublaslt/bf16");
    assert_eq!(
        found.choices[0].reason,
        format!(
            "{FAST} is not taken: the loss cost of {FAST} would be 34, more than a tenth of the loss, where the estimate \
             means nothing"
        )
    );
    assert!(!found.warnings.iter().any(|warning| warning.text.contains("leaves the loss budget")));
    // And where no kernel is fast either.
    let slow = run(&all, &Policy { min_speedup: 9.0, ..Policy::loss_budget() }, &Overrides::new());
    assert!(
        slow.choices[0].reason.contains(&format!("the loss cost of {OTHER} would be 7,")),
        "{}",
        slow.choices[0].reason
    );
}
