//! The thread of one shared session: takes commands from clients and events from the engine, gives each its place,
//! carries out what the session asks for, and publishes the steps.
//!
//! What a window does beside its session is done here, too: engines are looked for, a trace that was opened is probed,
//! the open results file is watched.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{Builder, Thread, park_timeout},
    time::{Duration, Instant},
};

use loka_core::session::{
    Command, CommandError, Effect, Event, Saved,
    shared::{Author, By, Input, News, Ordered, Step, Taken, ToClient, encode},
};
use tokio::sync::mpsc;

use super::{
    Jail, limits,
    room::{Every, Over, Room, ToHost},
    vet::vet,
};
use crate::{
    clock::now,
    link::{Link, Wake, panic_text},
};

/// Makes the link of a session, on its thread.
pub type MakeLink = Arc<dyn Fn(Wake) -> Box<dyn Link> + Send + Sync>;

struct Host {
    room: Arc<Room>,
    inbox: mpsc::Receiver<ToHost>,
    link: Box<dyn Link>,
    /// An event waits, or the thread was told so and has not looked yet.
    called: Arc<AtomicBool>,
    jail: Jail,
    ordered: Ordered,
    /// Steps that are not published yet, and how many rows are in them.
    pending: Vec<Step>,
    pending_rows: usize,
    /// A step among them asks for an answer at once.
    hurry: bool,
    /// Events are looked for again.
    due: Instant,
    watched: Option<String>,
    alone_since: Option<Instant>,
    presence: Every,
    tidying: Every,
}

/// Starts the thread; it ends by itself. `Err`: there is none.
pub fn start(room: &Arc<Room>, inbox: mpsc::Receiver<ToHost>, jail: Jail, make: MakeLink) -> Result<(), String> {
    let of_thread = Arc::clone(room);
    let spawned = Builder::new().name("loka-session".to_owned()).spawn(move || {
        of_thread.is_of(std::thread::current());
        let room = of_thread.clone();
        let work = move || Host::new(of_thread, inbox, jail, &make).run();
        let over = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|cause| Over::Broken(panic_text(&*cause)));
        // Last of all: whoever hears it may open the same trace again.
        room.end(over);
    });
    spawned.map(drop).map_err(|error| format!("no thread could be started: {error}"))
}

impl Host {
    fn new(room: Arc<Room>, inbox: mpsc::Receiver<ToHost>, jail: Jail, make: &MakeLink) -> Self {
        let called = Arc::new(AtomicBool::new(false));
        let (of_wake, thread): (Arc<AtomicBool>, Thread) = (called.clone(), std::thread::current());
        let wake: Wake = Arc::new(move || {
            // A thousand rows a second are one call a frame.
            if !of_wake.swap(true, Ordering::AcqRel) {
                thread.unpark();
            }
        });
        Self {
            room,
            inbox,
            link: make(wake),
            called,
            jail,
            ordered: Ordered::default(),
            pending: Vec::new(),
            pending_rows: 0,
            hurry: false,
            due: Instant::now(),
            watched: None,
            alone_since: None,
            presence: Every::new(limits::PRESENCE_EVERY),
            tidying: Every::new(limits::TURN),
        }
    }

    fn run(mut self) -> Over {
        self.ask(Command::FindEngines);
        self.ask(Command::OpenTrace { path: self.room.trace.clone() });
        loop {
            // Who comes before the trace is there waits: what an earlier process left would undo what it asks for.
            if self.ordered.session.trace.is_some() {
                self.take_inbox();
            }
            // What is sent at once takes along what would be sent soon.
            if self.hurry || Instant::now() >= self.due {
                if let Some(over) = self.take_events() {
                    return over;
                }
                self.publish();
            }
            if let Some(over) = self.look_around() {
                return over;
            }
            self.wait();
        }
    }

    /// Between two frames only commands wake the thread.
    fn wait(&self) {
        let now = Instant::now();
        let waits = !self.pending.is_empty() || self.called.load(Ordering::Acquire);
        park_timeout(if waits { self.due.saturating_duration_since(now) } else { limits::TURN });
    }

    fn take_inbox(&mut self) {
        while let Ok(message) = self.inbox.try_recv() {
            match message {
                ToHost::Heard { key, reply } => drop(reply.send(self.ordered.heard(key))),
                ToHost::Save { reply } => {
                    // Its steps must be there to go on from it.
                    self.publish();
                    drop(reply.send((self.ordered.seq(), self.ordered.save())));
                }
                ToHost::Command { author, number, seen, command, outbox } => {
                    if let Err(reason) = self.hear(author, number, seen, *command) {
                        outbox.send(encode(&ToClient::Refused { number, reason }).into());
                    }
                }
            }
        }
    }

    /// A person's.
    fn hear(&mut self, author: Author, number: u64, seen: u64, command: Command) -> Result<(), String> {
        // Sent again: it has its answer, whatever would be said of it now.
        if number <= self.ordered.heard(author.key) {
            return Ok(());
        }
        let command = vet(command, &author, &self.ordered.session, &self.jail)?;
        // There are others here, and nobody has seen what is to come.
        let seen = seen.clamp(1, self.ordered.seq().max(1));
        let by = By { author, number, seen, at: now() };
        self.command(by, command).map_err(|error| error.to_string())
    }

