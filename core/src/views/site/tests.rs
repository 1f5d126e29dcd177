//! What would change a verdict, by hand.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use super::*;
use crate::{
    dispatch::{
        Policy,
        testing::{block, fed, results, row, site_time, site_times, unsupported, with_codes, with_gemm_us},
    },
    model::{ErrorSummary, Fidelity, Latency, Runtime, Safety, TailOp},
    session::{Command, Event, Session},
};

const FAST: &str = "cublaslt/fp8-rowwise+fast";
const OTHER: &str = "te/current";
const TENSORWISE: &str = "cublaslt/fp8-tensorwise";
const BOUND: Bound = Bound { metric: Metric::Mere, limit: 0.2 };

fn opened(rows: Vec<ResultRow>) -> Session {
    let mut session = Session::by_paper();
    let results = Box::new(results(&["a", "b"], rows).into());
    session.event(Event::ResultsOpened { path: "made.results.parquet".to_owned(), results });
    session
}

fn seen(session: &mut Session) -> SiteView {
    let plan = PlanView::of(&session.snapshot().unwrap());
    SiteView::of(&session.snapshot().unwrap(), &plan, &SiteId::new("a"), Metric::Mere).unwrap()
}

fn with_error(kernel: &str, value: f64, half: f64, draws: u64) -> ResultRow {
    let row = row("a", Gemm::Fprop, kernel, value, Some(1.3), 0.0);
    let mere = Estimate::new(value, value - half, value + half);
    let error = row.error.clone().map(|error| ErrorSummary { mere, draws, ..error });
    ResultRow { error, ..row }
}

#[test]
fn draws_grow_with_the_square_of_what_is_missing() {
    // Half .03 at a distance of .01: 9 times the 64 draws.
    let more = further_draws(Estimate::new(0.19, 0.16, 0.22), 0.2, 64);
    assert_eq!(more, MoreDraws::Expected { more: 512, total: 576 });
    // Twice the half-width: four times the draws.
    let wider = further_draws(Estimate::new(0.19, 0.13, 0.25), 0.2, 64);
    assert_eq!(wider, MoreDraws::Expected { more: 4 * 576 - 64, total: 4 * 576 });
    assert_eq!(further_draws(Estimate::new(0.2, 0.17, 0.23), 0.2, 64), MoreDraws::OnThreshold);
    assert_eq!(further_draws(Estimate::new(0.199_9, 0.17, 0.23), 0.2, 64), MoreDraws::OnThreshold);
    assert_eq!(further_draws(Estimate::new(0.19, 0.0, f64::INFINITY), 0.2, 1), MoreDraws::TooFew);
}

#[test]
fn each_verdict_says_what_would_change_it() {
    let verdict_margin =
        |value, half| Outlook::of(&with_error(FAST, value, half, 64), BOUND, &Policy::paper(), 0.5).error;
    let ErrorOutlook::Safe { end, margin } = verdict_margin(0.1, 0.05) else { panic!("not safe") };
    assert!((end - 0.15).abs() < 1e-12 && (margin - 0.25).abs() < 1e-12);
    assert!(matches!(verdict_margin(0.19, 0.03), ErrorOutlook::Uncertain { leans: Safety::Safe, .. }));
    assert!(matches!(verdict_margin(0.21, 0.03), ErrorOutlook::Uncertain { leans: Safety::Unsafe, .. }));
    let ErrorOutlook::Unsafe { safe_from: Some(end) } = verdict_margin(0.3, 0.05) else { panic!("not unsafe") };
    assert!((end - 0.35).abs() < 1e-12);
}

/// The baseline takes 105 us: below 100 is fast.
#[test]
fn slow_names_what_must_shrink() {
    let speed = |latency, gemm: Option<f64>| {
        let latency =
            Latency { latency_us: Some(latency), baseline_us: Some(105.0), gemm_us: gemm, ..Latency::unknown("") };
        let row = ResultRow { latency, ..row("a", Gemm::Fprop, FAST, 0.1, None, 0.0) };
        Outlook::of(&row, BOUND, &Policy::paper(), 0.5).speed
    };
    let SpeedOutlook::Slow { needed_us, part, .. } = speed(120.0, Some(70.0)) else { panic!("not slow") };
    assert!((needed_us - 100.0).abs() < 1e-9);
    let SlowPart::Casts { from_us, to_us } = part else { panic!("{part:?}") };
    assert!((from_us - 50.0).abs() < 1e-9 && (to_us - 30.0).abs() < 1e-9);
    let part = |speed| if let SpeedOutlook::Slow { part, .. } = speed { part } else { panic!("not slow") };
    assert!(matches!(part(speed(120.0, Some(110.0))), SlowPart::Gemm { from_us: 110.0, .. }));
    assert_eq!(part(speed(120.0, None)), SlowPart::Unsplit);
    let SpeedOutlook::Fast { spare_us } = speed(80.0, None) else { panic!("not fast") };
    assert!((spare_us - 20.0).abs() < 1e-9);
}

