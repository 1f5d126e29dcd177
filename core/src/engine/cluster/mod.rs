//! Probes on a Ray cluster. Takes parts to be made, gives each once it is a file; takes the wish to pause, resume or cancel
//! from a [`Control`], as an engine of this machine does.
//!
//! ```text
//! Cluster ── lines ──► python3 -m loka.ray.driver ── tasks ──► loka probe --part 3/40 --out DIR, on the cluster's nodes
//!         ◄── lines ──   (python/loka, carried here)  ◄── the file's name
//! ```
//!
//! It is no [`super::Engine`]: a draw is too little to send across a network. A part is the unit, and its file what counts:
//! whoever reads it (nobody here) checks it. Rows name the engine that computed them, `cpu` or `cuda` of a node: they are
//! those that it gives here, to the bit. Ray dies, a node dies, the driver dies: that costs what was under way.

mod error;
mod protocol;

#[cfg(test)]
mod tests;

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use super::{
    Control, EngineInfo, EngineStatus, LibraryStatus,
    python::{Package, Process},
};

pub use error::ClusterError;
pub use protocol::{CLUSTER_PROTOCOL, ClusterInfo, ClusterPart, ClusterRequest};

use protocol::{FromDriver, ToDriver, refused};

/// What a session calls it.
pub const NAME: &str = "cluster";

/// How soon a wish reaches the driver.
const ASKED_EVERY: Duration = Duration::from_millis(50);

/// What the driver has for the end of its tasks, once its input has ended.
const ENDS_WITHIN: Duration = Duration::from_secs(12);

/// Which cluster, and how it is spoken to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterConfig {
    /// The interpreter that has Ray: a path, or a name on the search path. The cluster's address is in `RAY_ADDRESS`,
    /// else it is the one that `ray start` began on this machine.
    pub python: PathBuf,
    /// This program. Nodes that have it at the same place use it, others their own of the same version.
    pub program: PathBuf,
    /// Only this type of GPU; `None`: the one that there is most of, else CPUs.
    pub accelerator: Option<String>,
    /// For the first answer: Ray is loaded, and a node says what it has.
    pub timeout: Duration,
    /// What the interpreter is given; tests put a double here.
    arguments: Vec<OsString>,
}

impl ClusterConfig {
    pub fn new(python: impl Into<PathBuf>, program: impl Into<PathBuf>) -> Self {
        Self {
            python: python.into(),
            program: program.into(),
            accelerator: None,
            timeout: Duration::from_secs(180),
            arguments: ["-m", "loka.ray.driver"].map(OsString::from).to_vec(),
        }
    }

    #[must_use]
    pub fn with_accelerator(mut self, accelerator: Option<String>) -> Self {
        self.accelerator = accelerator;
        self
    }
}

/// A cluster that answered, until it is dropped: its driver ends then, and the driver's tasks with it.
#[derive(Debug)]
pub struct Cluster {
    // Before `package` in this order: the process must be gone when its files go.
    process: Process,
    _package: Package,
    info: ClusterInfo,
}

impl Cluster {
    /// Joins a cluster that is there; none is ever started.
    ///
    /// # Errors
    /// No Python, no Ray, no cluster, none of its nodes has LoKA; or `control` was cancelled meanwhile.
    pub fn connect(config: &ClusterConfig, control: &Control) -> Result<Self, ClusterError> {
        let failed = |error| ClusterError::of(error, config.timeout);
        let package = Package::write().map_err(failed)?;
        let mut process = Process::spawn(&config.python, &config.arguments, package.root()).map_err(failed)?;
        let hello = ToDriver::Hello {
            protocol: CLUSTER_PROTOCOL,
            version: env!("CARGO_PKG_VERSION"),
            program: &config.program.to_string_lossy(),
            accelerator: config.accelerator.as_deref(),
        };
        process.send(hello.line());
        let until = Instant::now() + config.timeout;
        loop {
            if control.is_cancelled() {
                return Err(ClusterError::Cancelled);
            }
            match process.next(ASKED_EVERY).map_err(failed)? {
                None if Instant::now() < until => {}
                None => return Err(ClusterError::TimedOut { after: config.timeout }),
                Some(line) => {
                    return match FromDriver::parsed(&line)? {
                        FromDriver::Cluster(info) => Ok(Self { process, _package: package, info }),
                        FromDriver::Refused { reason } => Err(refused(&reason)),
                        FromDriver::Part(_) | FromDriver::Ended { .. } => Err(ClusterError::rubbish(&line)),
                    };
                }
            }
        }
    }

    pub fn info(&self) -> &ClusterInfo {
        &self.info
    }

