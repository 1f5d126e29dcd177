//! The workbench every day: files opened, dropped and watched, settings that outlive a window, the clipboard,
//! pictures, the log, menus, palette and sheet; and what happens with files and names that are not as they should
//! be.

use std::{
    cell::RefCell,
    path::{Path, PathBuf},
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use egui_kittest::{Harness, kittest::Queryable as _};
use loka::{
    LokaApp,
    commands::Action,
    layout::Pane,
    link::InProcess,
    platform::FileStore,
    platform::ThreadExecutor,
    platform::{Ask, Picked, Picker},
    settings::Settings,
    state::TOUR,
    theme::Ground,
    window::steps::{self, Step},
};
use loka_core::{
    engine::EngineStatus,
    format::Term,
    model::{
        ErrorSummary, Estimate, Gemm, GemmShape, KernelId, Latency, LatencySource, Metric, ModSet, ResultRow, Results,
        SiteId,
    },
    plan::Plan,
    session::{Circumstances, Command, Effect, Event, FileChange, FileKind, LogKind, NoticeKind},
    views::{Column, KernelColumn, OpenedTrace},
};
use loka_tests::scripted::{Script, ScriptedLink, Window, window_by};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn sample() -> PathBuf {
    repository().join("sample-traces/wukong-clicks.trace.safetensors")
}

const BASE: &str = "cublaslt/bf16";
const ROWWISE: &str = "cublaslt/fp8-rowwise+fast";

/// A probe begins at once, and gives its rows when the test says so; tensors there are none.
fn started(effect: &Effect) -> Option<Event> {
    match effect {
        Effect::Probe { run, mods, sites, .. } => {
            let by = Box::new(made_here());
            Some(Event::ProbeStarted { run: *run, mods: mods.clone(), sites: sites.clone(), by })
        }
        Effect::Inspect { trace, site } => {
            let (trace, site, outcome) = (trace.clone(), site.clone(), Err("no such tensor".to_owned()));
            Some(Event::SiteInspected { trace, other: None, site, outcome })
        }
        _ => None,
    }
}

fn link() -> ScriptedLink {
    ScriptedLink::new(Script { answer: started, ..Script::default() }).by_paper()
}

fn made_here() -> Circumstances {
    let text = |text: &str| text.to_owned();
    Circumstances {
        engine: text("cpu"),
        device: EngineStatus::cpu().device,
        driver: String::new(),
        versions: text("a test"),
        time: text("2026-11-20T12:00:00Z"),
        seed: 0,
        confidence: 0.95,
    }
}

fn opened_as(path: &str) -> OpenedTrace {
    let trace = loka_core::trace::Trace::open(&sample()).unwrap();
    let config = loka_core::probe::ProbeConfig::default();
    let meta = loka::probing::results_meta(&trace, trace.digest(), &loka_core::engine::CpuEngine, &config);
    OpenedTrace { path: path.to_owned(), name: trace.manifest().model.name.clone(), meta }
}

fn row(site: &SiteId, kernel: &str, error: f64) -> ResultRow {
    let around = |value: f64| Estimate::new(value, 0.9 * value, 1.1 * value);
    let error = ErrorSummary {
        draws: 16,
        zeros_skipped: 0,
        mere: around(error),
        rel_l2: around(0.04),
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
        latency_us: Some(8.0),
        baseline_us: Some(9.0),
        source: LatencySource::Recorded,
        ..Latency::unknown("recorded on a test machine")
    };
    ResultRow {
        site: site.clone(),
        gemm: Gemm::Fprop,
        kernel: KernelId::new(kernel),
        mods: ModSet::none(),
        shape: GemmShape { m: 64, k: 32, n: 16 },
        supported: true,
        reason: None,
        error: Some(error),
        latency,
        fidelity: None,
        static_scale: None,
        flushed: None,
        sampler: "copula".into(),
        engine: "cpu".into(),
        device: made_here().device.into(),
        seed: 0,
    }
}

type Effects = Rc<RefCell<Script>>;

fn shown(app: LokaApp, size: [f32; 2]) -> Window {
    // Characters that no face has are boxes, as in the window.
    window_by(Harness::builder().with_size(size).with_max_steps(60).allow_missing_glyphs(), app)
}

fn scripted_as(trace: OpenedTrace, size: [f32; 2], with: impl FnOnce(LokaApp) -> LokaApp) -> (Window, Effects) {
    let link = link();
    let script = link.script.clone();
    script.borrow_mut().tell(Event::TraceOpened { trace: Box::new(trace) });
    let mut harness = shown(with(LokaApp::new(Box::new(link))), size);
    harness.run_steps(4);
    (harness, script)
}

/// The sample with rows of its first two sites, and nothing running.
fn probed() -> (Window, Effects) {
    let (mut harness, script) = scripted_as(opened_as("clicks.trace.safetensors"), [1280.0, 800.0], |app| app);
    finish(&mut harness, &script);
    (harness, script)
}

fn finish(harness: &mut Window, script: &Effects) {
    let session = harness.state().session();
    let run = session.run.as_ref().unwrap().id;
    let sites: Vec<SiteId> = session.sites().iter().take(2).map(|site| site.id.clone()).collect();
    let rows = sites.iter().flat_map(|site| [row(site, BASE, 0.003), row(site, ROWWISE, 0.123_456_789)]).collect();
    script.borrow_mut().tell(Event::Rows { run, rows });
    script.borrow_mut().tell(Event::ProbeFinished { run, cancelled: false, seconds: 2.5 });
    harness.run_steps(4);
}

/// The tour points at what is there, stands in nobody's way, and is offered once.
#[test]
fn the_tour_is_taken_once_and_left_at_once() {
    let (mut harness, _) = probed();
    assert!(harness.query_by_label("Take the tour").is_some());
    by_palette(&mut harness, "take the tour");
    harness.run_steps(4);
    for (at, (pane, text)) in TOUR.into_iter().enumerate() {
        assert!(harness.query_by_label(&format!("{} · {} of {}", pane.title(), at + 1, TOUR.len())).is_some());
        assert!(harness.query_by_label(text).is_some() && harness.state().view().layout.is_on_screen(pane));
        if at + 1 < TOUR.len() {
            click(&mut harness, "Next");
        }
    }
    harness.key_press(egui::Key::Num2);
    harness.run_steps(3);
    assert!(harness.state().view().layout.is_on_screen(Pane::Quadrant), "keys go where they went");
    assert!(harness.query_by_label("Done").is_some());
    harness.key_press(egui::Key::Escape);
    harness.run_steps(3);
    assert!(harness.query_by_label("Done").is_none() && harness.query_by_label("Take the tour").is_none());
}

/// Headers, metrics and figures say what they mean to who has no pointer.
#[test]
fn terms_are_explained_where_the_keys_are() {
    let (mut harness, _) = probed();
    let (site, kernel) = (site(&harness, 0), KernelId::new(ROWWISE));
    harness.state_mut().view_mut().select(site, Some(Column { gemm: Gemm::Fprop, kernel }));
    harness.run_steps(3);
    let metric = harness.state().view().metric;
    let columns = [
        (KernelColumn::Kernel, "kernel"),
        (KernelColumn::Draws, "draws"),
        (KernelColumn::Latency, "µs"),
        (KernelColumn::Speedup, "× BF16"),
    ];
    let heads = columns.map(|(column, head)| (format!("Sort kernels by {head}"), column.term(metric)));
    for (label, term) in heads {
        assert!(harness.query_by_label_contains(term.about()).is_none(), "{label}");
        harness.get_by_label(&label).focus();
        harness.run_steps(3);
        assert!(harness.query_by_label_contains(term.about()).is_some(), "{label}");
    }
    // Words that are no buttons: Tab goes over them.
    let mut walk = |from: &str, most: usize, mut wanted: Vec<Term>| {
        harness.get_by_label(from).focus();
        harness.run_steps(2);
        for _ in 0..most {
            harness.key_press(egui::Key::Tab);
            harness.run_steps(2);
            wanted.retain(|term| harness.query_by_label_contains(term.about()).is_none());
        }
        assert_eq!(wanted, [], "from {from}");
    };
    walk("?", 8, vec![Term::Policy, Term::Mere, Term::SpeedMargin]);
    // Those that a row has nothing to say of are not in its table.
    let told = Metric::ALL.into_iter().filter(|of| !matches!(of, Metric::NoiseShare | Metric::Bias));
    walk("Sort kernels by × BF16", 24, told.map(Term::of_metric).collect());
    // A click gives the focus, too, and leaves no tooltip behind.
    click(&mut harness, "Sort kernels by draws");
    harness.remove_cursor();
    harness.run_steps(4);
    assert!(harness.query_by_label_contains(Term::Draw.about()).is_none());
}

fn tell(harness: &mut Window, script: &Effects, event: Event) {
    script.borrow_mut().tell(event);
    harness.run_steps(4);
}

fn click(harness: &mut Window, label: &str) {
    harness.get_by_label(label).click();
    harness.run_steps(3);
}

/// The way that every action can be done: by its name.
fn by_palette(harness: &mut Window, text: &str) {
    harness.key_press_modifiers(egui::Modifiers::COMMAND, egui::Key::K);
    harness.run_steps(3);
    harness.event(egui::Event::Text(text.to_owned()));
    harness.run_steps(2);
    harness.key_press(egui::Key::Enter);
    // Step by step: what is copied is in the output of one frame.
}

/// What a frame of the next few put on the clipboard.
fn copied(harness: &mut Window) -> String {
    for _ in 0..8 {
        harness.step();
        let commands = &harness.output().platform_output.commands;
        let text = commands.iter().find_map(|command| match command {
            egui::OutputCommand::CopyText(text) => Some(text.clone()),
            _ => None,
        });
        if let Some(text) = text {
            return text;
        }
    }
    panic!("nothing was copied; the notices: {:?}", notices(harness));
}

fn notices(harness: &Window) -> Vec<String> {
    harness.state().session().notices.iter().map(|notice| notice.text.clone()).collect()
}

fn site(harness: &Window, at: usize) -> SiteId {
    harness.state().session().sites()[at].id.clone()
}

fn wait(harness: &mut Window, what: &str, ready: impl Fn(&Window) -> bool) {
    let start = Instant::now();
    while !ready(harness) {
        assert!(start.elapsed() < Duration::from_secs(60), "waited in vain for {what}: {:?}", notices(harness));
        std::thread::sleep(Duration::from_millis(10));
        harness.step();
    }
}

#[derive(Debug)]
struct Dropped(PathBuf);

impl egui::DroppedFile for Dropped {
    fn path(&self) -> &Path {
        &self.0
    }

    fn bytes(&self) -> Result<Vec<u8>, String> {
        Err("read by its path".to_owned())
    }
}

fn drop_files(harness: &mut Window, paths: &[&str]) {
    for path in paths {
        harness.input_mut().dropped_files.push(Arc::new(Dropped(PathBuf::from(path))));
    }
    harness.run_steps(4);
}

// --- opening -----------------------------------------------------------------------------------------------

#[test]
fn files_dropped_together_open_in_their_order() {
    let link = link();
    let script = link.script.clone();
    let mut harness = shown(LokaApp::new(Box::new(link)), [1280.0, 800.0]);
    drop_files(&mut harness, &["a.plan.json", "a.results.parquet", "a.trace.safetensors"]);
    let last = |script: &Effects| script.borrow().asked.last().cloned();
    assert_eq!(last(&script), Some(Effect::LoadTrace { path: "a.trace.safetensors".to_owned() }));

    let trace = opened_as("a.trace.safetensors");
    let meta = trace.meta.clone();
    tell(&mut harness, &script, Event::TraceOpened { trace: Box::new(trace) });
    assert_eq!(last(&script), Some(Effect::LoadResults { path: "a.results.parquet".to_owned() }));
    assert!(!harness.state().session().is_running(), "rows are on their way: nothing is probed twice");

    let rows = vec![row(&site(&harness, 0), ROWWISE, 0.1)];
    let results = Box::new(Results { meta, rows }.into());
    tell(&mut harness, &script, Event::ResultsOpened { path: "a.results.parquet".to_owned(), results });
    let asked = script.borrow().asked.clone();
    assert!(asked.contains(&Effect::LoadPlan { path: "a.plan.json".to_owned() }));
    let probed = asked.iter().find_map(|effect| match effect {
        Effect::Probe { sites, .. } => Some(sites.clone()),
        _ => None,
    });
    let probed = probed.expect("what the rows lack is probed");
    assert!(!probed.contains(&site(&harness, 0)) && probed.contains(&site(&harness, 1)));
}

#[test]
fn files_that_are_not_ours_are_one_line_and_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut harness =
        shown(LokaApp::new(Box::new(InProcess::new(ThreadExecutor::new(Arc::new(|| {}))))), [1280.0, 800.0]);
    for (name, bytes, line) in [
        ("paper.pdf", &b"%PDF-1.7"[..], "paper.pdf is no trace, results or plan: it looks like a PDF document"),
        ("notes", b"dear diary", "notes is no trace, results or plan: it looks like a text file"),
        ("broken.trace.safetensors", b"%PDF-1.7", "broken.trace.safetensors"),
        ("broken.results.parquet", b"PAR1 but no rows", "broken.results.parquet"),
        ("broken.plan.json", b"{}", "broken.plan.json"),
    ] {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        drop_files(&mut harness, &[path.to_str().unwrap()]);
        wait(&mut harness, name, |harness| notices(harness).iter().any(|text| text.contains(line)));
        assert!(notices(&harness).iter().all(|text| !text.contains('\n')));
        assert!(harness.state().session().trace.is_none());
    }
    assert!(harness.state().view().recent.is_empty(), "what did not open is not remembered");
}

