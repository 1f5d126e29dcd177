//! The thread of one shared session: takes commands from clients, gives them to the session's driver, and publishes the
//! steps.

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{Builder, Thread, park_timeout},
    time::{Duration, Instant},
};

use loka_core::{
    runtime::{Applied, Driver},
    session::{
        Command, Event, FileKind,
        shared::{Author, CommandContext, SequencedInput, SessionInput, ToClient, encode},
    },
};
use tokio::sync::mpsc;

use super::{
    ServedDir, limits,
    sanitize::sanitize,
    shared_session::{Every, SessionEnd, SharedSession, ToActor},
};
use crate::{
    clock::now,
    executor::{Wake, panic_text},
};

/// Makes the driver of a session, on its thread.
pub type MakeDriver = Arc<dyn Fn(Wake) -> Driver + Send + Sync>;

struct SessionActor {
    shared: Arc<SharedSession>,
    inbox: mpsc::Receiver<ToActor>,
    /// An event waits, or the thread was told so and has not looked yet.
    called: Arc<AtomicBool>,
    served_dir: ServedDir,
    driver: Driver,
    /// Why an author's last command was refused, if it was: whoever sends it again has not heard of it.
    refused: BTreeMap<u64, (u64, String)>,
    /// A step that is not published yet asks for an answer at once.
    hurry: bool,
    /// Events are looked for again.
    due: Instant,
    alone_since: Option<Instant>,
    presence: Every,
    tidying: Every,
}

/// Starts the thread; it ends by itself. `Err`: there is none.
pub fn start(
    shared: &Arc<SharedSession>,
    inbox: mpsc::Receiver<ToActor>,
    served_dir: ServedDir,
    make: MakeDriver,
) -> Result<(), String> {
    let of_thread = Arc::clone(shared);
    let spawned = Builder::new().name("loka-session".to_owned()).spawn(move || {
        of_thread.is_of(std::thread::current());
        let shared = of_thread.clone();
        let work = move || SessionActor::new(of_thread, inbox, served_dir, &make).run();
        let ended =
            catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|cause| SessionEnd::Broken(panic_text(&*cause)));
        // Last of all: whoever hears it may open the same trace again.
        shared.end(ended);
    });
    spawned.map(drop).map_err(|error| format!("no thread could be started: {error}"))
}

impl SessionActor {
    fn new(
        shared: Arc<SharedSession>,
        inbox: mpsc::Receiver<ToActor>,
        served_dir: ServedDir,
        make: &MakeDriver,
    ) -> Self {
        let called = Arc::new(AtomicBool::new(false));
        let (of_wake, thread): (Arc<AtomicBool>, Thread) = (called.clone(), std::thread::current());
        let wake: Wake = Arc::new(move || {
            // A thousand rows a second are one call a frame.
            if !of_wake.swap(true, Ordering::AcqRel) {
                thread.unpark();
            }
        });
        Self {
            shared,
            inbox,
            called,
            served_dir,
            driver: make(wake),
            refused: BTreeMap::new(),
            hurry: false,
            due: Instant::now(),
            alone_since: None,
            presence: Every::new(limits::PRESENCE_EVERY),
            tidying: Every::new(limits::TURN),
        }
    }

    fn run(mut self) -> SessionEnd {
        self.driver.ask(Command::OpenTrace { path: self.shared.trace.clone() });
        loop {
            // Who comes before the trace is there waits: what an earlier process left would undo what it asks for.
            if self.driver.session().trace.is_some() {
                self.take_inbox();
            }
            // What is sent at once takes along what would be sent soon.
            if self.hurry || Instant::now() >= self.due {
                if let Some(ended) = self.take_events() {
                    return ended;
                }
                self.publish();
            }
            if let Some(ended) = self.look_around() {
                return ended;
            }
            self.wait();
        }
    }

    /// Between two frames only commands wake the thread.
    fn wait(&self) {
        let now = Instant::now();
        let waits = self.driver.num_steps() > 0 || self.called.load(Ordering::Acquire);
        park_timeout(if waits { self.due.saturating_duration_since(now) } else { limits::TURN });
    }

    fn take_inbox(&mut self) {
        while let Ok(message) = self.inbox.try_recv() {
            match message {
                ToActor::Heard { key, reply } => {
                    // Whoever hears that a command was answered sends it no more: it has to be kept by then.
                    self.publish();
                    _ = reply.send(self.driver.ordered().heard(key));
                }
                ToActor::Save { reply } => {
                    // Its steps must be there to go on from it.
                    self.publish();
                    let ordered = self.driver.ordered();
                    drop(reply.send((ordered.seq(), ordered.save())));
                }
                ToActor::Command { author, number, seen, command, outbox } => {
                    let key = author.key;
                    if let Err(reason) = self.hear(author, number, seen, *command) {
                        self.remember_refused(key, number, &reason);
                        // An answer is one to everything that was asked before it, too.
                        self.publish();
                        outbox.send(encode(&ToClient::Refused { number, reason }).into());
                    }
                }
            }
        }
    }

