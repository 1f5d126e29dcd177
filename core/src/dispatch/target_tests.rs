//! What runtimes bar, and sites that were timed as a whole.

use super::*;
use crate::{
    dispatch::{
        Candidates, Dispatch, Override, Overrides, PassedOver, Policy, dispatch, frontier, sweep,
        testing::{Dice, results, row, site_time as timed, site_times as times},
    },
    model::{KernelId, Metric, Results, SiteId, SiteMods},
};

const BF16: &str = "cublaslt/bf16";
const FAST: &str = "cublaslt/fp8-rowwise+fast";
const TENSORWISE: &str = "cublaslt/fp8-tensorwise+fast";
const PROMOTED: &str = "cublaslt/fp8-rowwise";
const OWN: &str = "loka/fp8-rowwise+fast";

/// All kernels are safe everywhere and twice as fast as BF16 by their own rows.
fn probed(kernels: &[&str], site_times: Option<SiteTimes>) -> Results {
    let rows =
        Gemm::ALL.into_iter().flat_map(|gemm| kernels.iter().map(move |id| row("a", gemm, id, 0.1, Some(2.0), 0.0)));
    let mut results = results(&["a"], rows.collect());
    results.meta.site_times = site_times;
    results
}

fn at(runtime: Runtime, results: &Results, policy: &Policy, overrides: &Overrides) -> Dispatch {
    dispatch(&Candidates::at(results, &SiteMods::default(), runtime), policy, overrides, 0.5).unwrap()
}

fn chosen(of: &Dispatch) -> Vec<&str> {
    of.choices.iter().map(|choice| choice.kernel.as_str()).collect()
}

fn by_hand(gemm: Gemm, kernel: &str) -> Overrides {
    let wanted = Override { kernel: KernelId::new(kernel), reason: "why not".to_owned() };
    Overrides::from([((SiteId::new("a"), gemm), wanted)])
}

#[test]
fn own_kernels_wait_for_site_times_where_they_would_be_launched() {
    let results = probed(&[OWN], None);
    let launched = at(Runtime::Launched, &results, &Policy::paper(), &Overrides::new());
    assert_eq!(chosen(&launched), [BF16; 3]);
    assert_eq!(
        launched.choices[0].reason,
        "loka/fp8-rowwise+fast is left out: what it takes launched was never timed; loka bench --sites does, on the GPU that trains"
    );
    assert_eq!(launched.choices[0].passed_over[&KernelId::new(OWN)], PassedOver::Runtime);
    let [warning] = &launched.warnings[..] else { panic!("{:?}", launched.warnings) };
    let says = "at 1 of 1 sites a kernel of LoKA's own (loka/*) is safe and, in a CUDA graph, faster than BF16; the plan does without";
    assert!(warning.text.starts_with(says), "{}", warning.text);
    for command in ["loka bench --sites --kernels 'loka/*' --shapes", "--sites-times", "loka plan --runtime graph"] {
        assert!(warning.text.contains(command), "{}", warning.text);
    }
    assert_eq!(chosen(&at(Runtime::Graph, &results, &Policy::paper(), &Overrides::new())), [OWN; 3]);
    let wanted = at(Runtime::Launched, &results, &Policy::paper(), &by_hand(Gemm::Dgrad, OWN));
    assert_eq!(chosen(&wanted), [BF16, OWN, BF16]);
}

/// A kernel that loses in a CUDA graph is no loss: nobody is sent to time it.
#[test]
fn own_kernels_that_are_slow_anyway_are_not_missed() {
    let slow = Gemm::ALL.map(|gemm| row("a", gemm, OWN, 0.1, Some(0.7), 0.0));
    let launched = at(Runtime::Launched, &results(&["a"], slow.to_vec()), &Policy::paper(), &Overrides::new());
    assert_eq!((chosen(&launched), launched.warnings.len()), (vec![BF16; 3], 0), "{:?}", launched.warnings);
}

/// `loka.apply` leaves a linear without FP8 as the model runs it: TF32 and another library's BF16 would be promised, and never run.
#[test]
fn another_high_precision_is_never_chosen_by_itself() {
    let results = probed(&["cublaslt/tf32", "pytorch/bf16"], None);
    for policy in [Policy::paper(), Policy::balanced(), Policy::loss_budget()] {
        for runtime in Runtime::ALL {
            let found = at(runtime, &results, &policy, &Overrides::new());
            assert_eq!(chosen(&found), [BF16; 3], "{} {runtime}", policy.name);
        }
    }
    let asked = at(Runtime::Launched, &results, &Policy::paper(), &by_hand(Gemm::Fprop, "cublaslt/tf32"));
    assert_eq!(chosen(&asked)[0], "cublaslt/tf32");
}

