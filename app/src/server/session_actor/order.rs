//! A model check of order and resume: two windows, a server that dies and comes again, and a network that loses connections,
//! delivers late what was sent into one that is lost, and lets the next one overtake it.
//!
//! The code is the real one: a window is [`RemoteLink`] with its sync client and replica, the server [`SessionActor`] with its driver,
//! shared session, ring and journal; messages are coded as on the wire. Only sockets, threads and the clock are played, so that every
//! order can be tried and one that fails is shrunk to the few steps that matter.
//!
//! What has to hold, whatever happens: what a window asked for and was not refused is done, once, in its order; what
//! any window has seen is there for good; no window waits for ever; in the end all have the same session, and the trail says
//! the same and its chain holds.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

use std::{
    cell::RefCell,
    collections::{BTreeSet, VecDeque},
    path::PathBuf,
    rc::Rc,
    sync::{Mutex, PoisonError},
};

use futures_util::FutureExt as _;
use loka_core::{
    journal::{Journal, Trail},
    review::Role,
    runtime::{Executor, Journaling, Report},
    session::{
        Effect, SavedSession, Session,
        shared::{MAX_TO_SERVER, PROTOCOL, Person, Place, SyncClient, ToServer, Welcome, decode},
    },
};
use proptest::prelude::*;
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest, prop_state_machine};
use tokio::sync::oneshot;

use super::*;
use crate::{
    link::{ConnectionState, Link, Network, RemoteLink, Socket, SocketNews, Submission},
    server::{
        coded::Coded,
        outbox::{Entered, Out, Outbox},
        shared_session::Subscription,
    },
};

const NAME: &str = "a.trace.safetensors";
const WINDOWS: usize = 2;

/// What happens next; numbers choose among what is there.
#[derive(Clone, Copy, Debug)]
enum Happening {
    /// A comment, which can always be made.
    Say(usize),
    /// A decision.
    Pull(usize, u8),
    /// Refused where there is nothing to undo.
    Undo(usize),
    /// A window takes what has arrived.
    Read(usize),
    /// The page is loaded again: the same window, which knows nothing.
    Reload(usize),
    /// One message of a connection reaches the server, or the window.
    Deliver(usize),
    Arrive(usize),
    /// The session's thread takes what it was sent, what came of it, and tells.
    Inbox,
    Event,
    Publish,
    /// One message is put on its way to a client.
    Write(usize),
    /// A window's connection is lost; what it sent may still arrive.
    Cut(usize),
    /// The server sees that a connection is lost.
    Notice(usize),
    /// `loses`: with everything that was not flushed to its journal.
    Kill {
        loses: bool,
    },
    Start,
    Wait,
}

/// Any order of them.
struct AnyOrder;

impl ReferenceStateMachine for AnyOrder {
    type State = ();
    type Transition = Happening;

    fn init_state() -> BoxedStrategy<()> {
        Just(()).boxed()
    }

    fn transitions((): &()) -> BoxedStrategy<Happening> {
        use Happening::*;
        let (window, which) = (0..WINDOWS, 0..6_usize);
        prop_oneof![
            4 => window.clone().prop_map(Say),
            2 => (window.clone(), 0..9_u8).prop_map(|(window, value)| Pull(window, value)),
            3 => window.clone().prop_map(Undo),
            8 => window.clone().prop_map(Read),
            1 => window.clone().prop_map(Reload),
            8 => which.clone().prop_map(Deliver),
            8 => which.clone().prop_map(Arrive),
            5 => Just(Inbox),
            1 => Just(Event),
            4 => Just(Publish),
            8 => which.clone().prop_map(Write),
            2 => window.prop_map(Cut),
            1 => which.prop_map(Notice),
            1 => any::<bool>().prop_map(|loses| Kill { loses }),
            2 => Just(Start),
            3 => Just(Wait),
        ]
        .boxed()
    }

    fn apply((): (), _: &Happening) {}
}

/// One connection as the network has it.
#[derive(Default)]
struct Pipe {
    to_server: VecDeque<Vec<u8>>,
    on_way: VecDeque<SocketNews>,
    arrived: VecDeque<SocketNews>,
    /// Nothing more comes through.
    cut: bool,
}

