//! All sessions of a server, one a trace: takes the name of a trace, gives its room; opens it when it is the first
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
    Bounds, Jail,
    host::{self, MakeDriver},
    limits,
    room::{Over, Room},
};

pub struct Hub {
    pub jail: Jail,
    /// For a window that asks for none.
    pub trace: Option<String>,
    pub bounds: Bounds,
    make: MakeDriver,
    rooms: Mutex<BTreeMap<String, Arc<Room>>>,
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

impl Hub {
    pub fn new(jail: Jail, trace: Option<String>, bounds: Bounds, make: MakeDriver) -> Self {
        Self {
            jail,
            trace,
            bounds,
            make,
            rooms: Mutex::default(),
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
        let jail = self.jail.clone();
        let found = tokio::task::spawn_blocking(move || jail.list()).await.unwrap_or_default();
        let files: Arc<[String]> = found.entries.into_iter().map(|entry| entry.name).collect();
        *listing = Some((Instant::now(), files.clone()));
        files
    }

    /// Something was added: whoever asks next gets a new list.
    pub async fn forget_files(&self) {
        *self.listing.lock().await = None;
    }

    /// The session of that trace, for somebody of that role. `Err`: why there is none, in a line.
    pub async fn room(&self, trace: &str, role: Role) -> Result<Arc<Room>, String> {
        let (jail, asked) = (self.jail.clone(), trace.to_owned());
        let found = tokio::task::spawn_blocking(move || {
            let path = jail.path(&asked)?;
            // A link and what it leads to are one session.
            jail.name(&path).ok_or_else(|| format!("its name is no text: {asked}"))
        });
        let name = found.await.map_err(|error| error.to_string())??;
        loop {
            // A session costs a probe and a journal, and takes one of few places. The server's own trace has one anyway.
            let begins = role >= Role::Reviewer || self.trace.as_ref() == Some(&name);
            let mut over = match self.room_now(&name, begins)? {
                Found::Room(room) => return Ok(room),
                Found::Closing(over) => over,
            };
            let closed = timeout(CLOSING, over.wait_for(Option::is_some)).await;
            if closed.is_err() {
                return Err(format!("its session is still being closed; try again: {name}"));
            }
        }
    }

    fn room_now(&self, name: &str, begins: bool) -> Result<Found, String> {
        let mut rooms = self.rooms.lock().unwrap_or_else(PoisonError::into_inner);
        rooms.retain(|_, room| !room.is_over());
        if let Some(room) = rooms.get(name) {
            let closing = room.closing.load(Ordering::Acquire);
            return Ok(if closing { Found::Closing(room.over()) } else { Found::Room(room.clone()) });
        }
        if !begins {
            return Err(format!(
                "nobody has it open, and a viewer begins no session: ask a reviewer or an owner: {name}"
            ));
        }
        if rooms.len() >= self.bounds.sessions {
            let rests = |room: &&Arc<Room>| room.rests.load(Ordering::Acquire) && room.num_clients() == 0;
            let Some(room) = rooms.values().find(rests) else {
                let most = self.bounds.sessions;
                return Err(format!("this server has the {most} sessions open that it takes; leave one first: {name}"));
            };
            room.close();
            return Ok(Found::Closing(room.over()));
        }
        let (room, inbox) = Room::new(random()?, name.to_owned(), self.bounds.ring_bytes);
        host::start(&room, inbox, self.jail.clone(), self.make.clone())?;
        rooms.insert(name.to_owned(), room.clone());
        Ok(Found::Room(room))
    }

    /// Every session is closed well, or the time is over.
    pub async fn close(&self, within: Duration) {
        let rooms: Vec<Arc<Room>> = {
            let rooms = self.rooms.lock().unwrap_or_else(PoisonError::into_inner);
            rooms.values().cloned().collect()
        };
        rooms.iter().for_each(|room| room.close());
        let all = async {
            for room in rooms {
                drop(room.over().wait_for(Option::is_some).await);
            }
        };
        drop(timeout(within, all).await);
    }
}

enum Found {
    Room(Arc<Room>),
    /// Ask again when it is over.
    Closing(watch::Receiver<Option<Over>>),
}

/// Not 0, which stands for no session.
fn random() -> Result<u64, String> {
    let number = getrandom::u64().map_err(|error| format!("no randomness for a session: {error}"))?;
    Ok(number.max(1))
}
