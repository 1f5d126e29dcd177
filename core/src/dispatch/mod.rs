//! Takes a policy and the rows of a results file, gives one choice a GEMM, with the reason. Pure.
//!
//! Without a loss budget every site stands alone: of the kernels that are safe and fast the fastest
//! is taken at each GEMM, else the baseline; casts that two GEMMs of a site have in common count once
//! ([`sharing`]), which may favour another kernel ([`joint`]). Sites that may hand their output on as codes are
//! chosen together with those that read it ([`chain`]). With a budget the sites are chosen together
//! ([`knapsack`]: least time with the summed loss cost of the forward GEMMs within it); the backward GEMMs
//! have no loss cost and keep the policy's bounds on error and bias.
//!
//! What a GEMM takes depends on where it runs ([`target`]): a plan is for a runtime, and no kernel is chosen that
//! `loka.apply` cannot run there. Where whole sites of that shape were timed in that runtime, a site's three kernels
//! are chosen by what the three take together, as it was measured; nothing is modelled there.
//!
//! Kernels of different libraries were timed against different BF16s. A speed-up is always against
//! BF16 *of the kernel's own source*; totals are in the time of the policy's baseline, and a chosen
//! kernel's time is that reference divided by its own speed-up.

mod candidates;
pub(crate) mod chain;
mod choice;
mod compiling;
mod curves;
mod document;
mod frontier;
mod joint;
mod judge;
mod judged;
mod judged_rows;
pub mod knapsack;
mod overrides;
mod pace;
pub(crate) mod parallel;
mod place;
mod policy;
mod policy_group;
mod reason;
mod select;
mod sharing;
mod site_table;
mod speed_check;
mod target;
mod wanted;

pub use candidates::{Candidates, Group, GroupRows};
pub(crate) use chain::Arriving;
pub use chain::{Chain, Form};
pub use choice::{Choice, ChoiceSource, PassedOver, Pick, Together, Totals, Warning, WarningKind};
pub use curves::{Curve, CurvePoint, FrontierAxis, policies_beside};
pub use document::Document;
pub use frontier::{FrontierPoint, MAX_FRONTIER_POINTS, frontier, frontier_in, limits_of, sweep};
pub use judge::{Bound, bound_of, decided_by, judge, quadrant_of};
pub(crate) use judged::Terms;
pub(crate) use judged_rows::{FastestLow, JudgedBefore, JudgedRow, JudgedRows};
pub use overrides::{Override, OverrideError, Overrides};
pub use policy::{Policy, PolicyError};
pub use policy_group::{PolicyGroup, SitePattern};
pub(crate) use reason::{against, against_out_of_range, out_of_range};
pub(crate) use select::{Before, select, told_alone, told_together};
pub use select::{Dispatch, Optimum, Selection, dispatch};
pub(crate) use sharing::tail_us;
pub use sharing::{Operand, SharedCast, gemm_speedup, own_us, shared_casts};
pub(crate) use speed_check::{SpeedCheck, paces};
pub use target::Target;
pub(crate) use target::{Barred, how};
pub use wanted::{WantedOverride, overrides_of};

#[cfg(test)]
pub(crate) mod testing;
