//! Takes a policy and the rows of a results file, gives one choice a GEMM, with the reason. Pure.
//!
//! Without a loss budget every GEMM stands alone: of the kernels that are safe and fast the fastest
//! is taken, else the baseline. With one, the forward GEMMs are chosen together ([`knapsack`]:
//! least time with the summed loss cost within the budget); the backward ones have no loss cost and
//! keep the policy's error bound.
//!
//! Kernels of different libraries were timed against different BF16s. A speed-up is always against
//! BF16 *of the kernel's own source*; totals are in the time of the policy's baseline, and a chosen
//! kernel's time is that reference divided by its own speed-up.

mod candidates;
mod choice;
mod frontier;
mod judge;
pub mod knapsack;
mod overrides;
mod policy;
mod reason;
mod select;

pub use candidates::{Candidates, Group, SiteMods};
pub use choice::{Choice, ChoiceSource, PassedOver, Totals};
pub use frontier::{FrontierPoint, MAX_FRONTIER_POINTS, frontier};
pub use judge::{Bound, bound_of, judge};
pub use overrides::{Override, OverrideError, Overrides};
pub use policy::{Policy, PolicyError};
pub(crate) use reason::against;
pub use reason::short;
pub use select::{Dispatch, Optimum, dispatch};

#[cfg(test)]
pub(crate) mod testing;
