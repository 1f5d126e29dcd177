//! The thread of a session with a link that says what a test wants: an error of ours, a flood of events, too many rows
//! for a step.

use std::sync::{Mutex, PoisonError};

use loka_core::{
    dispatch::Policy,
    model::{Results, ResultsMeta},
    session::OpenedTrace,
};
use serde_json::json;

use super::*;
use crate::serve::{Bounds, hub::Hub};

/// Says these, one after the other; then it panics if it shall.
struct Scripted {
    news: Vec<Event>,
    panics: bool,
}

impl Link for Scripted {
    fn run(&mut self, _: Effect) {}

    fn poll(&mut self) -> Option<News> {
        assert!(!self.panics, "boom");
        self.news.pop().map(News::from)
    }

    fn busy(&self) -> Option<String> {
        None
    }
}

const NAME: &str = "a.trace.safetensors";

/// A server's sessions over such links: the first made panics, if `breaks`.
fn hub(folder: &tempfile::TempDir, breaks: bool, news: Vec<Event>) -> Hub {
    std::fs::write(folder.path().join(NAME), "").unwrap();
    let panics = Mutex::new(breaks);
    let make: MakeLink = Arc::new(move |wake: Wake| {
        wake();
        let panics = std::mem::take(&mut *panics.lock().unwrap_or_else(PoisonError::into_inner));
        Box::new(Scripted { news: news.iter().rev().cloned().collect(), panics }) as Box<dyn Link>
    });
    let bounds = Bounds { clients: 2, sessions: 2, messages_per_second: 100, ring_bytes: 1 << 20, upload_bytes: 0 };
    Hub::new(Jail::new(folder.path()).unwrap(), None, bounds, make)
}

fn on_runtime<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

#[test]
fn a_session_that_breaks_says_so_and_can_be_opened_again() {
    let folder = tempfile::tempdir().unwrap();
    let hub = hub(&folder, true, vec![opened()]);
    on_runtime(async {
        let room = hub.room(NAME).await.unwrap();
        let over = room.over().wait_for(Option::is_some).await.unwrap().clone();
        assert!(matches!(over, Some(Over::Broken(line)) if line.ends_with("boom")));
        assert!(room.heard(1).await.is_err());
        let again = hub.room(NAME).await.unwrap();
        assert_ne!(again.id, room.id);
        assert_eq!(again.heard(1).await, Ok(0));
        let alike = hub.room(NAME).await.unwrap();
        assert_eq!(alike.id, again.id, "one trace, one session");
        hub.close(Duration::from_secs(10)).await;
        assert!(again.is_over());
    });
}

#[test]
fn a_trace_that_cannot_be_opened_is_no_session() {
    let folder = tempfile::tempdir().unwrap();
    let hub = hub(&folder, false, vec![Event::OpenFailed { message: "it is broken".to_owned() }]);
    on_runtime(async {
        let room = hub.room(NAME).await.unwrap();
        let over = room.over().wait_for(Option::is_some).await.unwrap().clone();
        assert_eq!(over, Some(Over::Refused("it is broken".to_owned())));
    });
}

fn meta() -> ResultsMeta {
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

fn opened() -> Event {
    let (path, name) = (NAME.to_owned(), "a".to_owned());
    Event::TraceOpened { trace: Box::new(OpenedTrace { path, name, meta: meta() }) }
}

#[test]
fn many_events_are_few_frames_and_a_command_is_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut news = vec![opened()];
    news.extend((0..5000).map(|at| Event::Progress { run: 1, done: f64::from(at) / 5000.0, seconds: 0.0 }));
    let hub = hub(&folder, false, news);
    on_runtime(async {
        let room = hub.room(NAME).await.unwrap();
        let mut newest = room.newest();
        newest.wait_for(|seq| *seq >= 5003).await.unwrap();
        let frames = room.after(0).unwrap();
        assert!(frames.len() < 20, "{} frames", frames.len());
        let (outbox, author) =
            (crate::serve::client::Outbox::nowhere(), loka_core::session::shared::Author::new(3, "A"));
        let command = Box::new(Command::SetPolicy { policy: Policy::rel_l2() });
        let asked = Instant::now();
        room.tell(ToHost::Command { author, number: 1, seen: 0, command, outbox }).await.unwrap();
        newest.wait_for(|seq| *seq >= 5004).await.unwrap();
        assert!(asked.elapsed() < limits::TURN, "{:?}", asked.elapsed());
        assert_eq!(room.heard(3).await, Ok(1));
        hub.close(Duration::from_secs(10)).await;
    });
}

#[test]
fn what_an_earlier_process_left_is_there_with_what_it_had_answered() {
    let folder = tempfile::tempdir().unwrap();
    let (room, inbox) = Room::new(1, NAME.to_owned(), 1 << 20);
    let make: MakeLink = Arc::new(|_| Box::new(Scripted { news: Vec::new(), panics: false }) as Box<dyn Link>);
    let mut host = Host::new(room.clone(), inbox, Jail::new(folder.path()).unwrap(), &make);
    host.ask(Command::FindEngines);
    let mut left = Ordered::default();
    left.remember(7, 40);
    host.take_state(left.save());
    assert_eq!((host.ordered.heard(7), host.ordered.seq()), (40, 2));
    assert!(host.ordered.session.engines.looking, "engines are still looked for");
    assert!(room.after(1).is_none() && room.after(2).is_some(), "everyone gets the session itself");
    let results = Results { meta: meta(), rows: Vec::new() };
    host.event(Event::ResultsOpened { path: "r".to_owned(), results: Box::new(results) });
    host.pending_rows = limits::STEP_ROWS + 1;
    host.publish();
    assert!(room.after(2).is_none() && room.after(3).is_some(), "too many rows for a step");
}
