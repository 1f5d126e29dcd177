//! A Python process that LoKA starts for itself: the package that this binary carries, put where an interpreter finds it,
//! and lines to and from what runs of it. `worker` asks one for libraries, `cluster` for a Ray cluster.

mod package;
mod process;

use std::path::{Path, PathBuf};

pub(super) use package::Package;
pub(super) use process::Process;

/// Why there is no line. Whoever asked for it says whose process it was.
#[derive(Debug)]
pub(super) enum ProcessError {
    NotFound {
        python: String,
    },
    Start {
        cause: String,
        python: String,
    },
    /// `last_line`: what it wrote last to stderr; of a Python traceback that is the exception.
    Died {
        status: String,
        last_line: Option<String>,
    },
    TimedOut,
    /// More than a line may be, or one that nobody asked for.
    Rubbish(Vec<u8>),
}

/// `text` without control characters, cut to `limit` characters: it is shown in a table's cell.
pub(super) fn one_line(text: &str, limit: usize) -> String {
    let printable = text.trim().chars().map(|c| if c.is_control() { ' ' } else { c });
    printable.take(limit).collect()
}

const RUBBISH_SHOWN: usize = 80;

/// The beginning of what is no reply.
pub(super) fn start_of(answer: &[u8]) -> String {
    // A character has 4 bytes at most; the rest of a huge line is not looked at.
    let head = &answer[..answer.len().min(4 * RUBBISH_SHOWN)];
    one_line(&String::from_utf8_lossy(head), RUBBISH_SHOWN)
}

/// `: text`, where there is one.
pub(super) fn after_colon(text: &Option<String>) -> String {
    text.as_ref().map(|text| format!(": {text}")).unwrap_or_default()
}

/// The process runs in another folder, where a relative path would mean something else; a bare name is
/// looked up on the search path.
fn program(python: &Path) -> PathBuf {
    if python.components().count() > 1 {
        return std::path::absolute(python).unwrap_or_else(|_| python.to_path_buf());
    }
    python.to_path_buf()
}
