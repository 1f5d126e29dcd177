//! What a person does, frame by frame: opening, resting, scrolling, hovering, pulling a threshold, typing, watching
//! rows come in.

use std::{
    cell::RefCell,
    path::Path,
    rc::Rc,
    time::{Duration, Instant},
};

use egui::{Event as SessionInput, Key, Modifiers, MouseWheelSource, MouseWheelUnit, vec2};
use loka::{commands::Action, layout::Pane, link::InProcess, platform::ThreadExecutor};
use loka_core::{
    dispatch::Policy,
    session::{Command, Event},
};
use loka_tests::big;

use crate::{
    clock, machine,
    report::Figure,
    window::{Frame, Script, ScriptedExecutor, TimedWindow},
};

/// From frame to frame of a screen of 60 Hz.
const SCREEN: Duration = Duration::from_micros(16_667);

/// Milliseconds of CPU time a frame.
const FRAME_BAR: Option<f64> = Some(8.0);

/// In shares of the window, in the arrangement that wide windows start with.
const LIST: (f32, f32) = (0.06, 0.4);
const HEATMAP: (f32, f32) = (0.3, 0.4);
const QUADRANT: (f32, f32) = (0.62, 0.4);
/// Below them.
const GRAPH: (f32, f32) = (0.4, 0.82);

fn key(key: Key) -> Vec<SessionInput> {
    let modifiers = Modifiers::NONE;
    [true, false]
        .map(|pressed| SessionInput::Key { key, physical_key: None, pressed, repeat: false, modifiers })
        .to_vec()
}

fn wheel(down: f32) -> SessionInput {
    SessionInput::MouseWheel {
        unit: MouseWheelUnit::Point,
        delta: vec2(0.0, -down),
        phase: egui::TouchPhase::Move,
        source: MouseWheelSource::Unknown,
        modifiers: Modifiers::NONE,
    }
}

/// From a results file to the first frame with everything in it, by the program's own threads.
pub fn open(path: &Path, gpu: bool, figures: &mut Vec<Figure>) -> TimedWindow {
    let mut window = TimedWindow::new(Box::new(InProcess::new(ThreadExecutor::new(std::sync::Arc::new(|| {})))), gpu);
    window.settle();
    let empty_mb = machine::resident_mb();
    // Made-up rows have no noise shares, which the default policy goes by: no site would be the worst.
    window.app.command(Command::SetPolicy { policy: Policy::paper() });
    let (opened, cpu) = (Instant::now(), clock::of_process());
    window.app.open(path.to_string_lossy().into_owned());
    // The worst site is selected as soon as views were derived. A window draws no more often than its screen shows: frames
    // that nobody sees would take a core from the threads that are waited for.
    while window.app.view().site.is_none() {
        assert!(opened.elapsed() < Duration::from_secs(120), "{:?}", window.session().notices);
        let drawn = Instant::now();
        window.frame(Vec::new());
        std::thread::sleep(SCREEN.saturating_sub(drawn.elapsed()));
    }
    window.frame(Vec::new());
    let bar = (window.session().sites().len() <= 10_000).then_some(2000.0);
    let (wall, used) = (opened.elapsed(), clock::of_process().saturating_sub(cpu));
    figures.push(Figure::one("open until the first full frame, on the wall", "ms", 1e3 * wall.as_secs_f64(), bar));
    figures.push(Figure::one("open, CPU of all threads", "ms", 1e3 * used.as_secs_f64(), None));
    window.settle();
    let (resident, data) = (machine::resident_mb(), big::bytes_of(window.session().rows()) as f64 / 1e6);
    figures.push(Figure::one("rows, decoded", "MB", data, None));
    figures.push(Figure::one("resident, window empty", "MB", empty_mb, None));
    figures.push(Figure::one("resident after opening", "MB", resident, Some(3.0 * data)));
    window
}