#[test]
fn parts_add_up_to_the_latency() {
    let latency =
        |gemm| Latency { latency_us: Some(10.0), gemm_us: Some(gemm), cast_us: Some(9.0), ..Latency::unknown("") };
    assert_eq!(Parts::of(&latency(6.0)), Some(Parts { gemm_us: 6.0, casts_us: 4.0 }));
    assert_eq!(Parts::of(&latency(12.0)), Some(Parts { gemm_us: 10.0, casts_us: 0.0 }));
    assert_eq!(Parts::of(&Latency::unknown("")), None);
}

#[test]
fn draws_to_ask_cover_the_hardest_and_have_an_end() {
    let ask = |rows: &[ResultRow]| draws_to_ask(rows.iter(), BOUND, 0.5);
    // 576 expected, a quarter more.
    assert_eq!(ask(&[with_error(FAST, 0.19, 0.03, 64), with_error(OTHER, 0.1, 0.01, 64)]), Some(720));
    assert_eq!(ask(&[with_error(FAST, 0.2, 0.03, 64)]), Some(256));
    assert_eq!(ask(&[with_error(FAST, 0.1, 0.01, 64)]), Some(128));
    assert_eq!(ask(&[with_error(FAST, 0.19, 0.06, 640)]), Some(2_560), "22,400 more are too many to promise");
    assert_eq!(ask(&[with_error(FAST, 0.2, 0.03, 4_000)]), Some(MOST_DRAWS));
    assert_eq!(ask(&[]), None);
}

/// A tenth of the loss of .5 is .05: beyond it neither 22 draws nor 10,000 decide.
#[test]
fn no_draw_decides_on_a_loss_cost_outside_its_range() {
    let bound = Bound { metric: Metric::LossCost, limit: 1e-4 };
    let costs = |cost: f64, half: f64| {
        let mut row = row("a", Gemm::Fprop, FAST, 0.1, Some(1.3), 1.0);
        row.error.as_mut().unwrap().loss_cost = Some(Estimate::new(cost, cost - half, cost + half));
        row
    };
    let of = |row: &ResultRow, loss| Outlook::of(row, bound, &Policy::loss_budget(), loss).error;
    let wide = costs(0.06, 0.06);
    assert_eq!(of(&wide, 0.5), ErrorOutlook::MeansNothing);
    assert!(matches!(of(&wide, 0.7), ErrorOutlook::Uncertain { .. }), "of a larger loss it is a figure");
    assert!(matches!(of(&wide, 0.0), ErrorOutlook::Uncertain { .. }), "the trace does not say of what");
    assert_eq!(draws_to_ask([&wide].into_iter(), bound, 0.5), Some(16), "twice those taken: to see closer, no more");
    let unclear = costs(1.2e-4, 0.6e-4);
    let hardest = draws_to_ask([&unclear].into_iter(), bound, 0.5);
    assert!(hardest > Some(16));
    assert_eq!(draws_to_ask([&unclear, &wide].into_iter(), bound, 0.5), hardest);
}

/// Beyond .05, a tenth of the loss, a figure is none in the table either: it is marked, and stands last whichever way.
#[test]
fn the_kernels_table_has_no_loss_cost_outside_its_range() {
    let costs = |kernel: &str, cost: f64| row("a", Gemm::Fprop, kernel, 0.1, Some(1.3), cost);
    let session = opened(vec![costs(FAST, 0.06), costs(OTHER, 0.04), costs(TENSORWISE, 0.0)]);
    let (snapshot, site) = (session.snapshot().unwrap(), SiteId::new("a"));
    let of = |metric| SiteView::of(&snapshot, &PlanView::of(&snapshot), &site, metric).unwrap().gemms[0].clone();
    let fprop = of(Metric::LossCost);
    let line = |kernel: &str| fprop.line(&KernelId::new(kernel)).unwrap();
    assert_eq!((line(FAST).error, line(FAST).is_out_of_range), (None, true));
    assert_eq!((line(OTHER).error.unwrap().value, line(OTHER).is_out_of_range), (0.04, false));
    assert_eq!((line(TENSORWISE).error, line(TENSORWISE).is_out_of_range), (None, false), "nobody knows it");
    for reversed in [false, true] {
        let first = fprop.sorted(KernelColumn::Error, reversed)[0];
        assert_eq!(fprop.kernels[first].kernel.as_str(), OTHER, "{reversed}");
    }
    assert!(!of(Metric::Mere).line(&KernelId::new(FAST)).unwrap().is_out_of_range, "that is another figure");
}

