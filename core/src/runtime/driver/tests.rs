//! A driver with an executor that says what a test wants.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use super::*;
use crate::{
    dispatch::testing::{results, row},
    engine::EngineStatus,
    model::{Gemm, Results},
    session::shared::SessionInput,
    views::OpenedTrace,
};

#[derive(Default)]
struct World {
    reports: VecDeque<Report>,
    asked: Vec<Effect>,
    kept: Vec<String>,
    problem: Option<String>,
    beside: Option<String>,
}

/// Clones are one world.
#[derive(Clone, Default)]
struct Scripted(Arc<Mutex<World>>);

impl Executor for Scripted {
    fn run(&mut self, effect: Effect) {
        self.0.lock().unwrap().asked.push(effect);
    }

    fn poll(&mut self) -> Option<Report> {
        self.0.lock().unwrap().reports.pop_front()
    }

    fn results_beside(&self, _trace: &str) -> Option<String> {
        self.0.lock().unwrap().beside.clone()
    }
}

impl Journaling for Scripted {
    fn command(&mut self, by: &CommandContext, command: &Command) {
        let name = serde_json::to_value(command).unwrap();
        let name =
            name.as_str().map_or_else(|| name.as_object().unwrap().keys().next().unwrap().clone(), str::to_owned);
        self.0.lock().unwrap().kept.push(format!("{} {name}", by.author.name));
    }

    fn event(&mut self, event: &Event) {
        let name = format!("{event:?}");
        let name = name.split([' ', '{']).next().unwrap_or_default().to_owned();
        self.0.lock().unwrap().kept.push(name);
    }

    fn wants_checkpoint(&self) -> bool {
        false
    }

    fn checkpoint(&mut self, _: SavedSession) {}

    fn flush(&self) {}

    fn problem(&self) -> Option<String> {
        self.0.lock().unwrap().problem.clone()
    }
}

fn probed() -> Results {
    results(&["a"], vec![row("a", Gemm::Fprop, "cublaslt/bf16", 0.1, None, 0.0)])
}

fn trace() -> OpenedTrace {
    OpenedTrace { path: "a.trace.safetensors".to_owned(), name: "a".to_owned(), meta: probed().meta }
}

fn driver() -> (Driver, Scripted) {
    let world = Scripted::default();
    let driver = Driver::followed(Box::new(world.clone()), || Moment(0));
    (driver.with_author(Author::new(7, "Anna")), world)
}

impl Scripted {
    fn tell(&self, report: impl Into<Report>) {
        self.0.lock().unwrap().reports.push_back(report.into());
    }

    fn put_beside(&self, results: &str) {
        self.0.lock().unwrap().beside = Some(results.to_owned());
    }

    fn asked(&self) -> Vec<Effect> {
        std::mem::take(&mut self.0.lock().unwrap().asked)
    }

    fn kept(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap().kept)
    }
}

fn threshold(value: f64) -> Command {
    Command::SetMaxError { value, gesture: None }
}

#[test]
fn an_opened_trace_is_probed_and_what_is_decided_is_kept() {
    let (mut driver, world) = driver();
    assert_eq!(world.asked(), [Effect::FindEngines]);
    driver.ask(threshold(0.4));
    assert_eq!(world.kept(), Vec::<String>::new(), "there is no journal without a trace");
    let event = Box::new(Event::TraceOpened { trace: Box::new(trace()) });
    world.tell(Report::Journaled { event, journal: Box::new(world.clone()) });
    let Some(Applied::Opened { kind: FileKind::Trace, refused: false, .. }) = driver.poll() else { panic!("not open") };
    assert!(matches!(world.asked()[..], [Effect::Probe { .. }]));
    driver.ask(threshold(0.3));
    assert_eq!(world.kept(), ["TraceOpened", "Anna start_probe", "Anna set_max_error"]);
    assert_eq!(driver.session().document.policy.max_error, 0.3);
    // Another trace's journal is another one.
    world.tell(Report::opened(trace()));
    driver.poll().unwrap();
    driver.ask(threshold(0.2));
    assert_eq!(world.kept(), Vec::<String>::new());
}

#[test]
fn rows_from_a_file_come_before_a_probe_and_their_file_is_watched() {
    let (mut driver, world) = driver();
    driver.open(vec!["a.results.parquet".to_owned(), "a.trace.safetensors".to_owned()]);
    let path = "a.trace.safetensors".to_owned();
    assert_eq!(world.asked(), [Effect::FindEngines, Effect::Cancel, Effect::LoadTrace { path: path.clone() }]);
    world.tell(Report::opened(OpenedTrace { meta: probed().meta, ..trace() }));
    driver.poll().unwrap();
    let file = "a.results.parquet".to_owned();
    assert_eq!(world.asked(), [Effect::LoadResults { path: file.clone() }], "no probe: rows are on their way");
    world.tell(Event::ResultsOpened { path: file.clone(), results: Box::new(probed().into()) });
    let applied = driver.poll();
    assert_eq!(applied, Some(Applied::Opened { path: file.clone(), kind: FileKind::Results, refused: false }));
    assert_eq!(world.asked().first(), Some(&Effect::Watch { path: Some(file) }));
}

