//! Sites where sharing decides, by hand; pruning and the old rule, by brute force.

use std::collections::BTreeMap;

use crate::{
    dispatch::{
        Candidates, Dispatch, Group, Override, Overrides, PassedOver, Policy, bound_of, dispatch, frontier,
        sharing::{Cost, site_us, unearned},
        testing::{Dice, results, row, with_gemm_us},
    },
    model::{Estimate, Gemm, GemmShape, KernelId, LatencySource, Metric, ResultRow, Results, Safety, SiteId, SiteMods},
};

const BF16: &str = "cublaslt/bf16";
const ROWWISE: &str = "cublaslt/fp8-rowwise+fast";
const TENSORWISE: &str = "cublaslt/fp8-tensorwise+fast";

fn timed(gemm: Gemm, kernel: &str, error: f64, us: f64) -> ResultRow {
    with_gemm_us(row("s", gemm, kernel, error, Some(100.0 / us), 0.0), 50.0)
}

/// BF16 takes 100 us a GEMM, rowwise 85, 92 and 94, tensorwise 97, 105 and 110 of which 47, 55 and 60 are
/// casts. x : W : dy are as 4 : 1 : 2, so the casts are x 37.6, W 9.4; dy 36.7, W 18.3; dy 20, x 40. One
/// cast each saves 77.6 - 48 = 29.6 of x, 27.7 - 22 = 5.7 of W, 56.7 - 44 = 12.7 of dy: 312 - 48 = 264.
fn site(dgrad_error: f64) -> Results {
    let rowwise = [85.0, 92.0, 94.0].into_iter().zip(Gemm::ALL).map(|(us, gemm)| timed(gemm, ROWWISE, 0.1, us));
    let tensorwise = [97.0, 105.0, 110.0]
        .into_iter()
        .zip(Gemm::ALL)
        .map(|(us, gemm)| timed(gemm, TENSORWISE, if gemm == Gemm::Dgrad { dgrad_error } else { 0.1 }, us));
    results(&["s"], rowwise.chain(tensorwise).collect())
}

fn run(results: &Results, policy: &Policy, overrides: &Overrides) -> Dispatch {
    dispatch(&Candidates::new(results, &SiteMods::default()), policy, overrides, 0.5).unwrap()
}

fn kernels(dispatch: &Dispatch) -> Vec<&str> {
    dispatch.choices.iter().map(|choice| choice.kernel.as_str()).collect()
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-9
}

#[test]
fn three_that_are_slow_alone_are_fastest_together() {
    let dispatch = run(&site(0.1), &Policy::paper(), &Overrides::new());
    assert_eq!(kernels(&dispatch), [TENSORWISE; 3]);
    assert!(near(dispatch.totals.planned_us, 264.0), "{:?}", dispatch.totals);
    let fprop = &dispatch.choices[0];
    assert_eq!(
        fprop.reason,
        "shares the cast of x with wgrad and of W with dgrad: 264 us for the site's three GEMMs instead of 271 \
         (modelled); MERE .1 (.09 to .11) <= .2, 1.03x alone"
    );
    assert!(near(fprop.speedup.unwrap(), 100.0 / 97.0), "its own, as the results have it");
    assert_eq!(fprop.runners_up, [KernelId::new(ROWWISE), KernelId::new(BF16)]);
    assert!(fprop.passed_over.is_empty(), "nothing is faster there: {:?}", fprop.passed_over);
}

#[test]
fn two_share_where_the_third_may_not() {
    let dispatch = run(&site(0.5), &Policy::paper(), &Overrides::new());
    assert_eq!(kernels(&dispatch), [TENSORWISE, ROWWISE, TENSORWISE]);
    assert!(near(dispatch.totals.planned_us, 97.0 + 110.0 - 29.6 + 92.0));
    let dgrad = &dispatch.choices[1];
    assert_eq!(dgrad.reason, "the only one that is safe and fast: MERE .1 (.09 to .11) <= .2, 1.09x");
    assert_eq!(dgrad.passed_over, BTreeMap::from([(KernelId::new(TENSORWISE), PassedOver::Unsafe)]));
}

#[test]
fn an_override_is_fixed_and_the_others_fit_themselves_to_it() {
    let wanted = |kernel| {
        let kernel = KernelId::new(kernel);
        Overrides::from([((SiteId::new("s"), Gemm::Fprop), Override { kernel, reason: String::new() })])
    };
    let high = run(&site(0.1), &Policy::paper(), &wanted(BF16));
    assert_eq!(kernels(&high), [BF16, ROWWISE, ROWWISE], "dy alone saves too little");
    assert!(near(high.totals.planned_us, 286.0));
    let low = run(&site(0.5), &Policy::paper(), &wanted(TENSORWISE));
    assert_eq!(kernels(&low), [TENSORWISE, ROWWISE, TENSORWISE]);
}