type Mine<T> = Rc<RefCell<T>>;

/// What windows and the network know together.
#[derive(Default)]
struct PlayedNetwork {
    now: f64,
    up: bool,
    /// Connections that the server has not seen yet.
    knocking: Vec<(usize, Mine<Pipe>)>,
    /// Messages that windows gave to a socket.
    num_sent: usize,
}

struct Net {
    window: usize,
    outside: Mine<PlayedNetwork>,
}

impl Network for Net {
    fn connect(&mut self) -> Result<Box<dyn Socket>, String> {
        let mut outside = self.outside.borrow_mut();
        if !outside.up {
            return Err("nobody listens".to_owned());
        }
        let pipe: Mine<Pipe> = Rc::default();
        pipe.borrow_mut().on_way.push_back(SocketNews::Opened);
        outside.knocking.push((self.window, pipe.clone()));
        Ok(Box::new(WindowEnd { pipe, outside: self.outside.clone() }))
    }

    fn now(&self) -> f64 {
        self.outside.borrow().now
    }
}

/// A window's end of a connection.
struct WindowEnd {
    pipe: Mine<Pipe>,
    outside: Mine<PlayedNetwork>,
}

impl Socket for WindowEnd {
    fn send(&mut self, bytes: &[u8]) {
        self.outside.borrow_mut().num_sent += 1;
        let mut pipe = self.pipe.borrow_mut();
        if !pipe.cut {
            pipe.to_server.push_back(bytes.to_vec());
        }
    }

    fn poll(&mut self) -> Option<SocketNews> {
        self.pipe.borrow_mut().arrived.pop_front()
    }
}

impl Drop for WindowEnd {
    fn drop(&mut self) {
        let mut pipe = self.pipe.borrow_mut();
        // What was sent may still arrive.
        pipe.cut = true;
        pipe.on_way.clear();
    }
}

/// A page that does nothing by itself.
struct NoPage;

impl Executor for NoPage {
    fn run(&mut self, _: Effect) {}

    fn poll(&mut self) -> Option<Report> {
        None
    }
}

/// What a server's executor has to say.
#[derive(Clone, Default)]
struct PlayedExecutor(Arc<Mutex<VecDeque<Report>>>);

impl PlayedExecutor {
    fn say(&self, report: Report) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push_back(report);
    }
}

impl Executor for PlayedExecutor {
    fn run(&mut self, _: Effect) {}

    fn poll(&mut self) -> Option<Report> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}

enum LateEntry {
    Command(CommandContext, Box<Command>),
    Event(Box<Event>),
    Checkpoint(Box<SavedSession>),
}

/// The real journal, which gets what it is to keep no sooner than it has to: a kill takes the rest. A flush changes it, so it
/// is behind a lock.
struct LateJournal(Mutex<LateEntries>);

struct LateEntries {
    journal: Journal,
    entries: Vec<LateEntry>,
}

impl LateEntries {
    fn pass_on(&mut self) {
        for entry in std::mem::take(&mut self.entries) {
            match entry {
                LateEntry::Command(by, command) => self.journal.command(&by, &command),
                LateEntry::Event(event) => self.journal.event(&event),
                LateEntry::Checkpoint(saved) => self.journal.checkpoint(*saved),
            }
        }
    }
}

impl Journaling for LateJournal {
    fn command(&mut self, by: &CommandContext, command: &Command) {
        self.0.lock().unwrap().entries.push(LateEntry::Command(by.clone(), Box::new(command.clone())));
    }

    fn event(&mut self, event: &Event) {
        self.0.lock().unwrap().entries.push(LateEntry::Event(Box::new(event.clone())));
    }

    fn wants_checkpoint(&self) -> bool {
        self.0.lock().unwrap().journal.wants_checkpoint()
    }

    fn checkpoint(&mut self, saved: SavedSession) {
        let mut late = self.0.lock().unwrap();
        late.entries.push(LateEntry::Checkpoint(Box::new(saved)));
        late.pass_on();
    }

    fn flush(&self) {
        let mut late = self.0.lock().unwrap();
        late.pass_on();
        late.journal.flush();
    }

