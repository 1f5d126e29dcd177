//! A site: one linear layer of the model, `y[m,n] = x[m,k] W[n,k]^T + bias[n]`.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use super::Gemm;

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

/// Whose forward a module runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum Forward {
    /// The class has its own (LoRA and the like): what it computes beside the product nobody recorded, and
    /// `loka.apply` would drop it.
    Own,
    /// No module at all: a function reads a parameter of the model, in a way that no kernel can be put under (a part of it, a
    /// stack of matrices, an attention's projections).
    Parameter,
    /// No module, and `loka.apply` reaches it all the same: a whole parameter `[n, k]`, read as `F.linear` reads its weight.
    Linear,
    /// The same of a parameter `[k, n]`, as in `x @ w`.
    Matmul,
    /// A word of a later recorder, kept and otherwise ignored.
    Other(String),
}

impl Forward {
    /// Of a product that only `loka.apply` can put a kernel under: to other frameworks there is no module of that name.
    pub fn is_ours_alone(&self) -> bool {
        matches!(self, Self::Linear | Self::Matmul)
    }
}

impl From<String> for Forward {
    fn from(word: String) -> Self {
        match word.as_str() {
            "own" => Self::Own,
            "parameter" => Self::Parameter,
            "linear" => Self::Linear,
            "matmul" => Self::Matmul,
            _ => Self::Other(word),
        }
    }
}

impl From<Forward> for String {
    fn from(forward: Forward) -> Self {
        match forward {
            Forward::Own => "own".to_owned(),
            Forward::Parameter => "parameter".to_owned(),
            Forward::Linear => "linear".to_owned(),
            Forward::Matmul => "matmul".to_owned(),
            Forward::Other(word) => word,
        }
    }
}

/// A site that is probed like others and that a plan leaves as it is. Displays the reason, in a clause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fixed {
    forward: Forward,
    class: String,
}

impl Fixed {
    /// `class`: the module's, which may be empty.
    pub fn of(forward: &Forward, class: &str) -> Option<Self> {
        let known = matches!(forward, Forward::Own | Forward::Parameter);
        known.then(|| Self { forward: forward.clone(), class: class.to_owned() })
    }
}

impl fmt::Display for Fixed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.forward, self.class.as_str()) {
            (Forward::Parameter, _) => f.write_str("it is no module: a function reads the parameter"),
            (_, "") => f.write_str("its class has a forward of its own"),
            (_, class) => write!(f, "its class {class} has a forward of its own"),
        }
    }
}

/// The gradients that training asks of a linear: the first layer's input needs none, a frozen weight needs none. A GEMM
/// whose result nobody needs never runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grads {
    #[serde(default = "yes")]
    pub input: bool,
    #[serde(default = "yes")]
    pub weight: bool,
}

impl Default for Grads {
    fn default() -> Self {
        Self { input: true, weight: true }
    }
}

impl Grads {
    fn is_all(&self) -> bool {
        *self == Self::default()
    }
}

fn yes() -> bool {
    true
}

/// How often a module runs that does not say.
pub(crate) fn once() -> usize {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
pub(crate) fn is_once(calls: &usize) -> bool {
    *calls == 1
}

/// A site as the manifest describes it. `m`: rows a call; `k`: in features; `n`: out features.
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
    /// How often the module runs a step: a tower that two inputs share runs twice, and takes its time twice. `m` is
    /// of one call.
    #[serde(default = "once", skip_serializing_if = "is_once")]
    pub calls: usize,
    /// Whose forward the module runs; `None`: not recorded, or the plain linear's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forward: Option<Forward>,
    /// Which gradients training needs of it.
    #[serde(default, skip_serializing_if = "Grads::is_all")]
    pub grads: Grads,
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

impl Site {
    /// False of a GEMM whose result training does not need: it never runs.
    pub fn runs(&self, gemm: Gemm) -> bool {
        match gemm {
            Gemm::Fprop => true,
            Gemm::Dgrad => self.grads.input,
            Gemm::Wgrad => self.grads.weight,
        }
    }

    /// Of a forward, as far as the trace says: a token or a routed expert has other rows than its batch has examples.
    pub fn examples(&self) -> u64 {
        self.extra.get(EXAMPLES).and_then(serde_json::Value::as_u64).unwrap_or(self.m as u64)
    }

    /// Of a forward of so many times the rows.
    pub(crate) fn scale_examples(&mut self, by: f64) {
        if self.extra.contains_key(EXAMPLES) {
            let scaled = (self.examples() as f64 * by).round().max(1.0) as u64;
            self.extra.insert(EXAMPLES.to_owned(), scaled.into());
        }
    }

    /// Why no plan can put another kernel here, however good it is; `None`: one can.
    pub fn fixed(&self) -> Option<Fixed> {
        Fixed::of(self.forward.as_ref()?, &self.class)
    }
}

/// Read for people and where an example has several rows: not a field, so that a trace without it stays as it is.
const EXAMPLES: &str = "examples";

/// `layer_norm` as people write it.
pub fn op_name(op: &str) -> String {
    match op {
        "layer_norm" => "LayerNorm".to_owned(),
        "rms_norm" => "RMSNorm".to_owned(),
        "block_norm" => "BlockNorm".to_owned(),
        "relu" => "ReLU".to_owned(),
        "gelu" => "GELU".to_owned(),
        other => other.replace('_', " "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: &str =
        r#"{"id":"a","class":"","m":8,"k":4,"n":2,"dtype":"f32","bias":false,"head":false,"tail":[],"feeds":[]}"#;

    #[test]
    fn what_a_trace_does_not_say_is_a_plain_linear_called_once() {
        let site: Site = serde_json::from_str(PLAIN).unwrap();
        assert_eq!((site.calls, site.fixed()), (1, None));
        assert!(Gemm::ALL.into_iter().all(|gemm| site.runs(gemm)));
        assert_eq!(serde_json::to_string(&site).unwrap(), PLAIN, "nothing is added to an old trace");
    }

    #[test]
    fn a_frozen_first_layer_runs_forward_alone() {
        let text =
            PLAIN.replace(r#""bias""#, r#""calls":2,"forward":"own","grads":{"input":false,"weight":false},"bias""#);
        let site: Site = serde_json::from_str(&text).unwrap();
        assert_eq!(site.calls, 2);
        assert_eq!(site.fixed().unwrap().to_string(), "its class has a forward of its own");
        assert_eq!(Gemm::ALL.map(|gemm| site.runs(gemm)), [true, false, false]);
        assert_eq!(serde_json::to_string(&site).unwrap(), text);
        let later: Site = serde_json::from_str(&text.replace("own", "fused")).unwrap();
        assert!(later.fixed().is_none() && later.forward == Some(Forward::Other("fused".to_owned())));
        let parameter: Site = serde_json::from_str(&text.replace("own", "parameter")).unwrap();
        assert_eq!(parameter.fixed().unwrap().to_string(), "it is no module: a function reads the parameter");
        for (word, forward) in [("linear", Forward::Linear), ("matmul", Forward::Matmul)] {
            let read: Site = serde_json::from_str(&text.replace("own", word)).unwrap();
            assert_eq!((read.fixed(), read.forward.as_ref()), (None, Some(&forward)));
            assert!(forward.is_ours_alone() && serde_json::to_string(&read).unwrap() == text.replace("own", word));
        }
    }
}
