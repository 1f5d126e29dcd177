//! Takes a plan in use and what a later snapshot of its model says, gives alarms that are worth waking somebody for.
//!
//! ```text
//! rows of the chosen kernels ──► errors beyond their bounds ──┐
//! recorded amax, step by step ──► ranges that moved ──────────┴──► p of each ──► WatchState: two snapshots, false discovery
//! what training's own canary saw ──► off or not ──────────────────────────────► two checks of a GEMM in a row
//! ```
//!
//! A plan has 30,000 chosen GEMMs; at 95 % each, 1,500 of them would be off at every snapshot, and nobody would read on.
//! So an alarm wants two snapshots that agree, and Benjamini and Hochberg's bound on how many of all alarms are false.

mod canary;
mod discovery;
mod evidence;
mod state;
mod tail;

pub use canary::{CanaryCheck, canary_check};
pub use discovery::discoveries;
pub use evidence::{DriftEvidence, Test, error_evidence, range_evidence};
pub use state::{Alarm, FORMAT, Observed, SnapshotFigures, VERSION, WatchState};
