//! The site list and the heatmap by accessible label and key: the tree, filters, orders, several sites at once, zoom,
//! steps as columns, and the cell that has the focus. Rows are made up; the link plays a script.

use std::{cell::RefCell, rc::Rc};

use egui::{Key, Modifiers};
use egui_kittest::{
    Harness,
    kittest::{NodeT as _, Queryable as _},
};
use loka::{LokaApp, commands};
use loka_core::{
    model::{
        ErrorSummary, Estimate, Gemm, GemmShape, KernelId, Latency, LatencySource, Manifest, ModKind, ModSet,
        ResultRow, Results, ResultsMeta, SiteId,
    },
    session::{Command, Effect, Event, SeriesState},
    views::{Column, SeriesTable, SiteSeries, Sort},
};
use loka_tests::scripted::{Script, ScriptedLink, Window, window_by};

const SITES: [&str; 7] = [
    "net.layers.0.mlp.fc1",
    "net.layers.0.mlp.fc2",
    "net.layers.0.attention",
    "net.layers.1.mlp.fc1",
    "net.layers.1.mlp.fc2",
    "net.layers.10.mlp.fc1",
    "net.head",
];
const BF16: &str = "cublaslt/bf16";
const FAST: &str = "cublaslt/fp8-rowwise+fast";
const OTHER: &str = "te/current";

fn row(site: &str, gemm: Gemm, kernel: &str, error: f64, speedup: f64) -> ResultRow {
    let around = |value: f64| Estimate::new(value, 0.9 * value, 1.1 * value);
    let summary = ErrorSummary {
        draws: 16,
        zeros_skipped: 0,
        mere: around(error),
        rel_l2: around(error),
        sqnr_db: -20.0 * error.log10(),
        median_rel: error,
        max_abs: error,
        block_rel_l2: None,
        loss_cost: None,
        loss_excess: None,
        noise: None,
        bias: Some(Estimate::new(0.0, 0.0, 0.0)),
    };
    let latency = Latency {
        latency_us: Some(9.0 / speedup),
        baseline_us: Some(9.0),
        source: LatencySource::Recorded,
        ..Latency::unknown("recorded on a test machine")
    };
    ResultRow {
        site: SiteId::new(site),
        gemm,
        kernel: KernelId::new(kernel),
        mods: ModSet::none(),
        shape: GemmShape { m: 64, k: 32, n: 16 },
        supported: true,
        reason: None,
        error: Some(summary),
        latency,
        fidelity: None,
        static_scale: None,
        flushed: None,
        sampler: "gaussian".into(),
        engine: "cpu".into(),
        device: "a test".into(),
        seed: 0,
    }
}

/// Errors grow from site to site; the last one is unsafe with every kernel, one row cannot run.
fn results(names: &[String]) -> Results {
    let sites: Vec<_> =
        names.iter().map(|id| serde_json::json!({"id": id, "m": 64, "k": 32, "n": 16, "dtype": "bf16"})).collect();
    let manifest: Manifest = serde_json::from_value(serde_json::json!({
        "version": 1,
        "model": {"name": "made up", "family": "test"},
        "run": {"id": "a", "step": 10},
        "loss": {"name": "log_loss", "value": 0.5},
        "sites": sites,
    }))
    .unwrap();
    let mut rows = Vec::new();
    for (at, site) in names.iter().enumerate() {
        for gemm in Gemm::ALL {
            let error = 0.02 + 0.3 * at as f64 / names.len() as f64;
            rows.push(row(site, gemm, BF16, 0.005, 1.0));
            rows.push(row(site, gemm, FAST, error, 1.3 - 0.05 * at as f64 / names.len() as f64));
            let mut other = row(site, gemm, OTHER, 1.5 * error, 1.2);
            if at == 1 {
                (other.supported, other.error) = (false, None);
                other.reason = Some("n = 16 is not a multiple of 128".into());
            }
            rows.push(other);
        }
    }
    let meta = ResultsMeta {
        trace_digest: "sha256:1".to_owned(),
        manifest,
        engine: "cpu".to_owned(),
        device: "a test".to_owned(),
        driver: String::new(),
        versions: String::new(),
        time: "2026-11-20T12:00:00Z".to_owned(),
        seed: 0,
        confidence: 0.95,
        problems: Vec::new(),
        site_times: None,
    };
    Results { meta, rows }
}