#[test]
fn hovering_files_say_what_letting_go_does() {
    let (mut harness, _script) = probed();
    let hovered = vec![egui::HoveredFile::default(); 2];
    harness.input_mut().hovered_files = hovered;
    harness.run_steps(2);
    harness.input_mut().hovered_files.clear();
    harness.run_steps(2);
    assert!(harness.query_by_label("File").is_some());
}

struct ThreeFiles;

impl Picker for ThreeFiles {
    fn begin(&self, ask: &Ask) -> Box<dyn FnOnce() -> Picked + Send> {
        assert!(!ask.save);
        Box::new(|| Ok(vec!["b.plan.json".to_owned(), "b.trace.safetensors".to_owned()]))
    }

    fn problem(&self) -> Option<String> {
        None
    }
}

struct NoDialog;

impl Picker for NoDialog {
    fn begin(&self, _: &Ask) -> Box<dyn FnOnce() -> Picked + Send> {
        Box::new(|| Err("This desktop has no file dialog".to_owned()))
    }

    fn problem(&self) -> Option<String> {
        None
    }
}

#[test]
fn browsing_opens_what_was_picked() {
    let with = |app: LokaApp| app.with_picker(Box::new(ThreeFiles));
    let (mut harness, script) = scripted_as(opened_as("a.trace.safetensors"), [1280.0, 800.0], with);
    by_palette(&mut harness, "Browse for files");
    harness.run_steps(4);
    let asked = script.borrow().asked.clone();
    assert_eq!(asked.last(), Some(&Effect::LoadTrace { path: "b.trace.safetensors".to_owned() }));
}

