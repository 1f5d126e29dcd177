//! The page's executor by its effects and events, with a browser that is a few lists.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

use std::{cell::RefCell, collections::BTreeMap, path::Path, rc::Rc};

use loka_core::session::FileKind;

use super::*;

const TRACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../sample-traces/wukong-clicks.trace.safetensors");

#[derive(Clone, Default)]
struct Browser(Rc<RefCell<Inner>>);

#[derive(Default)]
struct Inner {
    saved: BTreeMap<String, Vec<u8>>,
    asked: Vec<String>,
    fetched: VecDeque<Fetched>,
}

impl Outside for Browser {
    fn save(&self, name: &str, bytes: Vec<u8>) -> Result<(), String> {
        self.0.borrow_mut().saved.insert(name.to_owned(), bytes);
        Ok(())
    }

    fn fetch(&self, address: &str) {
        self.0.borrow_mut().asked.push(address.to_owned());
    }

    fn fetched(&self) -> Option<Fetched> {
        self.0.borrow_mut().fetched.pop_front()
    }

    fn busy(&self) -> Option<String> {
        None
    }
}

fn page() -> (PageExecutor, MemoryFiles, Browser) {
    let (memory, browser) = (MemoryFiles::default(), Browser::default());
    (PageExecutor::new(memory.clone(), Box::new(browser.clone()), Arc::new(|| ())), memory, browser)
}

/// Every event until nothing is left to do.
fn all(executor: &mut PageExecutor) -> Vec<Event> {
    let mut events = Vec::new();
    while executor.reading.is_some() || !executor.outside_is_quiet() {
        events.extend(executor.next_event());
    }
    events
}

impl PageExecutor {
    fn outside_is_quiet(&mut self) -> bool {
        self.take_fetched();
        self.work.is_empty() && self.answers.is_empty()
    }
}

fn sample() -> Arc<[u8]> {
    std::fs::read(TRACE).unwrap().into()
}

#[test]
fn a_trace_is_opened_from_memory_and_work_is_announced_first() {
    let (mut executor, memory, _) = page();
    memory.put("a.trace.safetensors", sample()).unwrap();
    executor.run(Effect::LoadTrace { path: "a.trace.safetensors".to_owned() });
    assert_eq!(executor.next_event(), None, "a frame says what is under way");
    assert_eq!(executor.busy().as_deref(), Some("Opening a.trace.safetensors"));
    let Some(Event::TraceOpened { trace }) = executor.next_event() else { panic!("not opened") };
    assert_eq!((trace.path.as_str(), trace.meta.trace_digest.as_str()), ("a.trace.safetensors", ""));
    let events = all(&mut executor);
    let [Event::TraceDigest { digest, .. }] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!(*digest, Trace::open(Path::new(TRACE)).unwrap().digest());
    let site = trace.manifest().sites[0].id.clone();
    executor.run(Effect::Inspect { trace: trace.path.clone(), site });
    executor.run(Effect::ReadSeries { path: trace.path.clone() });
    let events = all(&mut executor);
    let read = matches!(
        events.as_slice(),
        [Event::SiteInspected { outcome: Ok(_), .. }, Event::SeriesRead { table: Ok(_), .. },]
    );
    assert!(read, "{events:?}");
}

thread_local! {
    static NOW: std::cell::Cell<f64> = const { std::cell::Cell::new(0.0) };
}

/// So slow a machine that one look at the clock ends a frame's piece.
fn slow_clock() -> f64 {
    NOW.set(NOW.get() + 200.0);
    NOW.get()
}

#[test]
fn a_digest_is_read_in_pieces_and_nothing_waits_for_it() {
    let (mut executor, memory, _) = page();
    executor.clock = slow_clock;
    let load = |name: &str| Effect::LoadTrace { path: name.to_owned() };
    let opened = |executor: &mut PageExecutor| {
        assert_eq!(executor.next_event(), None, "announced");
        let Some(Event::TraceOpened { trace }) = executor.next_event() else { panic!("not opened") };
        trace
    };
    for name in ["a.trace.safetensors", "b.trace.safetensors"] {
        memory.put(name, sample()).unwrap();
    }
    executor.run(load("a.trace.safetensors"));
    let trace = opened(&mut executor);
    assert_eq!(executor.next_event(), None);
    assert_eq!(executor.busy().as_deref(), Some("Reading the trace for its digest, 5 %"));
    executor.run(Effect::Inspect { trace: trace.path.clone(), site: trace.manifest().sites[0].id.clone() });
    assert!(matches!(executor.next_event(), Some(Event::SiteInspected { outcome: Ok(_), .. })));
    executor.run(load("b.trace.safetensors"));
    opened(&mut executor);
    let events = all(&mut executor);
    let [Event::TraceDigest { path, digest }] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!(path, "b.trace.safetensors", "the other was dropped");
    assert_eq!(*digest, Trace::open(Path::new(TRACE)).unwrap().digest());
    assert_eq!(executor.busy(), None);
}

