//! What a number becomes on a tensor core: formats to the bit, scales, casts, GEMMs with the
//! accumulation of the hardware, and the error metrics with their intervals.
//!
//! A crate of its own, below `loka_core`, which has it as `numerics`: its loops are optimised in every build, and are not
//! compiled again for a change above them.
//!
//! Everything here is a pure function over slices. Loops run through `pulp`'s runtime dispatch, so
//! that one binary uses AVX-512 or AVX2 where the machine has them; results do not depend on the
//! number of threads.

pub mod cast;
mod copula;
mod eigen;
mod error_stats;
mod estimate;
pub mod fp8;
mod gemm;
mod gemm64;
pub mod interval;
pub mod linalg;
mod losses;
mod matrix;
mod nnls;
mod panels;
mod recipe;
pub mod rng;
pub mod round;
pub mod special;
mod step;
mod vectorized;

pub use cast::{CastPanels, Scales, TensorRange, cast_into, cast_panels, flushed, flushed_share, squared_distance};
pub use copula::{CopulaMap, CopulaParts};
pub use eigen::{cut_to_rank, symmetric_eigen};
pub use error_stats::{DrawStats, Reference, relative_histogram_quantile};
pub use estimate::Estimate;
pub use gemm::{Epilogue, gemm};
pub use gemm64::{Panels64, gemm_f64};
pub use losses::{CastLosses, FIRST_EXPONENT, NUM_EXPONENTS, cast_losses, count_exponents};
pub use matrix::Matrix;
pub use nnls::nnls5;
pub use panels::{Panels, Side, amax};
pub use recipe::{Accumulation, Format, GemmNumerics, Granularity, OperandCast, StaticScale};
pub use step::Step;