#[test]
fn without_a_file_dialog_the_path_is_typed() {
    let with = |app: LokaApp| app.with_picker(Box::new(NoDialog));
    let (mut harness, _script) = scripted_as(opened_as("a.trace.safetensors"), [1280.0, 800.0], with);
    harness.key_press_modifiers(egui::Modifiers::COMMAND, egui::Key::O);
    harness.run_steps(3);
    click(&mut harness, "Browse…");
    harness.run_steps(3);
    assert!(notices(&harness).iter().any(|text| text.contains("no file dialog")));
    assert!(harness.state().view().dialog.is_some(), "the path field is back");
    let again = harness.state().view().no_browse.clone();
    assert_eq!(again.as_deref(), Some("This desktop has no file dialog"));
}

#[test]
fn recent_files_come_back_go_and_are_greyed_when_missing() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("settings.json");
    let mut settings = Settings::default();
    settings.recent.add(sample().canonicalize().unwrap().to_str().unwrap(), FileKind::Trace);
    settings.recent.add("/nowhere/gone.trace.safetensors", FileKind::Trace);
    std::fs::write(&store, settings.to_json()).unwrap();

    let link = link();
    let script = link.script.clone();
    let app = LokaApp::new(Box::new(link)).with_store(Arc::new(FileStore::at(&store)));
    let mut harness = shown(app, [1280.0, 800.0]);
    harness.run_steps(3);
    assert!(harness.query_by_label("no such file or folder").is_some(), "the reason is said");
    harness.get_by_label_contains("gone.trace.safetensors trace").click();
    harness.run_steps(3);
    let loads = |script: &Effects| script.borrow().asked.iter().any(|of| matches!(of, Effect::LoadTrace { .. }));
    assert!(!loads(&script), "a missing file cannot be clicked");
    click(&mut harness, "Forget gone.trace.safetensors");
    assert_eq!(harness.state().view().recent.files().len(), 1);
    harness.get_by_label_contains("wukong-clicks.trace.safetensors trace").click();
    harness.run_steps(3);
    assert!(loads(&script));
    by_palette(&mut harness, "Clear recent files");
    harness.run_steps(3);
    assert!(harness.state().view().recent.is_empty());
}

