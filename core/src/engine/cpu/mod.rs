//! The CPU engine: every recipe emulated, formats, scales and fast accumulation to the bit, promoted accumulation by a
//! model. Always there.

mod inputs;
mod loss;
mod site;
mod weights;

use crate::model::{Gemm, GemmShape, Kernel};

use super::{Engine, EngineError, EngineInfo, KernelTiming, SiteEngine, SiteJob, TimeOptions};

/// Whether a device is one that this engine names.
pub(super) fn is_cpu(device: &str) -> bool {
    device.starts_with("CPU (") && device.ends_with("), emulated")
}

/// Emulates numerics; has no latencies of its own.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuEngine;

impl Engine for CpuEngine {
    fn describe(&self) -> EngineInfo {
        EngineInfo {
            name: "cpu",
            device: format!("CPU ({}), emulated", std::env::consts::ARCH),
            driver: String::new(),
            versions: format!("loka {}", env!("CARGO_PKG_VERSION")),
        }
    }

    fn supports(&self, kernel: &Kernel, gemm: Gemm, shape: GemmShape) -> Result<(), String> {
        kernel.refuses(gemm, shape).map_or(Ok(()), Err)
    }

    fn site(&self, job: SiteJob) -> Result<Box<dyn SiteEngine>, EngineError> {
        Ok(Box::new(site::CpuSite::new(job)?))
    }

    fn time(
        &self,
        _: &[&'static Kernel],
        _: Gemm,
        _: GemmShape,
        _: &TimeOptions,
    ) -> Result<Vec<KernelTiming>, EngineError> {
        Err(EngineError::Unavailable("the CPU engine emulates a kernel's numerics and cannot time it".to_owned()))
    }
}
