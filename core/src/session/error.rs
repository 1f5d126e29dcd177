//! Why a command was refused: one line, shown as it is.

use crate::{
    dispatch::PolicyError,
    model::{Gemm, KernelId, SiteId},
    plan::ApprovalProblem,
    review::Role,
};

/// Why a command was not carried out. One line, shown as it is.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CommandError {
    #[error("no trace is open")]
    NoTrace,
    #[error("there is nothing to export before the first rows")]
    NoRows,
    #[error("the model {0} was not probed: turn that on once to compare with it")]
    NoRowsWith(String),
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
    #[error("{kernel} runs at none of the {num} chosen GEMMs: {reason}")]
    NowhereSupported { kernel: KernelId, num: usize, reason: String },
    #[error("a probe is running: let it end, or cancel it, before drawing more")]
    StillProbing,
    #[error("nothing runs that could wait")]
    NothingRuns,
    #[error("the plan cannot be made: {0}")]
    Plan(String),
    #[error("{name} is {} here: that takes {}", .role.one(), .needs.one())]
    NotAllowed { name: String, role: Role, needs: Role },
    #[error("{by} changed {site} {gemm} in the meantime: look at it, then choose again")]
    Conflict { by: String, site: SiteId, gemm: Gemm },
    #[error("a comment needs a text")]
    EmptyComment,
    #[error("a comment has at most {most} characters, this one has {characters}")]
    LongComment { characters: usize, most: usize },
    #[error("there is no comment {0} to answer or close")]
    UnknownComment(u64),
    #[error("nothing was submitted for approval")]
    NotRequested,
    #[error(
        "the plan changed since version {0} was submitted for approval: undo the change, or ask for approval again"
    )]
    Changed(u32),
    #[error("changes cannot be kept for now, and an approval has to be: {0}")]
    NotKept(String),
    #[error("the approval does not count: {0}")]
    Approval(#[from] ApprovalProblem),
    #[error("the approval is {signed}'s, and {name} sent it")]
    AnothersApproval { signed: String, name: String },
}
