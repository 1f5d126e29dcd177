//! What the session asks to be done, and what comes back.

use serde::{Deserialize, Serialize};

use crate::{
    engine::{DeviceMemory, EngineStatus},
    model::{Manifest, ModSet, ResultRow, Results, ResultsMeta, SiteId},
    plan::Plan,
};

use super::{Circumstances, MeasuredLatency};

/// Work for whoever runs the session: threads and files natively, a server behind a browser.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    LoadTrace {
        path: String,
    },
    LoadResults {
        path: String,
    },
    /// List engines; it may load libraries, so it takes a second.
    FindEngines,
    /// Probe every usable site of the open trace on that engine; `run` marks the events that belong to it.
    Probe {
        run: u64,
        mods: ModSet,
        engine: String,
    },
    /// Time the kernels at every GEMM of the open trace.
    Measure {
        run: u64,
        engine: String,
    },
    /// Stop what runs; what it found stays.
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
    EnginesFound {
        engines: Vec<EngineStatus>,
    },
    /// While an engine works.
    EngineMemory {
        name: String,
        memory: DeviceMemory,
    },
    /// The engine is gone for the rest of the process.
    EngineLost {
        name: String,
        reason: String,
    },
    ProbeStarted {
        run: u64,
        mods: ModSet,
        num_sites: usize,
        /// Whose rows will come.
        by: Box<Circumstances>,
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
    /// Latencies of some GEMMs, ready for their rows, and how far the timing is.
    Measured {
        run: u64,
        latencies: Vec<MeasuredLatency>,
        done: f64,
        seconds: f64,
    },
    MeasureFinished {
        run: u64,
        /// Why it ended before its end.
        problem: Option<String>,
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
