//! What is computed, read and written, against something that is not ours: numpy, ml_dtypes, PyTorch, polars, and the
//! definitions themselves.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

mod coverage;
mod distribution;
mod goldens;
mod reference;
mod tables;
mod trace;
