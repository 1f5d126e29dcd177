//! The graph by accessible label, pointer and key: what its boxes say, how it folds, how it goes along the chain, and a
//! model of ten thousand sites. Rows are made up; the link plays a script.

use egui::{Event as Input, Key, Modifiers};
use egui_kittest::kittest::{NodeT as _, Queryable as _};
use loka::{LokaApp, commands::Action, layout::Pane};
use loka_core::{
    model::{Gemm, KernelId, ModKind, SiteId},
    session::{Command, Event},
};
use loka_tests::{
    big,
    scripted::{ScriptedLink, Window, window},
};

fn opened(num_sites: usize, size: [f32; 2]) -> Window {
    let link = ScriptedLink::default().by_paper();
    let results = Box::new(big::results(num_sites, 11).into());
    link.script.borrow_mut().tell(Event::ResultsOpened { path: "made.results.parquet".to_owned(), results });
    let mut harness = window(LokaApp::new(Box::new(link)), size);
    harness.run_steps(6);
    harness.key_press(Key::H);
    harness.run_steps(4);
    assert!(harness.state().view().layout.is_on_screen(Pane::Graph));
    harness
}

fn press(harness: &mut Window, key: Key) {
    harness.key_press(key);
    harness.run_steps(3);
}

fn act(harness: &mut Window, text: &str) {
    harness.key_press_modifiers(Modifiers::COMMAND, Key::K);
    harness.run_steps(3);
    harness.event(Input::Text(text.to_owned()));
    harness.run_steps(2);
    press(harness, Key::Enter);
}

fn click(harness: &mut Window, label: &str) {
    harness.get_by_label(label).click();
    harness.run_steps(3);
}

fn select(harness: &mut Window, site: &str) {
    harness.state_mut().view_mut().select(SiteId::new(site), None);
    harness.run_steps(4);
}

fn site(harness: &Window) -> String {
    harness.state().view().site.as_ref().map(ToString::to_string).unwrap_or_default()
}

fn num_boxes(harness: &Window) -> usize {
    harness.state().view().graph.shown().unwrap().1.all.len()
}

#[test]
fn a_box_selects_its_site_and_says_what_it_is() {
    let mut harness = opened(24, [1600.0, 1000.0]);
    assert_eq!(num_boxes(&harness), 24);
    select(&mut harness, "dense.mlp.0");
    click(&mut harness, "Box of dense.mlp.3");
    assert_eq!(site(&harness), "dense.mlp.3", "all views follow");
    let place = harness.get_by_label("Box of dense.mlp.3").rect().center();
    harness.event(Input::PointerMoved(place));
    harness.run_steps(6);
    let told = harness.query_all_by_label_contains("Feeds layers.0.fmb.mlp.0").next();
    assert!(told.is_some_and(|told| format!("{told:?}").contains("Fed by dense.mlp.0")), "the tooltip has the feeds");
    assert!(harness.query_all_by_label("24 sites").count() == 2, "in the list and here");
}

#[test]
fn arrows_go_along_the_chain_and_the_focus_with_them() {
    let mut harness = opened(24, [1600.0, 1000.0]);
    select(&mut harness, "dense.mlp.0");
    harness.get_by_label("Box of dense.mlp.0").focus();
    harness.run_steps(3);
    for (key, wanted) in [
        (Key::ArrowRight, "dense.mlp.3"),
        (Key::ArrowLeft, "dense.mlp.0"),
        (Key::ArrowDown, "dense.mlp.3"),
        (Key::ArrowDown, "layers.0.fmb.mlp.0"),
        (Key::ArrowUp, "dense.mlp.3"),
        (Key::End, "layers.2.residual"),
        (Key::Home, "sparse.project"),
    ] {
        press(&mut harness, key);
        assert_eq!(site(&harness), wanted, "{key:?}");
        let label = format!("Box of {wanted}");
        assert!(harness.get_by_label(&label).is_focused(), "{key:?}: the focus goes along");
    }
    press(&mut harness, Key::Enter);
    assert_eq!(harness.state().view().layout.active(), Pane::Site);
}

