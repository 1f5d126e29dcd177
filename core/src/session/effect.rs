//! What the session asks to be done by whoever runs it: read, probe, time, sign, write.

use std::sync::Arc;

use crate::{
    export::Target,
    model::{Results, SiteId, SiteMods},
    plan::Plan,
    review::{KeyRing, Statement},
    views::drift::Followed,
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
    /// A plan to compare with.
    LoadPlan {
        path: String,
    },
    /// Results to compare the current ones with.
    CompareResults {
        path: String,
    },
    /// Read every site's recorded series of the open trace.
    ReadSeries {
        path: String,
    },
    /// Say what a file is by its content.
    Identify {
        path: String,
    },
    /// Tell when this file changes on disk, and nothing more of the one before it.
    Watch {
        path: Option<String>,
    },
    /// List engines; it may load libraries, so it takes a second.
    FindEngines,
    /// Probe these sites of the open trace on that engine; `run` marks the events that belong to it.
    Probe {
        run: u64,
        mods: SiteMods,
        sites: Vec<SiteId>,
        engine: String,
        /// Draws to take of every kernel; `None`: until the built-in policies' verdicts stand.
        draws: Option<u64>,
    },
    /// Let what runs wait, or go on.
    Pause {
        paused: bool,
    },
    /// Time the kernels at every GEMM of the open trace.
    Measure {
        run: u64,
        engine: String,
    },
    /// Stop what runs; what it found stays.
    Cancel,
    /// Read one site of the open trace, whose path is `trace`.
    Inspect {
        trace: String,
        site: SiteId,
    },
    /// Read it in the trace at `path`, for comparison with the open one.
    InspectOther {
        trace: String,
        path: String,
        site: SiteId,
    },
    /// Hold every site of the open trace against those of the trace at `path`.
    CompareTrace {
        trace: String,
        path: String,
    },
    /// Say what became of the followed GEMMs at each checkpoint beside the open trace, whose path is `trace`.
    ReadCheckpoints {
        trace: String,
        followed: Arc<Followed>,
    },
    WriteResults {
        path: String,
        results: Box<Results>,
    },
    /// Sign that with the key at `path`, which is on the person's own machine.
    Sign {
        path: String,
        statement: Statement,
    },
    /// A plan without `created_at` is complete but for that and its digest, which the writer stamps; one that was put
    /// up for approval has both.
    WritePlan {
        path: String,
        plan: Box<Plan>,
    },
    /// The same plan in the form that a framework reads: one file or more, whose names begin with `path`.
    WriteExport {
        path: String,
        plan: Box<Plan>,
        target: Target,
    },
    /// A report of the plan. `results`: the rows that are shown, left out of the report where the plan is not of them;
    /// `keys`: the list that signatures are held against.
    WriteReport {
        path: String,
        plan: Box<Plan>,
        results: Box<Results>,
        keys: Option<Arc<KeyRing>>,
    },
}
