//! A site: one linear layer of the model, `y[m,n] = x[m,k] W[n,k]^T + bias[n]`.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

/// The module's full name in the model. Cheap to clone; sorts by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SiteId(pub Arc<str>);

impl SiteId {
    pub fn new(name: &str) -> Self {
        Self(Arc::from(name))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SiteId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One step of what follows a linear, as the trace names it. `op` stays text: an operation that we
/// do not know is shown and ends the tail for numerics, it is not an error.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TailOp {
    pub op: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eps: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affine: Option<bool>,
    #[serde(flatten)]
    pub extra: serde_json::Map<String, serde_json::Value>,
}

impl TailOp {
    pub fn plain(op: &str) -> Self {
        Self { op: op.to_owned(), eps: None, block: None, affine: None, extra: Default::default() }
    }
}

/// A site as the manifest describes it. `m`: rows a step; `k`: in features; `n`: out features.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Site {
    pub id: SiteId,
    #[serde(default)]
    pub class: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    pub m: usize,
    pub k: usize,
    pub n: usize,
    pub dtype: String,
    #[serde(default)]
    pub bias: bool,
    /// A final prediction layer: the `no_bias` mod leaves it alone.
    #[serde(default)]
    pub head: bool,
    #[serde(default)]
    pub tail: Vec<TailOp>,
    /// Sites that read this one's output after its tail, unchanged.
    #[serde(default)]
    pub feeds: Vec<SiteId>,
    #[serde(flatten)]
    pub extra: serde_json::Map<String, serde_json::Value>,
}
