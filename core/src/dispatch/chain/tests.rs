//! Chains by hand, and against every combination of kernels and forms there is.

use std::collections::BTreeMap;

use crate::{
    dispatch::{
        Candidates, Chain, Dispatch, Form, Override, Overrides, Policy, Together, dispatch, frontier, sweep,
        testing::{Dice, block, fed, results, row, with_codes},
    },
    model::{Gemm, KernelId, Metric, ResultRow, Results, Runtime, SiteId, SiteMods},
};

const BF16: &str = "cublaslt/bf16";
const ROWWISE: &str = "cublaslt/fp8-rowwise+fast";
const STATIC: &str = "loka/fp8-static+fast";
const BLOCK: &str = "loka/fp8-block+fast";
const SCALE: f32 = 0.0625;

fn run(results: &Results, policy: &Policy, overrides: &Overrides) -> Dispatch {
    dispatch(&Candidates::at(results, &SiteMods::default(), Runtime::Graph), policy, overrides, 0.5).unwrap()
}

fn plain(results: &Results) -> Dispatch {
    run(results, &Policy::paper(), &Overrides::new())
}

fn forward(dispatch: &Dispatch) -> Vec<&str> {
    dispatch.choices.iter().step_by(3).map(|choice| choice.kernel.as_str()).collect()
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-9
}

fn statically(site: &str, latency_us: f64, codes_us: f64) -> ResultRow {
    let row = row(site, Gemm::Fprop, STATIC, 0.1, Some(100.0 / latency_us), 0.0);
    with_codes(row, SCALE, latency_us - 4.0, codes_us)
}

fn override_with(site: &str, kernel: &str) -> Overrides {
    let kernel = KernelId::new(kernel);
    Overrides::from([((SiteId::new(site), Gemm::Fprop), Override { kernel, reason: "why not".to_owned() })])
}

/// BF16 takes 100 us a GEMM, a tail 20. a: block 60, so 40 without its tail. b: block 70, so 50, with a cast of 20;
/// static 48, with one of 4. c: static 102, with one of 38. Codes take 1 to store.
fn three() -> Results {
    let rows = vec![
        block("a", 0.1, 60.0, 20.0, 0.0),
        with_codes(block("b", 0.1, 70.0, 20.0, 0.0), SCALE, 65.0, 45.0),
        statically("a", 45.0, 30.0),
        statically("b", 48.0, 40.0),
        statically("c", 102.0, 60.0),
    ];
    let rows = rows.into_iter().map(|row| match row.static_scale {
        Some(_) => row,
        None => with_codes(row, SCALE, 50.0, 50.0),
    });
    fed(results(&["a", "b", "c"], rows.collect()), &[("a", &["b"]), ("b", &["c"])])
}

fn of_inference(mut results: Results) -> Results {
    results.rows.retain(|row| row.gemm == Gemm::Fprop);
    results
}

#[test]
fn a_blocks_own_time_is_without_its_tail() {
    let mut twice = three();
    twice.meta.manifest.sites[1].calls = 2;
    assert!(!plain(&three()).chains.is_empty() && plain(&twice).chains.is_empty(), "what runs twice has no one output");
    let alone = fed(three(), &[]);
    let dispatch = plain(&alone);
    assert_eq!(forward(&dispatch), [BLOCK, STATIC, BF16], "120 / 70 is 1.71x of both, static is 2.08x of one");
    assert!(dispatch.chains.is_empty());
    assert!(near(dispatch.totals.planned_us, 40.0 + 48.0 + 100.0 + 600.0), "{:?}", dispatch.totals);
    assert_eq!(dispatch.choices[0].speedup, Some(2.0), "as the row prints it");
    assert_eq!(dispatch.choices[0].runners_up[0].as_str(), STATIC);
    assert!(dispatch.choices[0].passed_over.is_empty() && dispatch.choices[3].passed_over.is_empty());
    // A tail that takes longer than the GEMM leaves a hundredth of it.
    let quick = results(&["a"], vec![with_codes(block("a", 0.1, 100.0, 300.0, 0.0), SCALE, 1.0, 1.0)]);
    assert!(near(plain(&quick).totals.planned_us, 1.0 + 200.0));
}

