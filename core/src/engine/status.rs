//! What engines there are, with their devices and libraries, or why one is missing.

use serde::{Deserialize, Serialize};

use super::{Engine, EngineInfo};

const LOOKED_FOR: &str = "it is still being looked for";

/// One engine as a person sees it listed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineStatus {
    /// `cpu`, `cuda` or `cluster`.
    pub name: String,
    pub device: String,
    pub driver: String,
    pub libraries: Vec<LibraryStatus>,
    /// Why it cannot be used; `None`: it can.
    pub problem: Option<String>,
    pub memory: Option<DeviceMemory>,
}

/// One library that an engine uses or would use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LibraryStatus {
    pub name: String,
    pub version: String,
    /// Where it was found; empty when it was not.
    pub path: String,
    pub problem: Option<String>,
}

/// Bytes on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceMemory {
    pub total: u64,
    /// Free for anyone.
    pub free: u64,
    /// The most that this process had at a time.
    pub peak: u64,
}

impl EngineStatus {
    /// The CPU, always there.
    pub fn cpu() -> Self {
        Self::usable(&super::CpuEngine, Vec::new())
    }

    pub fn usable(engine: &dyn Engine, libraries: Vec<LibraryStatus>) -> Self {
        let EngineInfo { name, device, driver, .. } = engine.describe();
        let memory = engine.memory();
        Self { name: name.to_owned(), device, driver, libraries, problem: None, memory }
    }

    /// The engine that its rows name: a cluster's nodes compute by the one or the other, and give what it gives here.
    pub fn rows_by(&self) -> &str {
        match self.name.as_str() {
            "cluster" if super::cpu::is_cpu(&self.device) => "cpu",
            "cluster" => "cuda",
            name => name,
        }
    }

    /// Not known yet: it takes longer than the others.
    pub fn looked_for(name: &str) -> Self {
        Self::missing(name, LOOKED_FOR.to_owned(), Vec::new())
    }

    pub fn is_looked_for(&self) -> bool {
        self.problem.as_deref() == Some(LOOKED_FOR)
    }

    pub fn missing(name: &str, problem: String, libraries: Vec<LibraryStatus>) -> Self {
        let (device, driver) = (String::new(), String::new());
        Self { name: name.to_owned(), device, driver, libraries, problem: Some(problem), memory: None }
    }
}
