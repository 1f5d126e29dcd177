//! The workbench, clicked by accessible label: the path from a trace to a plan with the real engine,
//! and what each control asks for with a recorded stream of events.

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
    commands::{Action, FileAction},
    link::InProcess,
    platform::ThreadExecutor,
    state::ExportForm,
};
use loka_core::{
    engine::{DeviceMemory, EngineStatus, LibraryStatus},
    export::{Target, modules_of},
    model::{
        ErrorSummary, Estimate, Gemm, GemmShape, KernelId, Latency, LatencySource, ModKind, ModSet, ResultRow, Results,
        SiteMods,
    },
    plan::{Plan, Severity, check},
    session::{Circumstances, Command, Effect, Event, MeasuredLatency},
    views::OpenedTrace,
};
use loka_tests::scripted::{Script, ScriptedLink, window};

fn sample() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../sample-traces/wukong-clicks.trace.safetensors")
}

/// Frames until `ready`, in real time: the engine works on threads.
fn wait(harness: &mut Harness<'_, LokaApp>, what: &str, ready: impl Fn(&LokaApp) -> bool) {
    let (start, mut pause) = (Instant::now(), Duration::from_millis(20));
    while !ready(harness.state()) {
        assert!(start.elapsed() < Duration::from_secs(600), "waited in vain for {what}");
        // A frame is some of a core's work, which a probe that is waited for needs itself.
        std::thread::sleep(pause);
        pause = Duration::from_millis(500).min(2 * pause);
        harness.step();
    }
    harness.run_steps(3);
}

fn click(harness: &mut Harness<'_, LokaApp>, label: &str) {
    harness.get_by_label(label).click();
    harness.run_steps(3);
}

fn type_into(harness: &mut Harness<'_, LokaApp>, text: &str) {
    harness.event(egui::Event::Text(text.to_owned()));
    harness.run_steps(2);
}

#[test]
fn from_a_trace_to_a_plan() {
    let folder = tempfile::tempdir().unwrap();
    let mut harness =
        window(LokaApp::new(Box::new(InProcess::new(ThreadExecutor::new(Arc::new(|| {}))))), [1600.0, 1000.0]);
    harness.run_steps(2);
    assert!(harness.query_by_label("No trace is open").is_some());

    harness.state_mut().open(sample().to_string_lossy().into_owned());
    wait(&mut harness, "the first rows", |app| app.session().rows().next().is_some());
    wait(&mut harness, "every row", |app| !app.session().is_running());
    let run = harness.state().session().run.clone().unwrap();
    assert!(!run.cancelled && run.done >= 1.0 && run.num_rows > 500, "{run:?}");
    assert!(harness.state().view().site.is_some(), "the worst site is selected");

    click(&mut harness, "Everywhere…");
    harness.get_by_label("Hard swish everywhere").click();
    harness.run_steps(3);
    assert!(harness.state().session().document.mods.of_others().contains(ModKind::HardSwish));
    wait(&mut harness, "rows under the mod", |app| {
        !app.session().is_running() && app.session().rows().any(|row| !row.mods.is_empty())
    });

    click(&mut harness, "Inspect fprop");
    let (site, kernel) = (harness.state().view().site.clone().unwrap(), KernelId::new("cublaslt/fp8-rowwise+fast"));
    click(&mut harness, "Use cublaslt/fp8-rowwise+fast for fprop");
    type_into(&mut harness, "measured by hand");
    click(&mut harness, "Override");
    let chosen = |app: &LokaApp| app.session().document.overrides.get(&(site.clone(), Gemm::Fprop)).cloned();
    let set = chosen(harness.state()).expect("the override is set");
    assert_eq!((set.kernel, set.reason.as_str()), (kernel.clone(), "measured by hand"));
    click(&mut harness, "Undo");
    assert!(chosen(harness.state()).is_none());
    click(&mut harness, "Redo");
    assert!(chosen(harness.state()).is_some());

    let path = folder.path().join("out.plan.json");
    click(&mut harness, "Export plan…");
    let dialog = harness.state_mut().view_mut().dialog.as_mut().expect("the dialog is open");
    assert!(dialog.path.ends_with("wukong-clicks.plan.json"), "prefilled beside the trace");
    dialog.path = path.to_string_lossy().into_owned();
    harness.run_steps(2);
    click(&mut harness, "Save");
    wait(&mut harness, "the plan", |_| path.exists());

    let plan = Plan::from_json(&std::fs::read_to_string(&path).unwrap()).unwrap();
    assert!(!plan.created_at.is_empty());
    let results = harness.state().session().results().unwrap();
    // The override is safe and only slow: that warns, and the gate stays open.
    let failing: Vec<String> =
        check(&plan, &results).iter().filter(|f| f.severity == Severity::Fails).map(ToString::to_string).collect();
    assert!(failing.is_empty(), "{failing:?}");
    let planned = plan.sites.iter().find(|planned| planned.site == site).unwrap();
    assert_eq!(planned.fprop.kernel, kernel);

    click(&mut harness, "Export plan…");
    harness.state_mut().view_mut().dialog.as_mut().unwrap().path = path.to_string_lossy().into_owned();
    harness.run_steps(2);
    assert!(harness.query_by_label_contains("There is a file already").is_some());
    assert!(harness.query_by_label("Overwrite").is_some(), "what the button does is on it");
    click(&mut harness, "Keep both");
    assert!(harness.state().view().dialog.as_ref().unwrap().path.ends_with("out-2.plan.json"));
    assert!(harness.query_by_label("Save").is_some());
    click(&mut harness, "Cancel");
    assert!(harness.state().view().dialog.is_none());

    exports(&mut harness, folder.path(), &plan);
}

