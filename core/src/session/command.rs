//! Everything a person can ask of a session.

use serde::{Deserialize, Deserializer, Serialize};

use crate::{
    dispatch::Policy,
    export::Target,
    model::{Gemm, KernelId, ModKind, ModSet, Runtime, SiteId, bounded_list},
    review::{Approval, ReviewState, Role},
    views::drift::Followed,
};

/// A request. Applied at once; what takes time comes back as Events.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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
    /// Rows from an earlier probe are kept: only sites without them are probed, or all when none lacks them.
    StartProbe,
    CancelProbe,
    /// Probes one site again with that many draws of every kernel: what stood at the threshold may move off it.
    ProbeMore {
        site: SiteId,
        max_draws: u64,
    },
    /// Lets the probe wait with what it has, or go on.
    PauseProbe {
        paused: bool,
    },
    /// On everywhere, or off everywhere when it is on at all sites.
    ToggleMod {
        kind: ModKind,
    },
    /// At some sites.
    SetMod {
        kind: ModKind,
        on: bool,
        #[serde(deserialize_with = "bounded")]
        sites: Vec<SiteId>,
    },
    SetPolicy {
        policy: Policy,
    },
    /// Where the plan is meant to run.
    SetRuntime {
        runtime: Runtime,
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
    /// One kernel and one reason for many GEMMs, undone as one. GEMMs where it cannot run are left and told.
    SetOverrides {
        #[serde(deserialize_with = "bounded")]
        at: Vec<(SiteId, Gemm)>,
        kernel: KernelId,
        reason: String,
    },
    ClearOverrides {
        #[serde(deserialize_with = "bounded")]
        at: Vec<(SiteId, Gemm)>,
    },
    /// What the author holds of a site, or of the plan; `of`: the fingerprint of what they saw there. Not undone.
    Mark {
        site: Option<SiteId>,
        state: ReviewState,
        of: String,
    },
    /// Not undone. `reply_to`: the comment that begins the thread.
    Comment {
        site: Option<SiteId>,
        gemm: Option<Gemm>,
        reply_to: Option<u64>,
        text: String,
    },
    /// Closes a thread, or opens it again.
    Resolve {
        comment: u64,
        resolved: bool,
    },
    /// The author has seen a site's choice with that fingerprint.
    Look {
        site: SiteId,
        of: String,
    },
    /// Puts the plan as it stands up for approval, as its next version. It changes no more.
    RequestApproval {
        note: String,
    },
    /// Takes it back, with what was signed.
    WithdrawRequest,
    /// Has the submitted version signed with the key in a file of this window's machine.
    Sign {
        path: String,
        note: String,
    },
    /// Signed by its author elsewhere: a session has no secret key.
    Approve {
        approval: Box<Approval>,
    },
    /// Reads every site's recorded series, for the heatmap of steps.
    ReadSeries,
    /// A plan to compare the current one with, or results, by the name's ending.
    OpenPlan {
        path: String,
    },
    ClosePlan,
    /// What a file is whose name does not say.
    Identify {
        path: String,
    },
    Undo,
    Redo,
    SaveResults {
        path: String,
    },
    ExportPlan {
        path: String,
    },
    /// Reads the distributions and series of a site; answered at once where they are there.
    InspectSite {
        site: SiteId,
    },
    /// The same site in another trace, to compare with: another snapshot of the run.
    InspectOther {
        path: String,
        site: SiteId,
    },
    DismissNotice {
        id: u64,
    },
    /// All of them.
    DismissNotices,
    ClearLog,
    /// The plan in the form that a framework reads. What it loses was accepted by whoever asks.
    ExportTo {
        path: String,
        target: Target,
    },
    /// The plan and what is known of it as one HTML file for people.
    ExportReport {
        path: String,
    },
    /// Compares with what this session knows itself: no file is read.
    SetBaseline {
        of: BaselineOf,
    },
    /// All sites of another trace beside those of the open one: of a good run and a bad one, or another step.
    CompareTrace {
        path: String,
    },
    /// Probes some sites again with that many draws of every kernel, as [`Self::ProbeMore`] does one.
    ProbeSites {
        #[serde(deserialize_with = "bounded")]
        sites: Vec<SiteId>,
        max_draws: u64,
    },
    /// What became of the followed GEMMs at each checkpoint of the open trace's run, by the results beside it.
    ReadCheckpoints {
        followed: Box<Followed>,
    },
}

