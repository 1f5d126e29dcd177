//! Runs the user's own FP8 libraries, in a Python process. Takes a kernel, a shape and handles of
//! tensors; gives its output in the memory that the caller named, or raw samples of its latency.
//!
//! ```text
//! Worker ── request, a JSON line ──► python3 -m loka.worker ──► torchao, deep_gemm, fbgemm_gpu, ...
//!        ◄── reply, a JSON line ───     (python/loka, carried in this binary)
//! ```
//!
//! The process may die, hang or print rubbish: that costs the request, and the next one starts it
//! again, [`MAX_RESTARTS`] times. Nothing here knows CUDA: memory is a [`Handle`], and errors are
//! computed by the caller, with the code that serves every other kernel.

mod error;
mod handle;
mod protocol;

#[cfg(test)]
mod tests;

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::de::DeserializeOwned;

use crate::model::{Gemm, GemmShape, KernelId};

pub use error::WorkerError;
pub use handle::{Dtype, Handle};
pub use protocol::{
    PROTOCOL_VERSION, SiteRequest, TimeOptions, WorkerHello, WorkerKernel, WorkerRun, WorkerSite, WorkerTiming,
};

use super::python::{Package, Process};
use protocol::{Ask, Case, Compiled, Released, WorkerSites, decode, encode};

/// How often a worker that ended is started again. A library that kills it every time must not hold
/// up a run of thousands of rows.
pub const MAX_RESTARTS: u32 = 3;

/// Nothing is waited for there.
const STARTING: (&str, Duration) = ("start", Duration::ZERO);

/// How to start the worker and how long to wait for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerConfig {
    /// The interpreter whose libraries are run: a path, or a name on the search path.
    pub python: PathBuf,
    /// For every request but `time`. The first loads PyTorch and whatever libraries there are.
    pub timeout: Duration,
    /// For `time`, `compile` and `sites`: a compiler takes its time.
    pub time_timeout: Duration,
    /// The GPU, by CUDA's ordinal; `None`: PyTorch's first.
    pub device: Option<u32>,
    /// What the interpreter is given; tests put a double here.
    arguments: Vec<OsString>,
}

impl WorkerConfig {
    pub fn new(python: impl Into<PathBuf>) -> Self {
        Self { python: python.into(), ..Self::default() }
    }

    #[must_use]
    pub fn with_timeouts(mut self, timeout: Duration, time_timeout: Duration) -> Self {
        (self.timeout, self.time_timeout) = (timeout, time_timeout);
        self
    }

    /// A test double instead of the worker.
    #[cfg(test)]
    pub(crate) fn doubled(behaviour: &str, starts: &Path) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../python/tests/double_worker.py");
        let arguments = vec![script.into_os_string(), behaviour.into(), starts.as_os_str().to_owned()];
        Self { arguments, ..Self::default() }
    }

    #[must_use]
    pub fn with_device(mut self, device: u32) -> Self {
        self.device = Some(device);
        self
    }
}

impl Default for WorkerConfig {
    fn default() -> Self {
        Self {
            python: PathBuf::from("python3"),
            timeout: Duration::from_secs(120),
            time_timeout: Duration::from_secs(300),
            device: None,
            arguments: ["-m", "loka.worker"].map(OsString::from).to_vec(),
        }
    }
}

/// The Python process and what it said of itself. Killed on drop.
#[derive(Debug)]
pub struct Worker {
    config: WorkerConfig,
    // Before `package` in this order: the process must be gone when its files go.
    process: Option<Process>,
    package: Package,
    hello: WorkerHello,
    num_restarts: u32,
    next_id: i64,
    last_end: Option<WorkerError>,
}

impl Worker {
    /// Starts the process and asks what it can run. A library that is missing is no error: its
    /// kernels say so.
    ///
    /// # Errors
    /// The interpreter is missing, dies, does not answer in time, or speaks another protocol.
    pub fn start(config: WorkerConfig) -> Result<Self, WorkerError> {
        let package = Package::write().map_err(|error| WorkerError::of(error, STARTING))?;
        let hello = WorkerHello::default();
        let mut worker = Self { config, process: None, package, hello, num_restarts: 0, next_id: 1, last_end: None };
        worker.launch()?;
        Ok(worker)
    }

    /// What the process said when it started last.
    pub fn hello(&self) -> &WorkerHello {
        &self.hello
    }

    /// Every kernel that the worker knows, with the reason where it cannot run here.
    pub fn kernels(&self) -> &[WorkerKernel] {
        &self.hello.kernels
    }

    /// How it was started.
    pub fn config(&self) -> &WorkerConfig {
        &self.config
    }

    /// A folder for files of [`Handle::file`], gone with the worker.
    pub fn scratch(&self) -> &Path {
        self.package.scratch()
    }

    /// Why the kernel does not take that GEMM, or `None`. Nothing is run: a library may still refuse.
    ///
    /// # Errors
    /// The process failed.
    pub fn refuses(&mut self, kernel: &KernelId, gemm: Gemm, shape: GemmShape) -> Result<Option<String>, WorkerError> {
        let found: WorkerKernel = self.ask(&Ask::Describe { case: Case::new(kernel, gemm, shape) })?;
        Ok(found.reason)
    }

