//! Stage 4a. Takes a trace's sites, an engine and what to measure; gives rows with errors and their
//! intervals, as they become known.
//!
//! Draws go on until the interval of every kernel at that GEMM clears the thresholds, or the maximum is
//! reached. Every draw's random numbers are named by (seed, site, GEMM, draw), so the results are the
//! same on any number of threads.

mod config;
mod evidence;
mod rows;
mod run;
mod source;
mod task;
mod trace_diff;

/// Of everything that a row of results depends on beside the trace and what was asked for: samplers, casts, accumulation,
/// error sums, when draws end. Raised with every change of these that changes a number: parts of two versions are not
/// joined. A test holds it against the rows of a small trace.
pub const NUMERICS_VERSION: u32 = 2;

pub use crate::engine::Control;
pub use config::{LatencyOf, ProbeConfig, Threshold};
pub use rows::{AtRows, RowsError, at_rows, batch_of};
pub use run::{ProbeEvent, SiteSource, probe};
pub use task::SiteTask;
pub use trace_diff::{
    Shift, SiteErrors, SiteShift, Symptom, TraceDiff, WATCHED, diff_recorded, diff_traces, errors_of,
};

#[cfg(all(test, feature = "native"))]
mod mods_tests;

#[cfg(all(test, feature = "native"))]
#[allow(clippy::panic, clippy::unwrap_used, reason = "tests")]
mod never_tests;