#[test]
fn what_opened_is_remembered_in_the_menu() {
    let (mut harness, script) = probed();
    click(&mut harness, "File");
    harness.get_by_label_contains("Open recent").click();
    harness.run_steps(3);
    let recent = harness.state().view().recent.clone();
    assert_eq!(recent.files()[0].name(), "clicks.trace.safetensors");
    harness.get_by_label_contains("clicks.trace.safetensors trace").click();
    harness.run_steps(3);
    assert!(matches!(script.borrow().asked.last(), Some(Effect::LoadTrace { .. })));
}

// --- files that belong elsewhere, grow or go ---------------------------------------------------------------

#[test]
fn rows_and_plans_of_another_trace_change_nothing() {
    let (mut harness, script) = probed();
    let before = (harness.state().session().rows().count(), harness.state().session().revision());
    let mut meta = opened_as("x").meta;
    meta.trace_digest = "sha256:0".to_owned();
    let results = Box::new(Results { meta, rows: vec![row(&SiteId::new("elsewhere"), ROWWISE, 0.1)] }.into());
    tell(&mut harness, &script, Event::ResultsOpened { path: "other.parquet".to_owned(), results });
    let text = std::fs::read_to_string(repository().join("docs/evidence/h200-quality.plan.json")).unwrap();
    let plan = Box::new(Plan::from_json(&text).unwrap());
    tell(&mut harness, &script, Event::PlanOpened { path: "other.plan.json".to_owned(), plan });
    let session = harness.state().session();
    assert_eq!((session.rows().count(), session.revision()), before);
    assert!(session.other_plan.is_none());
    let lines = notices(&harness);
    assert_eq!(lines.iter().filter(|text| text.contains("another trace")).count(), 2, "{lines:?}");
}

#[test]
fn a_results_file_that_changes_offers_to_reload() {
    let (mut harness, script) = probed();
    let meta = opened_as("x").meta;
    let path = "r.results.parquet".to_owned();
    let results = Box::new(Results { meta, rows: vec![row(&site(&harness, 3), ROWWISE, 0.1)] }.into());
    tell(&mut harness, &script, Event::ResultsOpened { path: path.clone(), results });
    assert!(script.borrow().asked.contains(&Effect::Watch { path: Some(path.clone()) }));
    let rows = harness.state().session().rows().count();
    tell(&mut harness, &script, Event::FileChanged { path: path.clone(), change: FileChange::Changed });
    assert_eq!(harness.state().session().rows().count(), rows, "nothing is read by itself");
    click(&mut harness, "Reload");
    assert_eq!(script.borrow().asked.last(), Some(&Effect::LoadResults { path: path.clone() }));
    tell(&mut harness, &script, Event::FileChanged { path, change: FileChange::Gone });
    assert_eq!(harness.state().session().rows().count(), rows, "rows stay when their file goes");
    assert!(notices(&harness).iter().any(|text| text.contains("is gone")));
}

// --- the plan in words -------------------------------------------------------------------------------------

