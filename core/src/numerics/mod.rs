//! What a number becomes on a tensor core: formats to the bit, scales, casts, GEMMs with the
//! accumulation of the hardware, and the error metrics with their intervals.
//!
//! Everything here is a pure function over slices. Loops run through `pulp`'s runtime dispatch, so
//! that one binary uses AVX-512 or AVX2 where the machine has them; results do not depend on the
//! number of threads.

pub mod cast;
mod error_stats;
pub mod fp8;
mod gemm;
mod gemm64;
pub mod interval;
pub mod linalg;
mod panels;
pub mod rng;
pub mod round;
pub mod special;
mod vectorized;

pub use cast::{CastPanels, Scales, TensorRange, cast_into, cast_panels, flushed, flushed_share, squared_distance};
pub use error_stats::{DrawStats, Reference, relative_histogram_quantile};
pub use gemm::{Epilogue, gemm};
pub use gemm64::{Panels64, gemm_f64};
pub use panels::{Panels, Side, amax};
pub(crate) use vectorized::vectorized;