    /// A person's.
    fn hear(&mut self, author: Author, number: u64, seen: u64, command: Command) -> Result<(), String> {
        // Sent again: it has its answer, whatever would be said of it now.
        if number <= self.driver.ordered().heard(author.key) {
            let refused = self.refused.get(&author.key).filter(|(of, _)| *of == number);
            return refused.map_or(Ok(()), |(_, reason)| Err(reason.clone()));
        }
        let command = sanitize(command, &author, self.driver.session(), &self.served_dir)?;
        // There are others here, and nobody has seen what is to come.
        let seen = seen.clamp(1, self.driver.ordered().seq().max(1));
        let by = CommandContext { author, number, seen, at: now() };
        self.driver.command(by, command).map_err(|error| error.to_string())?;
        self.hurry = true;
        Ok(())
    }

    fn remember_refused(&mut self, key: u64, number: u64, reason: &str) {
        self.refused.insert(key, (number, reason.to_owned()));
        if self.refused.len() > limits::REFUSED_KEPT
            && let Some(other) = self.refused.keys().copied().find(|of| *of != key)
        {
            self.refused.remove(&other);
        }
    }

    /// `Some`: the session has no trace and will have none.
    fn take_events(&mut self) -> Option<SessionEnd> {
        self.called.store(false, Ordering::Release);
        for _ in 0..limits::EVENTS_AT_ONCE {
            let Some(applied) = self.driver.poll() else { break };
            match applied {
                Applied::OpenFailed { message } if self.driver.session().trace.is_none() => {
                    return Some(SessionEnd::Refused(message));
                }
                Applied::Opened { kind: FileKind::Trace, .. } => self.shared.set_opened(self.driver.trace()),
                Applied::Replaced { .. } => {
                    self.hurry = false;
                    // What came before leads nowhere any longer.
                    self.shared.publish_anew(self.driver.ordered().seq() - self.driver.num_steps() as u64);
                    self.shared.set_opened(self.driver.trace());
                }
                _ => {}
            }
        }
        self.due = Instant::now() + self.pace();
        None
    }

    /// To send costs a system call a client: with many of them less often.
    fn pace(&self) -> Duration {
        let clients = u32::try_from(self.shared.num_clients()).unwrap_or(u32::MAX);
        limits::FRAME_EVERY.max(limits::FRAME_PER_CLIENT.saturating_mul(clients))
    }

    /// Coded once for everybody.
    fn publish(&mut self) {
        self.hurry = false;
        let steps = self.driver.take_steps();
        let (Some(first), Some(last)) = (steps.first().map(|step| step.seq), steps.last().map(|step| step.seq)) else {
            return;
        };
        // What is told is kept: no kill takes it back.
        self.driver.flush();
        if steps.iter().map(num_rows).sum::<usize>() > limits::STEP_ROWS {
            return self.shared.publish_anew(last);
        }
        self.shared.publish(first, last, encode(&ToClient::Steps(steps)).into());
    }

    /// What is done now and then. `Some`: nobody needs this session any longer.
    fn look_around(&mut self) -> Option<SessionEnd> {
        if self.shared.closing.load(Ordering::Acquire) {
            self.publish();
            return Some(SessionEnd::Closed);
        }
        if self.shared.people_changed.load(Ordering::Acquire) && self.presence.is_due() {
            self.shared.people_changed.store(false, Ordering::Release);
            self.shared.tell_people(self.driver.session());
        }
        if !self.tidying.is_due() {
            return None;
        }
        self.shared.forget_coded();
        self.driver.keep_notices(limits::NOTICES);
        let session = self.driver.session();
        let works = session.is_running() || session.is_measuring() || self.driver.busy().is_some();
        let rests = !works && self.shared.num_clients() == 0;
        self.shared.rests.store(rests, Ordering::Release);
        let since = rests.then(|| self.alone_since.unwrap_or_else(Instant::now));
        self.alone_since = since;
        since.is_some_and(|since| since.elapsed() >= limits::IDLE_SESSION).then_some(SessionEnd::Closed)
    }
}

fn num_rows(step: &SequencedInput) -> usize {
    match &step.input {
        SessionInput::Event(event) => match &**event {
            Event::Rows { rows, .. } => rows.len(),
            Event::ResultsOpened { results, .. } => results.num_rows(),
            Event::ResultsCompared { results, .. } => results.rows.len(),
            _ => 0,
        },
        SessionInput::Command { .. } => 0,
    }
}

#[cfg(all(test, feature = "gui"))]
mod order;
#[cfg(test)]
mod tests;
