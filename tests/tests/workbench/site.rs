//! The inspector, the Mods view and the Plan view: each of their actions by palette, key or label, with a
//! recorded stream of events.

use std::{cell::RefCell, path::Path, rc::Rc};

use egui::{Key, Modifiers};
use egui_kittest::kittest::Queryable as _;
use loka::LokaApp;
use loka_core::{
    engine::CpuEngine,
    model::{
        ErrorSummary, Estimate, Gemm, GemmShape, KernelId, Latency, LatencySource, ModKind, ModSet, ResultRow, Results,
        SiteId,
    },
    plan::build,
    session::{Command, Effect, Event},
    views::Column,
};
use loka_tests::scripted::{Script, ScriptedLink, Window, window};

const BF16: &str = "cublaslt/bf16";
const ROWWISE: &str = "cublaslt/fp8-rowwise+fast";
const TENSORWISE: &str = "cublaslt/fp8-tensorwise";
const BLOCKWISE: &str = "deepgemm/blockwise";

/// The sample's sites: one kernel safe, one unsafe, one uncertain and slow, one that cannot run.
fn results() -> Results {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sample-traces/wukong-clicks.trace.safetensors");
    let trace = loka_core::trace::Trace::open(&path).unwrap();
    let config = loka_core::probe::ProbeConfig::default();
    let meta = loka::probing::results_meta(&trace, trace.digest(), &CpuEngine, &config);
    let mut rows = Vec::new();
    for site in &meta.manifest.sites {
        for gemm in Gemm::ALL {
            let shape = GemmShape { m: site.m, k: site.k, n: site.n };
            for (kernel, error, us) in
                [(BF16, 0.003, 20.0), (ROWWISE, 0.1, 12.0), (TENSORWISE, 0.4, 10.0), ("te/current", 0.199, 25.0)]
            {
                rows.push(row(&site.id, gemm, kernel, shape, error, us));
            }
            let refused = ResultRow {
                supported: false,
                reason: Some("k is not a multiple of 128".into()),
                error: None,
                latency: Latency::unknown(""),
                ..row(&site.id, gemm, BLOCKWISE, shape, 0.1, 1.0)
            };
            rows.push(refused);
        }
    }
    rows.iter_mut()
        .for_each(|row| (row.engine, row.device) = (meta.engine.as_str().into(), meta.device.as_str().into()));
    Results { meta, rows }
}

fn row(site: &SiteId, gemm: Gemm, kernel: &str, shape: GemmShape, error: f64, us: f64) -> ResultRow {
    let around = |value: f64| Estimate::new(value, 0.95 * value, 1.05 * value);
    let summary = ErrorSummary {
        draws: 64,
        zeros_skipped: 0,
        mere: around(error),
        rel_l2: around(error / 4.0),
        sqnr_db: 28.0,
        median_rel: 0.02,
        max_abs: 0.1,
        block_rel_l2: None,
        loss_cost: None,
        loss_excess: None,
        noise: None,
        bias: Some(Estimate::new(0.0, 0.0, 0.0)),
    };
    let latency = Latency {
        latency_us: Some(us),
        gemm_us: Some(0.6 * us),
        baseline_us: Some(20.0),
        source: LatencySource::Recorded,
        ..Latency::unknown("recorded on a test machine")
    };
    ResultRow {
        site: site.clone(),
        gemm,
        kernel: KernelId::new(kernel),
        mods: ModSet::none(),
        shape,
        supported: true,
        reason: None,
        error: Some(summary),
        latency,
        fidelity: None,
        static_scale: None,
        flushed: None,
        sampler: "copula".into(),
        engine: "".into(),
        device: "".into(),
        seed: 0,
    }
}

fn opened(size: [f32; 2]) -> (Window, Rc<RefCell<Script>>) {
    let link = ScriptedLink::default().by_paper();
    let script = link.script.clone();
    let opened = Event::ResultsOpened { path: "made.results.parquet".to_owned(), results: Box::new(results().into()) };
    script.borrow_mut().tell(opened);
    let mut harness = window(LokaApp::new(Box::new(link)), size);
    harness.run_steps(4);
    let first = site(&harness, 0);
    harness.state_mut().view_mut().select(first, None);
    harness.run_steps(2);
    (harness, script)
}

