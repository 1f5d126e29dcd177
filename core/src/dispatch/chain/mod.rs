//! Takes sites that feed one another, gives what each hands on: BF16, or codes that the next GEMM need not cast.
//!
//! A kernel with BlockNorm and hard swish in its epilogue knows a bound of what it stores, and can store codes by
//! a scale that is known beforehand. A kernel with a static scale that gets its x as codes needs no cast on the way
//! in: its forward GEMM takes `latency_us - (cached_us - gemm_us)`, or what was timed ([`SavedByCodes`]). Codes are
//! handed from a site to those that the trace says it feeds, where these are fed by it alone and have their x of its
//! shape ([`links`]).
//!
//! The weight gradient of the next site still reads x in BF16, so in training both are stored: one byte an
//! element more, modelled at the bandwidth of a copy. Results without one row of a backward GEMM are of
//! inference: where every site that the trace names as a reader reads codes, BF16 is not stored and nothing is
//! paid. (A trace names sites. Whoever runs such a plan keeps BF16 too where something else reads the output.)
//! Codes have one scale: readers whose own scale is another read BF16.
//!
//! Which kernels and which forms take the least time together is a shortest path ([`path`]) over the tree of
//! sites, jointly with the choice of each site's three kernels. Without a loss budget it is exact. With one, a
//! tree is one group of the optimiser ([`super::knapsack`]), whose options are the tree's pairs of loss cost and
//! time that no other pair beats: exact too while there are at most [`MOST_ENDS`] a site; beyond that neighbours are
//! merged, the answer is called not proven, and what the merging may have given away is in its lower bound.
//!
//! A kernel that alone is slower than the policy asks for is taken where codes make it worth it: with what the
//! cast saves, less all of the extra store, it must be as fast as is asked for. What the errors say of a kernel holds
//! for x cast from BF16; in the epilogue it is rounded once, from FP32.

mod chain_record;
mod handoff_cost;
mod links;
mod path;
mod unit;

use super::Group;

pub use chain_record::{Chain, Form};
pub(crate) use handoff_cost::{Arriving, Codes, SavedByCodes, codes, extra_us, produces, reads};
pub(crate) use links::Links;
pub(super) use unit::{ChainLink, Picked, Unit};

/// Pairs of cost and time that a site keeps under a loss budget.
const MOST_ENDS: usize = 64;

#[cfg(test)]
mod tests;