#[test]
fn a_sentence_of_the_answer_selects_what_it_speaks_of() {
    let (mut harness, _script) = probed();
    harness.state_mut().view_mut().layout.show(Pane::Plan);
    harness.run_steps(3);
    let answer = harness.state().derived().answer.clone();
    let clause = answer.clauses.iter().find(|clause| !clause.gemms.is_empty()).unwrap().clone();
    click(&mut harness, &clause.text);
    harness.run_steps(2);
    let ids = harness.state().session().index().ids();
    let spoken_of: std::collections::BTreeSet<SiteId> = clause.gemms.iter().map(|(at, _)| ids[*at].clone()).collect();
    let view = harness.state().view();
    assert_eq!(view.selection, spoken_of);
    assert!(view.site.as_ref().is_some_and(|site| spoken_of.contains(site)));
    assert_eq!(view.column.as_ref().map(|column| column.gemm), Some(clause.gemms[0].1));
}

// --- clipboard and pictures --------------------------------------------------------------------------------

fn select(harness: &mut Window, at: usize, kernel: Option<&str>) {
    let id = site(harness, at);
    let column = kernel.map(|kernel| Column { gemm: Gemm::Fprop, kernel: KernelId::new(kernel) });
    let view = harness.state_mut().view_mut();
    view.column = None;
    view.select(id, column);
    harness.run_steps(2);
}

/// A telephone, and 1280 x 800 at twice the text size.
#[test]
fn a_small_window_keeps_room_for_its_view() {
    for (size, least) in [([390.0, 844.0], 450.0), ([640.0, 400.0], 150.0), ([320.0, 568.0], 240.0)] {
        let (mut harness, script) = scripted_as(opened_as("a.trace.safetensors"), size, |app| app);
        finish(&mut harness, &script);
        let layout = &harness.state().view().layout;
        let pane = layout.active();
        let rect = layout.rect_of(pane).unwrap();
        assert!(rect.height() >= least && rect.width() >= size[0] - 60.0, "{size:?}: {pane:?} has {rect:?}");
    }
}

#[test]
fn a_cell_a_row_and_every_table_are_copied() {
    let (mut harness, _script) = probed();
    select(&mut harness, 0, Some(ROWWISE));
    by_palette(&mut harness, "Copy cell");
    assert_eq!(copied(&mut harness), "0.123456789");
    by_palette(&mut harness, "Copy row");
    let line = copied(&mut harness);
    assert!(line.starts_with(site(&harness, 0).as_str()) && line.contains("\t0.123456789"), "{line}");
    let num_sites = harness.state().session().sites().len();
    for (pane, rows, header) in [
        (Pane::Heatmap, num_sites, "site\tfprop"),
        (Pane::Quadrant, 2, "site\tGEMM\tkernel\tspeed-up (× BF16)"),
        (Pane::Plan, 3 * num_sites, "site\tGEMM\tkernel\tchosen by"),
        (Pane::Site, 2, "site\tGEMM\tkernel\tMERE"),
    ] {
        harness.state_mut().view_mut().layout.show(pane);
        harness.run_steps(2);
        by_palette(&mut harness, "Copy table");
        let text = copied(&mut harness);
        assert!(text.starts_with(header), "{pane:?}: {text}");
        assert_eq!(text.lines().count(), rows + 1, "{pane:?}");
    }
}

#[test]
fn what_was_done_is_copied_as_steps_that_can_be_played() {
    let (mut harness, _script) = probed();
    by_palette(&mut harness, "Copy the steps");
    harness.run_steps(4);
    assert!(notices(&harness).contains(&"nothing was done here yet that could be done again".to_owned()));
    harness.state_mut().act(Action::UsePolicy(1));
    harness.run_steps(4);
    select(&mut harness, 1, Some(ROWWISE));
    // Found by its name: what the palette is opened for is the step.
    by_palette(&mut harness, "Show plan");
    harness.run_steps(4);
    by_palette(&mut harness, "Copy the steps");
    let text = copied(&mut harness);
    let steps = steps::parse(&text, |_| String::new()).unwrap();
    assert!(
        matches!(
            &steps[..],
            [.., Step::Act(Action::UsePolicy(1)), Step::At(address), Step::Act(Action::Show(Pane::Plan))]
                if address.site.as_ref() == Some(&site(&harness, 1)) && address.cell.is_some()
        ),
        "{text}"
    );
    let script = loka::window::script::Script::new(steps, None);
    let (mut again, effects) =
        scripted_as(opened_as("clicks.trace.safetensors"), [1280.0, 800.0], |app| app.with_script(script));
    finish(&mut again, &effects);
    again.run_steps(120);
    let seen = |window: &Window| {
        let view = window.state().view();
        (view.site.clone(), view.column.clone(), view.layout.active(), window.state().session().document.policy.clone())
    };
    assert_eq!(seen(&again), seen(&harness), "done again in another window");
}

#[test]
fn the_copy_key_takes_the_cell_the_row_and_never_a_fields_text() {
    let (mut harness, _script) = probed();
    select(&mut harness, 1, Some(ROWWISE));
    harness.event(egui::Event::Copy);
    assert_eq!(copied(&mut harness), "0.123456789");
    select(&mut harness, 1, None);
    // One event a frame, so that no frame's output is missed.
    harness.input_mut().events.push(egui::Event::Key {
        key: egui::Key::C,
        physical_key: None,
        pressed: true,
        repeat: false,
        modifiers: egui::Modifiers::COMMAND,
    });
    assert!(copied(&mut harness).starts_with(site(&harness, 1).as_str()));
    harness.key_press(egui::Key::F);
    harness.run_steps(3);
    let lines = notices(&harness).len();
    harness.event(egui::Event::Copy);
    harness.run_steps(4);
    assert_eq!(notices(&harness).len(), lines, "the filter has the keys");
}