fn opened(names: &[String]) -> (Window, Rc<RefCell<Script>>) {
    opened_with(results(names))
}

fn opened_with(results: Results) -> (Window, Rc<RefCell<Script>>) {
    let link = ScriptedLink::default().by_paper();
    let script = link.script.clone();
    let results = Box::new(results.into());
    script.borrow_mut().tell(Event::ResultsOpened { path: "made.results.parquet".to_owned(), results });
    let builder = Harness::builder().with_size([1440.0, 900.0]).with_max_steps(8).allow_missing_glyphs();
    let mut harness = window_by(builder, LokaApp::new(Box::new(link)));
    harness.run_steps(5);
    (harness, script)
}

fn sample() -> (Window, Rc<RefCell<Script>>) {
    opened(&SITES.map(str::to_owned))
}

fn press(harness: &mut Window, modifiers: Modifiers, key: Key) {
    harness.key_press_modifiers(modifiers, key);
    harness.run_steps(3);
}

/// By the palette, as people do who know no key.
fn act(harness: &mut Window, text: &str) {
    press(harness, Modifiers::COMMAND, Key::K);
    harness.event(egui::Event::Text(text.to_owned()));
    harness.run_steps(2);
    press(harness, Modifiers::NONE, Key::Enter);
    harness.run_steps(2);
}

fn filter(harness: &mut Window, text: &str) {
    harness.state_mut().view_mut().filter = text.to_owned();
    harness.run_steps(3);
}

fn shown(harness: &Window) -> Vec<&'static str> {
    let lines = harness.state().view().sites.lines();
    lines.order.iter().map(|site| SITES[*site as usize]).collect()
}

fn select(harness: &mut Window, site: &str) {
    harness.state_mut().view_mut().select(SiteId::new(site), None);
    harness.run_steps(2);
}

fn selected(harness: &Window) -> Vec<String> {
    harness.state().view().selected_sites().iter().map(ToString::to_string).collect()
}

/// A row of the site list: other views name the selected site too.
fn in_list<'a>(harness: &'a Window, label: &'a str) -> egui_kittest::Node<'a> {
    harness.get_by_role_and_label(egui::Role::Button, label)
}

#[test]
fn modules_open_and_close_in_the_list() {
    let (mut harness, _) = sample();
    assert!(harness.query_by_label("net.layers.0, 3 sites, open").is_some());
    assert!(harness.query_by_label("net.layers.0.mlp.fc1").is_some());
    harness.get_by_label("net.layers.0, 3 sites, open").click();
    harness.run_steps(3);
    assert!(harness.query_by_label("net.layers.0, 3 sites, closed").is_some());
    assert!(harness.query_by_label("net.layers.0.mlp.fc1").is_none());
    assert_eq!(harness.state().view().sites.lines().order.len(), SITES.len(), "closed is not filtered");
    act(&mut harness, "open all modules");
    assert!(harness.query_by_label("net.layers.0.mlp.fc1").is_some());
    act(&mut harness, "close all modules");
    assert!(harness.query_by_label("net, 7 sites, closed").is_some());
    act(&mut harness, "open all modules");
    select(&mut harness, SITES[3]);
    act(&mut harness, "close the selected site");
    assert!(harness.query_by_label("net.layers.1.mlp, 2 sites, closed").is_some());
    act(&mut harness, "close the selected site");
    assert!(harness.query_by_label("net.layers.1.mlp, 2 sites, open").is_some(), "and open again");
}

