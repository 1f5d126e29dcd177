//! The quadrant and the frontier by pointer, by key and by name: every action that they have, and what each
//! does to the policy, the selection and the picture.

use egui::{Event, Key, Modifiers, PointerButton, Pos2, Rect, vec2};
use egui_kittest::{Harness, kittest::Queryable as _};
use loka::{LokaApp, state::ColorBy};
use loka_core::{
    dispatch::Policy,
    model::{
        ErrorSummary, Estimate, Gemm, GemmShape, KernelId, Latency, LatencySource, ModKind, ModSet, ResultRow, Results,
        Site,
    },
    session::{Command, Event as Told},
    views::GroupBy,
};
use loka_tests::scripted::{ScriptedLink, Window, window};

const ROWWISE: &str = "cublaslt/fp8-rowwise+fast";
const TENSORWISE: &str = "cublaslt/fp8-tensorwise";
const TORCH: &str = "pytorch/fp8-rowwise+fast";
const BF16: [&str; 2] = ["cublaslt/bf16", "pytorch/bf16"];
const SITES: usize = 6;

/// Whether rows have latencies, and forward ones loss costs.
#[derive(Clone, Copy)]
struct PointsKnown {
    latency: bool,
    cost: bool,
}

const ALL: PointsKnown = PointsKnown { latency: true, cost: true };

fn row(site: &Site, gemm: Gemm, kernel: &str, (error, speedup): (f64, f64), known: PointsKnown) -> ResultRow {
    let around = |value: f64| Estimate::new(value, 0.9 * value, 1.1 * value);
    let low = !BF16.contains(&kernel);
    let summary = ErrorSummary {
        draws: 16,
        zeros_skipped: 0,
        mere: around(error),
        rel_l2: around(error / 3.0),
        sqnr_db: -20.0 * (error / 3.0).log10(),
        median_rel: error / 2.0,
        max_abs: error,
        block_rel_l2: None,
        loss_cost: (known.cost && gemm == Gemm::Fprop && low).then(|| around(1e-6 * error)),
        loss_excess: None,
        noise: None,
        bias: Some(Estimate::new(0.0, 0.0, 0.0)),
    };
    let latency = Latency {
        latency_us: Some(10.0 / speedup),
        latency_lo_us: Some(9.5 / speedup),
        latency_hi_us: Some(10.5 / speedup),
        baseline_us: Some(10.0),
        source: LatencySource::Recorded,
        ..Latency::unknown("recorded on a test machine")
    };
    let unknown = Latency::unknown("nobody timed this shape");
    ResultRow {
        site: site.id.clone(),
        gemm,
        kernel: KernelId::new(kernel),
        mods: ModSet::none(),
        shape: GemmShape { m: site.m, k: site.k, n: site.n },
        supported: true,
        reason: None,
        error: Some(summary),
        latency: if known.latency { latency } else { unknown },
        fidelity: None,
        static_scale: None,
        flushed: None,
        sampler: "copula".into(),
        engine: "cpu".into(),
        device: "a test".into(),
        seed: 0,
    }
}

/// Rows of a few sites, spread over all four quadrants.
fn results(known: PointsKnown) -> Results {
    let trace = loka_core::trace::Trace::open(&loka_tests::sample()).unwrap();
    let config = loka_core::probe::ProbeConfig::default();
    let meta = loka::probing::results_meta(&trace, trace.digest(), &loka_core::engine::CpuEngine, &config);
    let mut rows: Vec<ResultRow> = Vec::new();
    for (at, site) in meta.manifest.sites.iter().take(SITES).enumerate() {
        for gemm in Gemm::ALL {
            let spread = 1.0 + 0.25 * at as f64 + 0.6 * f64::from(gemm as u8);
            rows.extend(BF16.map(|kernel| row(site, gemm, kernel, (0.003, 1.0), known)));
            rows.push(row(site, gemm, ROWWISE, (0.06 * spread, 0.95 + 0.1 * spread), known));
            rows.push(row(site, gemm, TENSORWISE, (0.15 * spread, 1.1 * spread), known));
            let unknown = PointsKnown { latency: at > 0 && known.latency, ..known };
            rows.push(row(site, gemm, TORCH, (0.05 * spread, 0.7 * spread), unknown));
        }
    }
    let device = meta.device.clone();
    rows.iter_mut().for_each(|row| row.device = device.as_str().into());
    Results { meta, rows }
}