/// The plan for a framework and as a report, from its dialog: what the file cannot say stands there first.
fn exports(harness: &mut Harness<'_, LokaApp>, folder: &Path, plan: &Plan) {
    let to = |name: &str| folder.join(name).to_string_lossy().into_owned();
    harness.state_mut().act(Action::ExportTo(Target::Quark));
    harness.run_steps(6);
    let dialog = harness.state_mut().view_mut().dialog.as_mut().unwrap();
    assert!(dialog.path.ends_with("wukong-clicks.quark.json"), "{}", dialog.path);
    dialog.path = to("out.quark.json");
    wait(harness, "what it loses", |app| app.view().export.preview(ExportForm::Framework(Target::Quark)).is_some());
    let command_line = loka_core::export::export(plan, &modules_of(plan), Target::Quark, "").unwrap();
    assert!(!command_line.losses.is_empty());
    for loss in &command_line.losses {
        assert!(harness.query_by_label(&format!("loses {loss}")).is_some(), "{loss}");
    }
    assert!(harness.query_by_label_contains("asks for no approval").is_some());
    assert!(harness.query_by_label_contains("2 files: out.quark.json, out.quark.json.provenance.json").is_some());
    harness.get_by_label("Save").click();
    harness.run_steps(3);
    assert!(harness.state().view().dialog.is_some(), "nobody accepted the losses");
    click(harness, "Accept these losses");
    click(harness, "Save");
    let written = folder.join("out.quark.json");
    wait(harness, "the file", |_| written.exists());
    assert!(folder.join("out.quark.json.provenance.json").exists());
    let provenance = std::fs::read_to_string(folder.join("out.quark.json.provenance.json")).unwrap();
    assert!(provenance.contains(&plan.digest), "an unchanged plan is the one that was saved: {provenance}");
    wait(harness, "the notice", |app| {
        app.session()
            .notices
            .iter()
            .any(|notice| notice.text.starts_with("Plan for Quark, with 1 file beside it, written"))
    });

    // A file that lies beside is asked about, too.
    std::fs::remove_file(&written).unwrap();
    harness.state_mut().act(Action::ExportTo(Target::Torchao));
    harness.run_steps(6);
    let dialog = harness.state_mut().view_mut().dialog.as_mut().unwrap();
    dialog.path = to("out.torchao.py");
    dialog.export_as(ExportForm::Framework(Target::Quark));
    assert_eq!(dialog.path, to("out.quark.json"), "the ending goes along");
    wait(harness, "what it loses", |app| app.view().export.preview(ExportForm::Framework(Target::Quark)).is_some());
    harness.run_steps(2);
    assert!(harness.query_by_label("Overwrite").is_some());
    harness.state_mut().view_mut().dialog.as_mut().unwrap().path = to("nowhere/out.quark.json");
    harness.run_steps(2);
    click(harness, "Accept these losses");
    click(harness, "Save");
    let line = format!("no such folder: {}", to("nowhere/out.quark.json.provenance.json"));
    wait(harness, "the error", |app| app.session().notices.iter().any(|notice| notice.text == line));

    harness.state_mut().act(Action::File(FileAction::ExportReport));
    harness.run_steps(4);
    harness.state_mut().view_mut().dialog.as_mut().unwrap().path = to("out.report.html");
    harness.run_steps(2);
    click(harness, "Save");
    let report = folder.join("out.report.html");
    wait(harness, "the report", |_| report.exists());
    let text = std::fs::read_to_string(report).unwrap();
    assert!(text.contains(&plan.digest) && !text.contains("From the plan alone"), "of the plan, with its rows");
}

