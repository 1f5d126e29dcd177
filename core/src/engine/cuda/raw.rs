//! LoKA's kernels on memory and streams that others own: takes addresses of device memory and a stream, gives launches
//! there. Training code calls these through the C ABI (`capi/`).
//!
//! The first call of a kernel compiles it, or reads it from the cache; after that nothing here allocates, waits for the
//! device or asks it anything, so that every call may be captured in a CUDA graph. Descriptors of the copy engine are
//! made on the host and travel with the launch. The context is the device's primary one, which PyTorch uses too, and the
//! calling thread keeps the one that it had.

mod blocks;
mod casts;
mod gemms;
mod gpu;

pub use blocks::{BackwardMemory, BlockOutputs, StaticBackwardMemory};
pub use casts::{CastMemory, StaticCastMemory, pitch};
pub use gemms::GemmMemory;
pub use gpu::{Gpu, RawStream, cache_folder};

use gpu::{aligned, wanted};
