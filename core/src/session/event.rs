//! What the session asks to be done, and what comes back.

use serde::{Deserialize, Serialize};

use crate::{
    model::{Manifest, ModSet, ResultRow, Results, ResultsMeta, SiteId},
    plan::Plan,
};

/// Work for whoever runs the session: threads and files natively, a server behind a browser.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    LoadTrace {
        path: String,
    },
    LoadResults {
        path: String,
    },
    /// Probe every usable site of the open trace; `run` marks the events that belong to it.
    Probe {
        run: u64,
        mods: ModSet,
    },
    Cancel,
    WriteResults {
        path: String,
        results: Box<Results>,
    },
    /// The plan is complete but for `created_at` and its digest, which the writer stamps.
    WritePlan {
        path: String,
        plan: Box<Plan>,
    },
}

/// An opened trace, without its tensors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OpenedTrace {
    pub path: String,
    pub name: String,
    pub meta: ResultsMeta,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    TraceOpened {
        trace: Box<OpenedTrace>,
    },
    /// The digest of the open trace's bytes, once they were all read.
    TraceDigest {
        path: String,
        digest: String,
    },
    ResultsOpened {
        path: String,
        results: Box<Results>,
    },
    OpenFailed {
        message: String,
    },
    ProbeStarted {
        run: u64,
        mods: ModSet,
        num_sites: usize,
    },
    Rows {
        run: u64,
        rows: Vec<ResultRow>,
    },
    Problem {
        run: u64,
        site: SiteId,
        reason: String,
    },
    Progress {
        run: u64,
        done: f64,
        seconds: f64,
    },
    ProbeFinished {
        run: u64,
        cancelled: bool,
        seconds: f64,
    },
    Written {
        path: String,
        what: String,
    },
    WriteFailed {
        message: String,
    },
}

impl OpenedTrace {
    pub fn manifest(&self) -> &Manifest {
        &self.meta.manifest
    }
}