#[test]
fn the_filter_is_typed_counted_and_cleared() {
    let (mut harness, _) = sample();
    press(&mut harness, Modifiers::NONE, Key::F);
    harness.event(egui::Event::Text("fc1".to_owned()));
    harness.run_steps(3);
    assert_eq!(shown(&harness), [SITES[0], SITES[3], SITES[5]]);
    assert!(harness.query_by_label("3 of 7").is_some());
    press(&mut harness, Modifiers::NONE, Key::Escape);
    act(&mut harness, "clear the filter");
    assert!(harness.query_by_label("7 sites").is_some());
    for (text, expected) in [
        ("/layers\\.\\d+\\.mlp.fc2$/", vec![SITES[1], SITES[4]]),
        ("module:net.layers.1", vec![SITES[3], SITES[4]]),
        ("-mlp", vec![SITES[2], SITES[6]]),
        ("verdict:unsafe", vec![SITES[5], SITES[6]]),
        ("lib:te -head mlp.fc2", vec![SITES[4]]),
        ("is:overridden", vec![]),
    ] {
        filter(&mut harness, text);
        assert_eq!(shown(&harness), expected, "{text}");
    }
    assert_eq!(harness.query_all_by_label("No site passes the filter").count(), 2, "in the list and in the heatmap");
}

#[test]
fn a_broken_filter_says_so_and_filters_nothing() {
    let (mut harness, _) = sample();
    filter(&mut harness, "/mlp(/");
    assert!(harness.query_by_label_contains("/mlp(/ is no regular expression").is_some());
    assert!(harness.query_by_label_contains("Nothing is filtered").is_some());
    assert_eq!(shown(&harness).len(), SITES.len());
    filter(&mut harness, "verdict:fats");
    assert!(harness.query_by_label_contains("“fats”").is_some());
}

/// The shapes below the list add up to every GEMM, and a click on one leaves the sites that have it.
#[test]
fn counts_below_the_list_add_up_and_filter() {
    let (mut harness, _) = sample();
    let all = 3 * SITES.len();
    assert!(harness.query_by_label(&format!("{all} GEMMs, by best FP8 kernel")).is_some());
    let labels: Vec<String> =
        harness.query_all_by_label_contains(" GEMM").filter_map(|node| node.accesskit_node().label()).collect();
    let counted: Vec<&String> = labels.iter().filter(|text| text.starts_with("Show ")).collect();
    let count = |text: &str| text.split_whitespace().find_map(|word| word.parse::<usize>().ok()).unwrap();
    let waiting: Vec<String> = harness
        .query_all_by_label_contains(" not probed yet")
        .filter_map(|node| node.accesskit_node().label())
        .collect();
    let waiting: usize = waiting.iter().take(1).map(|text| count(text)).sum();
    assert_eq!(counted.iter().map(|text| count(text)).sum::<usize>() + waiting, all, "{counted:?}");
    let fast = counted.iter().find(|text| text.ends_with(" unsafe & fast")).unwrap().as_str();
    harness.get_by_label(fast).click();
    harness.run_steps(3);
    assert_eq!(harness.state().view().filter, "verdict:unsafe-fast");
    let left = shown(&harness);
    assert!(!left.is_empty() && left.iter().all(|site| SITES[5..].contains(site)), "{left:?}");
    harness.get_by_label(fast).click();
    harness.run_steps(3);
    assert_eq!((harness.state().view().filter.as_str(), shown(&harness).len()), ("", SITES.len()));
}

#[test]
fn the_menu_writes_terms() {
    let (mut harness, _) = sample();
    harness.get_by_label("Add a filter term").click();
    harness.run_steps(3);
    harness.get_by_label("verdict:unsafe").click();
    harness.run_steps(3);
    assert_eq!(harness.state().view().filter, "verdict:unsafe");
    assert_eq!(shown(&harness), [SITES[5], SITES[6]]);
}

