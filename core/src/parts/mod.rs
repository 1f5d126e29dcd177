//! Takes a probe that is too long for one machine, gives parts of it that any scheduler can run; takes the parts, gives
//! what one machine would have found.
//!
//! ```text
//! sites ──► split ──► ranges of about the same cost, the same on every worker
//! run + range ──► PartKey ──► a file's name ──► ProbePart { key, results, seal } ──► merge ──► Results
//! ```
//!
//! Schedulers run a task at least once. That a part counts once is by its name, which hashes everything that its rows
//! depend on: whoever comes second finds it there.

mod key;
mod merge;
mod part;
mod split;

pub use key::{PartKey, PartOf, RunKey};
pub use merge::{MergeError, merge};
pub use part::{PartFault, ProbePart, Sealed};
pub use split::{cost, split};
