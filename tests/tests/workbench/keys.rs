//! Keys and clicks that come in one slow frame: each counts, in its order, and what is typed goes to the field that was
//! clicked or opened just before.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use egui::{Event, Key, Modifiers, PointerButton, Pos2};
use egui_kittest::kittest::Queryable as _;
use loka::{LokaApp, layout::Pane, link::InProcess, platform::ThreadExecutor};
use loka_core::{dispatch::Policy, session::Command};
use loka_tests::{
    sample,
    scripted::{Window, window},
};

/// With the sample's sites.
fn opened() -> Window {
    let app = LokaApp::new(Box::new(InProcess::new(ThreadExecutor::new(Arc::new(|| {})))));
    let mut harness = window(app, [1280.0, 800.0]);
    harness.state_mut().open(sample().to_string_lossy().into_owned());
    let start = Instant::now();
    while harness.state().session().sites().is_empty() {
        assert!(start.elapsed() < Duration::from_secs(60), "the sample does not open");
        std::thread::sleep(Duration::from_millis(5));
        harness.step();
    }
    harness.run_steps(4);
    harness
}

fn press(key: Key) -> Event {
    Event::Key { key, physical_key: None, pressed: true, repeat: false, modifiers: Modifiers::NONE }
}

fn typed(character: &str) -> [Event; 2] {
    [press(Key::from_name(&character.to_uppercase()).unwrap()), Event::Text(character.to_owned())]
}

fn clicked(pos: Pos2) -> [Event; 3] {
    let button =
        |pressed| Event::PointerButton { pos, button: PointerButton::Primary, pressed, modifiers: Modifiers::NONE };
    [Event::PointerMoved(pos), button(true), button(false)]
}

/// All of it in one frame, and two more.
fn at_once(harness: &mut Window, events: impl IntoIterator<Item = Event>) {
    harness.input_mut().events.extend(events);
    harness.run_steps(3);
}

fn selected(harness: &Window) -> Option<usize> {
    let session = harness.state().session();
    let site = harness.state().view().site.clone()?;
    session.sites().iter().position(|of| of.id == site)
}

#[test]
fn every_press_of_a_frame_counts_in_its_order() {
    let mut harness = opened();
    at_once(&mut harness, [Key::End, Key::Home, Key::ArrowDown, Key::ArrowDown].map(press));
    assert_eq!(selected(&harness), Some(2));
}

#[test]
fn letters_behind_a_click_go_to_the_clicked_field() {
    let mut harness = opened();
    let field = harness.get_by_label("Filter sites").rect().center();
    // Alone these characters open views, the review among them.
    at_once(&mut harness, clicked(field).into_iter().chain(typed("v")).chain(typed("f")));
    assert_eq!(harness.state().view().filter, "vf");
    assert_ne!(harness.state().view().layout.active(), Pane::Review);
}

#[test]
fn a_key_behind_a_click_elsewhere_is_still_a_key() {
    let mut harness = opened();
    at_once(&mut harness, [press(Key::Home)]);
    let tab = harness.get_by_label("Site").rect().center();
    at_once(&mut harness, clicked(tab).into_iter().chain([press(Key::ArrowDown)]));
    assert_eq!(selected(&harness), Some(1));
}

#[test]
fn letters_behind_a_key_that_opens_a_field_go_there() {
    let mut harness = opened();
    at_once(&mut harness, typed("f").into_iter().chain(typed("v")).chain(typed("o")));
    assert_eq!(harness.state().view().filter, "vo");
}

#[test]
fn a_threshold_that_changes_meanwhile_takes_nothing_of_what_is_typed() {
    let mut harness = opened();
    harness.state_mut().command(Command::SetPolicy { policy: Policy::paper() });
    harness.run_steps(2);
    let field = harness.get_by_label("MERE ≤").rect().center();
    at_once(&mut harness, clicked(field));
    at_once(&mut harness, typed("3"));
    // Another window, or the late answer to a drag.
    harness.state_mut().command(Command::SetMaxError { value: 0.25, gesture: None });
    at_once(&mut harness, typed("1").into_iter().chain([press(Key::Enter)]));
    assert_eq!(harness.state().session().document.policy.max_error, 31.0);
    at_once(&mut harness, [press(Key::Home)]);
    harness.state_mut().command(Command::SetMaxError { value: 0.25, gesture: None });
    harness.run_steps(2);
    assert_eq!(harness.get_by_label("MERE ≤").value().as_deref(), Some(".25"));
}
