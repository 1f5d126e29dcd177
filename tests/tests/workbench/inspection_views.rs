//! The views of distribution and drift, read and clicked by accessible label: a real trace through the local
//! link, which probes nothing here; and what stands there when there is nothing to show.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use egui_kittest::{Harness, kittest::Queryable as _};
use loka::{
    LokaApp,
    commands::{Action, StepAction},
    layout::Pane,
    link::InProcess,
    platform::ThreadExecutor,
};
use loka_core::{
    dispatch::Policy,
    model::{Estimate, Gemm, KernelId, ResultRow, SiteId},
    runtime::{Executor, Report},
    session::{Command, Effect, Looked},
    views::distribution::Operand,
};
use loka_tests::{root, run_in, scripted, tiny};

/// The executor of this process without probes: distributions need none.
struct Reader(ThreadExecutor);

impl Executor for Reader {
    fn run(&mut self, effect: Effect) {
        if !matches!(effect, Effect::Probe { .. }) {
            self.0.run(effect);
        }
    }

    fn poll(&mut self) -> Option<Report> {
        self.0.poll()
    }

    fn busy(&self) -> Option<String> {
        self.0.busy()
    }
}

fn window(executor: Reader) -> Harness<'static, LokaApp> {
    let app = LokaApp::new(Box::new(InProcess::new(executor)));
    scripted::window(app, [1600.0, 3200.0])
}

fn wait(harness: &mut Harness<'_, LokaApp>, what: &str, ready: impl Fn(&LokaApp) -> bool) {
    let start = Instant::now();
    while !ready(harness.state()) {
        assert!(start.elapsed() < Duration::from_secs(120), "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(20));
        harness.step();
    }
    harness.run_steps(3);
}

fn select(harness: &mut Harness<'_, LokaApp>, site: &str, pane: Pane) {
    let site = SiteId::new(site);
    let view = harness.state_mut().view_mut();
    view.select(site.clone(), None);
    view.layout.show(pane);
    harness.run_steps(2);
    let found = |app: &LokaApp| matches!(app.session().inspections.of(&site), Some(Looked::Found(_)));
    wait(harness, "the inspection", found);
}

fn opened(name: &str) -> Harness<'static, LokaApp> {
    opened_at(root(&format!("sample-traces/{name}.trace.safetensors")).to_string_lossy().into_owned())
}

fn opened_at(path: String) -> Harness<'static, LokaApp> {
    let mut harness = window(Reader(ThreadExecutor::new(Arc::new(|| {}))));
    harness.state_mut().open(path);
    wait(&mut harness, "the trace", |app| app.session().trace.is_some());
    harness
}

fn click(harness: &mut Harness<'_, LokaApp>, label: &str) {
    harness.get_by_label(label).click();
    harness.run_steps(3);
}

fn has(harness: &Harness<'_, LokaApp>, part: &str) -> bool {
    harness.query_all_by_label_contains(part).next().is_some()
}

#[test]
fn a_site_shows_ranges_and_outliers_and_stands_beside_a_pinned_one() {
    let mut harness = opened("dhen-counters");
    select(&mut harness, "tokens.bottom.0", Pane::Distribution);
    assert!(has(&harness, "Histogram of input of tokens.bottom.0"));
    // Raw counters of up to a million: one scale a tensor turns most of them to zero, and the names are told.
    assert!(has(&harness, "E4M3 · tensor · input of tokens.bottom.0"));
    assert!(has(&harness, "Outliers: the first 10 of"));
    assert!(!has(&harness, "E5M2 · row"), "no kernel does that");
    click(&mut harness, "All formats");
    assert!(has(&harness, "E5M2 · row"));
    click(&mut harness, "Weight");
    assert_eq!(harness.state().view().distribution.operand, Operand::Weight);
    assert!(has(&harness, "Histogram of weight of tokens.bottom.0"));
    click(&mut harness, "Pin for comparison");
    select(&mut harness, "top.0", Pane::Distribution);
    assert!(has(&harness, "weight of top.0") && has(&harness, "weight of tokens.bottom.0"), "both are there");
    click(&mut harness, "Unpin tokens.bottom.0");
    assert!(!has(&harness, "weight of tokens.bottom.0"));
}