#[test]
fn an_override_outside_the_range_breaks_the_policy_by_no_figure() {
    let mut session = opened(vec![row("a", Gemm::Fprop, FAST, 0.1, Some(1.3), 0.06)]);
    session.command(Command::SetPolicy { policy: Policy::loss_budget() }).unwrap();
    let snapshot = session.snapshot().unwrap();
    let (place, kernel) = ((&SiteId::new("a"), Gemm::Fprop), KernelId::new(FAST));
    let effect = override_effect(&snapshot, &PlanView::of(&snapshot), place, &kernel).unwrap();
    let words: Vec<String> = effect.breaks.iter().map(words::broken_words).collect();
    let why = "the loss cost of cublaslt/fp8-rowwise+fast would be .06, more than a tenth of the loss";
    assert_eq!(words, [format!("Breaks the policy: not certainly safe, {why}, where the estimate means nothing")]);
}

#[test]
fn the_sampler_is_doubted_beyond_chance_only() {
    let mut row = with_error(FAST, 0.1, 0.01, 99);
    let error = row.error.as_mut().unwrap();
    error.rel_l2 = Estimate::new(0.04, 0.036, 0.044);
    // h sqrt(n + 1): .01 x 10 and .004 x 10.
    row.fidelity = Some(Fidelity { rows: 512, heldout_rel_l2: 0.085, heldout_mere: 0.19 });
    let [rel_l2, mere] = Faithful::of(&row).try_into().unwrap();
    assert!((mere.chance - 0.1).abs() < 1e-9 && !mere.differs);
    assert!((rel_l2.chance - 0.04).abs() < 1e-9 && rel_l2.differs);
    row.fidelity = None;
    assert!(Faithful::of(&row).is_empty());
}

#[test]
fn kernels_stand_where_the_plan_put_them() {
    let rows = vec![
        row("a", Gemm::Fprop, FAST, 0.1, Some(1.3), 0.0),
        row("a", Gemm::Fprop, OTHER, 0.1, Some(1.2), 0.0),
        row("a", Gemm::Fprop, TENSORWISE, 0.4, Some(1.5), 0.0),
        unsupported("a", Gemm::Fprop, "deepgemm/blockwise", "k = 32 is not a multiple of 128"),
    ];
    let mut session = opened(rows);
    let view = seen(&mut session);
    let fprop = &view.gemms[0];
    assert_eq!((fprop.rows, fprop.reduced, fprop.cols), (64, 32, 16));
    let line = |name: &str| fprop.line(&KernelId::new(name)).unwrap();
    assert_eq!((line(FAST).standing, line(OTHER).standing), (KernelStanding::Chosen, KernelStanding::RunnerUp(1)));
    assert_eq!(line(TENSORWISE).quadrant, Quadrant::UnsafeFast);
    assert!(line("deepgemm/blockwise").unsupported.as_ref().unwrap().contains("128"));
    // 100 / 1.2 - 100 / 1.3.
    let (runner_up, ahead) = fprop.ahead.clone().unwrap();
    assert!(runner_up.as_str() == OTHER && (ahead - 6.410).abs() < 1e-3, "{ahead}");
    assert_eq!(fprop.verdict, Some(Quadrant::SafeFast));
    assert!(view.gemms[1].stays_high() && view.gemms[1].nearest.is_none());

    let names = |by, reversed| -> Vec<String> {
        fprop.sorted(by, reversed).into_iter().map(|at| fprop.kernels[at].kernel.to_string()).collect()
    };
    assert_eq!(names(KernelColumn::Speedup, true)[0], TENSORWISE);
    assert_eq!(names(KernelColumn::Error, false)[0], "cublaslt/bf16");
    for by in [KernelColumn::Kernel, KernelColumn::Error, KernelColumn::Latency] {
        for reversed in [false, true] {
            assert_eq!(names(by, reversed).last().unwrap(), "deepgemm/blockwise", "what cannot run comes last");
        }
    }
}