#[test]
fn sharing_that_changes_no_choice_is_told_and_counted() {
    let rows = [60.0, 60.0, 60.0].into_iter().zip(Gemm::ALL).map(|(us, gemm)| timed(gemm, TENSORWISE, 0.1, us));
    let dispatch = run(&results(&["s"], rows.collect()), &Policy::paper(), &Overrides::new());
    assert_eq!(
        dispatch.choices[2].reason,
        "the only one that is safe and fast: MERE .1 (.09 to .11) <= .2, 1.67x; \
         shares the cast of dy with dgrad and of x with fprop"
    );
    assert!(dispatch.totals.planned_us < 180.0);
}

/// Under a budget the three are one option of the site, at the forward kernel's loss cost. With fprop at 101
/// its casts are x 40.8 and W 10.2: 31.84 and 6.53 are saved, 51.04 in all.
#[test]
fn a_loss_budget_weighs_the_site_as_a_whole() {
    let mut all = site(0.01);
    for row in &mut all.rows {
        let tensorwise = row.kernel.as_str() == TENSORWISE;
        let error = row.error.as_mut().unwrap();
        error.rel_l2 = Estimate::exact(0.01);
        if row.gemm == Gemm::Fprop && row.kernel.as_str() != BF16 {
            error.loss_cost = Some(Estimate::exact(if tensorwise { 9e-5 } else { 1e-5 }));
            row.latency.latency_us = Some(if tensorwise { 101.0 } else { 85.0 });
        }
    }
    let wide = run(&all, &Policy::loss_budget(), &Overrides::new());
    assert_eq!(kernels(&wide), [TENSORWISE; 3]);
    let optimum = wide.optimum.unwrap();
    assert!(optimum.proven && near(optimum.time_us, 264.96) && near(wide.totals.planned_us, 264.96), "{optimum:?}");
    assert_eq!(
        wide.choices[0].reason,
        "shares the cast of x with wgrad and of W with dgrad: 265 us for the site's three GEMMs instead of 286 \
         (modelled); least time within the loss budget: 0.99x for at most 9.0e-5 of loss, 90 % of the budget"
    );
    let narrow = Policy { loss_budget: Some(1e-4), ..Policy::loss_budget() };
    let narrow = run(&all, &narrow, &Overrides::new());
    assert_eq!(kernels(&narrow), [ROWWISE, ROWWISE, ROWWISE]);
    assert!(near(narrow.optimum.unwrap().time_us, 271.0));
    let candidates = Candidates::new(&all, &SiteMods::default());
    let last = *frontier(&candidates, &Policy::loss_budget(), 0.5).last().unwrap();
    assert!(near(last.speedup, 300.0 / 264.96) && last.num_low_precision == 3, "{last:?}");
}

/// What was recorded on an H200 (docs/engineering/performance.md): alone tensorwise is the slowest of the FP8 kernels
/// at 6144 x 2048 x 2048, together its three GEMMs are the fastest.
#[test]
fn on_an_h200_tensorwise_wins_by_what_it_shares() {
    let latencies = crate::bench::Latencies::builtin();
    let shape = GemmShape { m: 6144, k: 2048, n: 2048 };
    let mut all = results(&["s"], Vec::new());
    all.rows.clear();
    for (gemm, kernel) in Gemm::ALL.into_iter().flat_map(|gemm| [BF16, ROWWISE, TENSORWISE].map(|name| (gemm, name))) {
        let latency = latencies.latency(&KernelId::new(kernel), gemm, shape);
        assert_eq!(latency.source, LatencySource::Recorded);
        all.rows.push(ResultRow { shape, latency, ..row("s", gemm, kernel, 0.01, None, 0.0) });
    }
    let both = run(&all, &Policy::paper(), &Overrides::new());
    assert_eq!(kernels(&both), [TENSORWISE; 3], "{:?}", both.choices);
    all.rows.retain(|row| row.kernel.as_str() != TENSORWISE);
    let without = run(&all, &Policy::paper(), &Overrides::new());
    assert!(both.totals.planned_us < 0.95 * without.totals.planned_us, "{:?} {:?}", both.totals, without.totals);
}

fn random(dice: &mut Dice, sites: usize, shared: bool) -> Results {
    let names: Vec<String> = (0..sites).map(|site| format!("s{site}")).collect();
    let mut rows = Vec::new();
    for (name, gemm) in names.iter().flat_map(|name| Gemm::ALL.map(|gemm| (name, gemm))) {
        for kernel in [ROWWISE, TENSORWISE, "cublaslt/fp8-tensorwise", "pytorch/fp8-tensorwise+fast", "te/current"] {
            let speedup = (dice.unit() < 0.9).then(|| 0.7 + 0.5 * dice.unit());
            let cost = if gemm == Gemm::Fprop { 1e-5 * (0.01 + dice.unit()) } else { 0.0 };
            let row = row(name, gemm, kernel, 0.3 * dice.unit(), speedup, cost);
            rows.push(if shared { with_gemm_us(row, 60.0 * dice.unit()) } else { row });
        }
    }
    results(&names.iter().map(String::as_str).collect::<Vec<_>>(), rows)
}

