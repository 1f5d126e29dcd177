//! All sessions of a server, one a trace: takes the name of a trace, gives its session; opens it when it is the first
//! time, and makes place for it where nobody needs another one any longer.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use loka_core::review::Role;
use tokio::{
    sync::{Mutex as AsyncMutex, Semaphore, watch},
    time::timeout,
};

use super::{
    Bounds, ServedDir, limits,
    session_actor::{self, MakeDriver},
    shared_session::{SessionEnd, SharedSession},
};

pub struct SessionRegistry {
    pub served_dir: ServedDir,
    /// For a window that asks for none.
    pub trace: Option<String>,
    pub bounds: Bounds,
    make: MakeDriver,
    sessions: Mutex<BTreeMap<String, Arc<SharedSession>>>,
    listing: AsyncMutex<Option<(Instant, Arc<[String]>)>>,
    /// Places for windows, for those who are told that there is none, and for questions.
    pub clients: Arc<Semaphore>,
    pub turned_away: Arc<Semaphore>,
    pub askers: Semaphore,
    /// Who reads a large message.
    pub large: Semaphore,
    windows: AtomicU64,
}

/// How long a session that closes may take before its trace is opened again.
const CLOSING: Duration = Duration::from_secs(10);

impl SessionRegistry {
    pub fn new(served_dir: ServedDir, trace: Option<String>, bounds: Bounds, make: MakeDriver) -> Self {
        Self {
            served_dir,
            trace,
            bounds,
            make,
            sessions: Mutex::default(),
            listing: AsyncMutex::default(),
            clients: Arc::new(Semaphore::new(bounds.clients)),
            turned_away: Arc::new(Semaphore::new(limits::TURNED_AWAY)),
            askers: Semaphore::new(limits::ASKERS),
            large: Semaphore::new(limits::LARGE_AT_ONCE),
            windows: AtomicU64::new(0),
        }
    }

    /// A number of its own for every connection.
    pub fn window(&self) -> u64 {
        self.windows.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// What can be opened, by name.
    pub async fn files(&self) -> Arc<[String]> {
        let mut listing = self.listing.lock().await;
        if let Some((at, files)) = listing.as_ref()
            && at.elapsed() < limits::LISTING_LASTS
        {
            return files.clone();
        }
        let served_dir = self.served_dir.clone();
        let found = tokio::task::spawn_blocking(move || served_dir.list()).await.unwrap_or_default();
        let files: Arc<[String]> = found.entries.into_iter().map(|entry| entry.name).collect();
        *listing = Some((Instant::now(), files.clone()));
        files
    }

    /// Something was added: whoever asks next gets a new list.
    pub async fn forget_files(&self) {
        *self.listing.lock().await = None;
    }

    /// The session of that trace, for somebody of that role. `Err`: why there is none, in a line.
    pub async fn shared(&self, trace: &str, role: Role) -> Result<Arc<SharedSession>, String> {
        let (served_dir, asked) = (self.served_dir.clone(), trace.to_owned());
        let found = tokio::task::spawn_blocking(move || {
            let path = served_dir.path(&asked)?;
            // A link and what it leads to are one session.
            served_dir.name(&path).ok_or_else(|| format!("its name is no text: {asked}"))
        });
        let name = found.await.map_err(|error| error.to_string())??;
        loop {
            // A session costs a probe and a journal, and takes one of few places. The server's own trace has one anyway.
            let begins = role >= Role::Reviewer || self.trace.as_ref() == Some(&name);
            let mut ended = match self.room_now(&name, begins)? {
                Found::Room(shared) => return Ok(shared),
                Found::Closing(ended) => ended,
            };
            let closed = timeout(CLOSING, ended.wait_for(Option::is_some)).await;
            if closed.is_err() {
                return Err(format!("its session is still being closed; try again: {name}"));
            }
        }
    }

    fn room_now(&self, name: &str, begins: bool) -> Result<Found, String> {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.retain(|_, shared| !shared.has_ended());
        if let Some(shared) = sessions.get(name) {
            let closing = shared.closing.load(Ordering::Acquire);
            return Ok(if closing { Found::Closing(shared.ended()) } else { Found::Room(shared.clone()) });
        }
        if !begins {
            return Err(format!(
                "nobody has it open, and a viewer begins no session: ask a reviewer or an owner: {name}"
            ));
        }
        if sessions.len() >= self.bounds.sessions {
            let rests =
                |shared: &&Arc<SharedSession>| shared.rests.load(Ordering::Acquire) && shared.num_clients() == 0;
            let Some(shared) = sessions.values().find(rests) else {
                let most = self.bounds.sessions;
                return Err(format!("this server has the {most} sessions open that it takes; leave one first: {name}"));
            };
            shared.close();
            return Ok(Found::Closing(shared.ended()));
        }
        let (shared, inbox) = SharedSession::new(random()?, name.to_owned(), self.bounds.ring_bytes);
        session_actor::start(&shared, inbox, self.served_dir.clone(), self.make.clone())?;
        sessions.insert(name.to_owned(), shared.clone());
        Ok(Found::Room(shared))
    }

    /// Every session is closed well, or the time is over.
    pub async fn close(&self, within: Duration) {
        let sessions: Vec<Arc<SharedSession>> = {
            let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
            sessions.values().cloned().collect()
        };
        sessions.iter().for_each(|shared| shared.close());
        let all = async {
            for shared in sessions {
                drop(shared.ended().wait_for(Option::is_some).await);
            }
        };
        drop(timeout(within, all).await);
    }
}

enum Found {
    Room(Arc<SharedSession>),
    /// Ask again when it is over.
    Closing(watch::Receiver<Option<SessionEnd>>),
}

/// Not 0, which stands for no session.
fn random() -> Result<u64, String> {
    let number = getrandom::u64().map_err(|error| format!("no randomness for a session: {error}"))?;
    Ok(number.max(1))
}
