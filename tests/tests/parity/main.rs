//! The same workbench everywhere: each scenario of tests/scenarios is played in this process, in the native window and
//! in a browser, by mouse and keys; what is decided, what is on screen and what is exported must be the same.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

mod child;
mod compare;
mod in_browser;
mod in_process;
mod in_window;
mod pictured;
mod player;
mod scenario;
mod sending;
mod stage;
mod together;

use std::sync::{Mutex, MutexGuard, PoisonError};

use compare::compare;
use in_browser::InBrowser;
use in_process::InProcess;
use in_window::InWindow;
use player::{Playable, Played, play};
use scenario::Scenario;
use stage::{Stage, USUAL};

/// A program that draws by software has a core to itself, and the probe the other.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    // A test that failed has nothing to leave in disorder.
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Every scenario has its test below.
const SCENARIOS: [&str; 7] =
    ["from-trace-to-plan", "by-keyboard", "policies", "compare", "review", "brush-and-graph", "newcomer"];

fn played(name: &str) {
    let _turn = turn();
    let scenario = Scenario::of(name);
    // One after the other: three probes at a time would take the cores from each other.
    let mut played: Vec<Played> = Vec::new();
    played.extend(in_a(&scenario, |stage| Ok(Box::new(InProcess::open(stage)))));
    played.extend(in_a(&scenario, |stage| Ok(Box::new(InWindow::open(stage)?))));
    played.extend(in_a(&scenario, |stage| Ok(Box::new(InBrowser::open(stage)?))));
    let [first, others @ ..] = played.as_slice() else { panic!("nothing was played") };
    first.check(&scenario);
    others.iter().for_each(|other| compare(&scenario, first, other));
}

/// `None`, and a line, where there is no such target; not on CI.
fn in_a(scenario: &Scenario, open: impl Fn(&Stage) -> Result<Box<dyn Playable>, String>) -> Option<Played> {
    let staged = if scenario.probes { Stage::without_rows } else { Stage::new };
    let stage = staged(scenario.plan.as_ref(), &scenario.keys, USUAL);
    match open(&stage) {
        Ok(mut window) => Some(play(scenario, window.as_mut())),
        Err(why) => {
            skipped(&scenario.name, &why);
            None
        }
    }
}

/// What is not there is a failure on CI.
fn skipped(what: &str, why: &str) {
    assert!(std::env::var("CI").is_err(), "{what}: {why}");
    eprintln!("skipped a part of {what}: {why}");
}

#[test]
fn from_a_trace_to_a_plan() {
    played("from-trace-to-plan");
}

#[test]
fn an_area_and_the_graph_by_keyboard() {
    played("brush-and-graph");
}

#[test]
fn a_first_look() {
    played("newcomer");
}

#[test]
fn sites_and_kernels_by_keyboard() {
    played("by-keyboard");
}

#[test]
fn policies_and_thresholds() {
    played("policies");
}

#[test]
fn a_plan_of_the_folder_to_compare_with() {
    played("compare");
}

#[test]
fn a_review_to_an_approved_plan() {
    played("review");
}

/// The clipboard is the system's: what the window says is on it another program gets.
#[test]
fn what_is_copied_another_program_pastes() {
    let _turn = turn();
    let stage = Stage::new(None, &[], USUAL);
    let mut window = match InWindow::open(&stage) {
        Ok(window) => window,
        Err(why) => return skipped("the clipboard", &why),
    };
    let told = |window: &mut InWindow| {
        let look = window.look();
        let is_told = |node: &loka::driving::Node| node.label.contains("is on the clipboard");
        look.nodes.iter().any(is_told)
    };
    let until = |window: &mut InWindow, what: &str, is_so: &dyn Fn(&mut InWindow) -> bool| {
        let start = std::time::Instant::now();
        while !is_so(window) {
            assert!(start.elapsed().as_secs() < 180, "{what}");
            std::thread::sleep(std::time::Duration::from_millis(200));
        }
    };
    until(&mut window, "the rows were not read", &|window| window.look().state["complete"] == true);
    window.key("Ctrl+Shift+C");
    until(&mut window, "nothing was said", &|window| told(window));
    let pasted = match window.pasted() {
        Ok(text) => text,
        Err(why) => return skipped("the clipboard", &why),
    };
    assert!(pasted.lines().count() > 14 && pasted.contains('\t'), "{pasted:?}");
}

#[test]
fn every_scenario_has_a_test() {
    let mut there = scenario::names();
    let mut tested = SCENARIOS.map(str::to_owned).to_vec();
    there.sort();
    tested.sort();
    assert_eq!(there, tested);
}
