//! The device with LoKA's kernels on it: takes a launch and the stream of somebody else, launches there.

use std::{path::PathBuf, sync::Arc};

use cudarc::driver::sys::CUstream;
use loka_kernels::LaunchGrid;

use super::super::{CudaError, SearchPath, arguments::Arguments, driver::Device, nvrtc::Nvrtc, ops::Kernels, stream};

/// A GPU with LoKA's kernels.
pub struct Gpu {
    pub(super) device: Arc<Device>,
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

    pub(super) fn launch(
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
pub(super) fn aligned(what: &str, address: u64, bytes: u64) -> Result<(), CudaError> {
    if address == 0 {
        return Err(CudaError::Refused(format!("{what} is null")));
    }
    if !address.is_multiple_of(bytes) {
        return Err(CudaError::Refused(format!("{what} must be aligned to {bytes} bytes, it is at {address:#x}")));
    }
    Ok(())
}

/// Likewise, of what may be missing.
pub(super) fn wanted(what: &str, address: u64, bytes: u64) -> Result<(), CudaError> {
    if address == 0 { Ok(()) } else { aligned(what, address, bytes) }
}