/// Plays events back and notes what was asked.
const GPU: &str = "NVIDIA H200";

fn made_by(engine: &str) -> Circumstances {
    let device = if engine == "cuda" { GPU.to_owned() } else { EngineStatus::cpu().device };
    let (driver, versions, time) = ("CUDA 13.0".to_owned(), "a test".to_owned(), "2026-11-20T12:00:00Z".to_owned());
    Circumstances { engine: engine.to_owned(), device, driver, versions, time, seed: 0, confidence: 0.95 }
}

/// A probe begins at once, and gives its rows when the test says so.
fn started(effect: &Effect) -> Option<Event> {
    let Effect::Probe { run, mods, sites, engine, .. } = effect else { return None };
    let by = Box::new(made_by(engine));
    Some(Event::ProbeStarted { run: *run, mods: mods.clone(), sites: sites.clone(), by })
}

/// The sample's manifest with one supported and one unsupported row.
fn opened() -> Event {
    let trace = loka_core::trace::Trace::open(&sample()).unwrap();
    let config = loka_core::probe::ProbeConfig::default();
    let meta = loka::probing::results_meta(&trace, trace.digest(), &loka_core::engine::CpuEngine, &config);
    let name = trace.manifest().model.name.clone();
    Event::TraceOpened { trace: Box::new(OpenedTrace { path: "clicks.trace.safetensors".to_owned(), name, meta }) }
}

fn scripted() -> (Harness<'static, LokaApp>, Rc<RefCell<Script>>) {
    let link = ScriptedLink::new(Script { answer: started, ..Script::default() }).by_paper();
    let script = link.script.clone();
    script.borrow_mut().tell(opened());
    let mut harness = window(LokaApp::new(Box::new(link)), [1280.0, 800.0]);
    harness.run_steps(4);
    (harness, script)
}

#[test]
fn what_the_command_line_asks_for_is_done_in_order() {
    let steps =
        loka::window::steps::parse("at view=review&filter=top\ndo view.plan\ndo policy.paper\n", |_| String::new())
            .unwrap();
    let script = loka::window::script::Script::new(steps, None);
    let (mut harness, engine) = scripted();
    *harness.state_mut() = {
        let app = std::mem::replace(
            harness.state_mut(),
            LokaApp::new(Box::new(InProcess::new(ThreadExecutor::new(Arc::new(|| {}))))),
        );
        app.with_script(script)
    };
    harness.run_steps(10);
    let filter = |harness: &Harness<'_, LokaApp>| harness.state().view().filter.clone();
    assert_eq!(filter(&harness), "", "not while a probe runs");
    let run = harness.state().session().run.as_ref().unwrap().id;
    engine.borrow_mut().tell(Event::ProbeFinished { run, cancelled: false, seconds: 1.0 });
    harness.run_steps(120);
    assert_eq!(filter(&harness), "top");
    assert_eq!(harness.state().view().layout.active(), loka::layout::Pane::Plan, "the later of two");
    assert_eq!(harness.state().session().document.policy.name, "paper");
}

#[test]
fn opening_starts_the_probe_by_itself() {
    let (harness, script) = scripted();
    let probes = script.borrow().asked.iter().filter(|effect| matches!(effect, Effect::Probe { .. })).count();
    assert_eq!(probes, 1);
    assert!(harness.state().session().is_running());
}

#[test]
fn space_pauses_shift_space_cancels_and_space_runs_again() {
    let (mut harness, script) = scripted();
    let paused = |script: &Rc<RefCell<Script>>| script.borrow().asked.last().cloned();
    harness.key_press(egui::Key::Space);
    harness.run_steps(3);
    assert_eq!(paused(&script), Some(Effect::Pause { paused: true }));
    assert!(harness.state().session().is_paused());
    harness.key_press(egui::Key::Space);
    harness.run_steps(3);
    assert_eq!(paused(&script), Some(Effect::Pause { paused: false }));
    harness.key_press_modifiers(egui::Modifiers::SHIFT, egui::Key::Space);
    harness.run_steps(3);
    assert_eq!(script.borrow().asked.last(), Some(&Effect::Cancel));
    let run = harness.state().session().run.as_ref().unwrap().id;
    script.borrow_mut().tell(Event::ProbeFinished { run, cancelled: true, seconds: 1.0 });
    harness.run_steps(3);
    harness.key_press(egui::Key::Space);
    harness.run_steps(3);
    let asked = script.borrow().asked.last().cloned();
    let Some(Effect::Probe { run: again, mods, sites, engine, .. }) = asked else { panic!("{asked:?}") };
    assert_eq!((again, mods.is_empty(), sites.len(), engine.as_str()), (run + 1, true, 14, "cpu"));
}