/// A baseline that is no file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BaselineOf {
    /// The plan as it stands: what is decided from now on is seen against it.
    Now,
    /// The version that was submitted for approval.
    Submitted,
    /// What the policy and the overrides of now give with these mods at every site.
    Mods { mods: ModSet },
}

/// Places that one command names: every GEMM of 100,000 sites.
const NAMED: usize = 300_000;

fn bounded<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    bounded_list(deserializer, NAMED)
}

impl Command {
    /// Done by each window for itself: it changes nothing that others see, and nothing that is remembered.
    pub fn is_per_window(&self) -> bool {
        match self {
            Self::ReadSeries
            | Self::Identify { .. }
            | Self::Sign { .. }
            | Self::SaveResults { .. }
            | Self::ExportPlan { .. }
            | Self::InspectSite { .. }
            | Self::InspectOther { .. }
            | Self::CompareTrace { .. }
            | Self::ReadCheckpoints { .. }
            | Self::DismissNotice { .. }
            | Self::DismissNotices
            | Self::ClearLog
            | Self::ExportTo { .. }
            | Self::ExportReport { .. } => true,
            Self::OpenTrace { .. }
            | Self::OpenResults { .. }
            | Self::FindEngines
            | Self::SelectEngine { .. }
            | Self::MeasureSpeeds
            | Self::StartProbe
            | Self::CancelProbe
            | Self::ProbeMore { .. }
            | Self::ProbeSites { .. }
            | Self::PauseProbe { .. }
            | Self::ToggleMod { .. }
            | Self::SetMod { .. }
            | Self::SetPolicy { .. }
            | Self::SetRuntime { .. }
            | Self::SetMaxError { .. }
            | Self::SetMinSpeedup { .. }
            | Self::SetOverride { .. }
            | Self::ClearOverride { .. }
            | Self::SetOverrides { .. }
            | Self::ClearOverrides { .. }
            | Self::Mark { .. }
            | Self::Comment { .. }
            | Self::Resolve { .. }
            | Self::Look { .. }
            | Self::RequestApproval { .. }
            | Self::WithdrawRequest
            | Self::Approve { .. }
            | Self::OpenPlan { .. }
            | Self::ClosePlan
            | Self::SetBaseline { .. }
            | Self::Undo
            | Self::Redo => false,
        }
    }

    /// The least role that may ask for it.
    pub fn needs(&self) -> Role {
        match self {
            Self::Mark { .. } | Self::Comment { .. } | Self::Resolve { .. } => Role::Reviewer,
            Self::Approve { .. } | Self::Sign { .. } => Role::Approver,
            // What a reader keeps for themselves.
            Self::Look { .. } => Role::Viewer,
            _ if self.is_per_window() => Role::Viewer,
            _ => Role::Owner,
        }
    }

    /// The same of the command at that place in the list above, before it is made: what may not be asked for costs
    /// nothing. Of a place that is not there the most.
    pub fn needed_at(place: u32) -> Role {
        match place {
            19..=21 => Role::Reviewer,
            25 | 26 => Role::Approver,
            22 | 27 | 30 | 33..=41 | 43 | 45 => Role::Viewer,
            _ => Role::Owner,
        }
    }

    /// Whoever asks for it has a part in what the plan decides.
    pub fn decides(&self) -> bool {
        matches!(
            self,
            Self::ToggleMod { .. }
                | Self::SetMod { .. }
                | Self::SetPolicy { .. }
                | Self::SetRuntime { .. }
                | Self::SetMaxError { .. }
                | Self::SetMinSpeedup { .. }
                | Self::SetOverride { .. }
                | Self::ClearOverride { .. }
                | Self::SetOverrides { .. }
                | Self::ClearOverrides { .. }
                | Self::Undo
                | Self::Redo
        )
    }

    /// Others rely on it: it has to be kept for good before it is told.
    pub fn binds(&self) -> bool {
        matches!(self, Self::RequestApproval { .. } | Self::Sign { .. } | Self::Approve { .. })
    }

    /// The GEMMs whose override it sets or clears.
    pub fn overridden(&self) -> Vec<(&SiteId, Gemm)> {
        match self {
            Self::SetOverride { site, gemm, .. } | Self::ClearOverride { site, gemm } => vec![(site, *gemm)],
            Self::SetOverrides { at, .. } | Self::ClearOverrides { at } => {
                at.iter().map(|(site, gemm)| (site, *gemm)).collect()
            }
            _ => Vec::new(),
        }
    }
}
