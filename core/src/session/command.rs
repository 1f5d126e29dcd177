//! Everything a person can ask of a session.

use serde::{Deserialize, Serialize};

use crate::{
    dispatch::{Policy, PolicyError},
    model::{Gemm, KernelId, ModKind, SiteId},
};

/// A request. Applied at once; what takes time comes back as Events.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum Command {
    /// A trace file or a folder of shards.
    OpenTrace {
        path: String,
    },
    /// Rows from an earlier probe of the open trace.
    OpenResults {
        path: String,
    },
    /// Lists engines with their devices and libraries.
    FindEngines,
    /// Works with another engine from now on. Not undone: it is no part of the document.
    SelectEngine {
        name: String,
    },
    /// Times every site's GEMMs on the engine in use.
    MeasureSpeeds,
    StartProbe,
    CancelProbe,
    ToggleMod {
        kind: ModKind,
    },
    SetPolicy {
        policy: Policy,
    },
    /// Changes with the same `gesture` undo as one.
    SetMaxError {
        value: f64,
        gesture: Option<u64>,
    },
    SetMinSpeedup {
        value: f64,
        gesture: Option<u64>,
    },
    SetOverride {
        site: SiteId,
        gemm: Gemm,
        kernel: KernelId,
        reason: String,
    },
    ClearOverride {
        site: SiteId,
        gemm: Gemm,
    },
    Undo,
    Redo,
    SaveResults {
        path: String,
    },
    ExportPlan {
        path: String,
    },
    DismissNotice {
        id: u64,
    },
}

/// Why a command was not carried out. One line, shown as it is.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CommandError {
    #[error("no trace is open")]
    NoTrace,
    #[error("there is nothing to export before the first rows")]
    NoRows,
    #[error("{name} cannot be used: {reason}")]
    EngineMissing { name: String, reason: String },
    #[error("speeds cannot be measured: {0}")]
    CannotMeasure(String),
    #[error("the trace is still being read for its digest; try again in a moment")]
    DigestPending,
    #[error("unknown site '{0}'")]
    UnknownSite(SiteId),
    #[error("{kernel} cannot run {site} {gemm}: {reason}")]
    Unsupported { site: SiteId, gemm: Gemm, kernel: KernelId, reason: String },
    #[error("{kernel} was not probed at {site} {gemm}")]
    NotProbed { site: SiteId, gemm: Gemm, kernel: KernelId },
    #[error(transparent)]
    Policy(#[from] PolicyError),
    #[error("nothing to undo")]
    NothingToUndo,
    #[error("nothing to redo")]
    NothingToRedo,
    #[error("the plan cannot be made: {0}")]
    Plan(String),
}