#[test]
fn series_have_their_marks_and_another_run_is_compared_by_all_sites_alone() {
    let mut harness = opened("wukong-drift");
    select(&mut harness, "layers.2.fmb.mlp.6", Pane::Drift);
    assert!(has(&harness, "Input amax, 200 steps, from .144 to .400"));
    assert!(has(&harness, "Verdicts would flip: no kernel has an error that can be derived"), "nothing was probed");
    assert!(has(&harness, "No rows of this site yet"));
    click(&mut harness, "Path of another trace");
    let other = root("sample-traces/wukong-clicks.trace.safetensors").to_string_lossy().into_owned();
    harness.event(egui::Event::Text(other.clone()));
    harness.run_steps(2);
    click(&mut harness, "Compare");
    let site = SiteId::new("layers.2.fmb.mlp.6");
    wait(&mut harness, "the answer", |app| {
        matches!(app.session().inspections.in_other(&other, &site), Some(Looked::Failed(_)))
    });
    assert!(has(&harness, "of another run"));
    // All sites are compared whatever run it is of; these have none in common.
    wait(
        &mut harness,
        "all sites",
        |app| matches!(app.session().inspections.compared(), Some((of, Looked::Failed(_))) if of == other),
    );
    assert!(has(&harness, "Cannot be compared: it has no site of the open trace"));
}

#[test]
fn one_recorded_step_is_looked_at_in_drift_distribution_and_heatmap_together() {
    let mut harness = opened("wukong-drift");
    let step = |harness: &Harness<'_, LokaApp>| harness.state().view().steps.step();
    select(&mut harness, "layers.2.fmb.mlp.6", Pane::Drift);
    assert!(has(&harness, "whole recording"));
    harness.key_press_modifiers(egui::Modifiers::SHIFT, egui::Key::Period);
    harness.run_steps(3);
    let first = step(&harness).unwrap();
    click(&mut harness, "Next step");
    assert!(step(&harness).unwrap() > first);
    // In the middle of the first series' row.
    let row = harness.get_by_label_contains("Input amax, 200 steps").rect();
    let place = egui::pos2(row.left() + 0.6 * row.width(), row.center().y);
    for pressed in [true, false] {
        harness.event(egui::Event::PointerMoved(place));
        harness.event(egui::Event::PointerButton {
            pos: place,
            button: egui::PointerButton::Primary,
            pressed,
            modifiers: egui::Modifiers::NONE,
        });
        harness.run_steps(2);
    }
    let middle = step(&harness).unwrap();
    assert!(middle > first + 100, "{middle}");

    select(&mut harness, "layers.2.fmb.mlp.6", Pane::Distribution);
    let told = format!("At step {middle}: amax ");
    assert!(has(&harness, &told), "{told}");
    assert!(has(&harness, "the recorded one. E4M3 with one scale a tensor of that"));
    click(&mut harness, "Weight");
    assert!(has(&harness, &told), "of the weight's own series");

    harness.state_mut().view_mut().layout.show(Pane::Heatmap);
    harness.state_mut().act(loka::commands::Action::of_id("heatmap.show_steps").unwrap());
    wait(&mut harness, "steps as columns", |app| app.view().heatmap.step.is_some());
    let column = harness.state().view().heatmap.step.unwrap();
    harness.state_mut().view_mut().heatmap.step = Some(column + 1);
    harness.run_steps(2);
    assert!(step(&harness).unwrap() > middle, "it follows the heatmap's column, too");

    let action = |name: &str| loka::commands::Action::of_id(name).unwrap();
    harness.state_mut().act(action("steps.play"));
    wait(&mut harness, "it plays", |app| app.view().steps.is_playing());
    wait(&mut harness, "the end", |app| !app.view().steps.is_playing());
    let last = step(&harness).unwrap();
    assert!(last > middle);
    harness.state_mut().act(action("steps.next"));
    harness.run_steps(2);
    assert_eq!(step(&harness), Some(last), "there is none after it");
    harness.state_mut().act(action("steps.leave"));
    harness.run_steps(2);
    assert_eq!(step(&harness), None);
}