fn opened(known: PointsKnown) -> (Window, ScriptedLink) {
    let link = ScriptedLink::default().by_paper();
    let told =
        Told::ResultsOpened { path: "made.results.parquet".to_owned(), results: Box::new(results(known).into()) };
    link.script.borrow_mut().tell(told);
    let mut harness = window(LokaApp::new(Box::new(link.clone())), [1280.0, 800.0]);
    harness.run_steps(4);
    assert!(harness.state().session().has_rows());
    harness.key_press(Key::Num2);
    harness.run_steps(3);
    (harness, link)
}

fn click(harness: &mut Harness<'_, LokaApp>, label: &str) {
    harness.get_by_label(label).click();
    harness.run_steps(3);
}

/// By its text in the palette, as a person would find it.
fn act(harness: &mut Harness<'_, LokaApp>, text: &str) {
    harness.key_press_modifiers(Modifiers::COMMAND, Key::K);
    harness.run_steps(3);
    harness.event(Event::Text(text.to_owned()));
    harness.run_steps(2);
    harness.key_press(Key::Enter);
    harness.run_steps(4);
    // What is greyed is not done, and the palette waits for another choice.
    if harness.state().finder().palette.is_some() {
        harness.key_press(Key::Escape);
        harness.run_steps(3);
    }
}

fn policy(harness: &Harness<'_, LokaApp>) -> Policy {
    harness.state().session().document.policy.clone()
}

fn rect_of(harness: &Harness<'_, LokaApp>, label: &str) -> Rect {
    harness.get_by_label_contains(label).rect()
}

fn press(harness: &mut Harness<'_, LokaApp>, pos: Pos2, button: PointerButton, pressed: bool, modifiers: Modifiers) {
    harness.event_modifiers(Event::PointerButton { pos, button, pressed, modifiers }, modifiers);
    harness.run_steps(2);
}

/// Quickly enough for a click to be one: a harness' frame is a quarter of a second.
fn click_at(harness: &mut Harness<'_, LokaApp>, place: Pos2) {
    harness.drag_at(place);
    harness.event(Event::PointerButton {
        pos: place,
        button: PointerButton::Primary,
        pressed: false,
        modifiers: Modifiers::NONE,
    });
    harness.run_steps(3);
}

/// Slowly enough for a drag to be one.
fn drag(harness: &mut Harness<'_, LokaApp>, from: Pos2, to: Pos2, button: PointerButton, modifiers: Modifiers) {
    harness.event_modifiers(Event::PointerMoved(from), modifiers);
    harness.run_steps(2);
    press(harness, from, button, true, modifiers);
    for step in 1..=5 {
        harness.event_modifiers(Event::PointerMoved(from + (to - from) * (step as f32 / 5.0)), modifiers);
        harness.run_steps(2);
    }
    press(harness, to, button, false, modifiers);
    harness.event(Event::PointerGone);
    harness.run_steps(2);
}

#[test]
fn a_line_is_pulled_and_one_undo_takes_it_back() {
    for (label, pull) in [("Error threshold, MERE", vec2(0.0, -60.0)), ("Speed-up threshold", vec2(70.0, 0.0))] {
        let (mut harness, _link) = opened(ALL);
        // Off the crossing of the two lines and off every label.
        let grip = rect_of(&harness, label).center() + vec2(17.0, 23.0) * vec2(pull.y, pull.x).normalized();
        drag(&mut harness, grip, grip + pull, PointerButton::Primary, Modifiers::NONE);
        let after = policy(&harness);
        let (moved, stays) = if pull.x == 0.0 {
            (after.max_error > 0.25, after.min_speedup == 1.05)
        } else {
            (after.min_speedup > 1.1, after.max_error == 0.2)
        };
        assert!(moved && stays, "{label}: {after:?}");
        assert!(harness.state().view().drag.is_none());
        harness.key_press_modifiers(Modifiers::COMMAND, Key::Z);
        harness.run_steps(3);
        assert_eq!(policy(&harness), Policy::paper(), "{label}: one pull is one step");
    }
}