    /// Has parts made, and tells `sink` of each. Returns when all are, or the cancelled ones have ended. While paused
    /// no part is begun; those under way come to their end.
    ///
    /// # Errors
    /// A part was refused, or given up: the others are not made then. Or the driver failed.
    pub fn probe(
        &mut self,
        request: &ClusterRequest,
        control: &Control,
        sink: &mut dyn FnMut(ClusterPart),
    ) -> Result<(), ClusterError> {
        let failed = |error| ClusterError::of(error, ENDS_WITHIN);
        self.process.send(ToDriver::Probe(request).line());
        let mut told = ToldWishes::default();
        loop {
            if let Some(wish) = told.next(control) {
                self.process.send(wish.line());
            }
            let Some(line) = self.process.next(ASKED_EVERY).map_err(failed)? else {
                if told.cancelled.is_some_and(|since| since.elapsed() > ENDS_WITHIN) {
                    return Err(ClusterError::TimedOut { after: ENDS_WITHIN });
                }
                continue;
            };
            match FromDriver::parsed(&line)? {
                FromDriver::Part(part) if request.parts.contains(&part.part) => sink(part),
                FromDriver::Ended { reason: Some(reason), .. } => return Err(refused(&reason)),
                FromDriver::Ended { cancelled, .. } if cancelled == told.cancelled.is_some() => return Ok(()),
                // Its last part was done before it heard of that.
                FromDriver::Ended { cancelled: false, .. } => return Ok(()),
                _ => return Err(ClusterError::rubbish(&line)),
            }
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // It cancels its tasks. A process that was killed leaves that to Ray, which takes longer to see it.
        let _ = self.process.close(ENDS_WITHIN);
    }
}

/// What the driver knows of a control.
#[derive(Default)]
struct ToldWishes {
    cancelled: Option<Instant>,
    paused: bool,
}

impl ToldWishes {
    /// What it has to be told.
    fn next(&mut self, control: &Control) -> Option<ToDriver<'static>> {
        if control.is_cancelled() {
            return self.cancelled.is_none().then(|| {
                self.cancelled = Some(Instant::now());
                ToDriver::Cancel
            });
        }
        let paused = control.is_paused();
        let changed = paused != self.paused;
        self.paused = paused;
        changed.then_some(if paused { ToDriver::Pause } else { ToDriver::Resume })
    }
}

impl ClusterInfo {
    /// In a few words: `Ray 2.60.0 · 2 nodes · 16 CPUs · 8 H200`.
    pub fn size(&self) -> String {
        let nodes = format!("{} {}", self.nodes, if self.nodes == 1 { "node" } else { "nodes" });
        let gpus = self.gpus.iter().map(|(name, count)| format!("{count} {name}"));
        let parts = [format!("Ray {}", self.ray), nodes, format!("{} CPUs", self.cpus)].into_iter().chain(gpus);
        parts.collect::<Vec<_>>().join(" · ")
    }

    /// As it is listed.
    pub fn status(&self) -> EngineStatus {
        let unused = self.note.iter().map(|note| LibraryStatus {
            name: "Not used".to_owned(),
            version: String::new(),
            path: String::new(),
            problem: Some(note.clone()),
        });
        EngineStatus {
            name: NAME.to_owned(),
            device: self.device.clone(),
            driver: self.size(),
            libraries: unused.collect(),
            problem: None,
            memory: None,
        }
    }

    /// Who computes the rows.
    pub fn engine(&self) -> EngineInfo {
        EngineInfo {
            name: if self.engine == "cuda" { "cuda" } else { "cpu" },
            device: self.device.clone(),
            driver: self.driver.clone(),
            versions: format!("loka {}", env!("CARGO_PKG_VERSION")),
        }
    }
}

/// Whether something says that there is a cluster: `RAY_ADDRESS`, or the file that `ray start` leaves on this machine. Else
/// no Python need be started to find out that there is none.
pub fn is_known() -> bool {
    let is_named = std::env::var_os("RAY_ADDRESS").is_some_and(|address| !address.is_empty() && address != "auto");
    is_named || {
        let folder = std::env::var_os("RAY_TMPDIR").map_or_else(std::env::temp_dir, PathBuf::from);
        is_left_by_ray_start(&folder.join("ray").join("ray_current_cluster"))
    }
}

fn is_left_by_ray_start(file: &Path) -> bool {
    std::fs::read_to_string(file).is_ok_and(|address| !address.trim().is_empty())
}

/// The engine as it is listed where nothing says that there is a cluster.
pub fn unknown() -> EngineStatus {
    let problem =
        "no Ray cluster is known here: start one (ray start --head), or name one in RAY_ADDRESS before LoKA starts";
    EngineStatus::missing(NAME, problem.to_owned(), Vec::new())
}