fn site(harness: &Window, at: usize) -> SiteId {
    harness.state().session().sites()[at].id.clone()
}

fn click(harness: &mut Window, label: &str) {
    harness.get_by_label(label).click();
    harness.run_steps(3);
}

/// By its name in the palette.
fn act(harness: &mut Window, text: &str) {
    harness.key_press_modifiers(Modifiers::COMMAND, Key::K);
    harness.run_steps(2);
    harness.event(egui::Event::Text(text.to_owned()));
    harness.run_steps(2);
    harness.key_press(Key::Enter);
    harness.run_steps(3);
}

fn override_at(harness: &mut Window, at: usize, gemm: Gemm) {
    let (site, kernel) = (site(harness, at), KernelId::new(TENSORWISE));
    let reason = "launch week".to_owned();
    harness.state_mut().command(Command::SetOverride { site, gemm, kernel, reason });
    harness.run_steps(3);
}

fn num_overrides(harness: &Window) -> usize {
    harness.state().session().document.overrides.len()
}

fn shown_gemm(harness: &Window) -> Option<Gemm> {
    harness.state().view().column.as_ref().map(|column| column.gemm)
}

#[test]
fn brackets_turn_the_gemms() {
    let (mut harness, _) = opened([1280.0, 800.0]);
    for (key, gemm) in [
        (Key::CloseBracket, Gemm::Dgrad),
        (Key::CloseBracket, Gemm::Wgrad),
        (Key::CloseBracket, Gemm::Fprop),
        (Key::OpenBracket, Gemm::Wgrad),
    ] {
        harness.key_press(key);
        harness.run_steps(2);
        assert_eq!(shown_gemm(&harness), Some(gemm));
    }
    act(&mut harness, "Next GEMM");
    assert_eq!(shown_gemm(&harness), Some(Gemm::Fprop));
    act(&mut harness, "Previous GEMM");
    assert_eq!(shown_gemm(&harness), Some(Gemm::Wgrad));
}

#[test]
fn drawing_more_asks_for_this_site_alone() {
    let (mut harness, script) = opened([1280.0, 800.0]);
    harness.key_press(Key::D);
    harness.run_steps(2);
    let asked = script.borrow().asked.last().cloned();
    // .199 with a half of .00995 at .001 from .2: more than 6,000 draws, and a quarter more.
    let Some(Effect::Probe { sites, draws: Some(draws), .. }) = asked else { panic!("{asked:?}") };
    assert_eq!(sites, [site(&harness, 0)]);
    assert!((7_900..8_000).contains(&draws) && draws % 8 == 0, "{draws}");
    assert!(
        harness.query_all_by_label_contains("more draws are expected to decide").next().is_some() || {
            click(&mut harness, "Inspect fprop");
            let column = Column { gemm: Gemm::Fprop, kernel: KernelId::new("te/current") };
            let first = site(&harness, 0);
            harness.state_mut().view_mut().select(first, Some(column));
            harness.run_steps(2);
            harness.query_all_by_label_contains("more draws are expected to decide").next().is_some()
        }
    );
}

#[test]
fn the_table_names_every_kernel_and_sorts() {
    let (mut harness, _) = opened([1280.0, 800.0]);
    click(&mut harness, "Inspect fprop");
    assert!(harness.query_all_by_label_contains("unsupported, k is not a multiple of 128").next().is_some());
    assert!(harness.query_all_by_label_contains("GEMM 7.20 µs, casts 4.80 µs (40 %)").next().is_some());
    let top = |harness: &Window, kernel: &str| harness.get_by_label_contains(&format!("{kernel}: ")).rect().top();
    let sorted = |harness: &Window| top(harness, TENSORWISE) < top(harness, ROWWISE);
    click(&mut harness, "Sort kernels by × BF16");
    assert!(sorted(&harness), "the fastest first");
    click(&mut harness, "Sort kernels by × BF16");
    assert!(!sorted(&harness));
    act(&mut harness, "Sort kernels by the next column");
    assert!(top(&harness, BF16) < top(&harness, ROWWISE), "back to the catalogue's order");
}

