//! Takes a journal, also one that another process keeps at this moment, gives its trail: who asked for what, when,
//! once the chain of it holds.

use std::{
    fs,
    io::Read as _,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use rusqlite::{Connection, OptionalExtension as _};

use super::{
    Break, JournalError,
    chain::{Chain, Chained, Line, Link, verify},
    file::APPLICATION,
    state,
};
use crate::{model::Moment, session::Command};

/// With what every SQLite file begins.
const MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// How often a file that is written to meanwhile is copied.
const COPIES: u32 = 20;

/// What a journal says of itself.
pub(super) struct About {
    pub id: String,
    pub trace_stamp: String,
    /// Of the trace as it was kept last; empty: it was not known yet.
    pub trace_digest: String,
    pub chain: Chain,
    pub state: Link,
}

impl About {
    /// `Ok(None)`: nothing is noted yet.
    pub fn of(connection: &Connection) -> rusqlite::Result<Option<Self>> {
        let mut select = connection.prepare("SELECT value FROM about WHERE key = ?1")?;
        let mut value = |key: &str| select.query_row([key], |row| row.get::<_, String>(0)).optional();
        let (id, stamp) = (value("id")?, value("trace_stamp")?);
        let head = value("head")?.and_then(|head| head.parse().ok());
        let state = value("state")?.and_then(|state| state.parse().ok());
        let count = value("count")?.and_then(|count| count.parse().ok());
        let chain = head.zip(count).map(|(head, count)| Chain { head, count });
        let digest = connection.query_row("SELECT trace_digest FROM head", [], |row| row.get(0)).optional()?;
        let trace_digest: String = digest.unwrap_or_default();
        let whole = id.zip(stamp).zip(chain.zip(state));
        Ok(whole.map(|((id, trace_stamp), (chain, state))| Self { id, trace_stamp, trace_digest, chain, state }))
    }

    pub fn first(&self) -> Link {
        Link::first(&self.id, &self.trace_stamp)
    }

    /// Everything that is in the journal follows from its beginning, and is all that was.
    pub fn check(&self, connection: &Connection, lines: &[Chained]) -> rusqlite::Result<Result<(), Break>> {
        match verify(self.first(), lines, self.chain) {
            Ok(()) => state::verify(connection, self.first(), lines, self.state),
            wrong => Ok(wrong),
        }
    }

    /// It was kept for the trace of that stamp and digest: by the latter, once it was known.
    pub fn is_of(&self, stamp: &str, digest: &str) -> bool {
        let known = !self.trace_digest.is_empty() && !digest.is_empty();
        if known { self.trace_digest == digest } else { self.trace_stamp == stamp }
    }
}

/// Every entry, in order.
pub(super) fn lines(connection: &Connection) -> rusqlite::Result<Vec<Chained>> {
    let sql = "SELECT seq, at_ms, author_key, author, role, number, seen, command, state, hash
               FROM commands ORDER BY seq";
    let mut select = connection.prepare(sql)?;
    let chained = select.query_map([], |row| {
        let line = Line {
            seq: row.get(0)?,
            at_ms: row.get(1)?,
            author_key: row.get(2)?,
            author: row.get(3)?,
            role: row.get(4)?,
            number: row.get(5)?,
            seen: row.get(6)?,
            command: row.get(7)?,
            state: Link::of_bytes(row.get_ref(8)?.as_blob().unwrap_or_default()),
        };
        Ok(Chained { line, hash: Link::of_bytes(row.get_ref(9)?.as_blob().unwrap_or_default()) })
    })?;
    chained.collect()
}

/// One thing that somebody asked for and got.
#[derive(Clone, Debug, PartialEq)]
pub struct TrailEntry {
    /// Goes up; events have the numbers between.
    pub seq: u64,
    pub at: Moment,
    /// One a window; 0: the program itself.
    pub author_key: u64,
    pub author: String,
    pub role: String,
    /// Which of the author's commands, and what step they had seen.
    pub number: u64,
    pub seen: u64,
    /// JSON.
    pub command: String,
    pub hash: Link,
}

impl TrailEntry {
    fn of(Chained { line, hash }: Chained) -> Self {
        let Line { seq, at_ms, author_key, author, role, number, seen, command, state: _ } = line;
        let (seq, author_key, at) = (seq.cast_unsigned(), author_key.cast_unsigned(), Moment(at_ms));
        let (number, seen) = (number.cast_unsigned(), seen.cast_unsigned());
        Self { seq, at, author_key, author, role, number, seen, command, hash }
    }

    /// `None`: another version's.
    pub fn asked(&self) -> Option<Command> {
        serde_json::from_str(&self.command).ok()
    }
}

/// A journal's entries, whose chain holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Trail {
    /// Empty: the file was not read to its end while this was kept.
    pub trace_digest: String,
    /// Before the first entry.
    pub first: Link,
    pub entries: Vec<TrailEntry>,
}