#[test]
fn inference_has_forward_gemms_alone() {
    let found = at(Runtime::Inference, &probed(&[FAST], None), &Policy::paper(), &Overrides::new());
    assert_eq!(chosen(&found), [FAST, BF16, BF16]);
    assert_eq!(found.choices[1].reason, "high precision: inference runs no backward GEMM");
    let totals = found.totals;
    assert_eq!((totals.num_gemms, totals.num_without_latency), (1, 0));
    assert_eq!((totals.baseline_us, totals.planned_us, totals.saved_us), (100.0, 50.0, 50.0));
    assert_eq!(found.together, [Some(2.0)]);
}

#[test]
fn what_was_timed_together_counts_before_what_is_added_up() {
    // Alone fprop loses 10 and dgrad gains 5, together they gain 30: one cast serves both.
    let runtime = Runtime::Launched;
    let rows = vec![
        timed(runtime, [FAST, BF16, BF16], 400.0, 410.0),
        timed(runtime, [BF16, FAST, BF16], 400.0, 395.0),
        timed(runtime, [FAST, FAST, BF16], 800.0, 740.0),
        timed(runtime, [BF16, BF16, FAST], 200.0, 210.0),
    ];
    let table = SiteTable::new(&rows.iter().collect::<Vec<_>>()).unwrap();
    assert_eq!(table.bf16_us, 400.0);
    for (numbers, us) in [([1, 1, 0], 370.0), ([1, 0, 0], 410.0), ([1, 1, 1], 390.0)] {
        assert!((table.us(numbers).unwrap() - us).abs() < 1e-9, "{numbers:?}");
    }
    let found = at(runtime, &probed(&[FAST], Some(times(rows))), &Policy::paper(), &Overrides::new());
    assert_eq!(chosen(&found), [FAST, FAST, BF16], "wgrad loses");
    let totals = found.totals;
    assert_eq!((totals.baseline_us, totals.planned_us, totals.saved_us), (400.0, 370.0, 30.0));
    assert_eq!(found.together, [Some(400.0 / 370.0)], "alone it would be fprop's loss");
    assert_eq!((totals.measured_sites, totals.modelled_sites), (1, 0));
    assert!(found.choices[0].reason.starts_with("the site takes 370 us instead of 400 (measured, launched); MERE .1"));
    let stays =
        "no safe kernel that was timed here earns its place: the site takes 400 us in BF16 (measured, launched)";
    assert_eq!(found.choices[2].reason, stays);
}

/// One cast serves both, however the products are summed.
#[test]
fn how_a_product_is_summed_adds_to_what_those_that_cast_alike_take_together() {
    let graph = |kernels, us| timed(Runtime::Graph, kernels, 1000.0, us);
    let mut rows = vec![
        graph([FAST, BF16, BF16], 900.0),
        graph([BF16, FAST, BF16], 900.0),
        graph([BF16, BF16, FAST], 950.0),
        graph([BF16, PROMOTED, BF16], 920.0),
        graph([BF16, BF16, PROMOTED], 960.0),
        graph([TENSORWISE, BF16, BF16], 980.0),
        graph([FAST, FAST, FAST], 700.0),
    ];
    let us = |rows: &[SiteTime], kernels: [&str; 3]| {
        let table = SiteTable::new(&rows.iter().collect::<Vec<_>>()).unwrap();
        let number = |gemm: Gemm| table.number(gemm, &KernelId::new(kernels[gemm as usize])).unwrap();
        table.us(Gemm::ALL.map(number)).unwrap()
    };
    let near = |found: f64, wanted: f64| assert!((found - wanted).abs() < 1e-9, "{found}, not {wanted}");
    near(us(&rows, [FAST, FAST, PROMOTED]), 710.0);
    near(us(&rows, [FAST, PROMOTED, PROMOTED]), 730.0);
    near(us(&rows, [BF16, PROMOTED, PROMOTED]), 880.0);
    rows.push(graph([BF16, FAST, FAST], 820.0));
    near(us(&rows, [BF16, PROMOTED, PROMOTED]), 850.0);
    near(us(&rows, [TENSORWISE, PROMOTED, PROMOTED]), 830.0);
    // What was measured counts before it; and the one that differs least.
    rows.push(graph([FAST, PROMOTED, FAST], 715.0));
    near(us(&rows, [FAST, PROMOTED, FAST]), 715.0);
    near(us(&rows, [FAST, PROMOTED, PROMOTED]), 725.0);
    // Noise: nothing is faster for being summed in FP32.
    rows[4] = graph([BF16, BF16, PROMOTED], 940.0);
    near(us(&rows, [FAST, FAST, PROMOTED]), 700.0);
    let results = probed(&[FAST], Some(times(rows)));
    let unsafe_when_fast = row("a", Gemm::Dgrad, FAST, 0.9, Some(2.0), 0.0);
    let mut of_dgrad: Vec<_> = results.rows.iter().filter(|row| row.gemm != Gemm::Dgrad).cloned().collect();
    of_dgrad.extend([unsafe_when_fast, row("a", Gemm::Dgrad, PROMOTED, 0.1, Some(1.8), 0.0)]);
    let found = at(Runtime::Graph, &Results { rows: of_dgrad, ..results }, &Policy::paper(), &Overrides::new());
    assert_eq!(chosen(&found), [FAST, PROMOTED, FAST]);
    assert_eq!(found.totals.planned_us, 715.0);
}