#[test]
fn the_form_says_what_an_override_breaks() {
    let (mut harness, _) = opened([1280.0, 800.0]);
    click(&mut harness, "Inspect fprop");
    click(&mut harness, &format!("Use {TENSORWISE} for fprop"));
    assert!(harness.query_by_label_contains("Breaks the policy: unsafe, MERE").is_some());
    harness.event(egui::Event::Text("launch week".to_owned()));
    harness.run_steps(2);
    click(&mut harness, "Override");
    assert_eq!(num_overrides(&harness), 1);
    assert!(harness.query_all_by_label_contains("Set by hand:").next().is_some());
    harness.key_press_modifiers(Modifiers::SHIFT, Key::O);
    harness.run_steps(3);
    assert_eq!(num_overrides(&harness), 0);
}

#[test]
fn overrides_are_cleared_for_the_selection_and_for_all() {
    let (mut harness, _) = opened([1280.0, 800.0]);
    override_at(&mut harness, 0, Gemm::Fprop);
    override_at(&mut harness, 0, Gemm::Dgrad);
    override_at(&mut harness, 1, Gemm::Fprop);
    override_at(&mut harness, 2, Gemm::Fprop);
    act(&mut harness, "Clear overrides of the selection");
    assert_eq!(num_overrides(&harness), 2, "those of the inspected site");
    let second = site(&harness, 1);
    harness.state_mut().view_mut().selection.insert(second);
    act(&mut harness, "Clear overrides of the selection");
    assert_eq!(num_overrides(&harness), 1);
    act(&mut harness, "Clear all overrides");
    assert_eq!(num_overrides(&harness), 0);
    harness.key_press_modifiers(Modifiers::COMMAND, Key::Z);
    harness.run_steps(3);
    assert_eq!(num_overrides(&harness), 1, "each is one step of undo");
}

#[test]
fn mods_here_and_in_a_module_are_one_step_each() {
    let (mut harness, script) = opened([1280.0, 800.0]);
    let first = site(&harness, 0);
    for (text, kind) in [
        ("Toggle no bias here", ModKind::NoBias),
        ("Toggle BlockNorm here", ModKind::BlockNorm),
        ("Toggle hard swish here", ModKind::HardSwish),
    ] {
        act(&mut harness, text);
        let mods = &harness.state().session().document.mods;
        assert!(
            mods.of(&first).contains(kind) && mods.exceptions().len() == 1 && mods.of_others().is_empty(),
            "{text}"
        );
    }
    // What it feeds reads other values now, and the rest of the model does not.
    let asked = script.borrow().asked.last().cloned();
    let Some(Effect::Probe { sites, .. }) = asked else { panic!("{asked:?}") };
    let fed = harness.state().session().sites()[0].feeds.clone();
    assert!(sites.contains(&first) && fed.iter().all(|site| sites.contains(site)) && sites.len() < 5, "{sites:?}");
    harness.key_press_modifiers(Modifiers::COMMAND, Key::Z);
    harness.run_steps(2);
    assert!(!harness.state().session().document.mods.of(&first).contains(ModKind::HardSwish));
    let module = first.as_str().rsplit_once('.').unwrap().0.to_owned();
    for (text, kind) in [
        ("Toggle no bias in this module", ModKind::NoBias),
        ("Toggle BlockNorm in this module", ModKind::BlockNorm),
        ("Toggle hard swish in this module", ModKind::HardSwish),
    ] {
        harness.state_mut().command(Command::SetMod { kind, on: false, sites: vec![first.clone()] });
        act(&mut harness, text);
        let session = harness.state().session();
        for id in session.index().ids() {
            let inside = id.as_str().starts_with(&format!("{module}."));
            assert_eq!(session.document.mods.of(id).contains(kind), inside, "{text}: {id}");
        }
    }
}