#[test]
fn a_line_is_nudged_by_the_arrows_and_not_the_selection() {
    let (mut harness, _link) = opened(ALL);
    let site = harness.state().view().site.clone();
    harness.get_by_label("Error threshold, MERE").focus();
    harness.run_steps(3);
    for _ in 0..3 {
        harness.key_press(Key::ArrowUp);
        harness.run_steps(2);
    }
    let raised = policy(&harness).max_error;
    assert!(raised > 0.205 && raised < 0.23, "{raised}");
    assert_eq!(harness.state().view().site, site, "the arrows are the line's");
    assert!(harness.get_by_label("Error threshold, MERE").is_focused());
    harness.key_press_modifiers(Modifiers::SHIFT, Key::ArrowDown);
    harness.run_steps(2);
    assert!(policy(&harness).max_error < 0.2, "Shift goes ten times as far");
    harness.key_press_modifiers(Modifiers::COMMAND, Key::Z);
    harness.run_steps(3);
    assert_eq!(policy(&harness).max_error, 0.2, "all nudges are one step");
    harness.get_by_label("Speed-up threshold").increment_accesskit();
    harness.run_steps(3);
    assert!(policy(&harness).min_speedup > 1.05, "a screen reader's request counts");
}

#[test]
fn thresholds_move_by_name() {
    let (mut harness, _link) = opened(ALL);
    for (text, moved) in [
        ("Raise the error threshold", (1.0, 0.0)),
        ("Lower the error threshold", (-1.0, 0.0)),
        ("Raise the speed-up threshold", (0.0, 1.0)),
        ("Lower the speed-up threshold", (0.0, -1.0)),
    ] {
        let before = policy(&harness);
        act(&mut harness, text);
        let after = policy(&harness);
        let sign = |change: f64| if change == 0.0 { 0.0 } else { change.signum() };
        assert_eq!((sign(after.max_error - before.max_error), sign(after.min_speedup - before.min_speedup)), moved);
    }
}

#[test]
fn quadrants_say_how_many_and_how_much_time() {
    let (harness, _link) = opened(ALL);
    for word in ["safe & fast · ", "unsafe & fast · "] {
        let label = harness.query_all_by_label_contains(word).next().unwrap();
        let text = format!("{label:?}");
        assert!(text.contains('%'), "{text}");
    }
}

fn brushed(harness: &Harness<'_, LokaApp>) -> usize {
    harness.state().view().brush.set.sites().len()
}

#[test]
fn a_box_brushes_points_and_shift_adds() {
    let (mut harness, _link) = opened(ALL);
    let area = rect_of(&harness, "Quadrant, ").shrink(14.0);
    // All of it; then a corner without a point; then the left half added.
    drag(&mut harness, area.left_top(), area.right_bottom(), PointerButton::Primary, Modifiers::NONE);
    assert_eq!(brushed(&harness), SITES);
    click(&mut harness, "Select");
    assert_eq!(harness.state().view().selection.len(), SITES);
    let corner = area.left_top() + vec2(8.0, 8.0);
    drag(&mut harness, area.left_top(), corner, PointerButton::Primary, Modifiers::SHIFT);
    assert_eq!(brushed(&harness), SITES, "Shift adds");
    drag(&mut harness, area.left_top(), corner, PointerButton::Primary, Modifiers::NONE);
    assert_eq!(brushed(&harness), 0);
    assert_eq!(harness.state().view().selection.len(), SITES, "the selection stays until another is made");
    drag(&mut harness, area.left_top(), area.right_bottom(), PointerButton::Primary, Modifiers::NONE);
    act(&mut harness, "Leave the brushed area");
    assert_eq!(brushed(&harness), 0);
}

