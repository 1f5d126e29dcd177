//! The part of the CUDA engine that launches kernels on memory and streams of others ([`raw`]): takes the driver and
//! NVRTC, gives launches. This is the folder's root in a build without the engine (feature `raw` alone), which then
//! knows neither files of ours nor cuBLASLt.

mod arguments;
mod driver;
mod error;
mod libraries;
mod nvrtc;
mod ops;
pub mod raw;
mod stream;

pub use error::CudaError;
pub use libraries::SearchPath;