#[test]
fn rows_that_lie_beside_a_trace_are_read_instead_of_a_probe_and_probed_where_they_are_not_its_own() {
    for (digest, probed_then) in [(None, false), (Some("sha256:another"), true)] {
        let (mut driver, world) = driver();
        world.put_beside("a.results.parquet");
        world.tell(Report::opened(OpenedTrace { meta: probed().meta, ..trace() }));
        driver.poll().unwrap();
        let path = "a.results.parquet".to_owned();
        assert_eq!(world.asked(), [Effect::FindEngines, Effect::LoadResults { path: path.clone() }], "no probe yet");
        let mut results = probed();
        if let Some(digest) = digest {
            results.meta.trace_digest = digest.to_owned();
        }
        world.tell(Event::ResultsOpened { path, results: Box::new(results.into()) });
        driver.poll().unwrap();
        let probes = world.asked().iter().filter(|effect| matches!(effect, Effect::Probe { .. })).count();
        assert_eq!(probes == 1, probed_then, "{digest:?}");
    }
}

#[test]
fn a_trace_without_an_engine_is_open_and_says_why_it_has_no_rows() {
    let (mut driver, world) = driver();
    let engines = vec![EngineStatus::missing("cpu", "a page has no engine".to_owned(), Vec::new())];
    world.tell(Event::EnginesFound { engines });
    world.tell(Report::opened(trace()));
    driver.poll().unwrap();
    world.asked();
    driver.poll().unwrap();
    assert_eq!(world.asked(), [], "nothing is probed");
    let steps = driver.take_steps();
    let told = |step: &SequencedInput| matches!(&step.input, SessionInput::Event(event) if matches!(&**event, Event::Notice { kind: NoticeKind::Info, message } if message == "There are no rows yet: a page has no engine"));
    assert!(steps.last().is_some_and(told), "others see it: {steps:?}");
}

#[test]
fn a_command_that_is_refused_is_a_line_and_not_a_step() {
    let (mut driver, _world) = driver();
    assert_eq!(driver.take_steps().len(), 1, "engines are looked for");
    driver.ask(Command::Undo);
    assert_eq!((driver.num_steps(), driver.session().notices.len()), (0, 0), "a key pressed once too often");
    driver.ask(threshold(f64::NAN));
    let steps = driver.take_steps();
    assert!(
        matches!(&steps[..], [step] if matches!(&step.input, SessionInput::Event(event) if matches!(**event, Event::Notice { .. }))),
        "others see why: {steps:?}"
    );
}

#[test]
fn what_an_earlier_process_left_takes_the_place_of_the_session() {
    let (mut driver, world) = driver();
    let mut left = SequencedSession::default();
    left.event(Event::ResultsOpened { path: "r.parquet".to_owned(), results: Box::new(probed().into()) });
    let command = CommandContext { author: Author::new(7, "Anna"), number: 40, ..CommandContext::default() };
    left.command(command, threshold(0.3)).unwrap();
    let before = driver.ordered().seq();
    world.tell(Report::Restored { saved: Box::new(left.save()), journal: Box::new(world.clone()) });
    assert_eq!(driver.poll(), Some(Applied::Replaced { same_trace: false }));
    assert_eq!(driver.session().document.policy.max_error, 0.3);
    let (seq, later) = (driver.ordered().seq(), driver.num_steps() as u64);
    assert_eq!(seq - later, before + 1, "windows get the session itself, and steps after it");
    driver.ask(Command::Undo);
    assert_ne!(driver.session().document.policy.max_error, 0.3, "its numbers go on from 40");
    assert_eq!(driver.ordered().heard(7), 41 + later);
}

#[test]
fn while_a_journal_cannot_be_written_a_line_stands_and_nothing_is_approved() {
    let (mut driver, world) = driver();
    let event = Box::new(Event::TraceOpened { trace: Box::new(trace()) });
    world.tell(Report::Journaled { event, journal: Box::new(world.clone()) });
    driver.poll().unwrap();
    let problem = Some("the disk is full".to_owned());
    world.0.lock().unwrap().problem.clone_from(&problem);
    assert_eq!(driver.poll(), Some(Applied::Input));
    assert_eq!(driver.session().not_kept, problem);
    assert_eq!(driver.poll(), None, "it is told once, and stands");
    // Who joins is told as well.
    assert_eq!(driver.ordered().save().head.not_kept, problem);
    driver.ask(threshold(0.3));
    assert_eq!(driver.session().document.policy.max_error, 0.3, "it waits in memory");
    let by = |number| CommandContext::numbered(Author::new(7, "Anna"), number);
    let asked = driver.command(by(100), Command::RequestApproval { note: String::new() });
    let line = "changes cannot be kept for now, and an approval has to be: the disk is full";
    assert_eq!(asked.unwrap_err().to_string(), line);
    let signed = driver.command(by(101), Command::Sign { path: "a.key.json".to_owned(), note: String::new() });
    assert_eq!(signed.unwrap_err().to_string(), line);
    world.0.lock().unwrap().problem = None;
    assert_eq!(driver.poll(), Some(Applied::Input));
    assert_eq!(driver.session().not_kept, None);
    assert!(driver.session().log().entries().iter().any(|line| line.text == "Changes are kept again"));
    let asked = driver.command(by(102), Command::RequestApproval { note: String::new() });
    assert_ne!(asked.map_err(|error| error.to_string()), Err(line.to_owned()));
}
