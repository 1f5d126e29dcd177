//! Takes an engine's name, gives the engine, or why it is missing.

use std::sync::Arc;

use super::{CpuEngine, Engine, EngineError, EngineStatus};

/// `cpu`, `cuda`, or `auto`: CUDA where it works, else the CPU. Opened once a process.
pub fn open(name: &str) -> Result<Arc<dyn Engine>, EngineError> {
    match name {
        "cpu" => Ok(Arc::new(CpuEngine)),
        "cuda" => cuda(),
        "auto" => Ok(cuda().unwrap_or_else(|_| Arc::new(CpuEngine))),
        other => Err(EngineError::Unavailable(format!("no engine is called '{other}' (auto, cpu or cuda)"))),
    }
}

/// Every engine of this build, usable or not, the one that `auto` takes first.
pub fn statuses() -> Vec<EngineStatus> {
    let mut all = vec![EngineStatus::cpu()];
    #[cfg(feature = "cuda")]
    all.push(super::cuda::status());
    all.sort_by_key(|status| (status.problem.is_some(), status.name == "cpu"));
    all
}

#[cfg(feature = "cuda")]
fn cuda() -> Result<Arc<dyn Engine>, EngineError> {
    super::cuda::shared()
        .map(|engine| engine as Arc<dyn Engine>)
        .map_err(|error| EngineError::Unavailable(error.to_string()))
}

#[cfg(not(feature = "cuda"))]
fn cuda() -> Result<Arc<dyn Engine>, EngineError> {
    Err(EngineError::Unavailable("this build has no CUDA engine".to_owned()))
}
