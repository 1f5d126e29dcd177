//! Stage 1. Takes `*.trace.safetensors` files or bytes; gives the manifest, which sites are usable,
//! and on demand one site's statistics.
//!
//! ```text
//! bytes ──► header ──► manifest ──► structure, coverage ──► Trace ──► read ──► SiteStats
//!           ranges     sites        per site: usable?         │       values checked
//!                                                             └► merge (pool) ──► TraceData ──► write
//! ```
//!
//! What is wrong with the whole file refuses it; what is wrong with one site is that site's problem.

mod apart;
mod coverage;
mod digest;
mod error;
mod extremes;
#[cfg(feature = "native")]
mod files;
mod header;
mod manifest;
mod merge;
mod pool;
mod ranks;
mod read;
mod site_stats;
mod structure;
#[expect(clippy::module_inception, reason = "one type a file, named as the type")]
mod trace;
mod write;

pub use apart::{RankApart, RanksApart};
pub use coverage::{CovarianceKind, Coverage, WeightKind};
pub use digest::Digesting;
pub use error::TraceError;
#[cfg(feature = "native")]
pub use files::write;
pub use merge::merge;
pub use ranks::{OperandExtremes, RankExtremes, STANDS_OUT, StandsOut, TOP_OCTAVES};
pub use site_stats::{
    Covariance, Distribution, GradientMoments, MAGNITUDE_BINS, MAGNITUDE_ROWS, Magnitudes, Scaling, Series, SiteStats,
    WeightStats,
};
pub use trace::{SiteEntry, Trace};
pub use write::TraceData;

#[cfg(test)]
mod tests;