/// The rule without sharing: of the kernels that are safe and fast the fastest, else the baseline.
fn chosen_alone<'a>(group: &Group<'a>, policy: &Policy) -> &'a str {
    let admissible = |row: &&ResultRow| {
        let bound = bound_of(policy, &row.site, row.gemm, 0.5);
        let safe = bound.safety(row.metric(bound.metric)) == Safety::Safe;
        row.kernel.as_str() != BF16 && safe && row.speedup().is_some_and(|speedup| speedup > policy.min_speedup)
    };
    let best =
        group.rows.iter().filter(admissible).max_by(|a, b| a.speedup().unwrap().total_cmp(&b.speedup().unwrap()));
    best.map_or(BF16, |row| row.kernel.as_str())
}

#[test]
fn with_nothing_to_share_every_gemm_stands_alone() {
    let mut dice = Dice::new(17);
    for min_speedup in [0.9, 1.0, 1.05, 1.1] {
        let policy = Policy { min_speedup, ..Policy::paper() };
        let results = random(&mut dice, 60, false);
        let candidates = Candidates::new(&results, &SiteMods::default());
        let alone: Vec<&str> = candidates.groups.iter().map(|group| chosen_alone(group, &policy)).collect();
        let decided = run(&results, &policy, &Overrides::new());
        assert_eq!(kernels(&decided), alone, "{min_speedup}");
        let sum: f64 = decided.choices.iter().map(|choice| 100.0 / choice.speedup.unwrap()).sum();
        assert_eq!(decided.totals.planned_us, sum);
    }
}

/// The time and the forward loss cost of every triple of safe kernels in which each is fast, or earned.
fn every_triple(groups: &[Group], policy: &Policy) -> Vec<(f64, f64)> {
    let options: Vec<Vec<(Cost, bool, f64)>> = groups
        .iter()
        .map(|group| {
            let mut options = vec![(Cost::alone(100.0), false, 0.0)];
            for row in group.rows.iter().filter(|row| row.kernel.as_str() != BF16) {
                let bound = bound_of(policy, &row.site, row.gemm, 0.5);
                let budgeted = policy.loss_budget.is_some() && row.gemm == Gemm::Fprop;
                let safe = budgeted || bound.safety(row.metric(bound.metric)) == Safety::Safe;
                let (Some(cost), true) = (Cost::of(row, 100.0), safe) else { continue };
                let loss = row.metric(Metric::LossCost).map_or(0.0, |cost| cost.hi);
                options.push((cost, row.speedup().unwrap() <= policy.min_speedup, loss));
            }
            options
        })
        .collect();
    let mut found = Vec::new();
    for a in &options[0] {
        for b in &options[1] {
            for c in &options[2] {
                let costs = [a.0, b.0, c.0];
                let slow = [a.1, b.1, c.1].map(|slow| slow.then_some(100.0));
                if unearned(&costs, slow, policy.min_speedup) == [false; 3] {
                    found.push((site_us(&costs), a.2));
                }
            }
        }
    }
    found
}

#[test]
fn no_triple_is_faster() {
    let mut dice = Dice::new(23);
    let mut decided = 0;
    for _ in 0..40 {
        let results = random(&mut dice, 5, true);
        let candidates = Candidates::new(&results, &SiteMods::default());
        let least = |groups: &[Group]| {
            every_triple(groups, &Policy::paper()).into_iter().map(|(us, _)| us).fold(f64::INFINITY, f64::min)
        };
        let wanted: f64 = candidates.groups.chunks(3).map(least).sum();
        let found = run(&results, &Policy::paper(), &Overrides::new());
        assert!(near(found.totals.planned_us, wanted), "{} {wanted}", found.totals.planned_us);
        decided += found.choices.iter().filter(|choice| choice.reason.contains("instead of")).count();
    }
    assert!(decided > 50, "{decided} of 600 GEMMs say little");
}

#[test]
fn no_triples_within_the_budget_are_faster() {
    let mut dice = Dice::new(29);
    for _ in 0..60 {
        let results = random(&mut dice, 2, true);
        let policy = Policy { loss_budget: Some(3e-5 * dice.unit()), ..Policy::loss_budget() };
        let budget = 0.5 * policy.loss_budget.unwrap();
        let candidates = Candidates::new(&results, &SiteMods::default());
        let [a, b] = [0, 3].map(|at| every_triple(&candidates.groups[at..at + 3], &policy));
        let pairs = a.iter().flat_map(|a| b.iter().map(move |b| (a.0 + b.0, a.1 + b.1)));
        let wanted = pairs.filter(|(_, loss)| *loss <= budget).map(|(us, _)| us).fold(f64::INFINITY, f64::min);
        let found = run(&results, &policy, &Overrides::new());
        assert!(near(found.totals.planned_us, wanted), "{} {wanted}", found.totals.planned_us);
        assert!(found.optimum.unwrap().proven && found.totals.loss_cost_hi.unwrap_or(0.0) <= budget);
    }
}