    /// The program's own.
    fn ask(&mut self, command: Command) {
        if let Err(error) = self.command(By { at: now(), ..By::program() }, command) {
            self.event(Event::OpenFailed { message: error.to_string() });
        }
    }

    fn command(&mut self, by: By, command: Command) -> Result<(), CommandError> {
        match self.ordered.command(by, command)? {
            Taken::Known => {}
            Taken::Done(step, effects) => {
                if let Input::Command { by, command } = &step.input {
                    self.link.keep_command(by, command);
                }
                self.keep_whole();
                self.pending.push(*step);
                self.hurry = true;
                effects.into_iter().for_each(|effect| self.link.run(effect));
            }
        }
        Ok(())
    }

    fn event(&mut self, event: Event) {
        self.link.keep_event(&event);
        self.pending_rows += num_rows(&event);
        let step = self.ordered.event(event);
        self.keep_whole();
        self.pending.push(step);
    }

    fn keep_whole(&mut self) {
        if self.link.wants_checkpoint() {
            self.link.checkpoint(self.ordered.save());
        }
    }

    /// `Some`: the session has no trace and will have none.
    fn take_events(&mut self) -> Option<Over> {
        self.called.store(false, Ordering::Release);
        for _ in 0..limits::EVENTS_AT_ONCE {
            match self.link.poll() {
                None => break,
                Some(News::Event(event)) => {
                    if let Some(over) = self.take_event(*event) {
                        return Some(over);
                    }
                }
                Some(News::State(saved)) => self.take_state(*saved),
                // This thread is who orders commands.
                Some(News::Command { .. } | News::Refused(_)) => {}
            }
        }
        self.due = Instant::now() + self.pace();
        None
    }

    fn take_event(&mut self, event: Event) -> Option<Over> {
        if let (Event::OpenFailed { message }, None) = (&event, &self.ordered.session.trace) {
            return Some(Over::Refused(message.clone()));
        }
        let opened = matches!(event, Event::TraceOpened { .. });
        self.event(event);
        if opened {
            self.opened();
        }
        self.watch();
        None
    }

    /// What an earlier process left.
    fn take_state(&mut self, saved: Saved) {
        let (seq, before) = (self.ordered.seq() + 1, std::mem::take(&mut self.ordered));
        self.ordered = Ordered::of(saved, seq);
        // Those that were found while the journal was read.
        self.ordered.session.engines = before.session.engines;
        (self.pending_rows, self.hurry) = (0, false);
        self.pending.clear();
        self.room.publish_anew(seq);
        self.opened();
        self.watch();
    }

    /// A trace is there: what it lacks is probed.
    fn opened(&mut self) {
        self.room.set_opened(self.link.trace());
        if self.ordered.session.lacks_rows() {
            self.ask(Command::StartProbe);
        }
    }

    fn watch(&mut self) {
        let file = &self.ordered.session.results_file;
        if self.watched != *file {
            self.watched.clone_from(file);
            self.link.run(Effect::Watch { path: self.watched.clone() });
        }
    }

    /// To send costs a system call a client: with many of them less often.
    fn pace(&self) -> Duration {
        let clients = u32::try_from(self.room.num_clients()).unwrap_or(u32::MAX);
        limits::FRAME_EVERY.max(limits::FRAME_PER_CLIENT.saturating_mul(clients))
    }

    /// Coded once for everybody.
    fn publish(&mut self) {
        self.hurry = false;
        let rows = std::mem::take(&mut self.pending_rows);
        let steps = std::mem::take(&mut self.pending);
        let (Some(first), Some(last)) = (steps.first().map(|step| step.seq), steps.last().map(|step| step.seq)) else {
            return;
        };
        // What is told is kept: no kill takes it back.
        self.link.flush();
        if rows > limits::STEP_ROWS {
            return self.room.publish_anew(last);
        }
        self.room.publish(first, last, encode(&ToClient::Steps(steps)).into());
    }

    /// What is done now and then. `Some`: nobody needs this session any longer.
    fn look_around(&mut self) -> Option<Over> {
        if self.room.closing.load(Ordering::Acquire) {
            self.publish();
            return Some(Over::Closed);
        }
        if self.room.people_changed.load(Ordering::Acquire) && self.presence.is_due() {
            self.room.people_changed.store(false, Ordering::Release);
            self.room.tell_people(&self.ordered.session);
        }
        if !self.tidying.is_due() {
            return None;
        }
        self.room.forget_coded();
        let notices = &mut self.ordered.session.notices;
        notices.drain(..notices.len().saturating_sub(limits::NOTICES));
        let session = &self.ordered.session;
        let works = session.is_running() || session.is_measuring() || self.link.busy().is_some();
        let rests = !works && self.room.num_clients() == 0;
        self.room.rests.store(rests, Ordering::Release);
        let since = rests.then(|| self.alone_since.unwrap_or_else(Instant::now));
        self.alone_since = since;
        since.is_some_and(|since| since.elapsed() >= limits::IDLE_SESSION).then_some(Over::Closed)
    }
}

fn num_rows(event: &Event) -> usize {
    match event {
        Event::Rows { rows, .. } => rows.len(),
        Event::ResultsOpened { results, .. } | Event::ResultsCompared { results, .. } => results.rows.len(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests;
