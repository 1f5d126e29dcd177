//! The file: takes entries, gives transactions; knows SQL and nothing of sessions beyond their coding.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    time::Duration,
};

use rusqlite::{Connection, params};
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::{
    JournalError,
    chain::{Chain, Line, Link},
};
use crate::session::{
    Saved, Share,
    shared::{By, PROTOCOL},
};

/// "LoKA": what the file says it is to `file(1)` and to us.
pub(super) const APPLICATION: i32 = 0x4C6F_4B41;
/// Of the tables and of what is in them: another number is another program's journal.
const VERSION: i32 = PROTOCOL as i32 * 100 + 2;

const TABLES: &str = "
    CREATE TABLE about (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
    CREATE TABLE commands (
        seq INTEGER PRIMARY KEY, at_ms INTEGER NOT NULL, author_key INTEGER NOT NULL, author TEXT NOT NULL,
        role TEXT NOT NULL, number INTEGER NOT NULL, seen INTEGER NOT NULL, command TEXT NOT NULL,
        hash BLOB NOT NULL) STRICT;
    CREATE TRIGGER commands_stay BEFORE UPDATE ON commands
        BEGIN SELECT RAISE(ABORT, 'a journal only grows'); END;
    CREATE TRIGGER commands_are_kept BEFORE DELETE ON commands
        BEGIN SELECT RAISE(ABORT, 'a journal only grows'); END;
    CREATE TRIGGER commands_follow BEFORE INSERT ON commands
        WHEN NEW.seq <= (SELECT COALESCE(MAX(seq), 0) FROM commands)
        BEGIN SELECT RAISE(ABORT, 'a journal only grows'); END;
    CREATE TABLE events (seq INTEGER PRIMARY KEY, event BLOB NOT NULL) STRICT;
    CREATE TABLE head (id INTEGER PRIMARY KEY CHECK (id = 1), seq INTEGER NOT NULL, head BLOB NOT NULL) STRICT;
    CREATE TABLE shares (key BLOB PRIMARY KEY, hash BLOB NOT NULL, share BLOB NOT NULL) STRICT;
";

/// One thing to be written.
pub(super) enum JournalEntry {
    Command { by: By, json: String },
    Event(Vec<u8>),
    Checkpoint(Box<Saved>),
}

pub(super) struct File {
    pub connection: Connection,
    pub path: PathBuf,
    /// Of the last entry.
    pub seq: i64,
    /// Of the commands; `None` until it is read or begun.
    pub chain: Option<Chain>,
    /// Of the shares that are written, by key.
    hashes: HashMap<Vec<u8>, Vec<u8>>,
}

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
            // A killed process loses nothing committed; only the machine's own end could, and never the file.
            connection.pragma_update(None, "synchronous", "NORMAL")?;
            prepare(&connection)?;
            Ok(connection)
        };
        let connection = make().map_err(|error| JournalError::of(&error, path))?;
        let mut file = Self { connection, path: path.to_owned(), seq: 0, chain: None, hashes: HashMap::new() };
        if file.is_ours() {
            file.seq = file.last_seq().map_err(|_| JournalError::Broken(path.to_owned()))?;
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

    /// Begins the chain, with a journal that is this one and no other, of this trace.
    pub fn begin(&mut self, trace_digest: &str) -> Result<(), JournalError> {
        let begin = |connection: &Connection| -> rusqlite::Result<Chain> {
            let id: String = connection.query_row("SELECT lower(hex(randomblob(16)))", [], |row| row.get(0))?;
            let chain = Chain::new(Link::first(&id, trace_digest));
            let text = [("id", id), ("trace_digest", trace_digest.to_owned())];
            connection.execute_batch("BEGIN")?;
            text.into_iter().chain(notes(chain)).try_for_each(|(key, value)| note(connection, key, &value))?;
            connection.execute_batch("COMMIT")?;
            Ok(chain)
        };
        let begun = begin(&self.connection).map_err(|error| JournalError::of(&error, &self.path))?;
        self.chain = Some(begun);
        Ok(())
    }

    /// All or nothing.
    pub fn write(&mut self, entries: Vec<JournalEntry>) -> Result<(), JournalError> {
        let before = self.chain;
        let wrote = self.connection.execute_batch("BEGIN").and_then(|()| {
            entries.into_iter().try_for_each(|entry| self.put(entry))?;
            if let Some(chain) = self.chain.filter(|_| self.chain != before) {
                notes(chain).into_iter().try_for_each(|(key, value)| note(&self.connection, key, &value))?;
            }
            self.connection.execute_batch("COMMIT")
        });
        wrote.map_err(|error| {
            // Best effort: the connection is given up after an error, which rolls back as well.
            drop(self.connection.execute_batch("ROLLBACK"));
            JournalError::of(&error, &self.path)
        })
    }

    fn put(&mut self, entry: JournalEntry) -> rusqlite::Result<()> {
        match entry {
            JournalEntry::Command { by, json } => {
                self.seq += 1;
                let line = Line::of(self.seq, by, json);
                // Whoever writes has begun it.
                let hash = self.chain.as_mut().map(|chain| chain.add(&line));
                let sql = "INSERT INTO commands VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
                let Line { seq, at_ms, author_key, author, role, number, seen, command } = line;
                let hash = hash.as_ref().map(Link::bytes);
                let values = params![seq, at_ms, author_key, author, role, number, seen, command, hash];
                self.connection.prepare_cached(sql)?.execute(values)?;
            }
            JournalEntry::Event(event) => {
                self.seq += 1;
                let mut insert = self.connection.prepare_cached("INSERT INTO events VALUES (?1, ?2)")?;
                insert.execute(params![self.seq, event])?;
            }
            JournalEntry::Checkpoint(saved) => self.checkpoint(*saved)?,
        }
        Ok(())
    }

    /// What the session is now; the events that made it so are no longer needed.
    fn checkpoint(&mut self, saved: Saved) -> rusqlite::Result<()> {
        let head = coded(&saved.head)?;
        let sql = "INSERT OR REPLACE INTO head VALUES (1, ?1, ?2)";
        self.connection.execute(sql, params![self.seq, head])?;
        let mut kept = HashMap::with_capacity(saved.shares.len());
        for share in saved.shares {
            let key = coded(&(&share.origin, share.at, &share.context))?;
            let bytes = coded(&share)?;
            let hash = Sha256::digest(&bytes).to_vec();
            if self.hashes.get(&key) != Some(&hash) {
                let sql = "INSERT OR REPLACE INTO shares VALUES (?1, ?2, ?3)";
                self.connection.prepare_cached(sql)?.execute(params![key, hash, bytes])?;
            }
            kept.insert(key, hash);
        }
        for gone in self.hashes.keys().filter(|key| !kept.contains_key(*key)) {
            self.connection.prepare_cached("DELETE FROM shares WHERE key = ?1")?.execute([gone])?;
        }
        self.hashes = kept;
        self.connection.execute("DELETE FROM events WHERE seq <= ?1", [self.seq])?;
        Ok(())
    }

    /// Every share of the last checkpoint; from now on only those that differ are written.
    pub fn shares(&mut self) -> Result<Vec<Share>, String> {
        let text = |error: rusqlite::Error| error.to_string();
        let mut select = self.connection.prepare("SELECT key, hash, share FROM shares").map_err(text)?;
        let mut rows = select.query([]).map_err(text)?;
        let (mut shares, mut hashes) = (Vec::new(), HashMap::new());
        while let Some(row) = rows.next().map_err(text)? {
            let bytes = row.get_ref(2).and_then(|value| Ok(value.as_blob()?)).map_err(text)?;
            let share: Share = postcard::from_bytes(bytes).map_err(|error| error.to_string())?;
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

/// How far the chain goes, as it is noted.
fn notes(chain: Chain) -> [(&'static str, String); 2] {
    [("head", chain.head.to_string()), ("count", chain.count.to_string())]
}

fn note(connection: &Connection, key: &str, value: &str) -> rusqlite::Result<()> {
    let mut insert = connection.prepare_cached("INSERT OR REPLACE INTO about VALUES (?1, ?2)")?;
    insert.execute([key, value]).map(drop)
}

fn coded<T: Serialize>(value: &T) -> rusqlite::Result<Vec<u8>> {
    postcard::to_allocvec(value).map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))
}