    fn problem(&self) -> Option<String> {
        self.0.lock().unwrap().journal.problem()
    }
}

/// The server's side of a connection.
struct Talk {
    number: u64,
    pipe: Mine<Pipe>,
    author: Option<Author>,
    outbox: Outbox,
    out: mpsc::Receiver<Out>,
    subscription: Option<Subscription>,
    cursor: Option<u64>,
}

impl Talk {
    fn say(&self, bytes: &[u8]) {
        let mut pipe = self.pipe.borrow_mut();
        if !pipe.cut {
            pipe.on_way.push_back(SocketNews::Message(bytes.to_vec()));
        }
    }
}

struct Serving {
    shared: Arc<SharedSession>,
    host: SessionActor,
    told: PlayedExecutor,
    talks: Vec<Talk>,
}

/// What a window was asked to say.
struct Said {
    window: usize,
    text: String,
    /// It was taken, and the window was not loaded anew since: it has to be there in the end.
    sure: bool,
}

struct Played {
    folder: tempfile::TempDir,
    outside: Mine<PlayedNetwork>,
    windows: Vec<RemoteLink>,
    /// Each window's newest connection.
    pipes: Vec<Option<Mine<Pipe>>>,
    server: Option<Serving>,
    num_servers: u64,
    num_talks: u64,
    said: Vec<Said>,
    seen: BTreeSet<String>,
}

fn window(at: usize, outside: &Mine<PlayedNetwork>) -> RemoteLink {
    let author = Author::new(10 + at as u64, &format!("Window {at}"));
    let net = Net { window: at, outside: outside.clone() };
    RemoteLink::new(Box::new(net), Box::new(NoPage), SyncClient::new(author, "test", Some(NAME.to_owned())))
}

fn comments(session: &Session) -> impl Iterator<Item = &str> {
    session.reviewing.review.comments.iter().map(|comment| comment.text.as_str())
}