impl Trail {
    /// The inner error: it is a journal, and its chain is broken. Reads a copy and leaves the journal alone. Not for
    /// the process that keeps it: closing a file there would give up its lock.
    pub fn read(path: &Path) -> Result<Result<Self, Break>, JournalError> {
        let mut before = None;
        for _ in 0..COPIES {
            let stamp = Stamp::of(path)?;
            match read_copy(path) {
                // It holds: that is all of it, whatever was written meanwhile.
                Ok(Ok(trail)) => return Ok(Ok(trail)),
                // Nothing was written since the last copy, which did not hold either.
                wrong if before.as_ref() == Some(&stamp) => return wrong,
                // It may be half of what is being written.
                _ => before = Some(stamp),
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let reason = "it is being written to all the time: try again in a moment".to_owned();
        Err(JournalError::Storage { reason, path: path.to_owned() })
    }

    /// Of the last entry, or before the first.
    pub fn head(&self) -> Link {
        self.entries.last().map_or(self.first, |last| last.hash)
    }

    /// The chain went through here once.
    pub fn has(&self, head: Link) -> bool {
        head == self.first || self.entries.iter().any(|entry| entry.hash == head)
    }
}

/// Of the file and of what is not in it yet: another one when either was written to.
#[derive(PartialEq, Eq)]
struct Stamp([Option<(u64, Option<SystemTime>)>; 2]);

impl Stamp {
    fn of(path: &Path) -> Result<Self, JournalError> {
        let about = |path: &Path| fs::metadata(path).map(|about| (about.len(), about.modified().ok()));
        let file = about(path).map_err(|error| storage(&error, path))?;
        Ok(Self([Some(file), about(&wal(path)).ok()]))
    }
}

/// Where SQLite keeps what was written last.
fn wal(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("-wal");
    name.into()
}

fn storage(error: &std::io::Error, path: &Path) -> JournalError {
    let reason = match error.kind() {
        std::io::ErrorKind::NotFound => "no such file or folder".to_owned(),
        std::io::ErrorKind::PermissionDenied => "no permission".to_owned(),
        _ => error.to_string(),
    };
    JournalError::Storage { reason, path: path.to_owned() }
}

/// The file is its keeper's alone: a copy can be opened, and holds all that was committed.
fn read_copy(path: &Path) -> Result<Result<Trail, Break>, JournalError> {
    let mut magic = [0; 16];
    let begins = fs::File::open(path).and_then(|mut file| file.read_exact(&mut magic));
    match begins {
        Ok(()) if magic == *MAGIC => {}
        Err(error) if error.kind() != std::io::ErrorKind::UnexpectedEof => return Err(storage(&error, path)),
        _ => return Err(JournalError::Broken(path.to_owned())),
    }
    let folder = tempfile::tempdir().map_err(|error| storage(&error, &std::env::temp_dir()))?;
    let copy = folder.path().join("copy.sqlite");
    fs::copy(path, &copy).map_err(|error| storage(&error, path))?;
    match fs::copy(wal(path), wal(&copy)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(storage(&error, &wal(path))),
        _ => {}
    }
    let trail = Connection::open(&copy).and_then(|connection| trail(&connection));
    match trail.map_err(|error| JournalError::of(&error, path))? {
        Some(trail) => Ok(trail),
        None => Err(JournalError::Unchained(path.to_owned())),
    }
}

/// `None`: it is no journal, or none that has a chain.
fn trail(connection: &Connection) -> rusqlite::Result<Option<Result<Trail, Break>>> {
    let application: i32 = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let sql = "SELECT COUNT(*) FROM pragma_table_info('commands') WHERE name IN ('hash', 'state')";
    let chained = connection.query_row(sql, [], |row| row.get::<_, i64>(0))? == 2;
    if application != APPLICATION || !chained {
        return Ok(None);
    }
    let (about, lines) = (About::of(connection)?, lines(connection)?);
    let Some(about) = about else { return Ok(Some(Err(Break::Unsigned))) };
    if let Err(wrong) = about.check(connection, &lines)? {
        return Ok(Some(Err(wrong)));
    }
    let (first, entries) = (about.first(), lines.into_iter().map(TrailEntry::of).collect());
    Ok(Some(Ok(Trail { trace_digest: about.trace_digest, first, entries })))
}