#[test]
fn what_loses_as_measured_is_never_chosen_however_fast_its_rows_are() {
    let rows = vec![timed(Runtime::Launched, [OWN, BF16, BF16], 400.0, 401.0)];
    let results = probed(&[OWN, FAST], Some(times(rows)));
    for policy in [Policy::paper(), Policy { min_speedup: 0.5, ..Policy::paper() }] {
        let found = at(Runtime::Launched, &results, &policy, &Overrides::new());
        assert_eq!(chosen(&found), [BF16; 3]);
        assert_eq!(found.totals.saved_us, 0.0);
    }
    // Of a kernel that nobody timed nothing is known there; in another runtime nothing is known of any.
    let bars = |runtime, kernel| {
        let target = Target::new(runtime, results.meta.site_times.as_ref());
        target.bars(&row("a", Gemm::Fprop, kernel, 0.1, Some(2.0), 0.0))
    };
    assert_eq!(bars(Runtime::Launched, FAST), Some(Barred::NotTimed));
    assert_eq!((bars(Runtime::Launched, OWN), bars(Runtime::Graph, OWN)), (None, None));
}

#[test]
fn a_gemm_must_save_its_part_of_the_site() {
    // 1.05x asks for 4.8 % of a third of 600 us: 9.5.
    let saving = |us: f64| {
        let rows = vec![timed(Runtime::Graph, [BF16, FAST, BF16], 600.0, 600.0 - us)];
        let found = at(Runtime::Graph, &probed(&[FAST], Some(times(rows))), &Policy::paper(), &Overrides::new());
        found.choices[1].kernel.as_str() == FAST
    };
    assert_eq!((saving(9.0), saving(10.0)), (false, true));
}

#[test]
fn an_override_that_was_never_timed_is_modelled() {
    let rows = vec![timed(Runtime::Launched, [FAST, BF16, BF16], 400.0, 380.0)];
    let results = probed(&[FAST, OWN], Some(times(rows)));
    let found = at(Runtime::Launched, &results, &Policy::paper(), &by_hand(Gemm::Dgrad, OWN));
    assert_eq!(chosen(&found), [FAST, OWN, BF16]);
    // Its row says 50 us less.
    assert_eq!((found.totals.planned_us, found.totals.measured_sites, found.totals.modelled_sites), (330.0, 0, 1));
}

