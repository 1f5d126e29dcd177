//! Our own kernels: compiled when first wanted, launched with typed arguments.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use super::{
    CudaError,
    driver::{Device, Function},
    nvrtc::Nvrtc,
};

/// The kernels of `loka_kernels` on one device.
pub(super) struct Kernels {
    device: Arc<Device>,
    compiler: Nvrtc,
    loaded: Mutex<BTreeMap<&'static str, Function>>,
}

impl Kernels {
    pub fn new(device: Arc<Device>, compiler: Nvrtc) -> Self {
        Self { device, compiler, loaded: Mutex::default() }
    }

    pub fn compiler_version(&self) -> &str {
        &self.compiler.version
    }

    pub fn compiler_path(&self) -> &Path {
        &self.compiler.path
    }

    /// The kernel's entry, compiled for this device if it was not yet.
    pub fn get(&self, entry: &'static str) -> Result<Function, CudaError> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(function) = loaded.get(entry) {
            return Ok(*function);
        }
        let source = loka_kernels::find(entry).ok_or(CudaError::Refused(format!("no kernel is called {entry}")))?;
        let architecture = self.device.architecture();
        if !source.architectures.contains(&architecture.as_str()) {
            return Err(CudaError::Refused(format!("{entry} is not built for {architecture}")));
        }
        let function = self.device.load(&self.compiler.cubin(source, &architecture)?, entry)?;
        loaded.insert(entry, function);
        Ok(function)
    }
}