#[test]
fn a_mod_asks_for_its_rows_and_undo_takes_it_back() {
    let (mut harness, script) = scripted();
    let site = match &harness.state().session().trace {
        Some(trace) => trace.manifest().sites[0].id.clone(),
        None => panic!("no trace"),
    };
    click(&mut harness, site.as_str());
    assert_eq!(harness.state().view().site.as_ref(), Some(&site));
    click(&mut harness, "Everywhere…");
    click(&mut harness, "BlockNorm everywhere");
    let wanted = SiteMods::from(ModSet::none().toggled(ModKind::BlockNorm));
    assert!(matches!(script.borrow().asked.last(), Some(Effect::Probe { mods, .. }) if *mods == wanted));
    harness.key_press_modifiers(egui::Modifiers::COMMAND, egui::Key::Z);
    harness.run_steps(3);
    assert!(harness.state().session().document.mods.is_empty());
}

#[test]
fn keys_move_the_selection_and_the_views() {
    let (mut harness, _script) = scripted();
    harness.key_press(egui::Key::ArrowDown);
    harness.run_steps(2);
    harness.key_press(egui::Key::ArrowDown);
    harness.run_steps(2);
    let sites = harness.state().session().trace.as_ref().unwrap().manifest().sites.clone();
    assert_eq!(harness.state().view().site.as_ref(), Some(&sites[1].id));
    for (key, gemm) in [(egui::Key::G, Some(Gemm::Fprop)), (egui::Key::G, Some(Gemm::Dgrad))] {
        harness.key_press(key);
        harness.run_steps(2);
        assert_eq!(harness.state().view().gemm, gemm);
    }
}

#[test]
fn the_palette_finds_and_does() {
    let (mut harness, _script) = scripted();
    harness.key_press_modifiers(egui::Modifiers::COMMAND, egui::Key::K);
    harness.run_steps(3);
    assert!(harness.state().finder().palette.is_some());
    type_into(&mut harness, "light");
    harness.key_press(egui::Key::Enter);
    harness.run_steps(3);
    assert!(harness.state().finder().palette.is_none());
    assert_eq!(harness.state().view().ground, loka::theme::Ground::Light, "the theme was switched");
}

#[test]
fn refusals_are_quiet_lines() {
    let (mut harness, _script) = scripted();
    harness.state_mut().command(Command::ExportPlan { path: "x".to_owned() });
    harness.run_steps(2);
    assert!(harness.query_by_label("there are no rows yet to make a plan of").is_some());
    harness.get_all_by_label("Dismiss").last().expect("a line can be dismissed").click();
    harness.run_steps(3);
    assert!(harness.state().session().notices.is_empty());
}

#[test]
fn results_of_another_trace_are_refused() {
    let (mut harness, script) = scripted();
    let Event::TraceOpened { trace } = opened() else { panic!("not an opening") };
    let mut meta = trace.meta;
    meta.trace_digest = "sha256:0".to_owned();
    let results = Box::new(Results { meta, rows: Vec::new() }.into());
    script.borrow_mut().tell(Event::ResultsOpened { path: "r.parquet".to_owned(), results });
    harness.run_steps(3);
    assert!(harness.state().session().notices.iter().any(|notice| notice.text.contains("another trace")));
}

/// A machine with a GPU, as the engine would be listed there.
fn with_gpu() -> Vec<EngineStatus> {
    let library = |name: &str, version: &str| LibraryStatus {
        name: name.to_owned(),
        version: version.to_owned(),
        path: format!("/usr/lib/{name}.so"),
        problem: None,
    };
    let cuda = EngineStatus {
        name: "cuda".to_owned(),
        device: GPU.to_owned(),
        driver: "CUDA 13.0".to_owned(),
        libraries: vec![library("cuBLASLt", "13.1.0"), library("NVRTC", "13.0")],
        problem: None,
        memory: Some(DeviceMemory { total: 150_000_000_000, free: 149_000_000_000, peak: 0 }),
    };
    vec![cuda, EngineStatus::cpu()]
}

