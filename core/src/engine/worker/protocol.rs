//! Requests and replies as they stand in a line, and what they mean. python/loka/worker/protocol.py is
//! the other side.

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::model::{Gemm, GemmShape, KernelId, Runtime};

use super::{super::python::one_line, Handle, WorkerError};

/// Raised whenever a request or a reply changes its meaning.
pub const PROTOCOL_VERSION: u64 = 2;

/// What the process is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct WorkerHello {
    pub protocol: u64,
    pub python: String,
    pub torch: Option<String>,
    /// The CUDA version that PyTorch was built for.
    pub cuda: Option<String>,
    /// The GPU's name; `None` without one.
    pub device: Option<String>,
    pub kernels: Vec<WorkerKernel>,
}

/// One kernel of the catalogue that the worker has an adapter for.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct WorkerKernel {
    pub kernel: String,
    pub available: bool,
    /// Why it is not, in one line.
    pub reason: Option<String>,
    /// How its library is had, where it is missing or does not load.
    #[serde(default)]
    pub remedy: Option<String>,
    pub library_version: Option<String>,
}

/// A GEMM that was run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct WorkerRun {
    /// True when an operand or the output went through the host.
    pub copied: bool,
}

/// How to time. More than three times `l2_bytes` of operands are rotated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TimeOptions {
    pub samples: u32,
    pub l2_bytes: u64,
    /// How long one sample takes at least.
    pub target_us: u32,
}

impl Default for TimeOptions {
    fn default() -> Self {
        Self { samples: 30, l2_bytes: 60 << 20, target_us: 200 }
    }
}

/// Raw samples, each in microseconds per call, in the order in which they were taken. Empty: the library
/// has no such call, and `note` says so.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct WorkerTiming {
    /// The GEMM alone.
    pub gemm_us: Vec<f64>,
    /// Both operands cast.
    pub latency_us: Vec<f64>,
    /// The weight already cast; empty for wgrad, which has none.
    pub cached_us: Vec<f64>,
    /// `pytorch/bf16` in the same rounds.
    pub baseline_us: Vec<f64>,
    /// How many sets of operands were rotated.
    pub sets: u64,
    /// How it was run; says `eager` of what could not be captured in a CUDA graph.
    pub note: String,
}

/// Whole sites of one shape to be timed, by each of these three kernels.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct SiteRequest<'a> {
    #[serde(flatten)]
    pub shape: GemmShape,
    pub runtime: Runtime,
    pub triples: &'a [[KernelId; 3]],
    #[serde(flatten)]
    pub options: &'a TimeOptions,
    /// On the CPU, for tests.
    pub emulate: bool,
}

/// One site by three kernels: raw samples, each in microseconds a step, and of BF16 in the same rounds. As replayed, without what
/// launches cost.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct WorkerSite {
    pub kernels: [KernelId; 3],
    #[serde(default)]
    pub site_us: Vec<f64>,
    #[serde(default)]
    pub bf16_us: Vec<f64>,
    /// `site_us` where the output goes on as codes; none of kernels that store none.
    #[serde(default)]
    pub codes_us: Vec<f64>,
    /// What a step launched kernel by kernel takes beyond that, in microseconds: by these kernels, and in BF16.
    #[serde(default)]
    pub launch_us: f64,
    #[serde(default)]
    pub bf16_launch_us: f64,
    /// Why it was not timed.
    #[serde(default)]
    pub reason: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct WorkerSites {
    pub rows: Vec<WorkerSite>,
}

#[derive(Deserialize)]
pub(super) struct Compiled {}

#[derive(Deserialize)]
pub(super) struct Released {
    pub released: u64,
}

/// A kernel on a GEMM.
#[derive(Serialize)]
pub(super) struct Case<'a> {
    kernel: &'a KernelId,
    gemm: Gemm,
    #[serde(flatten)]
    shape: GemmShape,
}

impl<'a> Case<'a> {
    pub fn new(kernel: &'a KernelId, gemm: Gemm, shape: GemmShape) -> Self {
        Self { kernel, gemm, shape }
    }
}

#[derive(Serialize)]
#[serde(tag = "do", rename_all = "lowercase")]
pub(super) enum Ask<'a> {
    Hello {
        protocol: u64,
        device: Option<u32>,
    },
    Describe {
        #[serde(flatten)]
        case: Case<'a>,
    },
    Run {
        #[serde(flatten)]
        case: Case<'a>,
        a: &'a Handle,
        b: &'a Handle,
        out: &'a Handle,
    },
    Time {
        #[serde(flatten)]
        case: Case<'a>,
        #[serde(flatten)]
        options: &'a TimeOptions,
    },
    Compile {
        #[serde(flatten)]
        asked: &'a SiteRequest<'a>,
    },
    Sites {
        #[serde(flatten)]
        asked: &'a SiteRequest<'a>,
    },
    Release,
}