#[test]
fn sites_are_ordered() {
    let (mut harness, _) = sample();
    act(&mut harness, "group by module");
    for (text, sort, first, last) in [
        ("sort by worst error", Sort::WorstError, SITES[6], SITES[0]),
        ("sort by gain", Sort::Gain, SITES[0], SITES[6]),
        ("sort by verdict", Sort::Verdict, SITES[5], SITES[3]),
        ("sort by name", Sort::Name, SITES[6], SITES[5]),
        ("sort by loss cost", Sort::LossCost, SITES[0], SITES[6]),
        ("sort in forward order", Sort::Forward, SITES[0], SITES[6]),
    ] {
        act(&mut harness, text);
        assert_eq!(harness.state().view().sites.order.sort, sort);
        let lines = shown(&harness);
        assert_eq!((lines.first(), lines.last()), (Some(&first), Some(&last)), "{text}");
    }
    act(&mut harness, "reverse the order");
    assert_eq!(shown(&harness).first(), Some(&SITES[6]));
    harness.get_by_label("Order: Forward order").click();
    harness.run_steps(3);
    harness.get_by_label("Name").click();
    harness.run_steps(3);
    assert_eq!(harness.state().view().sites.order.sort, Sort::Name);
}

#[test]
fn several_sites_by_click_and_key() {
    let (mut harness, _) = sample();
    select(&mut harness, SITES[0]);
    press(&mut harness, Modifiers::SHIFT, Key::ArrowDown);
    press(&mut harness, Modifiers::SHIFT, Key::ArrowDown);
    assert_eq!(selected(&harness).len(), 3);
    press(&mut harness, Modifiers::SHIFT, Key::ArrowUp);
    assert_eq!(selected(&harness), [SITES[0], SITES[1]]);
    assert!(harness.query_by_label("2 selected").is_some());
    press(&mut harness, Modifiers::NONE, Key::ArrowDown);
    assert_eq!(selected(&harness), [SITES[2]], "an arrow alone selects one");
    press(&mut harness, Modifiers::COMMAND, Key::A);
    assert_eq!(selected(&harness).len(), SITES.len());
    press(&mut harness, Modifiers::NONE, Key::Home);
    assert_eq!(selected(&harness), [SITES[0]]);
    press(&mut harness, Modifiers::NONE, Key::End);
    assert_eq!(selected(&harness), [SITES[6]]);
    press(&mut harness, Modifiers::NONE, Key::PageUp);
    assert_eq!(selected(&harness), [SITES[0]]);
    press(&mut harness, Modifiers::NONE, Key::PageDown);
    assert_eq!(selected(&harness), [SITES[6]]);
    for (modifiers, expected) in [(Modifiers::COMMAND, 2), (Modifiers::SHIFT, 4)] {
        in_list(&harness, SITES[0]).click();
        harness.run_steps(2);
        in_list(&harness, SITES[3]).click_modifiers(modifiers);
        harness.run_steps(2);
        assert_eq!(selected(&harness).len(), expected, "{modifiers:?}");
    }
    in_list(&harness, SITES[3]).click_modifiers(Modifiers::COMMAND);
    harness.run_steps(2);
    assert_eq!(selected(&harness).len(), 3, "one less");
}

#[test]
fn bulk_changes_are_one_step_of_undo() {
    let (mut harness, _) = sample();
    filter(&mut harness, "module:net.layers.1");
    press(&mut harness, Modifiers::COMMAND, Key::A);
    act(&mut harness, "toggle BlockNorm at the selected sites");
    let mods = |harness: &Window| harness.state().session().document.mods.clone();
    assert!(mods(&harness).of(&SiteId::new(SITES[3])).contains(ModKind::BlockNorm));
    assert!(!mods(&harness).of(&SiteId::new(SITES[0])).contains(ModKind::BlockNorm));
    press(&mut harness, Modifiers::COMMAND, Key::Z);
    assert!(mods(&harness).is_empty());
    for (text, kind) in
        [("toggle no bias at the sel", ModKind::NoBias), ("toggle hard swish at the sel", ModKind::HardSwish)]
    {
        act(&mut harness, text);
        assert!(mods(&harness).of(&SiteId::new(SITES[4])).contains(kind), "{text}");
        press(&mut harness, Modifiers::COMMAND, Key::Z);
    }

    harness.state_mut().view_mut().column = Some(Column { gemm: Gemm::Fprop, kernel: KernelId::new(FAST) });
    act(&mut harness, "override at the selected sites");
    assert!(harness.query_by_label("Override 6 GEMMs at 2 sites").is_some());
    harness.event(egui::Event::Text("agreed in review".to_owned()));
    harness.run_steps(2);
    harness.get_by_label("Override all").click();
    harness.run_steps(4);
    let overrides = harness.state().session().document.overrides.clone();
    assert_eq!(overrides.len(), 6, "three GEMMs of two sites");
    assert!(overrides.values().all(|of| of.kernel.as_str() == FAST && of.reason == "agreed in review"));
    filter(&mut harness, "is:overridden");
    assert_eq!(shown(&harness), [SITES[3], SITES[4]]);
    act(&mut harness, "clear overrides at the selected sites");
    assert!(harness.state().session().document.overrides.is_empty());
    press(&mut harness, Modifiers::COMMAND, Key::Z);
    assert_eq!(harness.state().session().document.overrides.len(), 6);
    press(&mut harness, Modifiers::COMMAND, Key::Z);
    assert!(harness.state().session().document.overrides.is_empty(), "one step");
}