#[test]
fn a_view_without_a_table_says_so() {
    let (mut harness, _script) = probed();
    harness.state_mut().view_mut().layout.show(Pane::Sites);
    harness.run_steps(2);
    harness.key_press_modifiers(egui::Modifiers::COMMAND, egui::Key::K);
    harness.run_steps(3);
    harness.event(egui::Event::Text("Copy table".to_owned()));
    harness.run_steps(3);
    assert!(harness.query_by_label("Copy table, not now: Sites holds no table").is_some());
}

fn save_view(harness: &mut Window, action: &str, path: &Path) {
    by_palette(harness, action);
    harness.run_steps(4);
    let dialog = harness.state_mut().view_mut().dialog.as_mut().unwrap();
    assert!(dialog.path.starts_with("clicks.heatmap."), "beside the trace: {}", dialog.path);
    dialog.path = path.to_string_lossy().into_owned();
    harness.run_steps(2);
    click(harness, if path.exists() { "Overwrite" } else { "Save" });
    harness.run_steps(6);
}

#[test]
fn a_view_is_saved_as_vectors() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("heatmap.svg");
    let (mut harness, _script) = probed();
    save_view(&mut harness, "Save view as SVG", &path);
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.starts_with("<?xml") && text.trim_end().ends_with("</svg>"));
    assert!(text.contains("<text ") && text.contains("<rect "), "text is text and cells are rectangles");
    assert!(text.contains("MERE"), "what stands in the view stands in the file");
    assert!(harness.state().session().log().entries().iter().any(|entry| entry.text.starts_with("SVG")));
}

#[test]
fn a_view_is_saved_as_pixels() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("heatmap.png");
    let (mut harness, _script) = probed();
    if harness.render().is_err() {
        return loka_tests::cannot_draw();
    }
    // What is said about it afterwards takes room of its own.
    let rect = harness.state().view().layout.rect_of(Pane::Heatmap).unwrap();
    save_view(&mut harness, "Save view as PNG", &path);
    let bytes = std::fs::read(&path).unwrap();
    assert_eq!(&bytes[..8], b"\x89PNG\r\n\x1a\n");
    let side = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap()) as f32;
    assert!((side(16) - rect.width()).abs() <= 1.0 && (side(20) - rect.height()).abs() <= 1.0);
}

#[test]
fn a_picture_that_cannot_be_written_is_a_line() {
    let folder = tempfile::tempdir().unwrap();
    let (mut harness, _script) = probed();
    save_view(&mut harness, "Save view as SVG", &folder.path().join("no/such/folder.svg"));
    let lines = notices(&harness);
    assert!(lines.iter().any(|text| text.contains("The SVG was not written: no such folder")), "{lines:?}");
}

// --- settings ----------------------------------------------------------------------------------------------

#[test]
fn looks_and_layout_outlive_the_window() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("loka/settings.json");
    let with = |app: LokaApp| app.with_store(Arc::new(FileStore::at(&file)));
    let (mut harness, _script) = scripted_as(opened_as("a.trace.safetensors"), [1280.0, 800.0], with);
    harness.state_mut().view_mut().layout.close(Pane::Drift);
    harness.state_mut().view_mut().ground = Ground::Light;
    harness.key_press_modifiers(egui::Modifiers::COMMAND, egui::Key::Plus);
    // A moment, in the window's own time.
    harness.run_steps(20);
    let stored = std::fs::read_to_string(&file).unwrap();
    assert!(stored.contains("\"light\"") && stored.contains("a.trace.safetensors"), "{stored}");

    let (harness, _script) = scripted_as(opened_as("a.trace.safetensors"), [1280.0, 800.0], with);
    let view = harness.state().view();
    assert!(!view.layout.is_open(Pane::Drift) && view.layout.is_open(Pane::Log));
    assert_eq!((view.ground, view.text_size), (Ground::Light, 1.1));
}

#[test]
fn closing_the_window_stores_what_was_changed_last() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("settings.json");
    let with = |app: LokaApp| app.with_store(Arc::new(FileStore::at(&file)));
    let (mut harness, _script) = scripted_as(opened_as("a.trace.safetensors"), [1280.0, 800.0], with);
    harness.state_mut().view_mut().ground = Ground::Dark;
    harness.state_mut().close();
    assert!(std::fs::read_to_string(&file).unwrap().contains("\"dark\""));
}

#[test]
fn broken_settings_are_set_aside_and_told() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("settings.json");
    std::fs::write(&file, "{ broken").unwrap();
    let with = |app: LokaApp| app.with_store(Arc::new(FileStore::at(&file)));
    let (harness, _script) = scripted_as(opened_as("a.trace.safetensors"), [1280.0, 800.0], with);
    assert!(notices(&harness).iter().any(|text| text.contains("set aside") && text.contains("settings.broken.json")));
    assert_eq!(std::fs::read_to_string(folder.path().join("settings.broken.json")).unwrap(), "{ broken");
}