#[test]
fn codes_are_handed_from_block_to_block_and_make_a_slow_kernel_worth_it() {
    let dispatch = plain(&three());
    assert_eq!(forward(&dispatch), [BLOCK, BLOCK, STATIC]);
    // 40 and a store; 50 - 20 and a store; 102 - 38.
    assert!(near(dispatch.totals.planned_us, 41.0 + 31.0 + 64.0 + 600.0), "{:?}", dispatch.totals);
    assert!(near(dispatch.totals.handed_on_us, 56.0));
    let both = vec![Form::Bf16, Form::E4m3];
    let chain = |reads, from: Option<&str>, stores: &[Form], saved_us| Chain {
        reads,
        from: from.map(SiteId::new),
        stores: stores.to_vec(),
        store_scale: (stores.len() > 1).then_some(0.0625),
        saved_us,
    };
    assert_eq!(
        dispatch.chains,
        BTreeMap::from([
            (0, chain(Form::Bf16, None, &both, -1.0)),
            (1, chain(Form::E4m3, Some("a"), &both, 19.0)),
            (2, chain(Form::E4m3, Some("b"), &[Form::Bf16], 38.0)),
        ])
    );
    let reason = |site: usize| dispatch.choices[3 * site].reason.as_str();
    assert_eq!(
        reason(0),
        "fastest of 2 that are safe: MERE .1 (.09 to .11) <= .2, 2.00x; hands its output on as codes of scale .0625 \
         to b, beside BF16: 1 us more (modelled); scale of x 2^-4, no step saturates"
    );
    assert_eq!(
        reason(1),
        "x arrives as codes from a: no cast, 20 us less (modelled); hands its output on as codes of scale .0625 to \
         c, beside BF16: 1 us more (modelled); MERE .1 (.09 to .11) <= .2, 1.71x alone; scale of x 2^-4, no step \
         saturates"
    );
    assert_eq!(
        reason(2),
        "x arrives as codes from b: no cast, 38 us less (modelled); MERE .1 (.09 to .11) <= .2, 0.98x alone; scale of \
         x 2^-4, no step saturates"
    );
    assert_eq!((dispatch.choices[6].together, dispatch.choices[0].together), (Some(Together::Chain), None));
}

#[test]
fn inference_stores_codes_alone_where_every_reader_takes_them() {
    let dispatch = plain(&of_inference(three()));
    assert!(near(dispatch.totals.planned_us, 40.0 + 30.0 + 64.0), "{:?}", dispatch.totals);
    assert_eq!(dispatch.chains[&0].stores, [Form::E4m3]);
    assert!(dispatch.choices[0].reason.contains("to b, and not in BF16;"), "{}", dispatch.choices[0].reason);
    // d reads BF16, so BF16 is stored.
    let mut four = three();
    four.meta.manifest.sites.push(four.meta.manifest.sites[0].clone());
    four.meta.manifest.sites[3].id = SiteId::new("d");
    four.rows.extend(Gemm::ALL.map(|gemm| row("d", gemm, BF16, 0.003, Some(1.0), 0.0)));
    let four = of_inference(fed(four, &[("a", &["b", "d"]), ("b", &["c"])]));
    let dispatch = plain(&four);
    assert_eq!(dispatch.chains[&0].stores, [Form::Bf16, Form::E4m3]);
    assert!(near(dispatch.totals.planned_us, 41.0 + 30.0 + 64.0 + 100.0), "{:?}", dispatch.totals);
}

#[test]
fn overrides_stay_and_take_part() {
    let all = three();
    let fixed = run(&all, &Policy::paper(), &override_with("b", STATIC));
    assert_eq!(forward(&fixed), [BLOCK, STATIC, BF16], "static stores no codes");
    assert!(near(fixed.totals.planned_us, 41.0 + 40.0 + 4.0 + 100.0 + 600.0), "{:?}", fixed.totals);
    assert_eq!(
        fixed.choices[3].reason,
        "override: why not; x arrives as codes from a: no cast, 4 us less (modelled); scale of x 2^-4, no step saturates"
    );
    let high = run(&all, &Policy::paper(), &override_with("b", BF16));
    assert!(high.chains.is_empty() && forward(&high) == [BLOCK, BF16, BF16]);
    let first = run(&all, &Policy::paper(), &override_with("a", STATIC));
    assert_eq!(first.chains.keys().collect::<Vec<_>>(), [&1, &2], "b's own codes still go to c");
    assert!(near(first.totals.planned_us, 45.0 + 51.0 + 64.0 + 600.0), "{:?}", first.totals);
}

