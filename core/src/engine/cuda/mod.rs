//! The CUDA engine. Takes sites and kernels as every engine does; samples on the GPU, runs every recipe on
//! the tensor cores by cuBLASLt with LoKA's own casts, and reduces the errors there in FP64.
//!
//! Layers, downward only: [`libraries`] finds NVIDIA's libraries; [`driver`], [`nvrtc`] and [`lt`] wrap them;
//! [`lane`] launches our kernels, [`gemm`], [`static_gemm`] and [`block`] our GEMMs; [`runner`] is a product by whoever runs it; [`site`] draws and measures; [`time`] times; [`external`] runs the user's
//! libraries; [`selftest`] holds all of it against the CPU.

mod arguments;
mod block;
mod budget;
mod cast;
mod driver;
mod error;
mod external;
mod gemm;
mod libraries;
mod loss;
mod lt;
mod measure;
mod norms;
mod nvrtc;
mod operands;
mod ops;
mod product;
pub mod raw;
mod remembered;
mod runner;
mod selftest;
mod separate;
mod site;
mod sources;
mod static_gemm;
mod stream;
mod stream_context;
mod tail;
#[cfg(all(test, unix))]
mod tests;
mod time;
mod weights;

use std::{
    path::PathBuf,
    sync::{Arc, OnceLock},
};

use crate::{
    engine::{
        Backend, DeviceMemory, Engine, EngineError, EngineInfo, EngineStatus, KernelTiming, LibraryStatus, SiteEngine,
        SiteJob, TimeOptions, Timing,
        worker::{WorkerConfig, WorkerKernel},
    },
    model::{Gemm, GemmShape, Kernel},
};

use driver::Device;
use external::External;
use lt::Lt;
use nvrtc::Nvrtc;

pub use error::CudaError;
pub use libraries::SearchPath;
pub use selftest::{Check, Wanted, selftest};

/// Sites whose preparation on the host and work on the device overlap.
const PARALLEL_SITES: usize = 6;

/// One GPU with the libraries that work needs.
pub struct CudaEngine {
    device: Arc<Device>,
    lt: Arc<Lt>,
    kernels: Arc<ops::Kernels>,
    memory: Arc<budget::Budget>,
    supported: site::Supported,
    algorithms: remembered::Remembered,
    /// The user's libraries, once they were asked for.
    external: OnceLock<Arc<External>>,
}

impl CudaEngine {
    /// Looks for the driver, cuBLASLt and NVRTC and opens the first GPU. `cache`: the folder for compiled
    /// kernels and chosen algorithms; `None`: nothing is kept.
    pub fn open(search: &SearchPath, cache: Option<PathBuf>) -> Result<Self, CudaError> {
        let device = Device::open(search)?;
        device.bind()?;
        let lt = Lt::open(search)?;
        let compiler = Nvrtc::open(search, cache.as_ref().map(|cache| cache.join("cubins")))?;
        let (free, _) = device.memory()?;
        Ok(Self {
            kernels: Arc::new(ops::Kernels::new(device.clone(), compiler)),
            memory: Arc::new(budget::Budget::new(free)),
            supported: site::Supported::default(),
            algorithms: remembered::Remembered::open(cache, &device, &lt),
            external: OnceLock::new(),
            device,
            lt,
        })
    }

    /// Starts the worker with the user's libraries; from then on their kernels' errors and latencies are their
    /// own. Started once: a second call changes nothing.
    pub fn load_libraries(&self, config: WorkerConfig) -> Result<(), EngineError> {
        if self.external.get().is_none() {
            let external =
                External::start(&self.device, config).map_err(|error| EngineError::Failed(error.to_string()))?;
            let _ = self.external.set(Arc::new(external));
        }
        Ok(())
    }

    fn time_library(
        &self,
        kernel: &Kernel,
        gemm: Gemm,
        shape: GemmShape,
        options: &TimeOptions,
    ) -> Result<Timing, String> {
        if let Some(reason) = kernel.refuses(gemm, shape) {
            return Err(reason);
        }
        let external = self.external.get().ok_or("the user's libraries were not asked for (--libraries)")?;
        match external.kernel(kernel.name) {
            Some(WorkerKernel { available: false, reason: Some(reason), .. }) => Err(reason.clone()),
            Some(_) => external.time(kernel, gemm, kernel.as_run(gemm, shape), options),
            None => Err(format!("no library here runs {}", kernel.name)),
        }
    }

    /// Libraries that [`Self::load_libraries`] did not find or could not load, each with how it is had.
    pub fn remedies(&self) -> Vec<(String, String)> {
        self.external.get().map(|external| external.remedies()).unwrap_or_default()
    }

    fn external(&self) -> Option<Arc<External>> {
        self.external.get().cloned()
    }