/// What the card says is what core sums up, and of all points what the plan's table has.
#[test]
fn the_card_has_the_sums_and_esc_leaves_it() {
    let (mut harness, _link) = opened(ALL);
    let area = rect_of(&harness, "Quadrant, ").shrink(14.0);
    drag(&mut harness, area.left_top(), area.right_bottom(), PointerButton::Primary, Modifiers::NONE);
    assert!(harness.query_by_label("18 GEMMs at 6 sites").is_some(), "a title");
    // 18 GEMMs of 10 us.
    assert!(harness.query_by_label_contains("180 of 180 µs, 100 % of the step").is_some(), "time");
    let saved = harness.state().view().brush.clone().totals(harness.state().derived()).unwrap();
    assert!((saved.saved_us - saved.all_saved_us).abs() < 1e-9 && saved.saved_us > 0.0);
    let low = format!("{} of 18 GEMMs", saved.num_low);
    assert!(harness.query_by_label(&low).is_some(), "{low}");
    let worst = saved.worst.clone().unwrap();
    assert_eq!((worst.at, worst.gemm), (5, Gemm::Wgrad), "errors grow with the site and the GEMM");
    let site = harness.state().session().index().ids()[5].clone();
    let named = |node: &egui_kittest::Node<'_>| format!("{node:?}").contains("wgrad, cublaslt tensor");
    harness.get_all_by_role(egui::Role::Link).rfind(named).unwrap().click();
    harness.run_steps(3);
    assert_eq!(harness.state().view().site.as_ref(), Some(&site));
    harness.key_press(Key::Escape);
    harness.run_steps(3);
    assert_eq!(brushed(&harness), 0);
    assert!(harness.query_by_label("18 GEMMs at 6 sites").is_none());
}

#[test]
fn a_box_grows_by_shift_and_arrows_from_the_selected_point() {
    let (mut harness, _link) = opened(ALL);
    let rows = |harness: &Harness<'_, LokaApp>| harness.state().view().brush.set.rows().len();
    harness.get_by_label_contains(&format!("Point fprop {ROWWISE}")).click();
    harness.run_steps(3);
    harness.state_mut().view_mut().brush.forget();
    let press = |harness: &mut Harness<'_, LokaApp>, key| {
        harness.key_press_modifiers(Modifiers::SHIFT, key);
        harness.run_steps(3);
    };
    // What has the focus has the arrows: it is left first.
    if harness.query_all_by_label_contains("Point ").any(|node| node.is_focused()) {
        harness.key_press(Key::Escape);
        harness.run_steps(3);
    }
    press(&mut harness, Key::ArrowRight);
    let one = rows(&harness);
    assert!(one >= 1, "the point itself is in it");
    for _ in 0..12 {
        press(&mut harness, Key::ArrowRight);
        press(&mut harness, Key::ArrowUp);
    }
    let more = rows(&harness);
    assert!(more > one, "{more} {one}");
    for _ in 0..4 {
        press(&mut harness, Key::ArrowLeft);
    }
    assert!(rows(&harness) < more, "and back");
}

#[test]
fn what_is_brushed_is_overridden_in_one_step_and_given_back() {
    let (mut harness, _link) = opened(ALL);
    let area = rect_of(&harness, "Quadrant, ").shrink(14.0);
    let overrides = |harness: &Harness<'_, LokaApp>| harness.state().session().document.overrides.len();
    drag(&mut harness, area.left_top(), area.right_bottom(), PointerButton::Primary, Modifiers::NONE);
    click(&mut harness, "Keep in BF16…");
    assert!(harness.query_by_label("Override 18 GEMMs at 6 sites").is_some());
    harness.event(Event::Text("until we know".to_owned()));
    harness.run_steps(2);
    click(&mut harness, "Override all");
    assert_eq!(overrides(&harness), 18);
    assert_eq!(brushed(&harness), SITES, "the area stays");
    assert!(harness.query_by_label("0 of 18 GEMMs, 18 by hand").is_some(), "and its sums follow");
    harness.key_press_modifiers(Modifiers::COMMAND, Key::Z);
    harness.run_steps(3);
    assert_eq!(overrides(&harness), 0, "one step");
    harness.key_press_modifiers(Modifiers::COMMAND | Modifiers::SHIFT, Key::Z);
    harness.run_steps(3);
    assert_eq!(overrides(&harness), 18);
    click(&mut harness, "Leave to the policy");
    assert_eq!(overrides(&harness), 0);
    harness.key_press_modifiers(Modifiers::COMMAND, Key::Z);
    harness.run_steps(3);
    assert_eq!(overrides(&harness), 18, "one step, too");
}