    /// Runs one GEMM by the library's own casts and writes its output to `out` (poison it first).
    /// Operands are as the model stores them (see [`Gemm`]): fprop `a = x[m,k]`, `b = W[n,k]`; dgrad
    /// `a = dy[m,n]`, `b = W[n,k]`; wgrad `a = dy[m,n]`, `b = x[m,k]`. The output, BF16 or FP32 as
    /// `out` says, is `[m,n]`, `[m,k]`, `[n,k]`.
    ///
    /// Finish all writes to `a` and `b` before the call; after it the output is complete.
    ///
    /// # Errors
    /// [`WorkerError::Refused`] when the library is missing or does not take it; else the process failed.
    pub fn run(
        &mut self,
        kernel: &KernelId,
        gemm: Gemm,
        shape: GemmShape,
        operands: [&Handle; 2],
        out: &Handle,
    ) -> Result<WorkerRun, WorkerError> {
        let [a, b] = operands;
        self.ask(&Ask::Run { case: Case::new(kernel, gemm, shape), a, b, out })
    }

    /// Times a kernel on random operands of its own, `pytorch/bf16` interleaved.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn time(
        &mut self,
        kernel: &KernelId,
        gemm: Gemm,
        shape: GemmShape,
        options: &TimeOptions,
    ) -> Result<WorkerTiming, WorkerError> {
        self.ask(&Ask::Time { case: Case::new(kernel, gemm, shape), options })
    }

    /// Compiles what [`Self::sites`] will time, without timing: workers may do that side by side. What fails is told there.
    ///
    /// # Errors
    /// As [`Self::sites`].
    pub fn compile(&mut self, asked: &SiteRequest<'_>) -> Result<(), WorkerError> {
        self.ask(&Ask::Compile { asked }).map(|_: Compiled| ())
    }

    /// Times whole sites of one shape: a linear by each three kernels in a compiled model, BF16 interleaved. Three
    /// that fail are an entry with its reason.
    ///
    /// # Errors
    /// [`WorkerError::Refused`] without PyTorch or a GPU; else the process failed.
    pub fn sites(&mut self, asked: &SiteRequest<'_>) -> Result<Vec<WorkerSite>, WorkerError> {
        let found: WorkerSites = self.ask(&Ask::Sites { asked })?;
        Ok(found.rows)
    }

    /// Closes every allocation that handles opened there; gives how many. Do it before freeing them: the
    /// driver may give a freed allocation's handle to the next one. A process that ended has none open.
    ///
    /// # Errors
    /// The process failed.
    pub fn release(&mut self) -> Result<u64, WorkerError> {
        if self.process.is_none() {
            return Ok(0);
        }
        self.ask(&Ask::Release).map(|released: Released| released.released)
    }

    /// Asks, starting the process again first if it ended.
    fn ask<T: DeserializeOwned>(&mut self, ask: &Ask<'_>) -> Result<T, WorkerError> {
        if self.process.is_none() {
            if self.num_restarts == MAX_RESTARTS {
                let last = self.last_end.as_ref().map(ToString::to_string).unwrap_or_default();
                return Err(WorkerError::GaveUp { restarts: MAX_RESTARTS, last });
            }
            self.num_restarts += 1;
            self.launch()?;
        }
        self.exchange(ask)
    }

    fn launch(&mut self) -> Result<(), WorkerError> {
        let process = Process::spawn(&self.config.python, &self.config.arguments, self.package.root());
        self.process = Some(process.map_err(|error| WorkerError::of(error, STARTING))?);
        let hello: WorkerHello =
            self.exchange(&Ask::Hello { protocol: PROTOCOL_VERSION, device: self.config.device })?;
        if hello.protocol != PROTOCOL_VERSION {
            let error = WorkerError::WrongVersion { found: hello.protocol, wanted: PROTOCOL_VERSION };
            return Err(self.ended(error));
        }
        self.hello = hello;
        Ok(())
    }

    /// One request and its reply. The process is gone after every error but a refusal.
    fn exchange<T: DeserializeOwned>(&mut self, ask: &Ask<'_>) -> Result<T, WorkerError> {
        let id = self.next_id;
        self.next_id += 1;
        let line = encode(id, ask)?;
        let timeout = if matches!(ask, Ask::Time { .. } | Ask::Compile { .. } | Ask::Sites { .. }) {
            self.config.time_timeout
        } else {
            self.config.timeout
        };
        let Some(process) = self.process.as_mut() else {
            return Err(WorkerError::Refused { reason: "the worker is not running".to_owned() });
        };
        let failed = |error| WorkerError::of(error, (ask.name(), timeout));
        let answer = process.ask(line, timeout).map_err(failed).and_then(|reply| decode(id, &reply));
        match answer {
            Ok(answer) => {
                if answer.is_fatal {
                    // It said so before it ended: the reason is the library's, the restart is ours.
                    let reason = answer.result.as_ref().err().map(ToString::to_string).unwrap_or_default();
                    self.ended(WorkerError::Refused { reason });
                }
                answer.result
            }
            Err(error) => Err(self.ended(error)),
        }
    }

    /// Kills what may be left of the process and keeps why.
    fn ended(&mut self, error: WorkerError) -> WorkerError {
        self.process = None;
        self.last_end = Some(error.clone());
        error
    }
}