#[test]
fn settings_that_cannot_be_stored_are_told_once() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), "").unwrap();
    let store = Arc::new(FileStore::at(folder.path().join("file/settings.json")));
    let with = |app: LokaApp| app.with_store(store);
    let (mut harness, _script) = scripted_as(opened_as("a.trace.safetensors"), [1280.0, 800.0], with);
    for ground in [Ground::Light, Ground::Dark, Ground::Light] {
        harness.state_mut().view_mut().ground = ground;
        harness.run_steps(12);
    }
    let told = harness.state().session().log().entries().iter().filter(|entry| entry.text.contains("ettings")).count();
    assert_eq!(told, 1, "{:?}", notices(&harness));
}

// --- the log and quiet lines -------------------------------------------------------------------------------

#[test]
fn the_log_keeps_runs_files_and_lines() {
    let (mut harness, script) =
        scripted_as(opened_as("clicks.trace.safetensors"), [1280.0, 800.0], |app| app.with_clock(|| Some(3_661)));
    finish(&mut harness, &script);
    harness.state_mut().view_mut().layout.show(Pane::Log);
    harness.run_steps(3);
    assert!(harness.query_by_label_contains("01:01:01 Run: Probe finished after 2.5 s with 4 rows").is_some());
    assert!(harness.query_by_label_contains("File: Opened ").is_some());
    click(&mut harness, "Run");
    assert!(harness.query_by_label_contains("Probe finished").is_none(), "runs are hidden");
    by_palette(&mut harness, "Copy the log");
    let text = copied(&mut harness);
    assert!(text.starts_with("time (UTC)\tkind\ttext\n01:01:01\tFile\tOpened") && !text.contains("\tRun\t"), "{text}");
    by_palette(&mut harness, "Clear the log");
    harness.run_steps(2);
    let left: Vec<_> = harness.state().session().log().entries().iter().map(|entry| entry.text.clone()).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_cancelled_run_is_in_the_log() {
    let (mut harness, script) = scripted_as(opened_as("a.trace.safetensors"), [1280.0, 800.0], |app| app);
    let run = harness.state().session().run.as_ref().unwrap().id;
    tell(&mut harness, &script, Event::ProbeFinished { run, cancelled: true, seconds: 1.0 });
    let runs = harness.state().session().log().entries().iter().filter(|entry| entry.kind == LogKind::Run);
    let texts: Vec<&str> = runs.map(|entry| entry.text.as_str()).collect();
    assert!(texts[0].starts_with("Probe of ") && texts[1] == "Probe cancelled after 1.0 s with 0 rows", "{texts:?}");
}

#[test]
fn good_news_fades_errors_stay_and_three_lines_are_enough() {
    let (mut harness, script) = probed();
    let stands = |harness: &Window| Pane::ALL.map(|pane| harness.state().view().layout.rect_of(pane));
    let before = stands(&harness);
    for at in 0..5 {
        tell(&mut harness, &script, Event::WriteFailed { message: format!("it broke {at}") });
    }
    tell(&mut harness, &script, Event::Written { path: "r.parquet".to_owned(), what: "Results".to_owned() });
    assert_eq!(harness.query_all_by_label("Dismiss").count(), 4, "three lines at most, and the hint");
    assert_eq!(stands(&harness), before, "they lie over the window, and move nothing");
    assert!(harness.query_by_label("3 more lines").is_some());
    // Eight seconds and a little, in the window's own time.
    harness.run_steps(40);
    let kinds: Vec<NoticeKind> = harness.state().session().notices.iter().map(|notice| notice.kind).collect();
    assert_eq!(kinds, [NoticeKind::Error; 5], "what went wrong stays");
    by_palette(&mut harness, "Dismiss all lines");
    harness.run_steps(3);
    assert!(harness.state().session().notices.is_empty());
    assert!(
        harness.state().session().log().entries().iter().any(|entry| entry.text == "it broke 0"),
        "the log keeps all"
    );
    tell(&mut harness, &script, Event::WriteFailed { message: "it broke again".to_owned() });
    harness.key_press(egui::Key::Escape);
    harness.run_steps(3);
    assert!(harness.state().session().notices.is_empty(), "Esc sends them away");
}

#[test]
fn a_line_leads_to_the_log() {
    let (mut harness, script) = probed();
    harness.state_mut().view_mut().layout.close(Pane::Log);
    tell(&mut harness, &script, Event::WriteFailed { message: "it broke".to_owned() });
    click(&mut harness, "Show log");
    assert!(harness.state().view().layout.is_on_screen(Pane::Log));
}

// --- finding things ----------------------------------------------------------------------------------------

#[test]
fn the_palette_goes_to_a_site() {
    let (mut harness, _script) = probed();
    let wanted = site(&harness, 5);
    by_palette(&mut harness, &format!("Go to site {wanted}"));
    harness.run_steps(3);
    assert_eq!(harness.state().view().site.as_ref(), Some(&wanted));
}

#[test]
fn the_palette_says_why_not_and_does_nothing() {
    let (mut harness, _script) = probed();
    harness.key_press_modifiers(egui::Modifiers::COMMAND, egui::Key::K);
    harness.run_steps(3);
    harness.event(egui::Event::Text("redo".to_owned()));
    harness.run_steps(3);
    assert!(harness.query_by_label("Redo, not now: nothing to redo").is_some());
    harness.key_press(egui::Key::Enter);
    harness.run_steps(3);
    assert!(harness.state().finder().palette.is_some(), "it stays open");
}

#[test]
fn what_was_done_last_is_first_in_the_palette() {
    let (mut harness, _script) = probed();
    harness.key_press(egui::Key::R);
    harness.run_steps(3);
    assert!(harness.state().view().relative);
    by_palette(&mut harness, "");
    harness.run_steps(3);
    assert!(!harness.state().view().relative, "Enter does the last action again");
}

#[test]
fn the_sheet_fits_a_small_window_and_is_searched() {
    let (mut harness, _script) = scripted_as(opened_as("a.trace.safetensors"), [400.0, 300.0], |app| app);
    harness.key_press(egui::Key::Questionmark);
    harness.run_steps(4);
    let close = harness.get_by_label("Close shortcuts").rect();
    assert!(close.bottom() <= 300.0 && close.right() <= 400.0, "{close:?}");
    assert!(harness.query_by_label("Next site").is_some());
    harness.get_by_label("Filter shortcuts").focus();
    harness.run_steps(2);
    harness.event(egui::Event::Text("undo".to_owned()));
    harness.run_steps(3);
    assert!(harness.query_by_label("Next site").is_none());
    click(&mut harness, "Close shortcuts");
    assert!(harness.state().finder().sheet.is_none());
}

#[test]
fn menus_close_views_and_bring_them_back() {
    let (mut harness, _script) = probed();
    click(&mut harness, "View");
    let checkbox = |harness: &Window| harness.get_by_role_and_label(egui::accesskit::Role::CheckBox, "Drift").rect();
    assert!(checkbox(&harness).is_positive());
    harness.get_by_role_and_label(egui::accesskit::Role::CheckBox, "Drift").click();
    harness.run_steps(3);
    assert!(!harness.state().view().layout.is_open(Pane::Drift));
    harness.state_mut().view_mut().layout.show(Pane::Drift);
    by_palette(&mut harness, "Reset the layout");
    harness.run_steps(3);
    assert!(harness.state().view().layout.is_open(Pane::Drift));
}

// --- sizes, names, rest ------------------------------------------------------------------------------------

#[test]
fn the_top_bar_fits_every_width() {
    for width in [400.0, 520.0, 700.0, 859.0, 861.0, 1024.0, 1280.0, 1920.0] {
        let (mut harness, _script) = scripted_as(opened_as("a.trace.safetensors"), [width, 700.0], |app| app);
        for running in [true, false] {
            if !running {
                let run = harness.state().session().run.as_ref().unwrap().id;
                harness.state_mut().command(Command::CancelProbe);
                let over = Event::ProbeFinished { run, cancelled: true, seconds: 90.0 };
                tell(&mut harness, &_script, over);
            }
            for label in ["File", "View", "Find an action", "Engine", if running { "Pause" } else { "Run probe" }] {
                let rect = harness.get_by_label(label).rect();
                let inside = rect.left() >= 0.0 && rect.right() <= width && rect.top() >= 0.0;
                assert!(inside, "{label} at {width}: {rect:?}");
            }
        }
    }
}

#[test]
fn any_name_can_be_shown_copied_and_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let mut trace = opened_as("clicks.trace.safetensors");
    let names = [
        "x".repeat(4000),
        "שכבה.ראשונה.רשת".to_owned(),
        "🦀.👩‍👩‍👧.e\u{301}".to_owned(),
        "=cmd|' /C calc'!A0\t\n\u{1}\u{7}".to_owned(),
        "</text><script>&amp;".to_owned(),
    ];
    for (site, name) in trace.meta.manifest.sites.iter_mut().zip(&names) {
        site.id = SiteId::new(name);
    }
    trace.name = names.concat();
    for size in [[400.0, 600.0], [1280.0, 800.0]] {
        let (mut harness, script) = scripted_as(trace.clone(), size, |app| app);
        finish(&mut harness, &script);
        for (at, name) in names.iter().enumerate() {
            select(&mut harness, at, Some(ROWWISE));
            assert_eq!(harness.state().view().site.as_ref().map(SiteId::as_str), Some(name.as_str()));
        }
        tell(&mut harness, &script, Event::WriteFailed { message: names.concat() });
        harness.state_mut().view_mut().layout.show(Pane::Heatmap);
        harness.run_steps(3);
        by_palette(&mut harness, "Copy table");
        let table = copied(&mut harness);
        let cells = table.lines().next().unwrap().split('\t').count();
        assert!(table.lines().all(|line| line.split('\t').count() == cells && !line.starts_with('=')));
        let path = folder.path().join("hostile.svg");
        save_view(&mut harness, "Save view as SVG", &path);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(
            !text.contains("<script") && text.chars().all(|character| character == '\n' || !character.is_control())
        );
        assert_eq!(text.matches("<g ").count(), text.matches("</g>").count());
    }
}

#[test]
fn a_window_at_rest_asks_for_no_frame() {
    let (mut harness, script) = probed();
    tell(&mut harness, &script, Event::Written { path: "r.parquet".to_owned(), what: "Results".to_owned() });
    harness.state_mut().view_mut().hint = false;
    // The line fades, and then nothing is left to happen.
    harness.run_steps(60);
    assert!(harness.state().session().notices.is_empty());
    let output = harness.output().viewport_output.values().next().unwrap();
    assert!(output.repaint_delay > Duration::from_secs(3600), "a frame is wanted in {:?}", output.repaint_delay);
}