#[test]
fn what_is_brushed_is_filtered_to_marked_and_copied() {
    let (mut harness, link) = opened(ALL);
    let area = rect_of(&harness, "Quadrant, ").shrink(14.0);
    drag(&mut harness, area.left_top(), area.right_bottom(), PointerButton::Primary, Modifiers::NONE);
    click(&mut harness, "Filter to it");
    assert_eq!(harness.state().view().sites.lines().order.len(), SITES);
    assert!(harness.state().session().index().len() > SITES);
    click(&mut harness, "Needs work");
    assert_eq!(harness.state().session().reviewing.review.num_marks(), SITES);
    click(&mut harness, "Draw more");
    let asked = link.script.borrow();
    let sites = asked.asked.iter().find_map(|effect| match effect {
        loka_core::session::Effect::Probe { sites, draws: Some(_), .. } => Some(sites.len()),
        _ => None,
    });
    assert_eq!(sites, Some(SITES));
}

/// More points than can be told apart: hexagons hold every one of them, and so does a box.
#[test]
fn many_points_are_hexagons_and_a_box_has_them_all() {
    let link = ScriptedLink::default().by_paper();
    let results = Box::new(loka_tests::big::results(2_400, 3).into());
    let told = Told::ResultsOpened { path: "made.results.parquet".to_owned(), results };
    link.script.borrow_mut().tell(told);
    let mut harness = window(LokaApp::new(Box::new(link)), [1280.0, 800.0]);
    harness.run_steps(8);
    harness.key_press(Key::Num2);
    harness.run_steps(4);
    let count = harness.state().derived().quadrant.points.len();
    assert!(count > 20_000, "{count}");
    let legend = |harness: &Harness<'_, LokaApp>| harness.query_by_label_contains("kernels in sight").is_some();
    assert!(legend(&harness));
    let area = rect_of(&harness, "Quadrant, ").shrink(2.0);
    drag(&mut harness, area.left_top(), area.right_bottom(), PointerButton::Primary, Modifiers::NONE);
    assert_eq!(harness.state().view().brush.set.rows().len(), count, "exactly, whatever is drawn");
    harness.key_press(Key::Escape);
    harness.event(Event::PointerMoved(area.center()));
    harness.run_steps(2);
    // Near enough there are fewer, and they are points again.
    for _ in 0..8 {
        harness.event(Event::Zoom(2.0));
        harness.run_steps(2);
    }
    assert!(!legend(&harness));
}

#[test]
fn points_are_stepped_by_tab_arrows_and_keys() {
    let (mut harness, _link) = opened(ALL);
    let column = |harness: &Harness<'_, LokaApp>| harness.state().view().column.clone().unwrap();
    let site = harness.state().view().site.clone().unwrap();
    harness.get_by_label_contains(&format!("Point fprop {ROWWISE}")).click();
    harness.run_steps(3);
    assert_eq!((column(&harness).gemm, column(&harness).kernel.as_str()), (Gemm::Fprop, ROWWISE));
    harness.get_by_label_contains(&format!("Point fprop {ROWWISE}")).focus();
    harness.run_steps(3);
    let mut seen = vec![column(&harness)];
    for key in [Key::ArrowRight, Key::ArrowUp, Key::Period] {
        harness.key_press(key);
        harness.run_steps(3);
        assert_ne!(seen.last(), Some(&column(&harness)), "{key:?}");
        seen.push(column(&harness));
    }
    assert_eq!(harness.state().view().site.as_ref(), Some(&site), "they are one site's");
    act(&mut harness, "Previous point");
    assert_eq!(column(&harness), seen[2], "and back");
}

#[test]
fn a_point_of_another_site_is_told_and_selected() {
    let (mut harness, _link) = opened(ALL);
    let sites: Vec<_> = harness.state().session().index().ids()[..SITES].to_vec();
    let select = |harness: &mut Harness<'_, LokaApp>, at: usize| {
        harness.state_mut().view_mut().select(sites[at].clone(), None);
        harness.run_steps(3);
    };
    select(&mut harness, 5);
    let place = rect_of(&harness, &format!("Point wgrad {TENSORWISE}")).center();
    select(&mut harness, 0);
    harness.event(Event::PointerMoved(place));
    harness.run_steps(4);
    let told = harness.query_all_by_label_contains(&format!("{} · wgrad", sites[5])).next().is_some();
    assert!(told, "the tooltip names the site");
    click_at(&mut harness, place);
    let view = harness.state().view();
    assert_eq!(view.site.as_ref(), Some(&sites[5]));
    assert_eq!(view.column.as_ref().map(|column| column.kernel.as_str()), Some(TENSORWISE));
}