#[test]
fn the_sites_that_changed_since_another_trace_are_listed_the_most_first() {
    let folder = tempfile::tempdir().unwrap();
    // A good run; in the one that is open the second site's largest input is 1,000 times as large.
    let [good, bad] = [5.0, 5000.0].map(|amax| {
        let path = folder.path().join(format!("{amax}.trace.safetensors"));
        let mut trace = tiny::trace(3);
        trace.sites.iter_mut().for_each(|site| site.input.amax = Some(5.0));
        trace.sites[1].input.amax = Some(amax);
        loka_core::trace::write(&path, &trace).unwrap();
        path.to_string_lossy().into_owned()
    });
    let mut harness = opened_at(bad);
    // Without a site selected, too.
    harness.state_mut().view_mut().layout.show(Pane::Drift);
    harness.run_steps(2);
    click(&mut harness, "Path of another trace");
    let other = good;
    harness.event(egui::Event::Text(other.clone()));
    harness.run_steps(2);
    click(&mut harness, "Compare");
    wait(
        &mut harness,
        "all sites",
        |app| matches!(app.session().inspections.compared(), Some((of, Looked::Found(_))) if *of == other),
    );
    assert!(has(&harness, "1 site of 3 changed twofold or more since 5.trace.safetensors, the most first:"));
    assert!(has(&harness, "(1,000×)"), "there, here, and the factor");
    assert!(has(&harness, "Noise shares and loss costs take rows of both"));
    let first = match harness.state().session().inspections.compared() {
        Some((_, Looked::Found(found))) => found.diff.sites[0].site.clone(),
        other => unreachable!("{other:?}"),
    };
    assert_eq!(first.as_str(), "layers.1");
    harness.get_all_by_label("layers.1").last().unwrap().click();
    harness.run_steps(3);
    assert_eq!(harness.state().view().site, Some(first));
}

/// A run's traces with their results beside them; at the second the error of one GEMM is a hundred times as large.
fn checkpoints(folder: &Path) -> Vec<String> {
    let trace_at = |step: u64| format!("step-{step}.trace.safetensors");
    let results_at = |step: u64| folder.join(format!("step-{step}.results.parquet"));
    for step in [10, 20, 30, 40] {
        let mut trace = tiny::trace(3);
        trace.manifest.run.step = step;
        loka_core::trace::write(&folder.join(trace_at(step)), &trace).unwrap();
    }
    // Of another run.
    let mut other = tiny::trace(3);
    other.manifest.run.id = "another".to_owned();
    loka_core::trace::write(&folder.join("other.trace.safetensors"), &other).unwrap();
    let probe = ["probe", &trace_at(10), "--engine", "cpu", "--max-draws", "8", "--kernels", "cublaslt/*"];
    run_in(folder, [&probe[..], &["--out", "step-10.results.parquet"]].concat()).done();
    let found = loka_core::tables::read_results(&results_at(10)).unwrap();
    for step in [20, 30] {
        let mut results = found.clone();
        results.meta.manifest.run.step = step;
        let trace = loka_core::trace::Trace::open(&folder.join(trace_at(step))).unwrap();
        results.meta.trace_digest = trace.digest();
        let is_worse = |row: &&mut ResultRow| row.site.as_str() == "layers.1" && row.gemm == Gemm::Fprop;
        for row in results.rows.iter_mut().filter(is_worse).filter(|_| step == 20) {
            let Some(error) = &mut row.error else { continue };
            let Estimate { value, lo, hi } = error.rel_l2;
            error.rel_l2 = Estimate::new(100.0 * value, 100.0 * lo, 100.0 * hi);
        }
        loka_core::tables::write_results(&results_at(step), &results).unwrap();
    }
    [10, 20, 30, 40].map(|step| folder.join(trace_at(step)).to_string_lossy().into_owned()).into()
}

