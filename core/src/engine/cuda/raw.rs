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

use std::{path::PathBuf, sync::Arc};

use cudarc::driver::sys::CUstream;
use loka_kernels::LaunchGrid;

use super::{CudaError, SearchPath, arguments::Arguments, driver::Device, nvrtc::Nvrtc, ops::Kernels, stream};

pub use blocks::{BackwardMemory, BlockOutputs};
pub use casts::CastMemory;
pub use gemms::GemmMemory;

/// A GPU with LoKA's kernels.
pub struct Gpu {
    device: Arc<Device>,
    kernels: Kernels,
}

/// A stream by the driver's handle; 0 is the default one.
#[derive(Clone, Copy, Debug)]
pub struct RawStream(pub u64);

/// Where this machine's user keeps caches: `$XDG_CACHE_HOME/loka`, `~/.cache/loka`.
pub fn cache_folder() -> Option<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_CACHE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".cache")))
        .map(|cache| cache.join("loka"))
}

impl Gpu {
    /// `ordinal`: its number in the driver's list. `cache`: the folder for compiled kernels; `None`: nothing is kept.
    pub fn open(search: &SearchPath, cache: Option<PathBuf>, ordinal: u32) -> Result<Self, CudaError> {
        let device = Device::open_at(search, ordinal)?;
        let compiler = Nvrtc::open(search, cache.map(|cache| cache.join("cubins")))?;
        Ok(Self { kernels: Kernels::new(device.clone(), compiler), device })
    }

    fn launch(
        &self,
        RawStream(stream): RawStream,
        entry: &'static str,
        grid: LaunchGrid,
        arguments: &Arguments,
    ) -> Result<(), CudaError> {
        self.device.within(|| {
            let function = self.kernels.get(entry)?;
            stream::launch(&self.device, stream as CUstream, function, grid, arguments)
        })
    }
}

/// Refused where the memory named `what` is missing or does not start at a multiple of `bytes`.
fn aligned(what: &str, address: u64, bytes: u64) -> Result<(), CudaError> {
    if address == 0 {
        return Err(CudaError::Refused(format!("{what} is null")));
    }
    if !address.is_multiple_of(bytes) {
        return Err(CudaError::Refused(format!("{what} must be aligned to {bytes} bytes, it is at {address:#x}")));
    }
    Ok(())
}