#[test]
fn colours_are_by_what_was_asked() {
    let (mut harness, _link) = opened(ALL);
    for (text, by) in [
        ("Colour points by library", ColorBy::Group(GroupBy::Library)),
        ("Colour points by recipe", ColorBy::Group(GroupBy::Recipe)),
        ("Colour points by module", ColorBy::Group(GroupBy::Module)),
        ("Colour points by verdict", ColorBy::Verdict),
    ] {
        act(&mut harness, text);
        assert_eq!(harness.state().view().quadrant.color_by, by);
        let legend = harness.query_by_label_contains("cublaslt ").is_some();
        assert_eq!(legend, by == ColorBy::Group(GroupBy::Library), "{text}: a legend names the groups");
    }
}

#[test]
fn it_zooms_moves_and_comes_back() {
    let (mut harness, _link) = opened(ALL);
    let area = rect_of(&harness, "Quadrant, ");
    let shown = |harness: &Harness<'_, LokaApp>| harness.state().view().quadrant.shown;
    let whole = shown(&harness);
    harness.event(Event::PointerMoved(area.center()));
    harness.run_steps(2);
    harness.event(Event::Zoom(1.5));
    harness.run_steps(3);
    let near = shown(&harness);
    assert!(near.x.1 - near.x.0 < 0.7 * (whole.x.1 - whole.x.0), "{near:?}");
    let (from, to) = (area.center(), area.center() + vec2(40.0, 0.0));
    drag(&mut harness, from, to, PointerButton::Secondary, Modifiers::NONE);
    let moved = shown(&harness);
    assert!(moved.x.0 < near.x.0 && (moved.y.0 - near.y.0).abs() < 1e-9, "{moved:?}");
    click(&mut harness, "Show all points");
    assert_eq!(shown(&harness), whole);
    act(&mut harness, "Zoom into the quadrant");
    assert!(shown(&harness).x.0 > whole.x.0);
    act(&mut harness, "Zoom out of the quadrant");
    assert!((shown(&harness).x.0 - whole.x.0).abs() < 1e-9);
    act(&mut harness, "Show all points");
    assert!(harness.state().view().quadrant.zoom.is_none());
}

#[test]
fn what_has_no_place_is_listed_with_the_reason() {
    let (mut harness, _link) = opened(ALL);
    click(&mut harness, "3 without a place…");
    assert!(harness.query_all_by_label_contains("no speed-up: nobody timed this shape").next().is_some());
    act(&mut harness, "List what has no place");
    assert!(!harness.state().view().quadrant.lists_unplaced);
}

#[test]
fn arrows_come_with_the_mods() {
    let (mut harness, link) = opened(ALL);
    act(&mut harness, "Arrows from before the mods");
    assert!(!harness.state().view().quadrant.arrows, "no mod is on: the action is greyed");
    let mut results = results(ALL);
    for row in &mut results.rows {
        row.mods = ModSet([ModKind::BlockNorm].into());
        if let Some(error) = &mut row.error {
            error.mere = Estimate::new(error.mere.value / 2.0, error.mere.lo / 2.0, error.mere.hi / 2.0);
        }
    }
    let told = Told::ResultsOpened { path: "more.results.parquet".to_owned(), results: Box::new(results.into()) };
    link.script.borrow_mut().tell(told);
    harness.run_steps(2);
    harness.state_mut().command(Command::ToggleMod { kind: ModKind::BlockNorm });
    harness.run_steps(3);
    click(&mut harness, "Arrows from before");
    assert!(harness.state().view().quadrant.arrows);
}

fn frontier(known: PointsKnown) -> Harness<'static, LokaApp> {
    let (mut harness, _) = opened(known);
    harness.key_press(Key::Num3);
    harness.run_steps(4);
    harness
}

