//! Why a command was refused: one line, shown as it is.
//!
//! A refused command changes nothing of the session, asks for no effect and has no place in the order of inputs. What
//! fails later, while an effect is carried out, comes back as an event and is told as a notice.

use crate::{
    dispatch::PolicyError,
    model::{Gemm, KernelId, SiteId},
    plan::ApprovalProblem,
    review::Role,
};

/// Why a command was not carried out. One line, shown as it is.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CommandError {
    /// Sites, rows and plans are those of a trace: without one there is nothing to ask about.
    #[error("no trace is open")]
    NoTrace,
    /// A plan is made of rows under the mods in force: there are none, whatever was probed under others.
    #[error("there are no rows yet to make a plan of")]
    NoRows,
    /// A baseline of other mods is decided from rows under them, and a comparison starts no probe.
    #[error("the model {0} was not probed: turn that on once to compare with it")]
    NoRowsWith(String),
    /// The engine is missing, lost or still looked for, so that it probes nothing. Rows that it gave before can be shown
    /// all the same.
    #[error("{name} cannot be used: {reason}")]
    EngineMissing { name: String, reason: String },
    /// In the words of [`super::Session::measure_problem`], which a window shows before anybody asks.
    #[error("speeds cannot be measured: {0}")]
    CannotMeasure(String),
    /// Files name their trace by the digest of all its bytes, which is there some time after the trace was opened.
    #[error("the trace is still being read for its digest; try again in a moment")]
    DigestPending,
    /// Not of the open trace, which may be another one than when the command was made.
    #[error("unknown site '{0}'")]
    UnknownSite(SiteId),
    /// As the probe found; the reason is that of the row.
    #[error("{kernel} cannot run {site} {gemm}: {reason}")]
    Unsupported { site: SiteId, gemm: Gemm, kernel: KernelId, reason: String },
    /// Without a row under the mods in force nothing is known of its error, so that nobody may choose it.
    #[error("{kernel} was not probed at {site} {gemm}")]
    NotProbed { site: SiteId, gemm: Gemm, kernel: KernelId },
    #[error(transparent)]
    Policy(#[from] PolicyError),
    #[error("nothing to undo")]
    NothingToUndo,
    #[error("nothing to redo")]
    NothingToRedo,
    /// Of an override for many GEMMs, which is refused only where none of them can have it. The reason is that of the
    /// first.
    #[error("{kernel} runs at none of the {num} chosen GEMMs: {reason}")]
    NowhereSupported { kernel: KernelId, num: usize, reason: String },
    /// Also where kernels are being timed: one piece of work at a time has the device.
    #[error("a probe is running: let it end, or cancel it, before drawing more")]
    StillProbing,
    #[error("nothing runs that could wait")]
    NothingRuns,
    /// An override that fits the rows no longer, for instance: other mods are in force than when it was set.
    #[error("the plan cannot be made: {0}")]
    Plan(String),
    /// Looked at before anything else of the command.
    #[error("{name} is {} here: that takes {}", .role.one(), .needs.one())]
    NotAllowed { name: String, role: Role, needs: Role },
    /// Somebody else set this override after the last step that the author had seen; whoever has seen it may replace it.
    #[error("{by} changed {site} {gemm} in the meantime: look at it, then choose again")]
    Conflict { by: String, site: SiteId, gemm: Gemm },
    #[error("a comment needs a text")]
    EmptyComment,
    /// Of the note of a request for approval, too.
    #[error("a comment has at most {most} characters, this one has {characters}")]
    LongComment { characters: usize, most: usize },
    /// Also where it is itself an answer, or is of another site: a thread is one comment and its answers, at one place.
    #[error("there is no comment {0} to answer or close")]
    UnknownComment(u64),
    #[error("nothing was submitted for approval")]
    NotRequested,
    /// What would be signed is not what is on screen. Undoing back to the submitted version lifts it.
    #[error(
        "the plan changed since version {0} was submitted for approval: undo the change, or ask for approval again"
    )]
    Changed(u32),
    /// Others rely on what was requested or signed: it must not be lost with this process.
    #[error("changes cannot be kept for now, and an approval has to be: {0}")]
    NotKept(String),
    /// Held against the submitted version alone: the list of keys is asked whenever the plan is written or shown.
    #[error("the approval does not count: {0}")]
    Approval(#[from] ApprovalProblem),
    /// A signature is taken from its own author, however genuine it is.
    #[error("the approval is {signed}'s, and {name} sent it")]
    AnothersApproval { signed: String, name: String },
}
