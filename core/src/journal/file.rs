//! The file: takes entries, gives transactions; knows SQL and nothing of sessions beyond their coding.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use rusqlite::{Connection, params};
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::{
    JournalError,
    chain::{Chain, Line, Link},
    state,
};
use crate::session::{
    RowChunk, SavedSession,
    shared::{CommandContext, PROTOCOL},
};

/// "LoKA": what the file says it is to `file(1)` and to us.
pub(super) const APPLICATION: i32 = 0x4C6F_4B41;
/// Of the tables and of what is in them: another number is another program's journal.
const VERSION: i32 = PROTOCOL as i32 * 100 + 3;

const TABLES: &str = "
    CREATE TABLE about (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
    CREATE TABLE commands (
        seq INTEGER PRIMARY KEY, at_ms INTEGER NOT NULL, author_key INTEGER NOT NULL, author TEXT NOT NULL,
        role TEXT NOT NULL, number INTEGER NOT NULL, seen INTEGER NOT NULL, command TEXT NOT NULL,
        state BLOB NOT NULL, hash BLOB NOT NULL) STRICT;
    CREATE TRIGGER commands_stay BEFORE UPDATE ON commands
        BEGIN SELECT RAISE(ABORT, 'a journal only grows'); END;
    CREATE TRIGGER commands_are_kept BEFORE DELETE ON commands
        BEGIN SELECT RAISE(ABORT, 'a journal only grows'); END;
    CREATE TRIGGER commands_follow BEFORE INSERT ON commands
        WHEN NEW.seq <= (SELECT COALESCE(MAX(seq), 0) FROM commands)
        BEGIN SELECT RAISE(ABORT, 'a journal only grows'); END;
    CREATE TABLE events (seq INTEGER PRIMARY KEY, event BLOB NOT NULL) STRICT;
    CREATE TABLE head (
        id INTEGER PRIMARY KEY CHECK (id = 1), seq INTEGER NOT NULL, trace_digest TEXT NOT NULL, head BLOB NOT NULL,
        state BLOB NOT NULL) STRICT;
    CREATE TABLE shares (key BLOB PRIMARY KEY, hash BLOB NOT NULL, share BLOB NOT NULL) STRICT;
";

/// One thing to be written.
pub(super) enum JournalEntry {
    Command { by: CommandContext, json: String },
    Event(Vec<u8>),
    Checkpoint(Box<SavedSession>),
}

impl JournalEntry {
    /// What a checkpoint would take the place of.
    pub fn event_bytes(&self) -> usize {
        match self {
            Self::Event(bytes) => bytes.len(),
            Self::Command { .. } | Self::Checkpoint(_) => 0,
        }
    }
}

pub(super) struct File {
    pub connection: Connection,
    pub path: PathBuf,
    at: Reached,
    /// Of the shares that are written, by key.
    hashes: Hashes,
}

/// How far the file is.
#[derive(Clone, Copy)]
struct Reached {
    /// Of the last entry.
    seq: i64,
    /// Of the commands, and of what else is kept; `None` until they are read or begun.
    chains: Option<(Chain, Link)>,
}

type Hashes = BTreeMap<Vec<u8>, Vec<u8>>;

impl File {
    /// Opens or makes the file and takes it for this process alone.
    pub fn open(path: &Path) -> Result<Self, JournalError> {
        let make = || -> rusqlite::Result<Connection> {
            let connection = Connection::open(path)?;
            // Whoever has it keeps it for as long as its window is open: waiting is of no use.
            connection.busy_timeout(Duration::from_millis(200))?;
            // Exclusive: no second process mixes its inputs in, and no shared memory file is needed.
            connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
            connection.pragma_update(None, "journal_mode", "WAL")?;
            // Each commit is on the disk before it is told, also of a machine that loses power: with NORMAL the last
            // ones would be gone then.
            connection.pragma_update(None, "synchronous", "FULL")?;
            prepare(&connection)?;
            Ok(connection)
        };
        let connection = make().map_err(|error| JournalError::of(&error, path))?;
        let at = Reached { seq: 0, chains: None };
        let mut file = Self { connection, path: path.to_owned(), at, hashes: Hashes::new() };
        if file.is_ours() {
            file.at.seq = file.last_seq().map_err(|_| JournalError::Broken(path.to_owned()))?;
        }
        Ok(file)
    }

    fn last_seq(&self) -> rusqlite::Result<i64> {
        let last = |table| {
            let sql = format!("SELECT COALESCE(MAX(seq), 0) FROM {table}");
            self.connection.query_row(&sql, [], |row| row.get::<_, i64>(0))
        };
        Ok(last("commands")?.max(last("events")?).max(last("head")?))
    }

    fn pragma(&self, name: &str) -> rusqlite::Result<i32> {
        self.connection.pragma_query_value(None, name, |row| row.get(0))
    }

    /// Of this program and this version of it.
    pub fn is_ours(&self) -> bool {
        let is = |name, value| self.pragma(name).is_ok_and(|found| found == value);
        is("application_id", APPLICATION) && is("user_version", VERSION)
    }

    pub fn has_chain(&self) -> bool {
        self.at.chains.is_some()
    }

    /// Goes on from what was read and verified.
    pub fn go_on(&mut self, chain: Chain, state: Link) {
        self.at.chains = Some((chain, state));
    }

    /// Begins the chain, with a journal that is this one and no other, of the trace of that stamp.
    pub fn begin(&mut self, trace_stamp: &str) -> Result<(), JournalError> {
        let begin = |connection: &Connection| -> rusqlite::Result<(Chain, Link)> {
            let id: String = connection.query_row("SELECT lower(hex(randomblob(16)))", [], |row| row.get(0))?;
            let chain = Chain::new(Link::first(&id, trace_stamp));
            let text = [("id", id), ("trace_stamp", trace_stamp.to_owned())];
            connection.execute_batch("BEGIN")?;
            let notes = notes(chain, chain.head);
            text.into_iter().chain(notes).try_for_each(|(key, value)| note(connection, key, &value))?;
            connection.execute_batch("COMMIT")?;
            Ok((chain, chain.head))
        };
        let begun = begin(&self.connection).map_err(|error| JournalError::of(&error, &self.path));
        if begun.is_err() {
            drop(self.connection.execute_batch("ROLLBACK"));
        }
        self.at.chains = Some(begun?);
        Ok(())
    }

    /// All or nothing: after an error the file is where it was, and the same can be written again.
    pub fn write(&mut self, entries: &[JournalEntry]) -> Result<(), JournalError> {
        let (mut at, mut hashes) = (self.at, None);
        let wrote = self.connection.execute_batch("BEGIN IMMEDIATE").and_then(|()| {
            entries.iter().try_for_each(|entry| self.put(entry, &mut at, &mut hashes))?;
            if let Some((chain, state)) = at.chains {
                notes(chain, state).into_iter().try_for_each(|(key, value)| note(&self.connection, key, &value))?;
            }
            self.connection.execute_batch("COMMIT")
        });
        match wrote {
            Ok(()) => {
                self.at = at;
                self.hashes = hashes.unwrap_or_else(|| std::mem::take(&mut self.hashes));
                Ok(())
            }
            Err(error) => {
                // SQLite may have done so itself.
                drop(self.connection.execute_batch("ROLLBACK"));
                Err(JournalError::of(&error, &self.path))
            }
        }
    }

    fn put(&self, entry: &JournalEntry, at: &mut Reached, hashes: &mut Option<Hashes>) -> rusqlite::Result<()> {
        // Whoever writes has begun them.
        let Some((chain, link)) = &mut at.chains else { return Err(rusqlite::Error::InvalidQuery) };
        match entry {
            JournalEntry::Command { by, json } => {
                at.seq += 1;
                let line = Line::of(at.seq, by, json, *link);
                let hash = chain.add(&line);
                let sql = "INSERT INTO commands VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
                let Line { seq, at_ms, author_key, author, role, number, seen, command, state } = line;
                let (state, hash) = (state.bytes(), hash.bytes());
                let values = params![seq, at_ms, author_key, author, role, number, seen, command, state, hash];
                self.connection.prepare_cached(sql)?.execute(values)?;
            }
            JournalEntry::Event(event) => {
                at.seq += 1;
                *link = state::event(*link, at.seq, event);
                let mut insert = self.connection.prepare_cached("INSERT INTO events VALUES (?1, ?2)")?;
                insert.execute(params![at.seq, event])?;
            }
            JournalEntry::Checkpoint(saved) => {
                let before = hashes.as_ref().unwrap_or(&self.hashes);
                let (kept, after) = self.checkpoint(saved, at.seq, before)?;
                (*hashes, *link) = (Some(kept), after);
            }
        }
        Ok(())
    }

    /// What the session is now; the events that made it so are no longer needed.
    fn checkpoint(&self, saved: &SavedSession, seq: i64, before: &Hashes) -> rusqlite::Result<(Hashes, Link)> {
        let mut kept = Hashes::new();
        for share in &saved.shares {
            let key = coded(&(&share.origin, share.at, &share.context))?;
            let bytes = coded(share)?;
            let hash = Sha256::digest(&bytes).to_vec();
            if before.get(&key) != Some(&hash) {
                let sql = "INSERT OR REPLACE INTO shares VALUES (?1, ?2, ?3)";
                self.connection.prepare_cached(sql)?.execute(params![key, hash, bytes])?;
            }
            kept.insert(key, hash);
        }
        for gone in before.keys().filter(|key| !kept.contains_key(*key)) {
            self.connection.prepare_cached("DELETE FROM shares WHERE key = ?1")?.execute([gone])?;
        }
        let digest = saved.head.trace.as_ref().map_or("", |trace| &trace.meta.trace_digest);
        let head = coded(&saved.head)?;
        let pairs = kept.iter().map(|(key, hash)| (key.as_slice(), hash.as_slice()));
        let link = state::checkpoint(seq, digest, &head, pairs);
        let sql = "INSERT OR REPLACE INTO head VALUES (1, ?1, ?2, ?3, ?4)";
        self.connection.execute(sql, params![seq, digest, head, link.bytes()])?;
        self.connection.execute("DELETE FROM events WHERE seq <= ?1", [seq])?;
        Ok((kept, link))
    }

    /// Every share of the last checkpoint; from now on only those that differ are written.
    pub fn shares(&mut self) -> Result<Vec<RowChunk>, String> {
        let text = |error: rusqlite::Error| error.to_string();
        let mut select = self.connection.prepare("SELECT key, hash, share FROM shares").map_err(text)?;
        let mut rows = select.query([]).map_err(text)?;
        let (mut shares, mut hashes) = (Vec::new(), Hashes::new());
        while let Some(row) = rows.next().map_err(text)? {
            let bytes = row.get_ref(2).and_then(|value| Ok(value.as_blob()?)).map_err(text)?;
            let share: RowChunk = postcard::from_bytes(bytes).map_err(|error| error.to_string())?;
            hashes.insert(row.get(0).map_err(text)?, row.get(1).map_err(text)?);
            shares.push(share);
        }
        drop(rows);
        drop(select);
        self.hashes = hashes;
        shares.sort_by(|a, b| (&a.origin, a.at, &a.context).cmp(&(&b.origin, b.at, &b.context)));
        Ok(shares)
    }
}

/// Makes the tables of a new file, and says what it is; another's are left alone. Takes the file.
fn prepare(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch("BEGIN IMMEDIATE")?;
    let num: i64 = connection.query_row("SELECT COUNT(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if num == 0 {
        connection.execute_batch(TABLES)?;
        connection.pragma_update(None, "application_id", APPLICATION)?;
        connection.pragma_update(None, "user_version", VERSION)?;
    }
    connection.execute_batch("COMMIT")
}

/// How far the chains go, as it is noted.
fn notes(chain: Chain, state: Link) -> [(&'static str, String); 3] {
    [("head", chain.head.to_string()), ("count", chain.count.to_string()), ("state", state.to_string())]
}

fn note(connection: &Connection, key: &str, value: &str) -> rusqlite::Result<()> {
    let mut insert = connection.prepare_cached("INSERT OR REPLACE INTO about VALUES (?1, ?2)")?;
    insert.execute([key, value]).map(drop)
}

fn coded<T: Serialize>(value: &T) -> rusqlite::Result<Vec<u8>> {
    postcard::to_allocvec(value).map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))
}
