//! Takes choices, gives the plan: a file with a digest, a gate against its results, and what changed
//! between two. Pure; the caller reads and writes the file.

mod approval;
mod build;
mod carried;
mod chained;
mod check;
mod diff;
mod document;
mod fingerprint;
mod gate;
mod results_diff;
mod results_digest;
mod retime;
mod rule;

pub use approval::{ApprovalProblem, ApprovalStatus, Counted, SKEW_SECONDS, standing, why_not};
pub(crate) use build::of_decided;
pub use build::{Built, build, build_for};
pub use carried::{CarriedNoise, most_noise};
pub use check::{Finding, Severity, check};
pub use diff::{Cause, Changes, ChoiceChange, Decided, Got, NEAR_TIE, PlanDiff, changes, diff};
pub use document::{BESIDE, FORMAT, Plan, PlanError, PlanSite, VERSION, review_digest};
pub use fingerprint::{FINGERPRINT_CHARACTERS, changed_since, fingerprint};
pub use gate::{AskedApprovals, Gate, gate};
pub use results_diff::{Flip, Moved, Presence, ResultsDiff, RowChange, Timed, diff_results, flips};
pub use results_digest::results_digest;
pub use retime::{Retimed, retime};
pub use rule::Rule;
