//! Lines to and from the driver as they stand there. python/loka/ray/driver.py is the other side.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{super::python::one_line, ClusterError};

/// Raised whenever a line changes its meaning.
pub const CLUSTER_PROTOCOL: u64 = 1;

const MAX_REASON: usize = 480;

/// What a cluster has, and what of it tasks run on.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct ClusterInfo {
    pub protocol: u64,
    /// Ray's version.
    pub ray: String,
    pub nodes: u64,
    pub cpus: f64,
    /// How many of each type, by Ray's names.
    pub gpus: BTreeMap<String, f64>,
    /// `cpu` or `cuda`: whose rows come.
    pub engine: String,
    /// The type of GPU that tasks run on; `None`: CPUs, which emulate.
    pub accelerator: Option<String>,
    /// As the rows name it.
    pub device: String,
    /// NVIDIA's.
    pub driver: String,
    /// Why something better is not used.
    pub note: Option<String>,
}

/// A part that is in its folder.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct ClusterPart {
    pub part: usize,
    /// As its node sees it.
    pub file: String,
    /// False: it was there.
    pub made: bool,
    pub seconds: f64,
    pub node: String,
}

/// Parts to be made.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClusterRequest {
    /// `probe TRACE` and its options, but for the part and the folder.
    pub arguments: Vec<String>,
    /// The folder of the parts.
    pub out: String,
    /// Which of them, from 1.
    pub parts: Vec<usize>,
    pub of: usize,
}

#[derive(Serialize)]
#[serde(tag = "do", rename_all = "lowercase")]
pub(super) enum ToDriver<'a> {
    Hello { protocol: u64, version: &'a str, program: &'a str, accelerator: Option<&'a str> },
    Probe(&'a ClusterRequest),
    Pause,
    Resume,
    Cancel,
}

impl ToDriver<'_> {
    pub fn line(&self) -> Vec<u8> {
        // Texts and numbers: nothing here is no JSON.
        let mut line = serde_json::to_vec(self).unwrap_or_default();
        line.push(b'\n');
        line
    }
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(tag = "is", rename_all = "lowercase")]
pub(super) enum FromDriver {
    Cluster(ClusterInfo),
    Refused {
        reason: String,
    },
    Part(ClusterPart),
    /// `reason`: why before its end, unless it was cancelled.
    Ended {
        cancelled: bool,
        reason: Option<String>,
    },
}

impl FromDriver {
    /// Anything else is rubbish.
    pub fn parsed(line: &[u8]) -> Result<Self, ClusterError> {
        // Of another protocol more than its number need not be read.
        #[derive(Deserialize)]
        struct OfSome {
            protocol: u64,
        }
        match serde_json::from_slice::<OfSome>(line) {
            Ok(OfSome { protocol }) if protocol != CLUSTER_PROTOCOL => {
                Err(ClusterError::WrongProtocol { found: protocol, wanted: CLUSTER_PROTOCOL })
            }
            _ => serde_json::from_slice(line).map_err(|_| ClusterError::rubbish(line)),
        }
    }
}

/// What the driver says may hold a library's whole page.
pub(super) fn refused(reason: &str) -> ClusterError {
    ClusterError::Refused { reason: one_line(reason, MAX_REASON) }
}