/// A mod's box in the site's pane is the site's; what is everywhere stands beside it.
#[test]
fn the_boxes_of_a_site_act_on_that_site() {
    let (mut harness, _) = opened([1280.0, 800.0]);
    let first = harness.state().view().site.clone().unwrap();
    click(&mut harness, "No bias here");
    let mods = harness.state().session().document.mods.clone();
    assert!(mods.of(&first).contains(ModKind::NoBias) && mods.of_others().is_empty());
    click(&mut harness, "No bias here");
    assert!(harness.state().session().document.mods.is_empty());
    click(&mut harness, "Everywhere…");
    harness.get_by_label("No bias everywhere").click();
    harness.run_steps(3);
    assert!(harness.state().session().document.mods.of_others().contains(ModKind::NoBias));
}

/// Findings are told with what they are worth, and choices in groups with their sums.
#[test]
fn findings_and_groups_are_in_the_plan() {
    let (mut harness, _) = opened([1280.0, 800.0]);
    // Until something is near the threshold.
    let mut limit = 1.0;
    while harness.state().derived().findings.is_empty() && limit > 1e-4 {
        limit *= 0.9;
        harness.state_mut().command(Command::SetMaxError { value: limit, gesture: None });
        harness.run_steps(2);
    }
    act(&mut harness, "Show findings");
    let derived = harness.state().derived().findings.clone();
    assert!(!derived.is_empty());
    for finding in derived.iter() {
        assert!(harness.query_by_label(&finding.text).is_some(), "{}", finding.text);
    }
    click(&mut harness, &derived[0].text);
    let named: std::collections::BTreeSet<usize> = derived[0].gemms.iter().map(|(at, _)| *at).collect();
    assert_eq!(harness.state().view().selection.len(), named.len());
    harness.state_mut().view_mut().plan.part = loka::state::PlanPart::Choices;
    harness.state_mut().view_mut().plan.group_by = Some(loka_core::views::PlanGroupBy::Cause);
    harness.run_steps(3);
    assert!(harness.query_all_by_label_contains(" in FP8, ").next().is_some());
}

#[test]
fn the_mods_view_says_what_is_on_where_and_what_waits() {
    let (mut harness, _) = opened([1280.0, 800.0]);
    harness.key_press(Key::Num7);
    harness.run_steps(3);
    assert!(harness.query_by_label_contains("Nothing is changed: no mod is on").is_some());
    click(&mut harness, "No bias everywhere");
    assert!(harness.state().session().document.mods.of_others().contains(ModKind::NoBias));
    assert!(harness.query_all_by_label_contains("have no rows under these mods").next().is_some());
    assert!(harness.query_all_by_label_contains("Gradients stay as they were recorded").next().is_some());
}

#[test]
fn the_plan_sorts_filters_and_lists() {
    let (mut harness, _) = opened([1280.0, 800.0]);
    override_at(&mut harness, 0, Gemm::Fprop);
    let plan =
        |harness: &Window| format!("{:?} {:?}", harness.state().view().plan.sort, harness.state().view().plan.reversed);
    act(&mut harness, "Sort the plan by the next column");
    assert_eq!(plan(&harness), "Site false");
    act(&mut harness, "Turn the plan's order round");
    assert_eq!(plan(&harness), "Site true");
    act(&mut harness, "Filter the plan");
    let first = site(&harness, 0);
    let listed = harness.query_all_by_label_contains(", saves ").count();
    assert_eq!(listed, 1, "the override alone");
    assert!(harness.query_by_label_contains(&format!("{first} fprop: {TENSORWISE}, saves ")).is_some());
    click(&mut harness, "Plan: warnings");
    assert!(harness.query_by_label_contains("1 override breaks the policy").is_some());
    click(&mut harness, "Plan: overrides");
    assert!(harness.query_by_label("launch week").is_some());
    click(&mut harness, &format!("Clear the override of {first} fprop"));
    assert_eq!(num_overrides(&harness), 0);
    click(&mut harness, "Plan: export");
    assert!(
        harness.query_all_by_label_contains("What a file cannot say is shown before it is written").next().is_some()
    );
}