/// A row of the first site's fprop, by the engine of that run.
fn row(harness: &Harness<'_, LokaApp>, engine: &str, kernel: &str) -> ResultRow {
    let site = harness.state().session().trace.as_ref().unwrap().manifest().sites[0].clone();
    let around = |value: f64| Estimate::new(value, 0.9 * value, 1.1 * value);
    let error = ErrorSummary {
        draws: 16,
        zeros_skipped: 0,
        mere: around(0.1),
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
        site: site.id,
        gemm: Gemm::Fprop,
        kernel: KernelId::new(kernel),
        mods: ModSet::none(),
        shape: GemmShape { m: site.m, k: site.k, n: site.n },
        supported: true,
        reason: None,
        error: Some(error),
        latency,
        fidelity: None,
        static_scale: None,
        flushed: None,
        sampler: "copula".into(),
        engine: engine.into(),
        device: made_by(engine).device.into(),
        seed: 0,
    }
}

const ROWWISE: &str = "cublaslt/fp8-rowwise+fast";

/// Rows of the run under way, from the engine in use.
fn rows_come(harness: &mut Harness<'_, LokaApp>, script: &Rc<RefCell<Script>>) -> u64 {
    let session = harness.state().session();
    let (run, engine) = (session.run.as_ref().unwrap().id, session.engines.chosen.clone());
    let rows = ["cublaslt/bf16", ROWWISE].map(|kernel| row(harness, &engine, kernel)).to_vec();
    script.borrow_mut().tell(Event::Rows { run, rows });
    harness.run_steps(4);
    run
}

#[test]
fn the_engine_list_says_what_is_here_and_why_cuda_is_missing() {
    let mut harness =
        window(LokaApp::new(Box::new(InProcess::new(ThreadExecutor::new(Arc::new(|| {}))))), [1280.0, 800.0]);
    harness.run_steps(2);
    wait(&mut harness, "the engines", |app| !app.session().engines.looking);
    click(&mut harness, "Engine");
    assert!(harness.state().view().engines);
    assert!(harness.query_by_label_contains("Emulates every kernel: formats and scales are exact").is_some());
    assert!(harness.query_by_label(EngineStatus::cpu().device.as_str()).is_some());
    let listed = harness.state().session().engines.listed.clone();
    if let Some(problem) = listed.iter().find_map(|status| status.problem.clone()) {
        let shown = problem.get(1..).unwrap();
        assert!(harness.query_all_by_label_contains(shown).next().is_some(), "{problem}");
        assert!(harness.query_by_label_contains("To get it: an NVIDIA GPU with FP8").is_some());
        // Greyed, and a command by another way is refused with the reason.
        let refused = Command::SelectEngine { name: "cuda".to_owned() };
        harness.state_mut().command(refused);
        harness.run_steps(2);
        assert_eq!(harness.state().session().engines.chosen, "cpu");
        assert!(harness.state().session().notices.last().unwrap().text.contains(&problem));
    } else {
        eprintln!("skipped the half about a missing engine: this machine has CUDA");
    }
    harness.key_press(egui::Key::Escape);
    harness.run_steps(2);
    assert!(!harness.state().view().engines);
}

#[test]
fn choosing_an_engine_switches_live_and_comes_back() {
    let (mut harness, script) = scripted();
    let run = rows_come(&mut harness, &script);
    script.borrow_mut().tell(Event::ProbeFinished { run, cancelled: false, seconds: 1.0 });
    script.borrow_mut().tell(Event::EnginesFound { engines: with_gpu() });
    harness.run_steps(3);
    harness.key_press(egui::Key::E);
    harness.run_steps(3);
    for label in [GPU, "CUDA 13.0", "13.1.0 · /usr/lib/cuBLASLt.so"] {
        assert!(harness.query_by_label(label).is_some(), "{label}");
    }
    // The same words stand in the notice that offers it.
    harness.get_all_by_label("Use the CUDA engine").next().unwrap().click();
    harness.run_steps(4);
    let asked = script.borrow().asked.last().cloned();
    assert!(matches!(asked, Some(Effect::Probe { ref engine, .. }) if engine == "cuda"), "{asked:?}");
    assert!(harness.state().session().rows().next().is_none(), "rows of two engines are never mixed");
    rows_come(&mut harness, &script);
    assert!(harness.state().session().rows().all(|row| &*row.device == GPU));

    let memory = DeviceMemory { total: 150_000_000_000, free: 120_000_000_000, peak: 2_100_000_000 };
    script.borrow_mut().tell(Event::EngineMemory { name: "cuda".to_owned(), memory });
    harness.run_steps(3);
    assert!(harness.query_by_label("2.1 GB / 150 GB").is_some(), "memory is shown while the probe runs");

    harness.state_mut().command(Command::SelectEngine { name: "cpu".to_owned() });
    harness.run_steps(3);
    assert_eq!(script.borrow().asked.last(), Some(&Effect::Cancel), "CUDA's run stops, the CPU's rows are complete");
    assert!(harness.state().session().rows().all(|row| &*row.engine == "cpu"));
}