#[test]
fn only_who_is_fed_alone_and_unchanged_takes_codes() {
    let none = |feeds: &[(&str, &[&str])]| plain(&fed(three(), feeds)).chains.is_empty();
    assert!(none(&[("b", &["a"])]), "a is before b");
    assert!(none(&[("a", &["c"]), ("b", &["c"])]), "two feed c");
    assert!(none(&[("a", &["x"])]));
    assert!(!none(&[("a", &["b", "b"])]), "twice is once");
    let mut reshaped = three();
    reshaped.meta.manifest.sites[1].k = 50;
    assert_eq!(plain(&reshaped).chains.keys().collect::<Vec<_>>(), [&1, &2]);
    let mut rowwise = three();
    rowwise.rows.retain(|of| of.site.as_str() != "b" || of.kernel.as_str() == BF16);
    rowwise.rows.push(row("b", Gemm::Fprop, ROWWISE, 0.1, Some(2.0), 0.0));
    assert!(plain(&rowwise).chains.is_empty(), "rowwise scales are found by a cast");
    let mut never_timed = three();
    never_timed.rows.iter_mut().for_each(|row| row.latency.cached_us = None);
    assert!(plain(&never_timed).chains.is_empty());
}

/// a feeds b and c, which save 0.6 us each: one store of 1 us is worth it for both and for neither alone.
#[test]
fn two_readers_share_one_store_and_one_scale() {
    let reader = |site: &str, scale| with_codes(row(site, Gemm::Fprop, STATIC, 0.1, Some(2.0), 0.0), scale, 40.6, 40.0);
    let feeder = with_codes(block("a", 0.1, 60.0, 20.0, 0.0), SCALE, 50.0, 50.0);
    let tree = |scales: [f32; 2]| {
        let rows = vec![feeder.clone(), reader("b", scales[0]), reader("c", scales[1])];
        fed(results(&["a", "b", "c"], rows), &[("a", &["b", "c"])])
    };
    let both = plain(&tree([SCALE; 2]));
    assert!(near(both.totals.handed_on_us, 0.2) && both.chains.len() == 3, "{:?}", both.chains);
    assert!(both.choices[0].reason.contains("of scale .0625 to b, c, beside BF16"), "{}", both.choices[0].reason);
    assert!(plain(&tree([SCALE, 0.125])).chains.is_empty(), "codes have one scale");
    let mut one = tree([SCALE; 2]);
    one.rows.retain(|row| row.site.as_str() != "c" || row.kernel.as_str() == BF16);
    assert!(plain(&one).chains.is_empty());
}

fn random(dice: &mut Dice) -> Results {
    let num = 2 + dice.below(3);
    let names = ["a", "b", "c", "d"];
    let mut feeds: Vec<(&str, Vec<&str>)> = names.iter().map(|name| (*name, Vec::new())).collect();
    for (at, name) in names.iter().enumerate().take(num).skip(1) {
        if dice.unit() < 0.8 {
            feeds[dice.below(at)].1.push(name);
        }
    }
    let mut rows = Vec::new();
    for name in &names[..num] {
        let mut able = |kernel: &str| {
            let (error, cost) = (0.12 + 0.08 * dice.unit(), 1e-5 * (0.1 + dice.unit()));
            let (us, cast, tail) = (75.0 + 30.0 * dice.unit(), 30.0 * dice.unit(), 5.0 + 20.0 * dice.unit());
            let scale = [SCALE, SCALE, 0.125][dice.below(3)];
            match kernel {
                _ if dice.unit() < 0.25 => None,
                BLOCK => Some(with_codes(block(name, error, us + tail, tail, cost), scale, 50.0 + cast, 50.0)),
                STATIC => {
                    let row = row(name, Gemm::Fprop, kernel, error, Some(100.0 / us), cost);
                    Some(with_codes(row, scale, 50.0 + cast, 50.0))
                }
                _ => Some(row(name, Gemm::Fprop, kernel, error, Some(100.0 / us), cost)),
            }
        };
        rows.extend([BLOCK, STATIC, ROWWISE].into_iter().filter_map(&mut able));
    }
    let feeds: Vec<(&str, &[&str])> = feeds.iter().map(|(from, to)| (*from, to.as_slice())).collect();
    let made = fed(results(&names[..num], rows), &feeds);
    if dice.unit() < 0.3 { of_inference(made) } else { made }
}

