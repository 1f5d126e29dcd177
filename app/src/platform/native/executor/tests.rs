//! The executor by its effects and events: what is missing, what fails, pausing a real probe.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

use std::time::{Duration, Instant};

use super::*;

fn next(executor: &mut ThreadExecutor) -> Event {
    let start = Instant::now();
    loop {
        if let Some(event) = executor.poll().and_then(Report::event) {
            return event;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "no event came");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_missing_file_is_one_line() {
    let mut executor = ThreadExecutor::new(Arc::new(|| {}));
    executor.run(Effect::LoadTrace { path: "nowhere.trace.safetensors".to_owned() });
    let Event::OpenFailed { message } = next(&mut executor) else { panic!("not a failure") };
    assert!(message.contains("nowhere.trace.safetensors") && !message.contains('\n'), "{message}");
    assert_eq!(executor.busy(), None);
}

#[test]
fn a_panic_becomes_an_event() {
    let mut executor = ThreadExecutor::new(Arc::new(|| {}));
    let failed = |message| Event::OpenFailed { message };
    executor.spawn("loka-open", Some("Opening".to_owned()), failed, || panic!("boom"));
    let Event::OpenFailed { message } = next(&mut executor) else { panic!("not a failure") };
    assert!(message.ends_with("boom"), "{message}");
}

#[test]
fn a_probe_without_a_trace_says_so() {
    let mut executor = ThreadExecutor::new(Arc::new(|| {}));
    executor.run(Effect::Probe {
        run: 1,
        mods: SiteMods::default(),
        sites: Vec::new(),
        engine: "cpu".to_owned(),
        draws: None,
    });
    assert!(matches!(next(&mut executor), Event::OpenFailed { .. }));
    executor.run(Effect::Measure { run: 2, engine: "cpu".to_owned() });
    assert!(matches!(next(&mut executor), Event::OpenFailed { .. }));
    assert_eq!(next(&mut executor), Event::MeasureFinished { run: 2, problem: None });
}

/// Events until none comes for a while: what was under way has come to rest.
fn drained(executor: &mut ThreadExecutor) -> Vec<Event> {
    let (mut events, mut last) = (Vec::new(), Instant::now());
    while last.elapsed() < Duration::from_millis(500) {
        match executor.poll().and_then(Report::event) {
            Some(event) => {
                events.push(event);
                last = Instant::now();
            }
            _ => std::thread::sleep(Duration::from_millis(2)),
        }
    }
    events
}

#[test]
fn a_paused_probe_rests_goes_on_and_can_be_cancelled() {
    let mut executor = ThreadExecutor::new(Arc::new(|| {}));
    executor.pause(true);
    let sample = concat!(env!("CARGO_MANIFEST_DIR"), "/../sample-traces/wukong-clicks.trace.safetensors");
    executor.run(Effect::LoadTrace { path: sample.to_owned() });
    let sites = loop {
        if let Event::TraceOpened { trace } = next(&mut executor) {
            break trace.manifest().sites.iter().map(|site| site.id.clone()).collect();
        }
    };
    while !matches!(next(&mut executor), Event::TraceDigest { .. }) {}
    let started = Instant::now();
    executor.run(Effect::Probe { run: 1, mods: SiteMods::none(), sites, engine: "cpu".to_owned(), draws: None });
    while !matches!(next(&mut executor), Event::Rows { .. }) {}
    executor.pause(true);
    drop(drained(&mut executor));
    let paused = Instant::now();
    assert_eq!(drained(&mut executor), [], "it rests");
    let rested = paused.elapsed();
    executor.pause(false);
    while !matches!(next(&mut executor), Event::Rows { .. }) {}
    executor.pause(true);
    executor.run(Effect::Cancel);
    let (cancelled, seconds) = loop {
        if let Event::ProbeFinished { cancelled, seconds, .. } = next(&mut executor) {
            break (cancelled, seconds);
        }
    };
    assert!(cancelled);
    let worked = started.elapsed().saturating_sub(rested).as_secs_f64();
    assert!(seconds <= worked, "{seconds} s of {worked} s: paused time counts");
}

#[test]
fn engines_are_found_on_a_thread() {
    let mut executor = ThreadExecutor::new(Arc::new(|| {}));
    executor.run(Effect::FindEngines);
    let Event::EnginesFound { engines } = next(&mut executor) else { panic!("not a list") };
    assert!(engines.iter().any(|status| status.name == "cpu" && status.problem.is_none()));
}