#[test]
fn another_plan_is_compared_and_closed() {
    let (mut harness, script) = opened([1280.0, 800.0]);
    override_at(&mut harness, 0, Gemm::Fprop);
    act(&mut harness, "Compare with a plan…");
    harness.state_mut().view_mut().dialog.as_mut().expect("the dialog is open").path = "old.plan.json".to_owned();
    harness.run_steps(2);
    click(&mut harness, "Compare");
    assert_eq!(script.borrow().asked.last(), Some(&Effect::LoadPlan { path: "old.plan.json".to_owned() }));
    let session = harness.state().session();
    let policy = &session.document.policy;
    let old = build(&session.results().unwrap(), policy, &Default::default(), &Default::default(), "old", "").unwrap();
    script.borrow_mut().tell(Event::PlanOpened { path: "old.plan.json".to_owned(), plan: Box::new(old.plan) });
    harness.run_steps(3);
    assert!(harness.query_by_label_contains("Against old (old.plan.json)").is_some());
    assert!(harness.query_by_label("Against pure Dispatch").is_some());
    assert!(harness.query_all_by_label_contains("1 of ").count() >= 2);
    // Every view shows what differs from it, until that is left; whoever comes back has it still.
    let told =
        |harness: &Window| harness.state().derived().versus().map(|versus| (versus.num_moved, versus.num_missing));
    assert_eq!(told(&harness), Some((1, 0)));
    click(&mut harness, "Plan: choices");
    assert!(harness.query_all_by_label_contains("than the baseline, by ").next().is_some());
    harness.get_by_label("Leave (Esc)");
    harness.key_press(Key::Escape);
    harness.run_steps(3);
    assert!(told(&harness).is_none() && harness.query_by_label("Leave (Esc)").is_none());
    assert!(harness.query_all_by_label_contains("than the baseline, by ").next().is_none());
    harness.key_press(Key::B);
    harness.run_steps(3);
    assert_eq!(told(&harness), Some((1, 0)));
    click(&mut harness, "Leave (Esc)");
    assert!(told(&harness).is_none() && harness.state().session().other_plan.is_some());
    // Another baseline is shown at once.
    act(&mut harness, "Compare with the plan as it stands");
    assert_eq!(told(&harness), Some((0, 0)));
    act(&mut harness, "Close the comparison");
    assert!(harness.state().session().other_plan.is_none());
    assert!(harness.query_by_label_contains("Against old").is_none());
}

#[test]
fn other_results_are_compared_and_their_verdicts_listed() {
    let (mut harness, script) = opened([1280.0, 800.0]);
    act(&mut harness, "Compare with results…");
    harness.state_mut().view_mut().dialog.as_mut().expect("the dialog is open").path = "old.results.parquet".to_owned();
    harness.run_steps(2);
    click(&mut harness, "Compare");
    let path = || "old.results.parquet".to_owned();
    assert_eq!(script.borrow().asked.last(), Some(&Effect::CompareResults { path: path() }));
    let mut old = results();
    let row = old.rows.iter_mut().find(|row| row.kernel.as_str() == ROWWISE).unwrap();
    row.error.as_mut().unwrap().mere = Estimate::new(0.4, 0.38, 0.42);
    script.borrow_mut().tell(Event::ResultsCompared { path: path(), results: Box::new(old) });
    harness.run_steps(3);
    assert!(harness.query_by_label_contains("Against the results old.results.parquet").is_some());
    assert!(harness.query_by_label("1 verdict flipped").is_some());
    assert!(harness.query_by_label("unsafe → safe").is_some());
    assert!(harness.query_by_label_contains("compare again").is_none());
    harness.state_mut().command(Command::SetMaxError { value: 0.3, gesture: None });
    harness.run_steps(3);
    assert!(harness.query_by_label_contains("compare again").is_some());
    act(&mut harness, "Close the comparison");
    assert!(harness.query_by_label_contains("verdict flipped").is_none());
}

#[test]
fn three_hundred_points_are_enough_for_the_inspector() {
    let (mut harness, _) = opened([400.0, 800.0]);
    harness.key_press(Key::Enter);
    harness.run_steps(3);
    click(&mut harness, "Inspect wgrad");
    let row = harness.get_by_label_contains(&format!("{ROWWISE}: ")).rect();
    assert!(row.right() <= 400.0 && row.height() > 30.0, "two lines a kernel: {row:?}");
    click(&mut harness, &format!("Use {TENSORWISE} for wgrad"));
    assert!(harness.get_by_label("Override").rect().right() <= 400.0);
}