impl Played {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(NAME), "").unwrap();
        let outside: Mine<PlayedNetwork> = Rc::default();
        let mut world = Self {
            folder,
            outside,
            windows: Vec::new(),
            pipes: vec![None; WINDOWS],
            server: None,
            num_servers: 0,
            num_talks: 0,
            said: Vec::new(),
            seen: BTreeSet::new(),
        };
        world.start();
        world.windows = (0..WINDOWS).map(|at| window(at, &world.outside)).collect();
        world.knock();
        world
    }

    fn journal(&self) -> PathBuf {
        self.folder.path().join("a.journal.sqlite")
    }

    fn start(&mut self) {
        if self.server.is_some() {
            return;
        }
        let digest = super::tests::meta().trace_digest;
        let (journal, restored, line) = Journal::open(&self.journal(), ("stamp", &digest), Arc::new(|| {})).unwrap();
        assert_eq!(line, None, "the journal was set aside");
        let journal = Box::new(LateJournal(Mutex::new(LateEntries { journal, entries: Vec::new() })));
        let told = PlayedExecutor::default();
        told.say(match restored {
            Some(restored) => Report::Restored { saved: Box::new(restored.ordered.save()), journal },
            None => Report::Journaled { event: Box::new(super::tests::opened()), journal },
        });
        self.num_servers += 1;
        let (shared, inbox) = SharedSession::new(self.num_servers, NAME.to_owned(), 1 << 20);
        let executor = told.clone();
        let make: MakeDriver = Arc::new(move |_| Driver::followed(Box::new(executor.clone()), now));
        let mut host = SessionActor::new(shared.clone(), inbox, ServedDir::new(self.folder.path()).unwrap(), &make);
        host.driver.ask(Command::OpenTrace { path: NAME.to_owned() });
        assert!(host.take_events().is_none() && host.driver.session().trace.is_some());
        self.server = Some(Serving { shared, host, told, talks: Vec::new() });
        self.outside.borrow_mut().up = true;
    }

    fn kill(&mut self, loses: bool) {
        let Some(server) = self.server.take() else { return };
        if !loses {
            server.host.driver.flush();
        }
        self.outside.borrow_mut().up = false;
        self.knock();
        for pipe in self.pipes.iter().flatten() {
            // What was on its way arrives.
            pipe.borrow_mut().on_way.push_back(SocketNews::Closed);
        }
    }

    /// New connections reach the server, or nobody.
    fn knock(&mut self) {
        for (window, pipe) in std::mem::take(&mut self.outside.borrow_mut().knocking) {
            self.pipes[window] = Some(pipe.clone());
            let Some(server) = &mut self.server else { continue };
            self.num_talks += 1;
            let (outbox, out) = Outbox::played();
            let number = self.num_talks;
            server.talks.push(Talk { number, pipe, author: None, outbox, out, subscription: None, cursor: None });
        }
    }

    fn ask(&mut self, at: usize, command: Command) -> bool {
        let before = self.outside.borrow().num_sent;
        self.windows[at].submit(Submission::Command(command));
        // What is refused at once is not sent.
        self.outside.borrow().num_sent > before
    }

    fn read(&mut self, at: usize) {
        while self.windows[at].poll().is_some() {}
        self.knock();
        self.seen.extend(comments(self.windows[at].session()).map(str::to_owned));
    }

    fn happens(&mut self, what: Happening) {
        match what {
            Happening::Say(at) => {
                let text = format!("{at}: {}", self.said.len());
                let comment = Command::Comment { site: None, gemm: None, reply_to: None, text: text.clone() };
                let sure = self.ask(at, comment);
                self.said.push(Said { window: at, text, sure });
            }
            Happening::Pull(at, value) => {
                let value = 0.1 + f64::from(value) / 100.0;
                self.ask(at, Command::SetMaxError { value, gesture: None });
            }
            Happening::Undo(at) => _ = self.ask(at, Command::Undo),
            Happening::Read(at) => self.read(at),
            Happening::Reload(at) => {
                self.windows[at] = window(at, &self.outside);
                self.knock();
                let of = self.said.iter_mut().filter(|said| said.window == at);
                of.for_each(|said| said.sure = false);
            }
            Happening::Deliver(at) => _ = self.deliver(at),
            Happening::Arrive(at) => {
                if let Some(pipe) = &self.pipes[at % WINDOWS] {
                    let mut pipe = pipe.borrow_mut();
                    let news = pipe.on_way.pop_front();
                    pipe.arrived.extend(news);
                }
            }
            Happening::Inbox => {
                if let Some(server) = &mut self.server {
                    server.host.take_inbox();
                }
            }
            Happening::Event => {
                if let Some(server) = &mut self.server {
                    server.told.say(Report::from(Event::Progress { run: 1, done: 0.5, seconds: 1.0 }));
                    server.host.take_events();
                }
            }
            Happening::Publish => {
                if let Some(server) = &mut self.server {
                    server.host.publish();
                }
            }
            Happening::Write(at) => _ = self.write(at),
            Happening::Cut(at) => {
                if let Some(pipe) = &self.pipes[at] {
                    let mut pipe = pipe.borrow_mut();
                    pipe.cut = true;
                    pipe.on_way.clear();
                    pipe.arrived.push_back(SocketNews::Closed);
                }
            }
            Happening::Notice(at) => {
                if let Some(server) = self.server.as_mut().filter(|server| !server.talks.is_empty()) {
                    let at = at % server.talks.len();
                    if server.talks[at].pipe.borrow().cut {
                        server.talks.remove(at);
                    }
                }
            }
            Happening::Kill { loses } => self.kill(loses),
            Happening::Start => self.start(),
            Happening::Wait => self.outside.borrow_mut().now += 10.0,
        }
    }

    /// As `Reader` does. Whether there was something.
    fn deliver(&mut self, at: usize) -> bool {
        let Some(Serving { shared, host, talks, .. }) = &mut self.server else { return false };
        let num = talks.len().max(1);
        let Some(talk) = talks.get_mut(at % num) else { return false };
        let Some(bytes) = talk.pipe.borrow_mut().to_server.pop_front() else { return false };
        match (decode::<ToServer>(&bytes, MAX_TO_SERVER).unwrap(), talk.author.clone()) {
            (ToServer::Hello(hello), None) => {
                let author = Author::new(hello.key, &hello.name);
                let person =
                    Person { key: author.key, name: author.name.clone(), role: Role::Owner, at: Place::default() };
                let subscription = shared.enter(talk.number, person);
                let (reply, mut answer) = oneshot::channel();
                shared.tell(ToActor::Heard { key: author.key, reply }).now_or_never().unwrap().unwrap();
                host.take_inbox();
                let heard = answer.try_recv().unwrap();
                let cursor = hello.resume.filter(|(session, seq)| *session == shared.id && shared.reaches(*seq));
                let cursor = cursor.map(|(_, seq)| seq);
                let welcome = encode(&ToClient::Welcome(Welcome {
                    protocol: PROTOCOL,
                    version: String::new(),
                    session: shared.id,
                    resumed: cursor.is_some(),
                    heard,
                    me: author.clone(),
                    files: Vec::new(),
                }));
                talk.author = Some(author.clone());
                let entered =
                    Entered { subscription, me: author, welcome: welcome.into(), cursor, files: Arc::new([]) };
                assert_eq!(talk.outbox.put(Out::Enter(Box::new(entered))).now_or_never(), Some(true));
            }
            (ToServer::Command { number, seen, command }, Some(author)) => {
                let outbox = talk.outbox.clone();
                let told = shared.tell(ToActor::Command { author, number, seen, command, outbox });
                told.now_or_never().unwrap().unwrap();
            }
            (ToServer::At(_) | ToServer::Ask(_), Some(_)) => {}
            (message, author) => panic!("the server would end the talk: {message:?} of {author:?}"),
        }
        true
    }

    /// As `Writer` does. Whether there was something.
    fn write(&mut self, at: usize) -> bool {
        let Some(Serving { shared, host, talks, .. }) = &mut self.server else { return false };
        let num = talks.len().max(1);
        let Some(talk) = talks.get_mut(at % num) else { return false };
        match talk.out.try_recv() {
            Ok(Out::Message(bytes)) => talk.say(&bytes),
            Ok(Out::Enter(entered)) => {
                let Entered { subscription, welcome, cursor, .. } = *entered;
                (talk.subscription, talk.cursor) = (Some(subscription), cursor);
                talk.say(&welcome);
            }
            Ok(Out::Leave(_)) => panic!("there is one session"),
            Err(_) if talk.subscription.is_none() => return false,
            Err(_) => {
                let Some(cursor) = talk.cursor else {
                    let (reply, mut answer) = oneshot::channel();
                    shared.tell(ToActor::Save { reply }).now_or_never().unwrap().unwrap();
                    host.take_inbox();
                    let (seq, saved) = answer.try_recv().unwrap();
                    Coded::new(seq, saved).parts.iter().for_each(|part| talk.say(part));
                    talk.cursor = Some(seq);
                    return true;
                };
                match shared.after(cursor) {
                    None => talk.cursor = None,
                    Some(frames) => {
                        let Some((last, frame)) = frames.first() else { return false };
                        talk.say(frame);
                        talk.cursor = Some(*last);
                    }
                }
            }
        }
        true
    }

    /// Everything that can happen without harm does.
    fn calm_down(&mut self) {
        self.start();
        for _ in 0..12 {
            self.outside.borrow_mut().now += 10.0;
            (0..WINDOWS).for_each(|at| self.read(at));
            for at in 0..self.server.as_ref().map_or(0, |server| server.talks.len()) {
                while self.deliver(at) {}
            }
            [Happening::Inbox, Happening::Publish].into_iter().for_each(|what| self.happens(what));
            for at in 0..self.server.as_ref().map_or(0, |server| server.talks.len()) {
                while self.write(at) {}
            }
            for talk in self.server.iter().flat_map(|server| &server.talks) {
                talk.say(&encode(&ToClient::Alive));
            }
            for pipe in self.pipes.iter().flatten() {
                let mut pipe = pipe.borrow_mut();
                let news = std::mem::take(&mut pipe.on_way);
                pipe.arrived.extend(news);
            }
        }
        (0..WINDOWS).for_each(|at| self.read(at));
    }

    fn check(mut self) {
        self.calm_down();
        let server = self.server.take().unwrap();
        let session = server.host.driver.session();
        let digest = session.save().digest();
        for (at, window) in self.windows.iter().enumerate() {
            let connection = window.status().connection;
            assert!(matches!(connection, ConnectionState::Joined { waiting: 0, .. }), "window {at}: {connection:?}");
            assert_eq!(window.session().save().digest(), digest, "window {at} has another session");
        }
        let there: Vec<String> = comments(session).map(str::to_owned).collect();
        for said in &self.said {
            let times = there.iter().filter(|text| **text == said.text).count();
            assert!(times <= 1, "said {times} times: {}", said.text);
            assert!(times == 1 || !said.sure, "lost without a word: {}", said.text);
        }
        for at in 0..WINDOWS {
            let asked = self.said.iter().filter(|said| said.window == at).map(|said| &said.text);
            let done: Vec<&String> = there.iter().filter(|text| text.starts_with(&format!("{at}:"))).collect();
            let in_order: Vec<&String> = asked.filter(|text| there.contains(text)).collect();
            assert_eq!(done, in_order, "out of their order");
        }
        let taken_back: Vec<&String> = self.seen.iter().filter(|text| !there.contains(text)).collect();
        assert!(taken_back.is_empty(), "seen, and gone: {taken_back:?}");
        drop(server);
        let trail = Trail::read(&self.journal()).unwrap().unwrap();
        let asked = trail.entries.iter().filter_map(|entry| entry.asked());
        let kept: Vec<String> = asked
            .filter_map(|command| match command {
                Command::Comment { text, .. } => Some(text),
                _ => None,
            })
            .collect();
        assert_eq!(kept, there, "the trail says something else");
    }
}