#[test]
fn modules_fold_by_click_by_key_and_by_name() {
    let mut harness = opened(24, [1600.0, 1000.0]);
    let label = harness
        .query_all_by_label_contains("Fold layers.1,")
        .next()
        .map(|node| node.accesskit_node().label().unwrap_or_default().clone());
    click(&mut harness, &label.unwrap());
    assert_eq!(num_boxes(&harness), 24 - 6, "seven sites are one box");
    click(&mut harness, "Open layers.1, 7 sites");
    assert_eq!(num_boxes(&harness), 24);
    act(&mut harness, "Fold all modules in the graph");
    assert_eq!(num_boxes(&harness), 3, "sparse.project, dense and layers");
    select(&mut harness, "layers.1.residual");
    harness.get_by_label("Open layers, 21 sites").focus();
    harness.run_steps(3);
    press(&mut harness, Key::Enter);
    assert_eq!(num_boxes(&harness), 2 + 3, "each layer is folded");
    harness.get_by_label("Open layers.1, 7 sites").focus();
    press(&mut harness, Key::ArrowRight);
    assert_eq!(site(&harness), "layers.2.fmb.mlp.0", "a folded module is one step");
    act(&mut harness, "Open all modules in the graph");
    assert_eq!(num_boxes(&harness), 24);
    act(&mut harness, "Fold or open in the graph");
    assert_eq!(num_boxes(&harness), 24 - 2, "the innermost one that the site is in");
}

#[test]
fn a_folded_module_is_selected_with_shift() {
    let mut harness = opened(24, [1600.0, 1000.0]);
    act(&mut harness, "Fold all modules in the graph");
    harness.get_by_label("Open layers, 21 sites").click_modifiers(Modifiers::SHIFT);
    harness.run_steps(3);
    assert_eq!(harness.state().view().selected_sites().len(), 21);
    assert_eq!(num_boxes(&harness), 3);
}

#[test]
fn mods_and_choices_by_hand_have_a_legend() {
    let mut harness = opened(24, [1600.0, 1000.0]);
    assert!(harness.query_by_label("by hand").is_none() || harness.query_all_by_label("by hand").count() == 1);
    let before = harness.query_all_by_label("by hand").count();
    let (site, gemm, kernel) = (SiteId::new("dense.mlp.0"), Gemm::Fprop, KernelId::new("cublaslt/bf16"));
    let override_it = Command::SetOverride { site: site.clone(), gemm, kernel, reason: "a test".to_owned() };
    harness.state_mut().command(override_it);
    harness.run_steps(4);
    assert_eq!(harness.query_all_by_label("by hand").count(), before + 1);
    assert!(harness.query_by_label("mod").is_none());
    harness.state_mut().command(Command::SetMod { kind: ModKind::BlockNorm, on: true, sites: vec![site] });
    harness.run_steps(4);
    assert!(harness.query_by_label("mod").is_some());
}

#[test]
fn it_zooms_and_comes_back() {
    let mut harness = opened(24, [1600.0, 1000.0]);
    let width = |harness: &Window| harness.get_by_label("Box of dense.mlp.0").rect().width();
    select(&mut harness, "dense.mlp.0");
    let before = width(&harness);
    act(&mut harness, "Zoom into the graph");
    select(&mut harness, "dense.mlp.3");
    select(&mut harness, "dense.mlp.0");
    assert!(width(&harness) > before, "{} {before}", width(&harness));
    click(&mut harness, "Reset zoom");
    assert!((width(&harness) - before).abs() < 0.5);
    let place = harness.get_by_label("Box of dense.mlp.0").rect().center();
    harness.event(Input::PointerMoved(place));
    harness.run_steps(2);
    harness.event(Input::Zoom(1.5));
    harness.run_steps(3);
    assert!(harness.state().view().graph.zoom > 1.4);
}

/// Only what is in sight is laid out: a strip of ten thousand boxes has no more widgets than fit in the pane.
#[test]
fn ten_thousand_sites_fold_by_themselves_and_open_in_sight() {
    let mut harness = opened(10_000, [1280.0, 800.0]);
    assert_eq!(num_boxes(&harness), 3, "the outermost modules");
    harness.state_mut().act(Action::Graph(loka::commands::GraphAction::OpenAll));
    harness.run_steps(4);
    assert_eq!(num_boxes(&harness), 10_000);
    let drawn = harness.query_all_by_label_contains("Box of ").count();
    assert!((5..80).contains(&drawn), "{drawn}");
    select(&mut harness, "layers.700.residual");
    assert!(harness.query_by_label("Box of layers.700.residual").is_some(), "what is selected is brought into sight");
}

#[test]
fn without_a_trace_it_says_so() {
    let mut harness = window(LokaApp::new(Box::new(ScriptedLink::default())), [1280.0, 800.0]);
    harness.run_steps(3);
    // Without a trace no pane is drawn; its action is greyed with the reason.
    let scope = harness.state();
    assert!(scope.session().trace.is_none());
    harness.state_mut().act(Action::Graph(loka::commands::GraphAction::Next));
    harness.run_steps(2);
    assert!(harness.state().view().site.is_none());
}
