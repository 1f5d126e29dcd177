//! Takes a probe or a bench that is too long for one machine, gives parts of it that any scheduler can run; takes the
//! parts, gives what one machine would have found.
//!
//! ```text
//! sites ──► split ──► ranges of about the same cost, the same on every worker
//! run + range ──► PartKey ──► a file's name ──► ProbePart { key, results, seal } ──► merge ──► Results
//! shapes ──► the same of a bench ──► BenchPart { key, records, seal } ──► merge_bench ──► records of one device
//!            and of whole sites  ──► SitesPart { key, times, seal } ──► merge_sites ──► SiteTimes
//! ```
//!
//! Schedulers run a task at least once. That a part counts once is by its name, which hashes everything that its rows
//! depend on: whoever comes second finds it there.

mod bench;
mod fault;
mod key;
mod merge;
mod part;
mod sites;
mod split;
mod whole;

pub use bench::{BenchKey, BenchPart, bench_cost, merge_bench, shapes_digest};
pub use fault::PartFault;
pub use key::{PartKey, PartOf, RunKey, SplitRun};
pub use merge::merge;
pub use part::{ProbePart, Sealed};
pub use sites::{SitesKey, SitesPart, SitesPartError, merge_sites};
pub use split::{cost, split, split_sites};
pub use whole::MergeError;
