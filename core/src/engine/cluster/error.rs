//! What can go wrong between LoKA and a cluster, each one line, the cause first.

use std::time::Duration;

use super::super::python::{ProcessError, after_colon, start_of};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClusterError {
    #[error("no Python interpreter: {python}")]
    NoPython { python: String },
    #[error("{cause}: starting the cluster's driver: {python}")]
    Start { cause: String, python: String },
    /// `last_line`: what it wrote last to stderr.
    #[error("the cluster's driver died ({status}){}", after_colon(.last_line))]
    Died { status: String, last_line: Option<String> },
    #[error("the cluster did not answer within {} s", .after.as_secs_f64())]
    TimedOut { after: Duration },
    /// `start`: the first 80 characters.
    #[error("the cluster's driver answered rubbish and was killed: {start}")]
    Rubbish { start: String },
    #[error("the cluster's driver speaks protocol {found}, this LoKA speaks {wanted}")]
    WrongProtocol { found: u64, wanted: u64 },
    /// The driver's own line: no Ray, no cluster, nothing there that can run LoKA, a part that `loka` refused.
    #[error("{reason}")]
    Refused { reason: String },
    /// Nobody waits for it any longer.
    #[error("cancelled")]
    Cancelled,
}

impl ClusterError {
    pub(super) fn of(error: ProcessError, after: Duration) -> Self {
        match error {
            ProcessError::NotFound { python } => Self::NoPython { python },
            ProcessError::Start { cause, python } => Self::Start { cause, python },
            ProcessError::Died { status, last_line } => Self::Died { status, last_line },
            ProcessError::TimedOut => Self::TimedOut { after },
            ProcessError::Rubbish(answer) => Self::rubbish(&answer),
        }
    }

    pub(super) fn rubbish(answer: &[u8]) -> Self {
        Self::Rubbish { start: start_of(answer) }
    }
}