#[test]
fn where_high_precision_stays_the_nearest_is_named() {
    let rows = vec![
        row("a", Gemm::Fprop, TENSORWISE, 0.4, Some(1.5), 0.0),
        row("a", Gemm::Fprop, FAST, 0.2, Some(1.3), 0.0),
        row("a", Gemm::Fprop, OTHER, 0.1, Some(1.01), 0.0),
    ];
    let view = seen(&mut opened(rows));
    let fprop = &view.gemms[0];
    assert!(fprop.stays_high());
    assert_eq!(fprop.kernels[fprop.nearest.unwrap()].kernel.as_str(), FAST, "more draws may free it");
    assert_eq!(fprop.verdict, Some(Quadrant::Uncertain));
}

#[test]
fn an_override_says_what_it_breaks_and_moves() {
    // Both read x in one cast: a GEMM alone takes 98 of 100, beyond 1.05; together they are worth it.
    let shared = |gemm| with_gemm_us(row("a", gemm, TENSORWISE, 0.1, Some(100.0 / 98.0), 0.0), 60.0);
    let rows = vec![shared(Gemm::Fprop), shared(Gemm::Wgrad), row("a", Gemm::Fprop, OTHER, 0.4, Some(1.01), 0.0)];
    let mut session = opened(rows);
    let view = seen(&mut session);
    assert_eq!(view.shared.len(), 1);
    assert_eq!(view.shared[0].gemms, [Gemm::Fprop, Gemm::Wgrad]);
    let plan = PlanView::of(&session.snapshot().unwrap());
    let site = SiteId::new("a");
    let effect =
        override_effect(&session.snapshot().unwrap(), &plan, (&site, Gemm::Fprop), &KernelId::new(OTHER)).unwrap();
    assert!(matches!(effect.breaks[0], Broken::Error { certain: true, .. }), "{effect:?}");
    assert!(matches!(effect.breaks[1], Broken::Slow { .. }));
    let moved = (site.clone(), Gemm::Wgrad, KernelId::new(TENSORWISE), baseline_kernel());
    assert_eq!(effect.moves, [moved], "alone it is not worth it");
    let (before, after) = effect.site_us.unwrap();
    assert!(before < after);
    let kept = override_effect(&session.snapshot().unwrap(), &plan, (&site, Gemm::Fprop), &baseline_kernel()).unwrap();
    assert!(kept.breaks.is_empty());
    assert!(
        override_effect(&session.snapshot().unwrap(), &plan, (&site, Gemm::Dgrad), &KernelId::new(OTHER)).is_none()
    );
}

#[test]
fn a_chain_is_seen_from_both_ends_and_an_override_weighs_all_of_it() {
    let rows = vec![
        with_codes(block("a", 0.1, 60.0, 20.0, 0.0), 0.0625, 50.0, 50.0),
        with_codes(row("b", Gemm::Fprop, "loka/fp8-static+fast", 0.1, Some(0.98), 0.0), 0.0625, 98.0, 60.0),
    ];
    let results = fed(results(&["a", "b"], rows), &[("a", &["b"])]);
    let mut session = Session::by_paper();
    session.event(Event::ResultsOpened { path: "made.results.parquet".to_owned(), results: Box::new(results.into()) });
    session.command(Command::SetRuntime { runtime: Runtime::Graph }).unwrap();
    let plan = PlanView::of(&session.snapshot().unwrap());
    let seen = |id: &str| SiteView::of(&session.snapshot().unwrap(), &plan, &SiteId::new(id), Metric::Mere).unwrap();
    let stored = seen("a").chain.unwrap().stores.unwrap();
    assert_eq!((stored.to.as_slice(), stored.scale, stored.beside_us), (&[SiteId::new("b")][..], 0.0625, Some(1.0)));
    let read = seen("b").chain.unwrap().reads.unwrap();
    assert_eq!((read.from, read.scale, read.beside_bf16), (SiteId::new("a"), 0.0625, true));
    assert!((read.saved_us - 38.0).abs() < 1e-9);
    let high =
        override_effect(&session.snapshot().unwrap(), &plan, (&SiteId::new("a"), Gemm::Fprop), &baseline_kernel())
            .unwrap();
    assert_eq!(high.num_sites, 2);
    let (b, slow) = (SiteId::new("b"), KernelId::new("loka/fp8-static+fast"));
    assert_eq!(high.moves, [(b, Gemm::Fprop, slow, baseline_kernel())], "without codes it is too slow");
    let (before, after) = high.site_us.unwrap();
    assert!((before - (41.0 + 100.0 / 0.98 - 38.0 + 400.0)).abs() < 1e-9 && (after - 600.0).abs() < 1e-9);
}

