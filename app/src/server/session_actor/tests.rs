//! The thread of a session with a link that says what a test wants: an error of ours, a flood of events, too many rows
//! for a step.

use std::sync::{Mutex, PoisonError};

use loka_core::{
    dispatch::Policy,
    model::{Gemm, GemmShape, KernelId, Latency, ModSet, ResultRow, Results, ResultsMeta, SiteId},
    review::Role,
    runtime::{Executor, NoJournal, Report},
    session::{Effect, SavedSession, shared::SequencedSession},
    views::OpenedTrace,
};
use serde_json::json;

use super::*;
use crate::server::{Bounds, session_registry::SessionRegistry};

/// Says these, one after the other; then it panics if it shall.
struct Scripted {
    news: Vec<Event>,
    panics: bool,
}

impl Executor for Scripted {
    fn run(&mut self, _: Effect) {}

    fn poll(&mut self) -> Option<Report> {
        assert!(!self.panics, "boom");
        self.news.pop().map(Report::from)
    }
}

const NAME: &str = "a.trace.safetensors";

/// A server's sessions over such links: the first made panics, if `breaks`.
fn registry(folder: &tempfile::TempDir, breaks: bool, news: Vec<Event>) -> SessionRegistry {
    std::fs::write(folder.path().join(NAME), "").unwrap();
    let panics = Mutex::new(breaks);
    let make: MakeDriver = Arc::new(move |wake: Wake| {
        wake();
        let panics = std::mem::take(&mut *panics.lock().unwrap_or_else(PoisonError::into_inner));
        Driver::followed(Box::new(Scripted { news: news.iter().rev().cloned().collect(), panics }), now)
    });
    let bounds = Bounds { clients: 2, sessions: 2, messages_per_second: 100, ring_bytes: 1 << 20, upload_bytes: 0 };
    SessionRegistry::new(ServedDir::new(folder.path()).unwrap(), None, bounds, make)
}

fn on_runtime<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

#[test]
fn a_session_that_breaks_says_so_and_can_be_opened_again() {
    let folder = tempfile::tempdir().unwrap();
    let registry = registry(&folder, true, vec![opened()]);
    on_runtime(async {
        let shared = registry.shared(NAME, Role::Owner).await.unwrap();
        let ended = shared.ended().wait_for(Option::is_some).await.unwrap().clone();
        assert!(matches!(ended, Some(SessionEnd::Broken(line)) if line.ends_with("boom")));
        assert!(shared.heard(1).await.is_err());
        let again = registry.shared(NAME, Role::Owner).await.unwrap();
        assert_ne!(again.id, shared.id);
        assert_eq!(again.heard(1).await, Ok(0));
        let alike = registry.shared(NAME, Role::Owner).await.unwrap();
        assert_eq!(alike.id, again.id, "one trace, one session");
        registry.close(Duration::from_secs(10)).await;
        assert!(again.has_ended());
    });
}

#[test]
fn a_trace_that_cannot_be_opened_is_no_session() {
    let folder = tempfile::tempdir().unwrap();
    let registry = registry(&folder, false, vec![Event::OpenFailed { message: "it is broken".to_owned() }]);
    on_runtime(async {
        let shared = registry.shared(NAME, Role::Owner).await.unwrap();
        let ended = shared.ended().wait_for(Option::is_some).await.unwrap().clone();
        assert_eq!(ended, Some(SessionEnd::Refused("it is broken".to_owned())));
    });
}

pub(super) fn meta() -> ResultsMeta {
    let manifest = json!({"version": 1, "model": {"name": "a"}, "run": {"id": "a", "step": 1},
                          "loss": {"name": "l", "value": 1.0}, "sites": []});
    let text = String::new;
    ResultsMeta {
        trace_digest: text(),
        manifest: serde_json::from_value(manifest).unwrap(),
        engine: "cpu".to_owned(),
        device: text(),
        driver: text(),
        versions: text(),
        time: text(),
        seed: 0,
        confidence: 0.95,
        problems: Vec::new(),
        site_times: None,
    }
}

