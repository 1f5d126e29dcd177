//! What outlives the process. Takes a session's inputs in their order and now and then the whole session; gives
//! the session back to the process that opens the same trace next, also after one that was killed.
//!
//! ```text
//! NAME.journal.sqlite (SQLite, WAL), beside the trace
//!   about        what journal it is, of what trace, how far the chain of its commands and of the state go
//!   commands     who asked for what, when: JSON and a hash that follows from the one before, kept for good
//!   events       what came of it since the last checkpoint
//!   head, shares the session at the last checkpoint: its rows site by site, so that only what changed is written
//! ```
//!
//! Everything written before a commit is there after it, whatever happens to the process or the machine. One process has a
//! journal at a time. Nothing in `commands` is changed or taken out: what somebody did to it all the same is noticed
//! when it is read ([`Break`]). So is a change of the session that was kept: checkpoints and events have a chain of
//! their own, the *state*, and every command's hash covers how far that was.
//!
//! A journal begins with its trace, before the digest of a large file is known: until then it knows the trace by its
//! [stamp](crate::trace::Trace::stamp). When the disk is full, what could not be written waits and is tried again.

mod chain;
mod file;
mod restore;
mod state;
mod trail;
mod writer;

pub use chain::{Break, Link};
pub use restore::Restored;
pub use trail::{Trail, TrailEntry};
pub use writer::{Journal, Wake};

use std::path::{Path, PathBuf};

/// Why a journal is not kept, or what was there cannot be taken up.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    #[error("another LoKA has this trace open and keeps its journal: {}", .0.display())]
    InUse(PathBuf),
    #[error("it is no journal, or a broken one: {}", .0.display())]
    Broken(PathBuf),
    #[error("it is no journal, or one of an earlier LoKA, whose entries were not chained so: {}", .0.display())]
    Unchained(PathBuf),
    #[error("{reason}: {}", .path.display())]
    Storage { reason: String, path: PathBuf },
}

impl JournalError {
    fn of(error: &rusqlite::Error, path: &Path) -> Self {
        let code = error.sqlite_error_code();
        if matches!(code, Some(rusqlite::ErrorCode::DatabaseBusy | rusqlite::ErrorCode::DatabaseLocked)) {
            return Self::InUse(path.to_owned());
        }
        if matches!(code, Some(rusqlite::ErrorCode::NotADatabase | rusqlite::ErrorCode::DatabaseCorrupt)) {
            return Self::Broken(path.to_owned());
        }
        let reason = match code {
            Some(rusqlite::ErrorCode::DiskFull) => "the disk is full".to_owned(),
            Some(rusqlite::ErrorCode::ReadOnly) => "it cannot be written".to_owned(),
            Some(rusqlite::ErrorCode::CannotOpen) => "it cannot be opened or made".to_owned(),
            _ => error.to_string().lines().next().unwrap_or_default().to_owned(),
        };
        Self::Storage { reason, path: path.to_owned() }
    }
}

/// Where the journal of the trace at `trace` lies: beside a file, in a folder of shards.
pub fn beside(trace: &Path) -> PathBuf {
    let name = trace.file_name().unwrap_or_default().to_string_lossy();
    if trace.is_dir() {
        return trace.join("trace.journal.sqlite");
    }
    let stem = name.strip_suffix(".trace.safetensors").unwrap_or(&name);
    trace.with_file_name(format!("{stem}.journal.sqlite"))
}

#[cfg(test)]
mod tests;