#[test]
fn the_tail_reads_as_the_mods_make_it() {
    let site = Site {
        bias: true,
        tail: ["layer_norm", "swish", "dropout"].map(TailOp::plain).to_vec(),
        ..opened(Vec::new()).sites()[0].clone()
    };
    let mut session = opened(Vec::new());
    let words = |session: &Session| -> Vec<(String, Option<String>)> {
        tail(&session.snapshot().unwrap(), &site, 0).into_iter().map(|step| (step.name, step.was)).collect()
    };
    let plain = |name: &str| (name.to_owned(), None);
    assert_eq!(words(&session), [plain("bias"), plain("LayerNorm"), plain("swish"), plain("dropout")]);
    session.command(Command::ToggleMod { kind: crate::model::ModKind::BlockNorm }).unwrap();
    assert_eq!(words(&session)[1], ("BlockNorm".to_owned(), Some("LayerNorm".to_owned())));
}

#[test]
fn more_draws_are_asked_of_one_site_and_never_lose_rows() {
    let mut session = opened(vec![with_error(FAST, 0.19, 0.03, 64)]);
    let site = SiteId::new("a");
    let asked = session.command(Command::ProbeMore { site: site.clone(), max_draws: 720 }).unwrap();
    let [crate::session::Effect::Probe { run, mods, sites, draws: Some(720), .. }] = &asked[..] else {
        panic!("{asked:?}")
    };
    assert_eq!(sites, std::slice::from_ref(&site));
    let meta = results(&["a", "b"], Vec::new()).meta;
    let by = Box::new(crate::session::Circumstances::from(&meta));
    session.event(Event::ProbeStarted { run: *run, mods: mods.clone(), sites: sites.clone(), by });
    let draws = |session: &Session| {
        let row = session.row(&site, Gemm::Fprop, &KernelId::new(FAST)).unwrap();
        row.error.as_ref().unwrap().draws
    };
    session.event(Event::Rows { run: *run, rows: vec![with_error(FAST, 0.17, 0.2, 4)] });
    assert_eq!(draws(&session), 64, "a first look says less than what is known");
    session.event(Event::Rows { run: *run, rows: vec![with_error(FAST, 0.19, 0.009, 720)] });
    assert_eq!(draws(&session), 720);
    let refused = session.command(Command::ProbeMore { site, max_draws: 800 }).unwrap_err();
    assert!(refused.to_string().starts_with("a probe is running"), "{refused}");
    let nowhere = session.command(Command::ProbeMore { site: SiteId::new("x"), max_draws: 8 }).unwrap_err();
    assert_eq!(nowhere.to_string(), "unknown site 'x'");
    session.event(Event::ProbeFinished { run: *run, cancelled: false, seconds: 1.0 });
    let several = vec![SiteId::new("b"), SiteId::new("a")];
    let asked = session.command(Command::ProbeSites { sites: several.clone(), max_draws: 900 }).unwrap();
    let [crate::session::Effect::Probe { sites, draws: Some(900), .. }] = &asked[..] else { panic!("{asked:?}") };
    assert_eq!(*sites, several);
    let unknown = Command::ProbeSites { sites: vec![SiteId::new("a"), SiteId::new("x")], max_draws: 8 };
    assert_eq!(session.command(unknown).unwrap_err().to_string(), "unknown site 'x'");
}

/// Its own row says that it loses, and the plan has it all the same: the site as a whole was timed.
#[test]
fn what_pays_with_its_site_alone_is_not_called_slow() {
    let bf16 = baseline_kernel();
    let timed = site_time(Runtime::Launched, [bf16.as_str(), bf16.as_str(), FAST], 300.0, 250.0);
    let mut probed = results(&["a"], vec![row("a", Gemm::Wgrad, FAST, 0.1, Some(0.8), 0.0)]);
    probed.meta.site_times = Some(site_times(vec![timed]));
    let mut session = Session::by_paper();
    session.event(Event::ResultsOpened { path: "made.results.parquet".to_owned(), results: Box::new(probed.into()) });
    let view = seen(&mut session);
    let line = |gemm: Gemm, kernel: &KernelId| view.gemms[gemm as usize].line(kernel).unwrap().clone();
    let taken = line(Gemm::Wgrad, &KernelId::new(FAST));
    assert!(taken.is_chosen_by_policy() && taken.quadrant == Quadrant::SafeSlow);
    let [error, speed] = words::outlook_lines(&taken);
    assert!(error.starts_with("Safe: "), "{error}");
    assert_eq!(speed, "By itself no faster: 125 µs. The site as a whole gains by it");
}
