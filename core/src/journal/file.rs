//! The file: takes entries, gives transactions; knows SQL and nothing of sessions beyond their coding.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    time::Duration,
};

use rusqlite::{Connection, OptionalExtension as _, params};
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::JournalError;
use crate::session::{
    Saved, Share,
    shared::{By, PROTOCOL},
};

/// "LoKA": what the file says it is to `file(1)` and to us.
const APPLICATION: i32 = 0x4C6F_4B41;
/// Of the tables and of what is in them: another number is another program's journal.
const VERSION: i32 = PROTOCOL as i32 * 100 + 1;

const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS about (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
    CREATE TABLE IF NOT EXISTS commands (
        seq INTEGER PRIMARY KEY, at_ms INTEGER NOT NULL, author_key INTEGER NOT NULL, author TEXT NOT NULL,
        role TEXT NOT NULL, number INTEGER NOT NULL, seen INTEGER NOT NULL, command TEXT NOT NULL) STRICT;
    CREATE TABLE IF NOT EXISTS events (seq INTEGER PRIMARY KEY, event BLOB NOT NULL) STRICT;
    CREATE TABLE IF NOT EXISTS head (id INTEGER PRIMARY KEY CHECK (id = 1), seq INTEGER NOT NULL, head BLOB NOT NULL)
        STRICT;
    CREATE TABLE IF NOT EXISTS shares (key BLOB PRIMARY KEY, hash BLOB NOT NULL, share BLOB NOT NULL) STRICT;
";

/// One thing to be written.
pub(super) enum Entry {
    Command {
        by: By,
        json: String,
    },
    Event(Vec<u8>),
    Checkpoint(Box<Saved>),
    /// The digest of the trace, once it is known.
    Digest(String),
}

pub(super) struct File {
    pub connection: Connection,
    pub path: PathBuf,
    /// Of the last entry.
    pub seq: i64,
    /// Of the shares that are written, by key.
    hashes: HashMap<Vec<u8>, Vec<u8>>,
}

impl File {
    /// Opens or makes the file and takes it for this process alone.
    pub fn open(path: &Path) -> Result<Self, JournalError> {
        let make = || -> rusqlite::Result<(Connection, i64)> {
            let connection = Connection::open(path)?;
            // Whoever has it keeps it for as long as its window is open: waiting is of no use.
            connection.busy_timeout(Duration::from_millis(200))?;
            // Exclusive: no second process mixes its inputs in, and no shared memory file is needed.
            connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
            connection.pragma_update(None, "journal_mode", "WAL")?;
            // A killed process loses nothing committed; only the machine's own end could, and never the file.
            connection.pragma_update(None, "synchronous", "NORMAL")?;
            connection.execute_batch(&format!("BEGIN IMMEDIATE; {TABLES} COMMIT;"))?;
            let of = |table| format!("SELECT COALESCE(MAX(seq), 0) FROM {table}");
            let last = |table| connection.query_row(&of(table), [], |row| row.get::<_, i64>(0));
            let seq = last("commands")?.max(last("events")?).max(last("head")?);
            Ok((connection, seq))
        };
        let (connection, seq) = make().map_err(|error| JournalError::of(&error, path))?;
        let mut file = Self { connection, path: path.to_owned(), seq, hashes: HashMap::new() };
        file.sign().map_err(|error| JournalError::of(&error, path))?;
        Ok(file)
    }

    /// A new file says what it is.
    fn sign(&mut self) -> rusqlite::Result<()> {
        if self.pragma("application_id")? == 0 && self.seq == 0 {
            self.connection.pragma_update(None, "application_id", APPLICATION)?;
            self.connection.pragma_update(None, "user_version", VERSION)?;
        }
        Ok(())
    }

    fn pragma(&self, name: &str) -> rusqlite::Result<i32> {
        self.connection.pragma_query_value(None, name, |row| row.get(0))
    }

    /// Of this program and this version of it.
    pub fn is_ours(&self) -> bool {
        let is = |name, value| self.pragma(name).is_ok_and(|found| found == value);
        is("application_id", APPLICATION) && is("user_version", VERSION)
    }

    pub fn digest(&self) -> Option<String> {
        let sql = "SELECT value FROM about WHERE key = 'trace_digest'";
        self.connection.query_row(sql, [], |row| row.get(0)).optional().ok().flatten()
    }

    /// All or nothing.
    pub fn write(&mut self, entries: Vec<Entry>) -> Result<(), JournalError> {
        let wrote = self.connection.execute_batch("BEGIN").and_then(|()| {
            entries.into_iter().try_for_each(|entry| self.put(entry))?;
            self.connection.execute_batch("COMMIT")
        });
        wrote.map_err(|error| {
            // Best effort: the connection is given up after an error, which rolls back as well.
            drop(self.connection.execute_batch("ROLLBACK"));
            JournalError::of(&error, &self.path)
        })
    }

    fn put(&mut self, entry: Entry) -> rusqlite::Result<()> {
        match entry {
            Entry::Command { by, json } => {
                self.seq += 1;
                let sql = "INSERT INTO commands VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
                let By { author, number, seen, at } = by;
                let (key, number, seen) = (author.key.cast_signed(), number.cast_signed(), seen.cast_signed());
                let values = params![self.seq, at.0, key, author.name, author.role.as_str(), number, seen, json];
                self.connection.prepare_cached(sql)?.execute(values)?;
            }
            Entry::Event(event) => {
                self.seq += 1;
                let mut insert = self.connection.prepare_cached("INSERT INTO events VALUES (?1, ?2)")?;
                insert.execute(params![self.seq, event])?;
            }
            Entry::Digest(digest) => {
                let sql = "INSERT OR REPLACE INTO about VALUES ('trace_digest', ?1)";
                self.connection.execute(sql, [digest])?;
            }
            Entry::Checkpoint(saved) => self.checkpoint(*saved)?,
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

fn coded<T: Serialize>(value: &T) -> rusqlite::Result<Vec<u8>> {
    postcard::to_allocvec(value).map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))
}
