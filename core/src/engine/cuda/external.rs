//! The user's own libraries beside the native kernels: one Python process, on tensors that it opens where they
//! are (CUDA IPC). Its outputs are measured by the code that measures ours.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use crate::{
    engine::{
        LibraryStatus, TimeOptions, Timing,
        worker::{self, Dtype, Handle, Worker, WorkerConfig, WorkerError, WorkerKernel},
    },
    model::{Gemm, GemmShape, Kernel},
};

use super::{
    CudaError,
    driver::Device,
    stream::Shared,
    stream_context::{StreamContext, Tensor},
};

/// The process and the memory that is shared with it. One GEMM at a time.
pub(super) struct External {
    device: Arc<Device>,
    kernels: BTreeMap<String, WorkerKernel>,
    about: String,
    inner: Mutex<LibraryInner>,
}

struct LibraryInner {
    worker: Worker,
    /// a, b and out, grown as needed.
    memory: [Option<Shared>; 3],
}

/// Why a library's kernel gave nothing: its refusal or the worker's end, which cost these rows alone; or CUDA's.
pub(super) enum ExternalError {
    Library(String),
    Cuda(CudaError),
}

impl From<CudaError> for ExternalError {
    fn from(error: CudaError) -> Self {
        Self::Cuda(error)
    }
}

impl From<WorkerError> for ExternalError {
    fn from(error: WorkerError) -> Self {
        Self::Library(error.to_string())
    }
}

impl External {
    pub fn start(device: &Arc<Device>, config: WorkerConfig) -> Result<Self, WorkerError> {
        // What our pool keeps for itself is missing in the other process.
        device.trim();
        let worker = Worker::start(config)?;
        let kernels = worker.kernels().iter().map(|kernel| (kernel.kernel.clone(), kernel.clone())).collect();
        let hello = worker.hello();
        let about = format!("PyTorch {}, Python {}", hello.torch.as_deref().unwrap_or("missing"), hello.python);
        let inner = Mutex::new(LibraryInner { worker, memory: [None, None, None] });
        Ok(Self { device: device.clone(), kernels, about, inner })
    }

    /// `None`: not one of the libraries' kernels.
    pub fn kernel(&self, name: &str) -> Option<&WorkerKernel> {
        self.kernels.get(name)
    }

    pub fn runs(&self, name: &str) -> bool {
        self.kernel(name).is_some_and(|kernel| kernel.available)
    }

    /// PyTorch's and Python's versions.
    pub fn about(&self) -> &str {
        &self.about
    }

    /// One entry a library.
    pub fn statuses(&self) -> Vec<LibraryStatus> {
        let mut libraries: BTreeMap<&str, LibraryStatus> = BTreeMap::new();
        for kernel in self.kernels.values() {
            let name = kernel.kernel.split('/').next().unwrap_or_default();
            libraries.entry(name).or_insert_with(|| LibraryStatus {
                name: name.to_owned(),
                version: kernel.library_version.clone().unwrap_or_default(),
                path: String::new(),
                problem: kernel.reason.clone().filter(|_| !kernel.available),
            });
        }
        libraries.into_values().collect()
    }

    /// One entry a library that is missing or does not load: its name, and how it is had.
    pub fn remedies(&self) -> Vec<(String, String)> {
        let library = |kernel: &WorkerKernel| kernel.kernel.split('/').next().unwrap_or_default().to_owned();
        let found: BTreeMap<String, String> =
            self.kernels.values().filter_map(|kernel| Some((library(kernel), kernel.remedy.clone()?))).collect();
        found.into_iter().collect()
    }

    /// Runs a kernel on operands as the model stores them and hands its BF16 output, of `outputs` elements, to
    /// `measure`.
    pub fn run<T>(
        &self,
        lane: &mut StreamContext,
        (kernel, gemm): (&Kernel, Gemm),
        shape: GemmShape,
        [a, b]: [&Tensor; 2],
        measure: impl FnOnce(&mut StreamContext, u64) -> Result<T, CudaError>,
    ) -> Result<T, ExternalError> {
        let (rows, _, cols) = shape.rows_reduced_cols(gemm);
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.grow(&self.device, [4 * a.data.len(), 4 * b.data.len(), 2 * rows * cols])?;
        let LibraryInner { worker, memory } = &mut *inner;
        let [Some(a_at), Some(b_at), Some(out_at)] = memory else {
            return Err(ExternalError::Library("no memory to share".to_owned()));
        };
        lane.stream.copy_to(&a.data, a_at)?;
        lane.stream.copy_to(&b.data, b_at)?;
        lane.stream.fill_shared(out_at, 0xFF)?;
        lane.stream.wait()?;
        let handle = |shared: &Shared, of: Dtype, rows: usize, cols: usize| {
            Ok::<_, CudaError>(Handle::ipc(&shared.handle()?, 0, of, &[rows, cols]))
        };
        let operands = [handle(a_at, Dtype::F32, a.rows, a.cols)?, handle(b_at, Dtype::F32, b.rows, b.cols)?];
        let out = handle(out_at, Dtype::Bf16, rows, cols)?;
        worker.run(&kernel.id(), gemm, shape, [&operands[0], &operands[1]], &out)?;
        let measured = measure(lane, out_at.address())?;
        // The next run overwrites what is measured here.
        lane.stream.wait()?;
        Ok(measured)
    }

    /// Raw samples of a library's kernel, by the same rules as ours.
    pub fn time(&self, kernel: &Kernel, gemm: Gemm, shape: GemmShape, options: &TimeOptions) -> Result<Timing, String> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.release().map_err(|error| error.to_string())?;
        let options = worker::TimeOptions {
            samples: options.samples as u32,
            l2_bytes: self.device.l2_bytes as u64,
            target_us: options.sample_us as u32,
        };
        let timing = inner.worker.time(&kernel.id(), gemm, shape, &options).map_err(|error| error.to_string())?;
        if timing.latency_us.is_empty() {
            return Err(timing.note);
        }
        // Without a weight among the operands nothing was cast before.
        let cached_us = if timing.cached_us.is_empty() && gemm == Gemm::Wgrad {
            timing.latency_us.clone()
        } else {
            timing.cached_us
        };
        let tail_us = Vec::new();
        Ok(Timing { gemm_us: timing.gemm_us, latency_us: timing.latency_us, cached_us, tail_us, note: timing.note })
    }
}

impl LibraryInner {
    /// Memory of at least these sizes.
    fn grow(&mut self, device: &Arc<Device>, bytes: [usize; 3]) -> Result<(), ExternalError> {
        let fits =
            |(shared, bytes): (&Option<Shared>, usize)| shared.as_ref().is_some_and(|shared| shared.bytes >= bytes);
        if self.memory.iter().zip(bytes).all(fits) {
            return Ok(());
        }
        self.release()?;
        for (shared, bytes) in self.memory.iter_mut().zip(bytes) {
            *shared = Some(Shared::new(device, bytes)?);
        }
        Ok(())
    }

    /// Frees what is shared, the worker first: the driver may give a freed allocation's handle to the next.
    fn release(&mut self) -> Result<(), WorkerError> {
        if self.memory.iter().any(Option::is_some) {
            self.worker.release()?;
        }
        self.memory = [None, None, None];
        Ok(())
    }
}