/// One way to run a site's forward GEMM, computed from the row alone.
#[derive(Clone, Copy)]
struct ChainRun<'a> {
    kernel: &'a str,
    us: f64,
    tail_us: f64,
    codes: Option<(f32, f64)>,
    fast: bool,
    loss: f64,
}

fn runs<'a>(results: &'a Results, site: &SiteId, policy: &Policy) -> Vec<ChainRun<'a>> {
    let budgeted = policy.loss_budget.is_some();
    let stay = ChainRun { kernel: BF16, us: 100.0, tail_us: 0.0, codes: None, fast: true, loss: 0.0 };
    let all = results.rows.iter().filter(|row| row.site == *site && row.gemm == Gemm::Fprop);
    let safe = all
        .filter(|row| row.kernel.as_str() != BF16)
        .filter(|row| budgeted || row.metric(Metric::Mere).unwrap().hi <= 0.2);
    let low: Vec<ChainRun> = safe
        .map(|row| {
            let latency = &row.latency;
            let tail_us = latency.baseline_us.unwrap() - 100.0;
            let us = latency.latency_us.unwrap() - tail_us;
            let codes =
                row.static_scale.map(|known| (known.scale, latency.cached_us.unwrap() - latency.gemm_us.unwrap()));
            let fast = row.speedup().unwrap() > policy.min_speedup;
            ChainRun {
                kernel: row.kernel.as_str(),
                us,
                tail_us,
                codes,
                fast,
                loss: row.metric(Metric::LossCost).unwrap().hi,
            }
        })
        .collect();
    let stays = budgeted || !low.iter().any(|run| run.fast);
    stays.then_some(stay).into_iter().chain(low).collect()
}

/// Time, loss, and by site what is stored (codes of a scale, BF16) and whether x is read as codes.
type Sum = (f64, f64, Vec<(Option<f32>, bool)>, Vec<bool>);

/// The time and the loss of every combination that the rules allow.
fn every(results: &Results, policy: &Policy) -> Vec<(f64, f64)> {
    let sites = &results.meta.manifest.sites;
    let inference = results.rows.iter().all(|row| row.gemm == Gemm::Fprop);
    let backward_us = if inference { 0.0 } else { 200.0 };
    let feeder = |of: &SiteId| sites.iter().position(|site| site.feeds.contains(of));
    // What a site stores: BF16 alone; codes of a scale, with BF16 or without.
    let forms: Vec<(Option<f32>, bool)> =
        vec![(None, true), (Some(SCALE), true), (Some(0.125), true), (Some(SCALE), false), (Some(0.125), false)];
    let mut sums: Vec<Sum> = vec![(0.0, 0.0, Vec::new(), Vec::new())];
    for site in sites {
        let mut next = Vec::new();
        for (time, loss, stored, took) in &sums {
            let above = feeder(&site.id).map(|at| stored[at]);
            for run in runs(results, &site.id, policy) {
                for form in &forms {
                    if form.0.is_some() && run.kernel != BLOCK {
                        continue;
                    }
                    let extra_us = if form.0.is_some() && form.1 { 1.0 } else { 0.0 };
                    for takes in [false, true] {
                        let saved_us = match (takes, above, run.codes) {
                            (false, Some((_, false)), _) => continue,
                            (false, ..) => 0.0,
                            (true, Some((Some(scale), _)), Some((own, saved_us))) if scale == own => saved_us,
                            (true, ..) => continue,
                        };
                        let paid_us = above.filter(|above| takes && above.1).map_or(0.0, |_| 1.0);
                        let gain_us = 100.0 - (run.us - saved_us + paid_us);
                        let asked_us = (1.0 - 1.0 / policy.min_speedup) * (100.0 + run.tail_us);
                        if !run.fast && (!takes || gain_us <= asked_us) {
                            continue;
                        }
                        let mut stored = stored.clone();
                        stored.push(*form);
                        let mut took = took.clone();
                        took.push(takes);
                        next.push((time + run.us - saved_us + extra_us + backward_us, loss + run.loss, stored, took));
                    }
                }
            }
        }
        sums = next;
    }
    let allowed = |(_, _, stored, took): &Sum| {
        sites.iter().zip(stored).all(|(site, (scale, bf16))| {
            let readers: Vec<bool> = sites
                .iter()
                .zip(took)
                .filter(|(reader, _)| site.feeds.contains(&reader.id))
                .map(|(_, took)| *took)
                .collect();
            *bf16 || (scale.is_some() && inference && !readers.is_empty() && readers.iter().all(|took| *took))
        })
    };
    sums.into_iter().filter(allowed).map(|(time, loss, ..)| (time, loss)).collect()
}

