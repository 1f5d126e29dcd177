//! Which engines there are, and which is in use.
//!
//! An engine is not part of the document: choosing is not undone, and a plan does not change by it until
//! rows do.

use serde::{Deserialize, Serialize};

use crate::engine::EngineStatus;

use super::Origin;

/// Every engine that LoKA knows, by its name.
pub const ENGINES: [&str; 3] = ["cpu", "cuda", "cluster"];

/// How an engine is called on screen.
pub fn engine_title(name: &str) -> &str {
    match name {
        "cpu" => "CPU",
        "cuda" => "CUDA",
        "cluster" => "Ray cluster",
        other => other,
    }
}

/// The engines as they are listed, and the chosen one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Engines {
    pub listed: Vec<EngineStatus>,
    pub chosen: String,
    /// True while libraries and devices are still looked for.
    pub looking: bool,
    /// Engines that worked and then failed for good, in this process.
    pub lost: Vec<String>,
}

impl Default for Engines {
    /// The CPU is there at once.
    fn default() -> Self {
        let (chosen, lost) = ("cpu".to_owned(), Vec::new());
        Self { listed: vec![EngineStatus::cpu()], chosen, looking: false, lost }
    }
}

impl Engines {
    pub fn status(&self, name: &str) -> Option<&EngineStatus> {
        self.listed.iter().find(|status| status.name == name)
    }

    pub fn chosen_status(&self) -> Option<&EngineStatus> {
        self.status(&self.chosen)
    }

    pub fn is_lost(&self, name: &str) -> bool {
        self.lost.iter().any(|lost| lost == name)
    }

    /// Why an engine cannot be used; `None`: it can.
    pub fn problem(&self, name: &str) -> Option<String> {
        match self.status(name) {
            Some(status) => status.problem.clone(),
            None if self.looking => Some("still looking for its libraries".to_owned()),
            None => Some("this build has no such engine".to_owned()),
        }
    }

    pub(super) fn origin(&self, name: &str) -> Option<Origin> {
        self.status(name).map(Origin::of)
    }
}

/// Kernels being timed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measuring {
    pub id: u64,
    pub origin: Origin,
    /// Share done, 0 to 1.
    pub done: f64,
    pub seconds: f64,
}
