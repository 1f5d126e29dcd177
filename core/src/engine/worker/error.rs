//! What can go wrong with the worker, each one line, the cause first.

use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WorkerError {
    #[error("no Python interpreter: {python}")]
    NotFound { python: String },
    #[error("{cause}: starting the library worker: {python}")]
    Start { cause: String, python: String },
    /// `last_line`: what it wrote last to stderr; of a Python traceback that is the exception.
    #[error("the library worker died ({status}){}", after_colon(.last_line))]
    Died { status: String, last_line: Option<String> },
    #[error("the library worker did not answer within {} s and was killed: {request}", .after.as_secs_f64())]
    TimedOut { request: &'static str, after: Duration },
    /// `start`: the first 80 characters.
    #[error("the library worker answered rubbish and was killed: {start}")]
    Rubbish { start: String },
    #[error("the library worker speaks protocol {found}, this LoKA speaks {wanted}")]
    WrongVersion { found: u64, wanted: u64 },
    /// The library is missing, too old, does not take the shape, or failed. Data for the row.
    #[error("{reason}")]
    Refused { reason: String },
    #[error("the library worker ended {} times and is not started again; the last time: {last}", .restarts + 1)]
    GaveUp { restarts: u32, last: String },
}

impl WorkerError {
    /// Answered something that is no reply.
    pub(super) fn rubbish(answer: &[u8]) -> Self {
        // A character has 4 bytes at most; the rest of a huge line is not looked at.
        let head = &answer[..answer.len().min(4 * RUBBISH_SHOWN)];
        Self::Rubbish { start: one_line(&String::from_utf8_lossy(head), RUBBISH_SHOWN) }
    }
}

const RUBBISH_SHOWN: usize = 80;

/// `text` without control characters, cut to `limit` characters: it is shown in a table's cell.
pub(super) fn one_line(text: &str, limit: usize) -> String {
    let printable = text.trim().chars().map(|c| if c.is_control() { ' ' } else { c });
    printable.take(limit).collect()
}

fn after_colon(text: &Option<String>) -> String {
    text.as_ref().map(|text| format!(": {text}")).unwrap_or_default()
}