#[test]
fn the_override_form_needs_a_reason_and_can_be_left() {
    let (mut harness, _) = sample();
    select(&mut harness, SITES[0]);
    act(&mut harness, "override at the selected sites");
    assert!(harness.query_by_label("Override all").is_some());
    harness.get_by_label("Override all").click();
    harness.run_steps(3);
    assert!(harness.state().session().document.overrides.is_empty(), "greyed without a reason");
    harness.get_by_label("Cancel").click();
    harness.run_steps(3);
    assert!(harness.query_by_label("Override all").is_none());
}

#[test]
fn names_are_copied_as_the_list_stands() {
    let (mut harness, _) = sample();
    filter(&mut harness, "fc2");
    press(&mut harness, Modifiers::COMMAND, Key::A);
    let copied = |harness: &Window| {
        let copy = |command: &egui::OutputCommand| match command {
            egui::OutputCommand::CopyText(text) => Some(text.clone()),
            _ => None,
        };
        harness.output().platform_output.commands.iter().find_map(copy)
    };
    press(&mut harness, Modifiers::COMMAND, Key::K);
    harness.event(egui::Event::Text("copy all selected names".to_owned()));
    harness.run_steps(2);
    harness.key_press(Key::Enter);
    let mut text = None;
    for _ in 0..4 {
        harness.step();
        text = text.or_else(|| copied(&harness));
    }
    assert_eq!(text.as_deref(), Some("net.layers.0.mlp.fc2\nnet.layers.1.mlp.fc2"));
}

fn cell_label(harness: &Window) -> Option<String> {
    let node = harness.query_by_role(egui::Role::GridCell)?;
    node.accesskit_node().label()
}

#[test]
fn the_focused_cell_says_all_and_arrows_move_it() {
    let (mut harness, _) = sample();
    let column = Column { gemm: Gemm::Fprop, kernel: KernelId::new(FAST) };
    harness.state_mut().view_mut().select(SiteId::new(SITES[0]), Some(column));
    harness.run_steps(3);
    let label = cell_label(&harness).unwrap();
    for part in
        [SITES[0], "fprop", FAST, "MERE .020 ± .002 (.0180 to .0220)", "safe & fast", "chosen", "1.30×, recorded"]
    {
        assert!(label.contains(part), "{part} in {label}");
    }
    harness.get_by_role(egui::Role::GridCell).focus();
    harness.run_steps(2);
    press(&mut harness, Modifiers::NONE, Key::ArrowDown);
    press(&mut harness, Modifiers::NONE, Key::ArrowRight);
    let label = cell_label(&harness).unwrap();
    assert!(label.contains(SITES[1]) && label.contains(OTHER), "{label}");
    assert!(label.contains("No value: n = 16 is not a multiple of 128"), "{label}");
    press(&mut harness, Modifiers::NONE, Key::Enter);
    assert_eq!(harness.state().view().layout.active(), loka::layout::Pane::Site);
}