pub fn gestures(window: &mut TimedWindow, frames: usize, figures: &mut Vec<Figure>) {
    let with = if window.has_gpu() { "with uploads" } else { "no GPU" };
    let told = RefCell::new(figures);
    let measured = |window: &mut TimedWindow, what: &str, events: &mut dyn FnMut(usize) -> Vec<SessionInput>| {
        let drawn: Vec<Frame> = (0..frames).map(|at| window.frame(events(at))).collect();
        told.borrow_mut().extend(figures_of(&format!("frame ({with}), {what}"), &drawn));
    };
    measured(window, "resting", &mut |_| Vec::new());
    for (what, (x, y)) in [("scrolling the heatmap", HEATMAP), ("scrolling the list", LIST)] {
        let there = TimedWindow::at(x, y);
        measured(window, what, &mut |at| {
            vec![SessionInput::PointerMoved(there), wheel(if at % 60 < 40 { 90.0 } else { -60.0 })]
        });
    }
    window.settle();
    for (what, (x, y)) in [("hovering over the heatmap", HEATMAP), ("hovering over the quadrant", QUADRANT)] {
        measured(window, what, &mut |at| {
            let turn = at as f32 * 0.21;
            vec![SessionInput::PointerMoved(TimedWindow::at(x + 0.08 * turn.cos(), y + 0.15 * (1.3 * turn).sin()))]
        });
    }
    window.settle();
    window.frame(key(Key::F));
    measured(window, "typing in the filter", &mut |at| match at % 24 {
        0..12 => vec![SessionInput::Text("layers.1.fmb".get(at % 24..=at % 24).unwrap_or_default().to_owned())],
        _ => key(Key::Backspace),
    });
    window.frame(key(Key::Escape));
    window.settle();
    for (what, (x, y)) in [("brushing the heatmap", HEATMAP), ("brushing the quadrant", QUADRANT)] {
        window.frame(button(TimedWindow::at(x - 0.04, y - 0.1), true));
        measured(window, what, &mut |at| {
            let turn = at as f32 * 0.11;
            let to = TimedWindow::at(x + 0.06 + 0.03 * turn.cos(), y + 0.12 + 0.06 * (1.3 * turn).sin());
            vec![SessionInput::PointerMoved(to)]
        });
        window.frame(button(TimedWindow::at(x + 0.06, y + 0.12), false));
        window.settle();
        assert!(!window.app.view().brush.is_empty(), "{what} took nothing");
        measured(window, &format!("{what}, its card"), &mut |_| Vec::new());
        window.frame(key(Key::Escape));
        window.settle();
    }
    pulling(window, frames, &format!("frame ({with}), pulling a threshold"), &mut told.borrow_mut());
    window.app.view_mut().layout.show(Pane::Graph);
    window.settle();
    let (x, y) = GRAPH;
    measured(window, "the graph, scrolled", &mut |at| {
        let to = TimedWindow::at(x, y);
        vec![SessionInput::PointerMoved(to), wheel(if at % 60 < 40 { 90.0 } else { -60.0 })]
    });
    // Every module opened: a box a site.
    let open = Action::of_id("graph.open_all").expect("an action of the graph");
    window.app.act(open);
    window.settle();
    measured(window, "the graph, every site, hovered", &mut |at| {
        let turn = at as f32 * 0.21;
        vec![SessionInput::PointerMoved(TimedWindow::at(x + 0.15 * turn.cos(), y + 0.04 * (1.3 * turn).sin()))]
    });
    window.settle();
    pulling(
        window,
        frames,
        &format!("frame ({with}), pulling a threshold, every site's box in sight"),
        &mut told.borrow_mut(),
    );
}

