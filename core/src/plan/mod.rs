//! Takes choices, gives the plan: a file with a digest, a gate against its results, and what changed
//! between two. Pure; the caller reads and writes the file.

mod build;
mod canonical;
mod check;
mod diff;
mod document;
mod results_digest;

pub use build::{Built, build};
pub use canonical::canonical_json;
pub use check::{Finding, Severity, check};
pub use diff::{Cause, Changes, ChoiceChange, Decided, NEAR_TIE, PlanDiff, changes, diff};
pub use document::{FORMAT, Plan, PlanError, PlanSite, VERSION};
pub use results_digest::results_digest;