#[test]
fn the_frontier_is_walked_by_keys_and_adopted_by_enter() {
    let mut harness = frontier(ALL);
    harness.get_by_label_contains("Frontier: arrows").focus();
    harness.run_steps(3);
    for _ in 0..2 {
        harness.key_press(Key::ArrowRight);
        harness.run_steps(3);
    }
    let told = harness.query_all_by_label_contains("Click to adopt: MERE ≤ .2 →").next().is_some();
    assert!(told, "it says what will change");
    harness.key_press(Key::Enter);
    harness.run_steps(4);
    let adopted = policy(&harness);
    assert!(adopted.name == "paper" && adopted.max_error != 0.2, "{adopted:?}");
    harness.key_press_modifiers(Modifiers::COMMAND, Key::Z);
    harness.run_steps(3);
    assert_eq!(policy(&harness), Policy::paper(), "adopting is one step");
    act(&mut harness, "Next frontier curve");
    act(&mut harness, "Previous frontier point");
    act(&mut harness, "Next frontier point");
    act(&mut harness, "Adopt the frontier point");
    assert_eq!(policy(&harness).name, "rel-l2");
}

#[test]
fn a_click_adopts_the_point_under_it() {
    let mut harness = frontier(ALL);
    act(&mut harness, "Next frontier point");
    for _ in 0..3 {
        act(&mut harness, "Next frontier point");
    }
    let place = rect_of(&harness, "Frontier point: ").center();
    // The keys stand elsewhere: the click is the pointer's own.
    act(&mut harness, "Next frontier curve");
    harness.event(Event::PointerMoved(place));
    harness.run_steps(4);
    click_at(&mut harness, place);
    harness.run_steps(3);
    let adopted = policy(&harness);
    assert_ne!(adopted, Policy::paper());
    harness.state_mut().command(Command::Undo);
    assert_eq!(policy(&harness), Policy::paper(), "one step");
}

#[test]
fn an_empty_frontier_says_why_and_what_helps() {
    let mut harness = frontier(PointsKnown { latency: false, cost: true });
    assert!(harness.query_by_label_contains("No latency is known for any GEMM here").is_some());
    harness = frontier(PointsKnown { latency: true, cost: false });
    assert!(harness.query_by_label_contains("No loss cost is known").is_some());
    click(&mut harness, "Switch the frontier's cost");
    assert!(harness.query_by_label_contains("Frontier: arrows").is_some(), "errors are known");
}

/// The shader's shapes are the painter's: the same window drawn with and without it differs in soft edges.
#[test]
fn the_shader_draws_what_the_painter_draws() {
    let (mut painted, _) = opened(ALL);
    let (mut shaded, _) = opened(ALL);
    let area = rect_of(&painted, "Quadrant, ");
    painted.event(Event::PointerGone);
    painted.run_steps(2);
    let Ok(without) = painted.render() else {
        return loka_tests::cannot_draw();
    };
    let app = std::mem::replace(shaded.state_mut(), LokaApp::new(Box::new(ScriptedLink::default())));
    let drawn = egui_kittest::wgpu::create_render_state(egui_kittest::wgpu::default_wgpu_setup(), Default::default());
    *shaded.state_mut() = app.with_gpu(drawn.target_format);
    shaded.run_steps(2);
    let with = shaded.render().unwrap();
    let (mut differ, mut all, mut inked) = (0, 0, 0);
    let ground = without.get_pixel(area.left() as u32 + 30, area.top() as u32 + 3).0;
    for y in area.top() as u32..area.bottom() as u32 {
        for x in area.left() as u32..area.right() as u32 {
            let (a, b) = (without.get_pixel(x, y).0, with.get_pixel(x, y).0);
            let far = |a: [u8; 4], b: [u8; 4]| (0..3).map(|channel| a[channel].abs_diff(b[channel])).max() > Some(64);
            all += 1;
            inked += usize::from(far(a, ground));
            differ += usize::from(far(a, b));
        }
    }
    assert!(inked > 500, "there is something to compare: {inked}");
    assert!(differ * 50 < inked, "{differ} of {all} pixels differ, {inked} are inked");
}