/// CPU time of frames and, where a GPU drew them, how long that took.
fn figures_of(what: &str, frames: &[Frame]) -> Vec<Figure> {
    let drawn: Vec<f64> = frames.iter().filter_map(|frame| frame.gpu_ms).collect();
    let cost = frames.iter().map(|frame| frame.cpu_ms).collect();
    let mut figures = vec![Figure::of(what, "ms", cost, FRAME_BAR)];
    if !drawn.is_empty() {
        figures.push(Figure::of(&format!("{what}, on the GPU"), "ms", drawn, FRAME_BAR));
    }
    figures
}

fn button(pos: egui::Pos2, pressed: bool) -> Vec<SessionInput> {
    let (button, modifiers) = (egui::PointerButton::Primary, Modifiers::NONE);
    vec![SessionInput::PointerMoved(pos), SessionInput::PointerButton { pos, button, pressed, modifiers }]
}

/// What a hand that pulls the line asks for: another threshold in every frame, all of them one gesture.
fn pulling(window: &mut TimedWindow, frames: usize, what: &str, figures: &mut Vec<Figure>) {
    let before = window.session().document.policy.max_error;
    let pulled = |window: &mut TimedWindow, at: usize| {
        let value = before * (1.0 + 0.5 * ((at + 1) as f64 * 0.11).sin());
        let start = Instant::now();
        window.app.command(Command::SetMaxError { value, gesture: Some(1) });
        let frame = window.frame(Vec::new());
        // As often as a screen shows one: the thread that derives has as long as it would have, and most frames have its news.
        std::thread::sleep(SCREEN.saturating_sub(start.elapsed()));
        frame
    };
    let drawn: Vec<Frame> = (0..frames).map(|at| pulled(window, at)).collect();
    figures.extend(figures_of(what, &drawn));
    assert_ne!(window.session().document.policy.max_error, before, "the pull changed nothing");
    window.app.command(Command::Undo);
    window.settle();
}

/// What is drawn in two seconds when nothing happens.
pub fn idle(window: &mut TimedWindow, figures: &mut Vec<Figure>) {
    window.settle();
    let (start, mut frames) = (Instant::now(), 0);
    let mut due = Duration::MAX;
    let before = clock::of_process();
    while start.elapsed() < Duration::from_secs(2) {
        if start.elapsed() >= due {
            frames += 1;
            due = start.elapsed().saturating_add(window.frame(Vec::new()).repaint);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let used = clock::of_process().saturating_sub(before);
    figures.push(Figure::one("frames in 2 s of rest", "frames", f64::from(frames), Some(0.0)));
    figures.push(Figure::one(
        "CPU in 2 s of rest, the measuring loop's own included",
        "ms",
        1e3 * used.as_secs_f64(),
        None,
    ));
}

/// 1,000 rows a second, a sixtieth of them a frame, into a session that has half of its rows.
pub fn streaming(path: &Path, frames: usize, gpu: bool, figures: &mut Vec<Figure>) {
    let results = loka_core::tables::read_results(path).unwrap();
    let script = Rc::new(RefCell::new(Script::default()));
    script.borrow_mut().events.push_back(big::opened(&results));
    let mut window = TimedWindow::new(Box::new(InProcess::new(ScriptedExecutor(script.clone()))), gpu);
    window.frame(Vec::new());
    let run = script.borrow_mut().probe.take().expect("opening starts a probe");
    let mut rows = results.rows.clone();
    let later = rows.split_off(rows.len() / 2);
    script.borrow_mut().events.extend([big::started(&results, run), Event::Rows { run, rows }]);
    drop(results);
    window.frame(Vec::new());
    let mut events = big::streamed(later, run, 17);
    let mut drawn = Vec::with_capacity(frames);
    for _ in 0..frames {
        let start = Instant::now();
        script.borrow_mut().events.extend(events.next());
        drawn.push(window.frame(Vec::new()));
        // In real time: the thread that derives has as long as it would have.
        std::thread::sleep(Duration::from_secs_f64(1.0 / 60.0).saturating_sub(start.elapsed()));
    }
    figures.extend(figures_of("frame, 1,000 rows a second coming in", &drawn));
}