#[test]
fn zoom_by_key_and_back() {
    let names: Vec<String> = (0..400).map(|at| format!("m.{}.fc{}", at / 20, at % 20)).collect();
    let (mut harness, _) = opened(&names);
    let row = |harness: &Window| harness.state().view().heatmap.row;
    press(&mut harness, Modifiers::NONE, Key::Minus);
    let smaller = row(&harness).unwrap();
    press(&mut harness, Modifiers::NONE, Key::Plus);
    assert!(row(&harness).unwrap() > smaller);
    (0..30).for_each(|_| press(&mut harness, Modifiers::NONE, Key::Minus));
    assert!(row(&harness).unwrap() < 2.0, "rows share lines of pixels");
    press(&mut harness, Modifiers::NONE, Key::Num0);
    assert_eq!(row(&harness), None);
    act(&mut harness, "widen the heatmap");
    let wide = harness.state().view().heatmap.width.unwrap();
    act(&mut harness, "narrow the heatmap");
    assert!(harness.state().view().heatmap.width.unwrap() < wide);
    act(&mut harness, "reset the heatmap");
    assert!(!harness.state().view().heatmap.is_zoomed());
}

#[test]
fn the_filter_chooses_columns_too() {
    let (mut harness, _) = sample();
    assert!(harness.query_by_label("Heatmap of 7 sites and 9 columns").is_some());
    filter(&mut harness, "lib:te");
    assert!(harness.query_by_label("Heatmap of 6 sites and 3 columns").is_some(), "one site cannot run it");
    filter(&mut harness, "gemm:dgrad");
    assert!(harness.query_by_label("Heatmap of 7 sites and 3 columns").is_some());
    filter(&mut harness, "lib:torchao verdict:waiting");
    assert!(harness.query_by_label_contains("The filter leaves no kernel").is_some());
}

/// The kernel that the focused cell tells of.
fn shown_kernel(harness: &Window) -> String {
    cell_label(harness).unwrap().split(", ").nth(1).unwrap_or_default().to_owned()
}

#[test]
fn kernels_that_compute_the_same_share_a_column() {
    const ALIKE: &str = "fbgemm/rowwise";
    let names = SITES.map(str::to_owned);
    let mut results = results(&names);
    for (at, site) in names.iter().enumerate() {
        // At every other site it is the faster one, and the plan's.
        let speed = if at % 2 == 0 { 1.4 } else { 1.1 };
        results.rows.extend(Gemm::ALL.map(|gemm| row(site, gemm, ALIKE, 0.02, speed)));
    }
    let (mut harness, _) = opened_with(results);
    assert!(harness.query_by_label("Heatmap of 7 sites and 9 columns").is_some(), "four kernels, three recipes");
    let column = Column { gemm: Gemm::Fprop, kernel: KernelId::new(BF16) };
    harness.state_mut().view_mut().select(SiteId::new(SITES[0]), Some(column));
    harness.run_steps(3);
    press(&mut harness, Modifiers::NONE, Key::ArrowRight);
    assert_eq!(shown_kernel(&harness), ALIKE);
    assert!(cell_label(&harness).unwrap().contains("one of 2 that compute the same"));
    select(&mut harness, SITES[1]);
    assert_eq!(shown_kernel(&harness), FAST, "the best of that site");
    act(&mut harness, "open the selected column");
    assert!(harness.query_by_label("Heatmap of 7 sites and 12 columns").is_some(), "at every GEMM");
    assert_eq!(shown_kernel(&harness), ALIKE, "the selected kernel itself");
    act(&mut harness, "open the selected column");
    assert!(harness.query_by_label("Heatmap of 7 sites and 9 columns").is_some());
    act(&mut harness, "heatmap columns by library");
    assert!(harness.query_by_label("Heatmap of 7 sites and 12 columns").is_some());
    act(&mut harness, "heatmap columns by library");
    filter(&mut harness, "lib:fbgemm");
    assert!(harness.query_by_label("Heatmap of 7 sites and 3 columns").is_some(), "of those the filter leaves one");
}

