//! What can go wrong with the worker, each one line, the cause first.

use std::time::Duration;

use super::super::python::{ProcessError, after_colon, start_of};

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
    /// `request`: what was waited for, and how long at most.
    pub(super) fn of(error: ProcessError, (request, after): (&'static str, Duration)) -> Self {
        match error {
            ProcessError::NotFound { python } => Self::NotFound { python },
            ProcessError::Start { cause, python } => Self::Start { cause, python },
            ProcessError::Died { status, last_line } => Self::Died { status, last_line },
            ProcessError::TimedOut => Self::TimedOut { request, after },
            ProcessError::Rubbish(answer) => Self::rubbish(&answer),
        }
    }

    /// Answered something that is no reply.
    pub(super) fn rubbish(answer: &[u8]) -> Self {
        Self::Rubbish { start: start_of(answer) }
    }
}
