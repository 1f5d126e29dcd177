//! The views of distribution and drift, read and clicked by accessible label: a real trace through the local
//! link, which probes nothing here; and what stands there when there is nothing to show.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use egui_kittest::{Harness, kittest::Queryable as _};
use loka::{LokaApp, layout::Pane, link::InProcess, platform::ThreadExecutor};
use loka_core::{
    model::SiteId,
    runtime::{Executor, Report},
    session::{Effect, Looked},
    views::distribution::Operand,
};
use loka_tests::{root, scripted, tiny};

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