#[test]
fn what_cannot_be_read_is_a_line() {
    let (mut executor, memory, _) = page();
    for name in ["x.trace.safetensors", "x.results.parquet", "x.plan.json", "x"] {
        memory.put(name, Arc::from(*b"PK\x03\x04 something else")).unwrap();
    }
    let path = |name: &str| name.to_owned();
    executor.run(Effect::LoadTrace { path: path("x.trace.safetensors") });
    executor.run(Effect::LoadResults { path: path("x.results.parquet") });
    executor.run(Effect::LoadPlan { path: path("x.plan.json") });
    executor.run(Effect::LoadTrace { path: path("nowhere.trace.safetensors") });
    for event in all(&mut executor) {
        let Event::OpenFailed { message } = event else { panic!("{event:?}") };
        assert!(!message.contains('\n') && message.contains(": ") && message.contains('.'), "{message}");
    }
    executor.run(Effect::Identify { path: path("x") });
    let kind =
        Err("x is no trace, results or plan: it looks like a ZIP archive, as PyTorch checkpoints are".to_owned());
    assert_eq!(all(&mut executor), [Event::Identified { path: path("x"), kind }]);
}

#[test]
fn what_needs_an_engine_says_so() {
    let (mut executor, ..) = page();
    executor.run(Effect::FindEngines);
    executor.run(Effect::Measure { run: 3, engine: "cpu".to_owned() });
    executor.run(Effect::Cancel);
    let events = all(&mut executor);
    let [Event::EnginesFound { engines }, Event::MeasureFinished { run: 3, problem: Some(line) }] = events.as_slice()
    else {
        panic!("{events:?}")
    };
    assert_eq!(line, NO_ENGINE);
    assert!(engines.iter().all(|status| status.problem.as_deref() == Some(NO_ENGINE)));
}

#[test]
fn an_address_is_fetched_once_and_kept() {
    let (mut executor, _, browser) = page();
    let path = || "https://example.org/a%20b.trace.safetensors?version=1".to_owned();
    executor.run(Effect::Identify { path: path() });
    executor.run(Effect::LoadTrace { path: path() });
    assert_eq!(all(&mut executor), []);
    assert_eq!(browser.0.borrow().asked, [path()]);
    browser.0.borrow_mut().fetched.push_back((path(), Ok(sample())));
    let events = all(&mut executor);
    assert_eq!(events[0], Event::Identified { path: path(), kind: Ok(FileKind::Trace) });
    assert!(matches!(events[1], Event::TraceOpened { .. }));
    executor.run(Effect::LoadTrace { path: path() });
    assert!(matches!(all(&mut executor)[0], Event::TraceOpened { .. }));
    assert_eq!(browser.0.borrow().asked.len(), 1);
    let gone = "https://example.org/gone.results.parquet".to_owned();
    executor.run(Effect::LoadResults { path: gone.clone() });
    assert_eq!(all(&mut executor), []);
    let refused = Err("the server answered 404".to_owned());
    browser.0.borrow_mut().fetched.push_back((gone.clone(), refused));
    let message = format!("the server answered 404: {gone}");
    assert_eq!(all(&mut executor), [Event::OpenFailed { message }]);
}

#[test]
fn names_for_downloads_have_no_folder() {
    for (path, name) in [
        ("https://example.org/x/a.plan.json?token=1#b", "a.plan.json"),
        ("runs\\a.plan.json", "a.plan.json"),
        ("a.plan.json", "a.plan.json"),
        ("/", "loka"),
    ] {
        assert_eq!(name_of(path), name);
    }
}

#[test]
fn results_are_compared_from_memory() {
    let (mut executor, memory, _) = page();
    let trace = Trace::open(Path::new(TRACE)).unwrap();
    let config = loka_core::probe::ProbeConfig::default();
    let meta = crate::probing::results_meta(&trace, trace.digest(), &loka_core::engine::CpuEngine, &config);
    let results = Results { meta, rows: Vec::new() };
    memory.put("old.results.parquet", tables::results_to_bytes(&results).unwrap().into()).unwrap();
    let path = || "old.results.parquet".to_owned();
    executor.run(Effect::CompareResults { path: path() });
    executor.run(Effect::CompareResults { path: "nowhere.results.parquet".to_owned() });
    let events = all(&mut executor);
    assert_eq!(events[0], Event::ResultsCompared { path: path(), results: Box::new(results) });
    assert!(matches!(&events[1], Event::OpenFailed { message } if message.ends_with(": nowhere.results.parquet")));
}