impl Ask<'_> {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Hello { .. } => "hello",
            Self::Describe { .. } => "describe",
            Self::Run { .. } => "run",
            Self::Time { .. } => "time",
            Self::Compile { .. } => "compile",
            Self::Sites { .. } => "sites",
            Self::Release => "release",
        }
    }
}

#[derive(Serialize)]
struct Envelope<'a> {
    id: i64,
    #[serde(flatten)]
    ask: &'a Ask<'a>,
}

/// The request as a line.
pub(super) fn encode(id: i64, ask: &Ask<'_>) -> Result<Vec<u8>, WorkerError> {
    // A path that is no UTF-8 is the only thing here that is no JSON.
    let mut line = serde_json::to_vec(&Envelope { id, ask })
        .map_err(|error| WorkerError::Refused { reason: one_line(&error.to_string(), MAX_REASON) })?;
    line.push(b'\n');
    Ok(line)
}

/// A reply, checked.
pub(super) struct Answer<T> {
    pub result: Result<T, WorkerError>,
    /// The process ends after it.
    pub is_fatal: bool,
}

#[derive(Deserialize)]
struct Reply {
    id: i64,
    ok: bool,
    result: Option<serde_json::Value>,
    reason: Option<String>,
    #[serde(default)]
    fatal: bool,
}

const MAX_REASON: usize = 480;

/// Reads the reply to request `id`. Anything else is rubbish.
pub(super) fn decode<T: DeserializeOwned>(id: i64, line: &[u8]) -> Result<Answer<T>, WorkerError> {
    let rubbish = || WorkerError::rubbish(line);
    let reply: Reply = serde_json::from_slice(line).map_err(|_| rubbish())?;
    if reply.id != id {
        return Err(rubbish());
    }
    let result = match (reply.ok, reply.result, reply.reason) {
        (true, Some(result), _) => Ok(serde_json::from_value(result).map_err(|_| rubbish())?),
        (false, _, Some(reason)) => Err(WorkerError::Refused { reason: one_line(&reason, MAX_REASON) }),
        _ => return Err(rubbish()),
    };
    Ok(Answer { result, is_fatal: reply.fatal })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_read_as_the_worker_expects_them() {
        let kernel = KernelId::new("torchao/rowwise");
        let case = || Case::new(&kernel, Gemm::Dgrad, GemmShape { m: 2, k: 3, n: 4 });
        let options = TimeOptions::default();
        let line = encode(7, &Ask::Time { case: case(), options: &options }).unwrap();
        assert_eq!(line.last(), Some(&b'\n'));
        let found: serde_json::Value = serde_json::from_slice(&line).unwrap();
        assert_eq!(
            found,
            serde_json::json!({"id": 7, "do": "time", "kernel": "torchao/rowwise", "gemm": "dgrad", "m": 2, "k": 3,
                "n": 4, "samples": 30, "l2_bytes": 62_914_560, "target_us": 200})
        );
        let triples = [[kernel.clone(), KernelId::new("cublaslt/bf16"), kernel.clone()]];
        let shape = GemmShape { m: 2, k: 3, n: 4 };
        let runtime = Runtime::Graph;
        let asked = SiteRequest { shape, runtime, triples: &triples, options: &options, emulate: true };
        let sites = Ask::Sites { asked: &asked };
        let found: serde_json::Value = serde_json::from_slice(&encode(9, &sites).unwrap()).unwrap();
        assert_eq!(
            found,
            serde_json::json!({"id": 9, "do": "sites", "m": 2, "k": 3, "n": 4, "runtime": "graph", "samples": 30,
                "triples": [["torchao/rowwise", "cublaslt/bf16", "torchao/rowwise"]], "l2_bytes": 62_914_560,
                "target_us": 200, "emulate": true})
        );
        let line = encode(8, &Ask::Release).unwrap();
        assert_eq!(line, b"{\"id\":8,\"do\":\"release\"}\n");
    }

    #[test]
    fn half_replies_are_rubbish() {
        for line in [
            r#"{"id": 1, "ok": true}"#,
            r#"{"id": 1, "ok": false}"#,
            r#"{"id": 2, "ok": true, "result": {"copied": true}}"#,
            r#"{"id": 1, "ok": true, "result": {"copied": 1}}"#,
            r#"{"ok": true, "result": {"copied": true}}"#,
            "[]",
            "",
        ] {
            let error = decode::<WorkerRun>(1, line.as_bytes()).err();
            assert!(matches!(error, Some(WorkerError::Rubbish { .. })), "{line}: {error:?}");
        }
    }

    #[test]
    fn a_reason_stays_one_line() {
        let answer = decode::<WorkerRun>(1, b"{\"id\": 1, \"ok\": false, \"reason\": \"a\\nb\\u001b[0m\"}").unwrap();
        assert_eq!(answer.result, Err(WorkerError::Refused { reason: "a b [0m".to_owned() }));
    }
}
