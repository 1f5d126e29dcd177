//! One shared session as its clients see it: takes commands for its thread, gives frames, snapshots and who is there.
//!
//! Nobody waits for anybody here: the thread publishes into a ring and goes on, every client reads it at its own
//! pace.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::Thread,
    time::Instant,
};

use bytes::Bytes;
use loka_core::{
    review::Role,
    session::{
        Command, SavedSession, Session,
        shared::{Author, Person, Place, ToClient, encode},
    },
    trace::Trace,
};
use tokio::sync::{Mutex as AsyncMutex, mpsc, oneshot, watch};

use super::{coded::Coded, limits, outbox::Outbox, ring::Ring};

/// What clients say to the session's thread.
pub enum ToActor {
    Command {
        author: Author,
        number: u64,
        seen: u64,
        command: Box<Command>,
        /// Where a refusal goes.
        outbox: Outbox,
    },
    /// The last command of this author that was answered.
    Heard {
        key: u64,
        reply: oneshot::Sender<u64>,
    },
    Save {
        reply: oneshot::Sender<(u64, SavedSession)>,
    },
}

/// Why a session is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionEnd {
    /// Its trace cannot be opened.
    Refused(String),
    /// Its thread met an error of ours.
    Broken(String),
    /// Nobody needed it any longer, or the server ends.
    Closed,
}

/// Between the clients of a session and its thread.
pub struct SharedSession {
    /// Drawn at random: numbers of steps mean nothing in another one.
    pub id: u64,
    /// Its name in the served folder.
    pub trace: String,
    inbox: mpsc::Sender<ToActor>,
    thread: OnceLock<Thread>,
    ring: Mutex<Ring>,
    newest: watch::Sender<u64>,
    present: watch::Sender<Bytes>,
    people: Mutex<BTreeMap<u64, Person>>,
    pub(super) people_changed: AtomicBool,
    /// Nobody is here and nothing runs.
    pub(super) rests: AtomicBool,
    pub(super) closing: AtomicBool,
    ended: watch::Sender<Option<SessionEnd>>,
    coded: AsyncMutex<Option<Arc<Coded>>>,
    /// For questions beside the session.
    opened: OnceLock<Trace>,
}