#[test]
fn the_checkpoints_of_a_run_show_what_flipped_and_the_open_trace_is_held_against_one() {
    let folder = tempfile::tempdir().unwrap();
    let paths = checkpoints(folder.path());
    let mut harness = opened_at(paths[2].clone());
    // This executor looks for none by itself.
    let rows = paths[2].replace("trace.safetensors", "results.parquet");
    harness.state_mut().command(Command::OpenResults { path: rows });
    wait(&mut harness, "the rows beside it", |app| app.session().has_rows());
    let kernel = KernelId::new("cublaslt/fp8-rowwise");
    let policy = Policy { max_error: 0.5, ..Policy::rel_l2() };
    let at = |gemm| ["layers.0", "layers.1"].map(|site| (SiteId::new(site), gemm));
    let over = Command::SetOverrides { at: at(Gemm::Fprop).into(), kernel, reason: "to follow".to_owned() };
    for command in [Command::SetPolicy { policy }, over] {
        harness.state_mut().command(command);
    }
    harness.state_mut().view_mut().layout.show(Pane::Drift);
    let read = |app: &LokaApp, gemms: usize| match app.session().inspections.checkpoints() {
        Some((followed, Looked::Found(_))) => followed.gemms.len() == gemms,
        _ => false,
    };
    wait(&mut harness, "the checkpoints", |app| read(app, 2));
    assert!(has(&harness, "Step 10: 2 safe, 0 uncertain, 0 unsafe"));
    assert!(has(&harness, "Step 20: 1 safe, 0 uncertain, 1 unsafe; 1 got worse since the one before"));
    assert!(has(&harness, "Step 30, the open trace: 2 safe, 0 uncertain, 0 unsafe; 1 got better since the one before"));
    assert!(has(&harness, "Step 40: no results lie beside it"));
    assert_eq!(harness.query_all_by_label_contains("Step 10").count(), 1, "another run's is none of them");

    harness.get_by_label_contains("Step 20").click();
    harness.run_steps(3);
    assert_eq!(harness.state().view().drift.compared.as_ref(), Some(&paths[1]));
    wait(
        &mut harness,
        "the comparison",
        |app| matches!(app.session().inspections.compared(), Some((of, Looked::Found(_))) if *of == paths[1]),
    );
    assert!(has(&harness, "Since step 10"));
    harness.get_by_label("layers.1 fprop").click();
    harness.run_steps(3);
    assert_eq!(harness.state().view().site, Some(SiteId::new("layers.1")));

    // By the palette's actions: along the run, past the open one, to its ends.
    let compared = |harness: &Harness<'_, LokaApp>| harness.state().view().drift.compared.clone();
    let mut go = |action| {
        harness.state_mut().act(Action::Step(action));
        harness.run_steps(3);
        compared(&harness)
    };
    assert_eq!(go(StepAction::NextCheckpoint).as_ref(), Some(&paths[3]));
    assert_eq!(go(StepAction::NextCheckpoint).as_ref(), Some(&paths[3]), "it is the last");
    assert_eq!(go(StepAction::PreviousCheckpoint).as_ref(), Some(&paths[1]));
    assert_eq!(go(StepAction::PreviousCheckpoint).as_ref(), Some(&paths[0]));

    // Against its results in every view; then what else is followed is read anew by itself.
    click(&mut harness, "As baseline");
    wait(&mut harness, "the baseline", |app| app.session().other_results.is_some());
    let clear = Command::ClearOverrides { at: at(Gemm::Fprop)[..1].to_vec() };
    harness.state_mut().command(clear);
    wait(&mut harness, "the checkpoints again", |app| read(app, 1));
    assert!(has(&harness, "Step 10: 1 safe"));
    click(&mut harness, "Open it");
    wait(&mut harness, "the other checkpoint", |app| app.session().trace_path() == Some(paths[0].as_str()));
}

#[test]
fn a_series_in_another_unit_is_shown_and_not_used() {
    let mut harness = opened("wukong-clicks");
    select(&mut harness, "net.top.0", Pane::Drift);
    assert!(has(&harness, "Gradient amax, 60 steps"));
    let inspection = match harness.state().session().inspections.of(&SiteId::new("net.top.0")) {
        Some(Looked::Found(inspection)) => inspection.clone(),
        other => unreachable!("{other:?}"),
    };
    let gradient = inspection.drifts.iter().find(|drift| drift.operand == Operand::GradOutput).unwrap();
    assert!(gradient.points.as_ref().unwrap_err().contains("another unit"));
}