/// Against every triple there is, tried one by one.
#[test]
fn the_least_time_of_all_that_earn_their_place() {
    let mut dice = Dice::new(11);
    let names = [BF16, FAST, TENSORWISE, OWN];
    for _ in 0..60 {
        let mut rows = Vec::new();
        for family in &names[1..] {
            for set in 1..8_u32 {
                let kernels = [0, 1, 2].map(|at| if set >> at & 1 == 1 { *family } else { BF16 });
                let us = 300.0 + 60.0 * (dice.unit() - 0.6) * f64::from(set.count_ones());
                rows.push(timed(Runtime::Launched, kernels, 300.0, us));
            }
        }
        let table = SiteTable::new(&rows.iter().collect::<Vec<_>>()).unwrap();
        let results = probed(&names[1..], Some(times(rows)));
        let found = at(Runtime::Launched, &results, &Policy::paper(), &Overrides::new());
        let number = |name: &str| table.number(Gemm::Fprop, &KernelId::new(name)).unwrap();
        let mut least = 300.0;
        for at in 0..64 {
            let numbers = [at / 16, at / 4 % 4, at % 4].map(|at: usize| number(names[at]));
            let us = |numbers| table.us(numbers).unwrap();
            let earned = (1..8_u32).all(|set| {
                let without = [0, 1, 2].map(|at| if set >> at & 1 == 1 { 0 } else { numbers[at] });
                let moved = (0..3).filter(|at| set >> at & 1 == 1 && numbers[*at] != 0).count() as f64;
                without == numbers || us(without) - us(numbers) > (1.0 - 1.0 / 1.05) * 100.0 * moved
            });
            if earned && us(numbers) < least {
                least = us(numbers);
            }
        }
        assert!((found.totals.planned_us - least).abs() < 1e-9, "{} {least}", found.totals.planned_us);
        assert!(found.totals.planned_us <= 300.0);
    }
}

#[test]
fn a_budget_and_the_curves_go_by_site_times_too() {
    let rows = vec![
        timed(Runtime::Launched, [FAST, BF16, BF16], 400.0, 360.0),
        timed(Runtime::Launched, [BF16, FAST, BF16], 400.0, 390.0),
    ];
    let mut results = probed(&[], Some(times(rows)));
    results.rows.push(row("a", Gemm::Fprop, FAST, 0.1, None, 1e-6));
    results.rows.push(row("a", Gemm::Dgrad, FAST, 0.01, None, 0.0));
    let candidates = Candidates::new(&results, &SiteMods::default());
    let found = dispatch(&candidates, &Policy::loss_budget(), &Overrides::new(), 0.5).unwrap();
    assert_eq!(chosen(&found), [FAST, FAST, BF16], "no latency of their own is needed");
    assert!(found.choices[0].reason.contains("(measured, launched); at most 1.1e-6 of loss, 1.1 % of the budget"));
    assert_eq!((found.totals.planned_us, found.totals.num_without_latency), (350.0, 0));
    assert_eq!(found.optimum.unwrap().time_us, 350.0);
    let points = frontier(&candidates, &Policy::loss_budget(), 0.5);
    assert!((points.last().unwrap().speedup - 400.0 / 350.0).abs() < 1e-12, "{points:?}");
    let points = sweep(&candidates, &Policy::rel_l2(), 0.5, Metric::RelL2, &[0.001, 1.0]);
    assert_eq!(points.iter().map(|point| point.speedup).collect::<Vec<_>>(), [1.0, 400.0 / 350.0]);
}

#[test]
fn sums_of_differences_are_not_believed_beyond_what_was_measured() {
    let alone = |at: usize, kernel: &'static str, bf16_us: f64, us: f64| {
        let mut kernels = [BF16; 3];
        kernels[at] = kernel;
        timed(Runtime::Graph, kernels, bf16_us, us)
    };
    let table = |rows: &[SiteTime]| SiteTable::new(&rows.iter().collect::<Vec<_>>()).unwrap();
    let of = |table: &SiteTable, kernels: [&str; 3]| {
        let number = |gemm: Gemm| table.number(gemm, &KernelId::new(kernels[gemm as usize])).unwrap();
        table.us(Gemm::ALL.map(number)).unwrap()
    };
    // Each alone saves 60 of 100 us; three of two kernels together would take less than nothing.
    let mad = [alone(0, FAST, 100.0, 40.0), alone(1, TENSORWISE, 100.0, 40.0), alone(2, FAST, 100.0, 40.0)];
    assert!((of(&table(&mad), [FAST, TENSORWISE, FAST]) - 36.0).abs() < 1e-9, "nine tenths of the fastest");
    // One run on a GPU that was half as fast: its share of BF16's time counts, not its microseconds.
    let rows = [alone(0, FAST, 100.0, 90.0), alone(1, FAST, 200.0, 180.0), alone(2, FAST, 100.0, 95.0)];
    assert!((of(&table(&rows), [BF16, FAST, BF16]) - 90.0).abs() < 1e-9);
    assert!((of(&table(&rows), [FAST, FAST, FAST]) - 81.0).abs() < 1e-9, "75 by the sum: .9 of 90 at least");
}