    fn libraries(&self) -> Vec<LibraryStatus> {
        let found = |name: &str, version: &str, path: &std::path::Path| LibraryStatus {
            name: name.to_owned(),
            version: version.to_owned(),
            path: path.display().to_string(),
            problem: None,
        };
        let mut libraries = vec![
            found("cuBLASLt", &self.lt.version, &self.lt.path),
            found("NVRTC", self.kernels.compiler_version(), self.kernels.compiler_path()),
        ];
        libraries.extend(self.external.get().map(|external| external.statuses()).unwrap_or_default());
        libraries
    }
}

/// The shape at which all of them can be timed beside each other: padded as the strictest asks.
fn all_as_run(kernels: &[&'static Kernel], gemm: Gemm, shape: GemmShape) -> GemmShape {
    kernels.iter().map(|kernel| kernel.as_run(gemm, shape)).fold(shape, |most, run| GemmShape {
        m: most.m.max(run.m),
        k: most.k.max(run.k),
        n: most.n.max(run.n),
    })
}

/// "; k = 429 padded to 432"
fn padding_note(shape: GemmShape, run: GemmShape) -> String {
    let sizes = [("m", shape.m, run.m), ("k", shape.k, run.k), ("n", shape.n, run.n)];
    let padded = sizes.into_iter().filter(|(_, from, to)| from != to);
    padded.map(|(name, from, to)| format!("; {name} = {from} padded to {to}")).collect()
}

/// The engine of this process, opened at the first call.
pub fn shared() -> Result<Arc<CudaEngine>, CudaError> {
    static ENGINE: OnceLock<Result<Arc<CudaEngine>, CudaError>> = OnceLock::new();
    ENGINE.get_or_init(|| CudaEngine::open(&SearchPath::of_environment(), raw::cache_folder()).map(Arc::new)).clone()
}

/// How the CUDA engine is listed here.
pub fn status() -> EngineStatus {
    match shared() {
        Ok(engine) => {
            let lost = engine.device.lost().map(|error| EngineError::from(error.clone()).to_string());
            EngineStatus { problem: lost, ..EngineStatus::usable(engine.as_ref(), engine.libraries()) }
        }
        Err(error) => EngineStatus::missing("cuda", error.to_string(), Vec::new()),
    }
}

impl Engine for CudaEngine {
    fn describe(&self) -> EngineInfo {
        let external = self.external.get().map(|external| format!(", {}", external.about())).unwrap_or_default();
        EngineInfo {
            name: "cuda",
            device: self.device.name.clone(),
            driver: format!("CUDA {}", self.device.version()),
            versions: format!(
                "loka {}, cuBLASLt {}, NVRTC {}{external}",
                env!("CARGO_PKG_VERSION"),
                self.lt.version,
                self.kernels.compiler_version()
            ),
        }
    }

    fn supports(&self, kernel: &Kernel, gemm: Gemm, shape: GemmShape) -> Result<(), String> {
        if let Some(reason) = kernel.refuses(gemm, shape) {
            return Err(reason);
        }
        site::supports(self, kernel, gemm, kernel.as_run(gemm, shape))
    }

    fn way(&self, kernel: &Kernel, gemm: Gemm) -> Backend {
        match self.external.get() {
            Some(external) if external.runs(kernel.name) => Backend::Library(kernel.name),
            _ => Backend::Numerics(kernel.numerics(gemm)),
        }
    }

    fn site(&self, job: SiteJob) -> Result<Box<dyn SiteEngine>, EngineError> {
        self.device.bind()?;
        Ok(Box::new(site::CudaSite::new(self, job)?))
    }

    fn time(
        &self,
        kernels: &[&'static Kernel],
        gemm: Gemm,
        shape: GemmShape,
        options: &TimeOptions,
    ) -> Result<Vec<KernelTiming>, EngineError> {
        self.device.bind()?;
        let (native, others): (Vec<_>, Vec<_>) = kernels.iter().copied().partition(|kernel| kernel.is_native());
        // Before sizes are padded: as some ask, all would fit.
        let (refused, native): (Vec<_>, Vec<_>) =
            native.into_iter().partition(|kernel: &&Kernel| kernel.refuses(gemm, shape).is_some());
        let as_run = all_as_run(&native, gemm, shape);
        let mut timed = if native.is_empty() { Vec::new() } else { time::time(self, &native, gemm, as_run, options)? };
        for timing in timed.iter_mut().filter_map(|(_, timing)| timing.as_mut().ok()) {
            timing.note += &padding_note(shape, as_run);
        }
        let reason = |kernel: &Kernel| kernel.refuses(gemm, shape).unwrap_or_default();
        timed.extend(refused.into_iter().map(|kernel| (kernel.id(), Err(reason(kernel)))));
        for kernel in others {
            timed.push((kernel.id(), self.time_library(kernel, gemm, shape, options)));
        }
        Ok(timed)
    }

    fn parallel_sites(&self) -> usize {
        PARALLEL_SITES
    }

    fn wants_first_look(&self) -> bool {
        false
    }

    fn memory(&self) -> Option<DeviceMemory> {
        let (free, total) = self.device.memory().ok()?;
        Some(DeviceMemory { total, free, peak: self.device.peak_bytes() })
    }
}