#[test]
fn no_combination_is_faster() {
    let mut dice = Dice::new(53);
    let (mut chained, mut slow) = (0, 0);
    for _ in 0..150 {
        let results = random(&mut dice);
        let least = every(&results, &Policy::paper()).into_iter().map(|(time, _)| time).fold(f64::INFINITY, f64::min);
        let found = plain(&results);
        assert!(near(found.totals.planned_us, least), "{} {least} {:?}", found.totals.planned_us, found.chains);
        chained += found.chains.len();
        slow += found.choices.iter().filter(|choice| choice.speedup.is_some_and(|speedup| speedup < 1.0)).count();
        let candidates = Candidates::at(&results, &SiteMods::default(), Runtime::Graph);
        let point = sweep(&candidates, &Policy::paper(), 0.5, Metric::Mere, &[0.2])[0];
        assert!(near(point.speedup, found.totals.speedup.unwrap()), "the curves are of the same");
    }
    assert!(chained > 60 && slow > 5, "{chained} and {slow} say little");
}

#[test]
fn no_combination_within_the_budget_is_faster() {
    let mut dice = Dice::new(59);
    let mut chained = 0;
    for _ in 0..100 {
        let results = random(&mut dice);
        let policy = Policy { loss_budget: Some(6e-5 * dice.unit()), ..Policy::loss_budget() };
        let budget = 0.5 * policy.loss_budget.unwrap();
        let within = every(&results, &policy).into_iter().filter(|(_, loss)| *loss <= budget);
        let least = within.map(|(time, _)| time).fold(f64::INFINITY, f64::min);
        let found = run(&results, &policy, &Overrides::new());
        assert!(near(found.totals.planned_us, least), "{} {least} {:?}", found.totals.planned_us, found.chains);
        let optimum = found.optimum.unwrap();
        assert!(optimum.proven && found.totals.loss_cost_hi.unwrap_or(0.0) <= budget);
        assert!(near(optimum.time_us, least));
        chained += found.chains.len();
        let candidates = Candidates::at(&results, &SiteMods::default(), Runtime::Graph);
        let curve = frontier(&candidates, &policy, 0.5);
        let best = every(&results, &policy).into_iter().map(|(time, _)| time).fold(f64::INFINITY, f64::min);
        let last = curve.last().unwrap();
        let (us, all_us) = (found.totals.baseline_us / last.speedup, found.totals.baseline_us);
        assert!(near(us, best), "{us} {best} of {all_us}: {last:?} {found:?}");
    }
    assert!(chained > 40, "{chained} say little");
}

/// Longer than any model stacks: what is merged is counted, and the answer is not called proven.
#[test]
fn a_long_chain_under_a_budget_says_how_far_it_may_be_off() {
    let mut dice = Dice::new(61);
    let names: Vec<String> = (0..60).map(|site| format!("s{site:02}")).collect();
    let mut rows = Vec::new();
    for name in &names {
        let mut cost = || 1e-6 * (0.1 + dice.unit());
        rows.push(with_codes(block(name, 0.1, 80.0, 20.0, cost()), SCALE, 60.0, 50.0));
        rows.push(row(name, Gemm::Fprop, ROWWISE, 0.1, Some(1.4 + 0.2 * dice.unit()), 1e-6 * dice.unit()));
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let to: Vec<[&str; 1]> = names.iter().skip(1).map(|name| [*name]).collect();
    let feeds: Vec<(&str, &[&str])> = names.iter().zip(&to).map(|(from, to)| (*from, to.as_slice())).collect();
    let results = fed(results(&names, rows), &feeds);
    let policy = Policy { loss_budget: Some(4e-5), ..Policy::loss_budget() };
    let found = run(&results, &policy, &Overrides::new());
    let optimum = found.optimum.unwrap();
    assert!(!optimum.proven && optimum.lower_bound_us < optimum.time_us, "{optimum:?}");
    assert!(optimum.gap() < 0.2 && optimum.loss_cost_hi <= 2e-5, "{optimum:?}");
    assert!(near(found.totals.planned_us, optimum.time_us));
    let unlinked = run(&fed(results, &[]), &policy, &Overrides::new());
    assert!(found.totals.planned_us < unlinked.totals.planned_us, "as good as without chains, at least");
}