/// A client of the session. Gone when it is dropped.
pub struct Subscription {
    pub shared: Arc<SharedSession>,
    window: u64,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        lock(&self.shared.people).remove(&self.window);
        self.shared.people_changed.store(true, Ordering::Release);
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SharedSession {
    /// The session as its clients see it, and where its thread hears.
    pub fn new(id: u64, trace: String, ring_bytes: usize) -> (Arc<Self>, mpsc::Receiver<ToActor>) {
        let (inbox, heard) = mpsc::channel(limits::COMMANDS_WAITING);
        let shared = Self {
            id,
            trace,
            inbox,
            thread: OnceLock::new(),
            ring: Mutex::new(Ring::new(0, ring_bytes)),
            newest: watch::Sender::new(0),
            present: watch::Sender::new(encode(&ToClient::Present(Vec::new())).into()),
            people: Mutex::default(),
            people_changed: AtomicBool::new(false),
            rests: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            ended: watch::Sender::new(None),
            coded: AsyncMutex::default(),
            opened: OnceLock::new(),
        };
        (Arc::new(shared), heard)
    }

    pub(super) fn is_of(&self, thread: Thread) {
        drop(self.thread.set(thread));
    }

    fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// Takes a place; `window` is the client's own number.
    pub fn enter(self: &Arc<Self>, window: u64, person: Person) -> Subscription {
        lock(&self.people).insert(window, person);
        self.rests.store(false, Ordering::Release);
        self.people_changed.store(true, Ordering::Release);
        Subscription { shared: self.clone(), window }
    }

    /// Somebody looks elsewhere now.
    pub fn look(&self, window: u64, place: Place) {
        if let Some(person) = lock(&self.people).get_mut(&window) {
            person.at = place;
            self.people_changed.store(true, Ordering::Release);
        }
    }

    /// Somebody may do more now, or less.
    pub fn set_role(&self, window: u64, role: Role) {
        if let Some(person) = lock(&self.people).get_mut(&window) {
            person.role = role;
            self.people_changed.store(true, Ordering::Release);
        }
    }

    /// Who is here, each once, by name.
    pub fn people(&self) -> Vec<Person> {
        let mut people: Vec<Person> = lock(&self.people).values().cloned().collect();
        people.sort_by(|a, b| (&a.name, a.key).cmp(&(&b.name, b.key)));
        people.dedup_by_key(|person| person.key);
        people
    }

    pub fn num_clients(&self) -> usize {
        lock(&self.people).len()
    }

    /// Waits while many commands wait. `Err`: the session is over.
    pub async fn tell(&self, message: ToActor) -> Result<(), ()> {
        self.inbox.send(message).await.map_err(|_| ())?;
        self.wake();
        Ok(())
    }

    pub async fn heard(&self, key: u64) -> Result<u64, ()> {
        let (reply, answer) = oneshot::channel();
        self.tell(ToActor::Heard { key, reply }).await?;
        answer.await.map_err(|_| ())
    }

    /// Frames after that step; see [`Ring::after`].
    pub fn after(&self, seq: u64) -> Option<Vec<(u64, Bytes)>> {
        lock(&self.ring).after(seq, limits::FRAMES_AT_ONCE)
    }

    pub fn reaches(&self, seq: u64) -> bool {
        lock(&self.ring).reaches(seq)
    }

    pub fn newest(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }

    pub fn present(&self) -> watch::Receiver<Bytes> {
        self.present.subscribe()
    }

    pub fn ended(&self) -> watch::Receiver<Option<SessionEnd>> {
        self.ended.subscribe()
    }

    pub fn has_ended(&self) -> bool {
        self.ended.borrow().is_some()
    }

    /// Asks the thread to end.
    pub fn close(&self) {
        self.closing.store(true, Ordering::Release);
        self.wake();
    }

    /// The session in parts, one for all who come within a moment. `Err`: it is over.
    pub async fn coded(&self) -> Result<Arc<Coded>, ()> {
        let mut slot = self.coded.lock().await;
        let fresh = |coded: &Arc<Coded>| coded.made.elapsed() < limits::SNAPSHOT_LASTS && self.reaches(coded.seq);
        if let Some(coded) = slot.as_ref().filter(|coded| fresh(coded)) {
            return Ok(coded.clone());
        }
        let (reply, answer) = oneshot::channel();
        self.tell(ToActor::Save { reply }).await?;
        let (seq, saved) = answer.await.map_err(|_| ())?;
        // Coding a large session takes a while: neither the thread nor the sockets wait for it.
        let coded = tokio::task::spawn_blocking(move || Arc::new(Coded::new(seq, saved))).await.map_err(|_| ())?;
        *slot = Some(coded.clone());
        Ok(coded)
    }

    /// Nobody joined for a while.
    pub(super) fn forget_coded(&self) {
        if let Ok(mut slot) = self.coded.try_lock() {
            slot.take_if(|coded| coded.made.elapsed() > limits::SNAPSHOT_KEPT);
        }
    }

    /// The trace, once it is open.
    pub fn opened(&self) -> Option<Trace> {
        self.opened.get().cloned()
    }

    pub(super) fn set_opened(&self, trace: Option<Trace>) {
        if let Some(trace) = trace {
            // One session has one trace.
            drop(self.opened.set(trace));
        }
    }

    pub(super) fn publish(&self, first: u64, last: u64, frame: Bytes) {
        lock(&self.ring).push(first, last, frame);
        self.newest.send_replace(last);
    }

    /// Everyone gets the session itself instead of steps up to `last`.
    pub(super) fn publish_anew(&self, last: u64) {
        lock(&self.ring).cut(last);
        self.newest.send_replace(last);
    }

    /// Places that are none of this session are left out.
    pub(super) fn tell_people(&self, session: &Session) {
        let mut people = self.people();
        for person in &mut people {
            person.at.site.take_if(|site| session.site(site).is_none());
        }
        self.present.send_replace(encode(&ToClient::Present(people)).into());
    }

    pub(super) fn end(&self, ended: SessionEnd) {
        self.ended.send_replace(Some(ended));
    }
}

/// When a thing happened last, for what is done now and then.
#[derive(Clone, Copy, Debug)]
pub struct Every {
    last: Instant,
    every: std::time::Duration,
}

impl Every {
    pub fn new(every: std::time::Duration) -> Self {
        Self { last: Instant::now(), every }
    }

    /// True once in that time.
    pub fn is_due(&mut self) -> bool {
        let due = self.last.elapsed() >= self.every;
        if due {
            self.last = Instant::now();
        }
        due
    }
}