struct OrderCheck;

impl StateMachineTest for OrderCheck {
    type SystemUnderTest = Played;
    type Reference = AnyOrder;

    fn init_test((): &()) -> Played {
        Played::new()
    }

    fn apply(mut world: Played, (): &(), what: Happening) -> Played {
        world.happens(what);
        world
    }

    fn teardown(world: Played, (): ()) {
        world.check();
    }
}

prop_state_machine! {
    #![proptest_config(ProptestConfig {
        cases: 200,
        // What it finds becomes a test of its own.
        failure_persistence: None,
        max_shrink_iters: 4000,
        ..ProptestConfig::default()
    })]

    #[test]
    fn what_is_told_is_kept_in_any_order(sequential 20..120 => OrderCheck);
}

/// Both windows have the session.
fn joined() -> Played {
    let mut played = Played::new();
    played.calm_down();
    played
}

fn after(happenings: impl IntoIterator<Item = Happening>) {
    let mut played = joined();
    happenings.into_iter().for_each(|what| played.happens(what));
    played.check();
}

/// Whoever hears of the second takes the first for answered, too, and sends it no more.
#[test]
fn what_a_refusal_answers_is_kept() {
    use Happening::*;
    after([Say(0), Undo(0), Deliver(0), Deliver(0), Inbox, Write(0), Arrive(0), Read(0), Kill { loses: true }]);
}

#[test]
fn what_a_welcome_answers_is_kept() {
    use Happening::*;
    let lost = [Say(0), Deliver(0), Inbox, Cut(0), Read(0), Wait, Read(0), Arrive(0), Read(0)];
    let again = [Deliver(2), Write(2), Arrive(0), Read(0), Kill { loses: true }];
    after(lost.into_iter().chain(again));
}

/// The answer to the first went into a connection that is gone.
#[test]
fn a_refusal_that_was_lost_is_said_again() {
    use Happening::*;
    let lost = [Undo(0), Cut(0), Read(0), Wait, Read(0), Arrive(0), Read(0), Deliver(2)];
    let again = [Deliver(0), Inbox, Write(2), Arrive(0), Read(0), Deliver(2), Inbox, Write(2), Arrive(0), Read(0)];
    let mut played = joined();
    lost.into_iter().chain(again).for_each(|what| played.happens(what));
    let refused = played.windows[0].session().notices.last().map(|notice| notice.text.clone());
    assert!(refused.is_some_and(|line| line.contains("undo")));
    played.check();
}