#[test]
fn steps_of_a_series_can_be_the_columns() {
    let (mut harness, script) = sample();
    act(&mut harness, "steps as columns");
    let asked = script.borrow().asked.last().cloned();
    assert_eq!(asked, Some(Effect::ReadSeries { path: "made.results.parquet".to_owned() }));
    assert_eq!(harness.state().session().series, SeriesState::Reading);
    let series = |site: u32| SiteSeries {
        site,
        name: "input_amax".to_owned(),
        steps: vec![0, 500, 1000],
        values: vec![1.0, 2.0 + site as f32, 4.0],
    };
    let table = Box::new(SeriesTable::of(SITES.len(), vec![series(0), series(3)]));
    let path = "made.results.parquet".to_owned();
    script.borrow_mut().tell(Event::SeriesRead { path, table: Ok(table) });
    harness.run_steps(4);
    assert!(harness.query_by_label("Heatmap of 7 sites and 3 columns").is_some());
    select(&mut harness, SITES[3]);
    press(&mut harness, Modifiers::NONE, Key::ArrowRight);
    press(&mut harness, Modifiers::NONE, Key::ArrowRight);
    let label = cell_label(&harness).unwrap();
    assert!(label.contains("steps of input amax 500: 5"), "{label}");
    select(&mut harness, SITES[6]);
    assert!(cell_label(&harness).unwrap().contains("not recorded here"));
    act(&mut harness, "steps as columns");
    assert!(harness.query_by_label("Heatmap of 7 sites and 9 columns").is_some());
}

#[test]
fn a_trace_without_its_file_says_why_there_are_no_series() {
    let (mut harness, script) = sample();
    harness.state_mut().command(Command::ReadSeries);
    let (path, table) = ("made.results.parquet".to_owned(), Err("the trace is not open".to_owned()));
    script.borrow_mut().tell(Event::SeriesRead { path, table });
    harness.run_steps(3);
    assert_eq!(harness.state().session().series, SeriesState::Failed("the trace is not open".to_owned()));
}

#[test]
fn modules_show_their_median_when_asked() {
    let (mut harness, _) = sample();
    assert!(!harness.state().view().heatmap.medians);
    act(&mut harness, "medians of modules");
    assert!(harness.state().view().heatmap.medians);
    harness.get_by_label("Medians of modules").click();
    harness.run_steps(2);
    assert!(!harness.state().view().heatmap.medians);
}

#[test]
fn hostile_names_are_drawn() {
    let names = vec![
        String::new(),
        "x".repeat(4000),
        "d.".repeat(1500) + "end",
        "سلام.עולם".to_owned(),
        "🧮.🧮.a".to_owned(),
        "🧮.🧮.b".to_owned(),
        "a b.c".to_owned(),
        "...".to_owned(),
    ];
    let (mut harness, _) = opened(&names);
    assert!(harness.query_by_label(&format!("Heatmap of {} sites and 9 columns", names.len())).is_some());
    for _ in 0..names.len() {
        press(&mut harness, Modifiers::NONE, Key::ArrowDown);
    }
    act(&mut harness, "close all modules");
    filter(&mut harness, "🧮");
    assert_eq!(harness.state().view().sites.lines().order.len(), 2);
}

fn brushed(harness: &Window) -> (usize, usize) {
    let set = &harness.state().view().brush.set;
    (set.sites().len(), set.gemms().len())
}

