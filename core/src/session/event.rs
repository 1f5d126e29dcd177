//! What happened elsewhere and is told to the session: files that were read, rows that a probe gave, engines that went.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{
    engine::{DeviceMemory, EngineStatus},
    model::{ResultRow, Results, ResultsBySite, SiteId, SiteMods, as_text},
    plan::Plan,
    review::{Approval, KeyRing},
    views::{OpenedTrace, SeriesTable, distribution::Inspection, drift::Checkpoint},
};

use super::{Circumstances, FileChange, FileKind, MeasuredLatency, NoticeKind, TraceComparison};

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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
        results: Box<ResultsBySite>,
    },
    /// The series of the open trace, or why there are none.
    SeriesRead {
        path: String,
        table: Result<Box<SeriesTable>, String>,
    },
    /// A plan to compare with.
    PlanOpened {
        path: String,
        #[serde(with = "as_text")]
        plan: Box<Plan>,
    },
    /// Results to compare the current ones with.
    ResultsCompared {
        path: String,
        results: Box<Results>,
    },
    /// What a file is, or in a line why it is none of ours.
    Identified {
        path: String,
        kind: Result<FileKind, String>,
    },
    /// The watched file.
    FileChanged {
        path: String,
        change: FileChange,
    },
    OpenFailed {
        message: String,
    },
    /// Something that a person should know, in one line.
    Notice {
        kind: NoticeKind,
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
        mods: SiteMods,
        sites: Vec<SiteId>,
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
    /// What `Effect::Inspect` or `Effect::InspectOther` found: `other` is the latter's path. The reason is
    /// one line.
    SiteInspected {
        trace: String,
        other: Option<String>,
        site: SiteId,
        outcome: Result<Box<Inspection>, String>,
    },
    /// What `Effect::Sign` gave, for whoever asked to send; or a line.
    Signed {
        approval: Result<Box<Approval>, String>,
    },
    Written {
        path: String,
        what: String,
    },
    /// Why nothing that is decided can be kept for now; `None`: it is, again.
    Keeping {
        problem: Option<String>,
    },
    WriteFailed {
        message: String,
    },
    /// Whose keys are whose, by the list of whoever runs the server; `None`: there is no list.
    KeysKnown {
        keys: Option<Arc<KeyRing>>,
    },
    /// What `Effect::CompareTrace` found, from the trace at `path` to the open one; or why not, in one line.
    TraceCompared {
        trace: String,
        path: String,
        outcome: Result<Box<TraceComparison>, String>,
    },
    /// What `Effect::ReadCheckpoints` found, in the order of steps; or why nothing, in one line.
    CheckpointsRead {
        trace: String,
        outcome: Result<Vec<Checkpoint>, String>,
    },
}

impl Event {
    /// Answers what one window asked for itself, as [`super::Command::is_per_window`].
    pub fn is_per_window(&self) -> bool {
        matches!(
            self,
            Self::SiteInspected { .. }
                | Self::TraceCompared { .. }
                | Self::CheckpointsRead { .. }
                | Self::SeriesRead { .. }
                | Self::Identified { .. }
                | Self::Signed { .. }
        )
    }

    /// Says nothing that a later process would want to know.
    pub fn is_transient(&self) -> bool {
        let passing = matches!(
            self,
            Self::Progress { .. }
                | Self::EngineMemory { .. }
                | Self::FileChanged { .. }
                | Self::Keeping { .. }
                | Self::KeysKnown { .. }
        );
        passing || self.is_per_window()
    }
}