pub(super) fn opened() -> Event {
    let (path, name) = (NAME.to_owned(), "a".to_owned());
    Event::TraceOpened { trace: Box::new(OpenedTrace { path, name, meta: meta() }) }
}

#[test]
fn many_events_are_few_frames_and_a_command_is_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut news = vec![opened()];
    news.extend((0..5000).map(|at| Event::Progress { run: 1, done: f64::from(at) / 5000.0, seconds: 0.0 }));
    let registry = registry(&folder, false, news);
    on_runtime(async {
        let shared = registry.shared(NAME, Role::Owner).await.unwrap();
        let mut newest = shared.newest();
        newest.wait_for(|seq| *seq >= 5003).await.unwrap();
        let frames = shared.after(0).unwrap();
        assert!(frames.len() < 20, "{} frames", frames.len());
        let (outbox, author) =
            (crate::server::outbox::Outbox::nowhere(), loka_core::session::shared::Author::new(3, "A"));
        let command = Box::new(Command::SetPolicy { policy: Policy::rel_l2() });
        let asked = Instant::now();
        shared.tell(ToActor::Command { author, number: 1, seen: 0, command, outbox }).await.unwrap();
        newest.wait_for(|seq| *seq >= 5004).await.unwrap();
        // Some, on a machine that is busy with other things.
        assert!(asked.elapsed() < 4 * limits::TURN, "{:?}", asked.elapsed());
        assert_eq!(shared.heard(3).await, Ok(1));
        registry.close(Duration::from_secs(10)).await;
    });
}

/// Of a kernel that did not run.
fn row() -> ResultRow {
    ResultRow {
        site: SiteId::new("a"),
        gemm: Gemm::Fprop,
        kernel: KernelId::new("cublaslt/bf16"),
        mods: ModSet::default(),
        shape: GemmShape { m: 16, k: 16, n: 16 },
        supported: false,
        reason: Some("a test".into()),
        error: None,
        latency: Latency::unknown("a test"),
        fidelity: None,
        static_scale: None,
        flushed: None,
        sampler: "".into(),
        engine: "".into(),
        device: "".into(),
        seed: 0,
    }
}

/// Says what an earlier process left, then that.
struct Restoring {
    left: Option<SavedSession>,
    then: Option<Event>,
}

impl Executor for Restoring {
    fn run(&mut self, _: Effect) {}

    fn poll(&mut self) -> Option<Report> {
        let restored = |saved| Report::Restored { saved: Box::new(saved), journal: Box::new(NoJournal::default()) };
        self.left.take().map(restored).or_else(|| self.then.take().map(Report::from))
    }
}

#[test]
fn what_an_earlier_process_left_is_there_with_what_it_had_answered() {
    let folder = tempfile::tempdir().unwrap();
    let (shared, inbox) = SharedSession::new(1, NAME.to_owned(), 1 << 20);
    let make: MakeDriver = Arc::new(|_| {
        let mut left = SequencedSession::default();
        left.remember(7, 40);
        // Neighbours of two sites: rows of one and the same GEMM by the same kernel would be one row.
        let of = |at: usize| ResultRow { site: SiteId::new(["a", "b"][at % 2]), ..row() };
        let rows = (0..=limits::STEP_ROWS).map(of).collect();
        let results = Box::new(Results { meta: meta(), rows }.into());
        let then = Some(Event::ResultsOpened { path: "r".to_owned(), results });
        Driver::followed(Box::new(Restoring { left: Some(left.save()), then }), now)
    });
    let mut host = SessionActor::new(shared.clone(), inbox, ServedDir::new(folder.path()).unwrap(), &make);
    assert!(host.take_events().is_none());
    let ordered = host.driver.ordered();
    assert_eq!(ordered.heard(7), 40);
    assert!(ordered.session.engines.looking, "engines are still looked for");
    assert!(shared.after(1).is_none() && shared.after(2).is_some(), "everyone gets the session itself");
    host.publish();
    assert!(shared.after(2).is_none() && shared.after(3).is_some(), "too many rows for a step");
}