#[test]
fn cells_are_brushed_by_a_drag_and_shift_adds() {
    let (mut harness, _) = sample();
    let column = |gemm, kernel: &str| Some(Column { gemm, kernel: KernelId::new(kernel) });
    let mut place = |site: &str, gemm, kernel: &str| {
        harness.state_mut().view_mut().select(SiteId::new(site), column(gemm, kernel));
        harness.run_steps(3);
        harness.get_by_role(egui::Role::GridCell).rect().center()
    };
    let from = place(SITES[0], Gemm::Fprop, FAST);
    let to = place(SITES[2], Gemm::Dgrad, FAST);
    // Left of the card, which stands beside the area.
    let far = place(SITES[4], Gemm::Fprop, BF16);
    drag(&mut harness, from, to, Modifiers::NONE);
    // Three sites, and of fprop the last columns, of dgrad the first.
    assert_eq!(brushed(&harness), (3, 6));
    assert!(harness.query_by_label("6 GEMMs at 3 sites").is_some());
    drag(&mut harness, far, far + egui::vec2(2.0, 9.0), Modifiers::SHIFT);
    assert_eq!(brushed(&harness), (4, 7));
    press(&mut harness, Modifiers::NONE, Key::Escape);
    assert_eq!(brushed(&harness), (0, 0));
    drag(&mut harness, from, to, Modifiers::NONE);
    act(&mut harness, "sort by name");
    assert!(harness.query_by_label("6 GEMMs at 3 sites").is_some(), "the set is what it was, however it is sorted");
}

#[test]
fn cells_are_brushed_by_keys_from_the_selected_one() {
    let (mut harness, _) = sample();
    let column = Column { gemm: Gemm::Fprop, kernel: KernelId::new(FAST) };
    harness.state_mut().view_mut().select(SiteId::new(SITES[0]), Some(column));
    harness.run_steps(3);
    press(&mut harness, Modifiers::SHIFT, Key::ArrowRight);
    assert_eq!(brushed(&harness), (1, 1));
    assert_eq!(harness.state().view().brush.set.rows().len(), 2);
    // While there is an area, up and down are its own too.
    press(&mut harness, Modifiers::SHIFT, Key::ArrowDown);
    press(&mut harness, Modifiers::SHIFT, Key::ArrowRight);
    assert_eq!(brushed(&harness), (2, 4), "into dgrad");
    press(&mut harness, Modifiers::SHIFT, Key::ArrowUp);
    press(&mut harness, Modifiers::SHIFT, Key::ArrowLeft);
    assert_eq!(brushed(&harness), (1, 1));
    assert_eq!(selected(&harness).len(), 1, "the selection is another thing");
    press(&mut harness, Modifiers::NONE, Key::Escape);
    press(&mut harness, Modifiers::SHIFT, Key::ArrowDown);
    assert_eq!((brushed(&harness), selected(&harness).len()), ((0, 0), 2), "without one they select sites");
    harness.get_by_role(egui::Role::GridCell).focus();
    harness.run_steps(3);
    press(&mut harness, Modifiers::SHIFT, Key::ArrowDown);
    assert_eq!(brushed(&harness).0, 2, "a cell with the focus begins one by any arrow");
}

/// Slowly enough for a drag to be one.
fn drag(harness: &mut Window, from: egui::Pos2, to: egui::Pos2, modifiers: Modifiers) {
    use egui::{Event as Input, PointerButton};
    let button = |pos, pressed| Input::PointerButton { pos, button: PointerButton::Primary, pressed, modifiers };
    harness.event_modifiers(Input::PointerMoved(from), modifiers);
    harness.run_steps(2);
    harness.event_modifiers(button(from, true), modifiers);
    harness.run_steps(2);
    for step in 1..=5 {
        harness.event_modifiers(Input::PointerMoved(from + (to - from) * (step as f32 / 5.0)), modifiers);
        harness.run_steps(2);
    }
    harness.event_modifiers(button(to, false), modifiers);
    harness.run_steps(2);
    harness.event(Input::PointerGone);
    harness.run_steps(2);
}

/// Every action of these two groups is named in this file.
#[test]
fn no_action_is_left_out() {
    let source = include_str!("heatmap.rs").to_lowercase();
    let keyed = ["Next", "Previous", "Extend", "First site", "Last site", "Page", "Zoom", "Select all", "Filter sites"];
    let select = commands::SelectAction::ALL.iter().map(|of| of.entry().text);
    for text in select.chain(commands::HeatmapAction::ALL.iter().map(|of| of.entry().text)) {
        let known = source.contains(&text.to_lowercase()[..text.len().min(16)]);
        assert!(known || keyed.iter().any(|key| text.starts_with(key)) || text == "Copy name", "{text}");
    }
}