#[test]
fn a_lost_engine_keeps_its_rows_and_offers_the_cpu() {
    let (mut harness, script) = scripted();
    script.borrow_mut().tell(Event::EnginesFound { engines: with_gpu() });
    harness.run_steps(3);
    harness.state_mut().command(Command::SelectEngine { name: "cuda".to_owned() });
    harness.run_steps(3);
    rows_come(&mut harness, &script);
    let reason = "the GPU is lost to this process: an illegal address was read".to_owned();
    script.borrow_mut().tell(Event::EngineLost { name: "cuda".to_owned(), reason });
    harness.run_steps(3);
    assert_eq!(harness.state().session().rows().count(), 2, "finished rows are kept");
    assert!(!harness.state().session().is_running());
    assert!(harness.query_by_label_contains("CUDA stopped working: the GPU is lost").is_some());
    click(&mut harness, "Use the CPU engine");
    assert_eq!(harness.state().session().engines.chosen, "cpu");
    let asked = script.borrow().asked.last().cloned();
    assert!(matches!(asked, Some(Effect::Probe { ref engine, .. }) if engine == "cpu"), "{asked:?}");
}

#[test]
fn measured_speeds_are_told_apart() {
    let (mut harness, script) = scripted();
    script.borrow_mut().tell(Event::EnginesFound { engines: with_gpu() });
    harness.run_steps(3);
    harness.key_press(egui::Key::T);
    harness.run_steps(2);
    let measures = |script: &Script| script.asked.iter().filter(|of| matches!(of, Effect::Measure { .. })).count();
    assert_eq!(measures(&script.borrow()), 0, "the CPU cannot time kernels: the action is greyed");
    harness.state_mut().command(Command::SelectEngine { name: "cuda".to_owned() });
    harness.run_steps(3);
    let run = rows_come(&mut harness, &script);
    script.borrow_mut().tell(Event::ProbeFinished { run, cancelled: false, seconds: 1.0 });
    harness.run_steps(3);
    let site = harness.state().session().trace.as_ref().unwrap().manifest().sites[0].id.clone();
    harness.state_mut().view_mut().select(site.clone(), None);
    harness.run_steps(2);
    click(&mut harness, "Inspect fprop");
    assert!(harness.query_all_by_label_contains("recorded on a test machine").next().is_some());

    harness.key_press(egui::Key::T);
    harness.run_steps(3);
    let Some(Effect::Measure { run, engine }) = script.borrow().asked.last().cloned() else { panic!("not measuring") };
    assert_eq!(engine, "cuda");
    let latency = Latency {
        latency_us: Some(4.0),
        baseline_us: Some(9.0),
        source: LatencySource::Measured,
        ..Latency::unknown("measured here, 31 samples")
    };
    let latencies = ["cublaslt/bf16", ROWWISE].map(|kernel| {
        let (site, kernel) = (site.clone(), KernelId::new(kernel));
        MeasuredLatency { site, gemm: Gemm::Fprop, kernel, latency: latency.clone() }
    });
    script.borrow_mut().tell(Event::Measured { run, latencies: latencies.to_vec(), done: 0.5, seconds: 2.0 });
    harness.run_steps(3);
    assert!(harness.query_by_label("timing 50 % · 2 s left").is_some(), "progress is shown");
    script.borrow_mut().tell(Event::MeasureFinished { run, problem: None });
    harness.run_steps(3);
    assert!(harness.query_all_by_label_contains("2.25×, measured").next().is_some());
    assert!(harness.query_all_by_label_contains("measured here, 31 samples").next().is_some());
    assert!(harness.query_by_label("1 measured").is_some(), "the plan line counts its sources");
}
