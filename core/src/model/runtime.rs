//! Where a plan runs, and which kernels `loka.apply` can run there: the one catalogue that Dispatch, `loka check` and
//! the Python package go by.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{
    Accumulation, Format, Gemm, Granularity, Kernel, OperandCast, catalogue,
    kernel::{BF16_LARGE, BF16_MULTIPLE, NARROWEST},
};

/// How a model with a plan runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Runtime {
    /// A compiled PyTorch training step, its kernels launched one by one: host time counts.
    #[default]
    Launched,
    /// The same step replayed as a CUDA graph.
    Graph,
    /// Forward only.
    Inference,
}

impl Runtime {
    pub const ALL: [Self; 3] = [Self::Launched, Self::Graph, Self::Inference];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Launched => "launched",
            Self::Graph => "graph",
            Self::Inference => "inference",
        }
    }

    /// Plans that name no runtime are of this one: their digests stand.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// The GEMMs of a linear that run.
    pub fn gemms(self) -> &'static [Gemm] {
        match self {
            Self::Launched | Self::Graph => &Gemm::ALL,
            Self::Inference => &[Gemm::Fprop],
        }
    }

    pub fn runs(self, gemm: Gemm) -> bool {
        self.gemms().contains(&gemm)
    }

    /// Those that one measurement of whole sites is of, this one among them: a training step replayed, and with what
    /// launching its kernels costs beside.
    pub fn timed_together(self) -> &'static [Self] {
        match self {
            Self::Launched | Self::Graph => &[Self::Launched, Self::Graph],
            Self::Inference => &[Self::Inference],
        }
    }

    /// Which of those names the measurement.
    pub fn timed_as(self) -> Self {
        self.timed_together().first().copied().unwrap_or(self)
    }
}

impl fmt::Display for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Runtime {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|runtime| runtime.as_str() == text);
        found.ok_or_else(|| format!("unknown runtime '{text}' (launched, graph or inference)"))
    }
}

/// True once `loka.apply` finds blocks (linear, BlockNorm, hard swish) in a model and runs them fused. After a change
/// write the catalogue again: `loka kernels --catalogue`.
pub const APPLY_RUNS_BLOCKS: bool = true;

const NO_BLOCKS: &str = "loka.apply changes linears alone: call loka.kernels.block in the model";
const NO_STATIC_WGRAD: &str = "wgrad reads both operands transposed, which casting on the way in cannot";
const NO_TAIL: &str = "only fprop has a tail";
const NO_BACKWARD: &str = "inference runs no backward GEMM";

impl Kernel {
    /// Why `loka.apply` cannot run this kernel at that GEMM in that runtime, whatever the shape; `None` where it can.
    pub fn not_applied(&self, gemm: Gemm, runtime: Runtime) -> Option<&'static str> {
        self.not_applied_given(gemm, runtime, APPLY_RUNS_BLOCKS)
    }

    /// The same for a `loka.apply` that runs blocks, or does not.
    pub fn not_applied_given(&self, gemm: Gemm, runtime: Runtime, runs_blocks: bool) -> Option<&'static str> {
        if !runtime.runs(gemm) {
            return Some(NO_BACKWARD);
        }
        // Asked for every row of a large trace: most kernels have no static scale.
        if !self.is_own() || !self.is_static() {
            return None;
        }
        match (self.has_tail(), gemm) {
            (true, _) if !runs_blocks => Some(NO_BLOCKS),
            (true, Gemm::Dgrad | Gemm::Wgrad) => Some(NO_TAIL),
            (false, Gemm::Wgrad) => Some(NO_STATIC_WGRAD),
            _ => None,
        }
    }

    /// True where a latency recorded in a CUDA graph says nothing of what the runtime pays: LoKA's own GEMMs are opaque
    /// to the compiler, which costs about 110 us of host time a call when each is launched by itself.
    pub fn needs_site_time(&self, runtime: Runtime) -> bool {
        runtime == Runtime::Launched && self.is_own()
    }
}

/// The catalogue as the Python package carries it: kernel id -> what it does to each GEMM's operands, the sizes that it
/// takes, and what runs it; and by what rule widths are padded.
pub fn catalogue_json() -> Value {
    let kernels: Map<String, Value> =
        catalogue().iter().map(|kernel| (kernel.name.to_owned(), entry(kernel))).collect();
    let bf16 = json!({"multiple_of": BF16_MULTIPLE, "elements": BF16_LARGE});
    let padding = json!({"narrowest": NARROWEST, "bf16": bf16});
    json!({"format": "loka-catalogue", "version": 1, "kernels": kernels, "padding": padding})
}

fn entry(kernel: &Kernel) -> Value {
    let gemms: Map<String, Value> =
        Gemm::ALL.map(|gemm| (gemm.to_string(), numerics(kernel, gemm))).into_iter().collect();
    let runtimes: Map<String, Value> =
        Runtime::ALL.map(|runtime| (runtime.to_string(), runs(kernel, runtime))).into_iter().collect();
    json!({"about": kernel.about, "gemms": gemms, "runtimes": runtimes})
}

fn numerics(kernel: &Kernel, gemm: Gemm) -> Value {
    let numerics = kernel.numerics(gemm);
    json!({
        "a": cast(numerics.a), "b": cast(numerics.b),
        "fast": numerics.accumulation == Accumulation::Fast,
        "output": format_name(numerics.output),
        "multiple_of": kernel.multiple_of(gemm),
        "pads": kernel.pads_features(gemm),
    })
}

fn cast(cast: OperandCast) -> Value {
    let granularity = match cast.granularity {
        Granularity::None => "none",
        Granularity::Tensor => "tensor",
        Granularity::Row => "row",
        Granularity::Block1x128 => "block_1x128",
        Granularity::Block128x128 => "block_128x128",
        Granularity::Static => "static",
    };
    json!({"format": format_name(cast.format), "granularity": granularity, "power_of_two": cast.power_of_two})
}

/// As the Python package names it.
fn format_name(format: Format) -> &'static str {
    match format {
        Format::F32 => "f32",
        Format::Tf32 => "tf32",
        Format::Bf16 => "bf16",
        Format::E4m3 => "e4m3",
        Format::E5m2 => "e5m2",
    }
}

/// `null`: `loka.apply` runs it; else the reason why it does not.
fn runs(kernel: &Kernel, runtime: Runtime) -> Value {
    let gemms: Map<String, Value> =
        Gemm::ALL.map(|gemm| (gemm.to_string(), json!(kernel.not_applied(gemm, runtime)))).into_iter().collect();
    json!({"not_applied": gemms, "needs_site_time": kernel.needs_site_time(runtime)})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::kernel;

    #[test]
    fn apply_runs_all_but_blocks_and_static_weight_gradients() {
        let why = |name: &str, gemm, runtime| kernel(name).unwrap().not_applied_given(gemm, runtime, false);
        assert_eq!(why("loka/fp8-block+fast", Gemm::Fprop, Runtime::Graph), Some(NO_BLOCKS));
        assert_eq!(why("loka/fp8-static+fast", Gemm::Wgrad, Runtime::Launched), Some(NO_STATIC_WGRAD));
        assert_eq!(why("loka/fp8-static+fast", Gemm::Dgrad, Runtime::Launched), None);
        assert_eq!(why("cublaslt/fp8-rowwise+fast", Gemm::Dgrad, Runtime::Inference), Some(NO_BACKWARD));
        let block = kernel("loka/fp8-block+fast").unwrap();
        assert_eq!(block.not_applied_given(Gemm::Fprop, Runtime::Graph, true), None);
        assert_eq!(block.not_applied_given(Gemm::Dgrad, Runtime::Graph, true), Some(NO_TAIL));
    }

    #[test]
    fn what_is_timed_together_runs_the_same() {
        for runtime in Runtime::ALL {
            let together = runtime.timed_together();
            assert!(together.contains(&runtime) && together.contains(&runtime.timed_as()));
            assert!(together.iter().all(|other| other.timed_as() == runtime.timed_as()));
            for (kernel, other) in
                catalogue().iter().flat_map(|kernel| together.iter().map(move |other| (kernel, *other)))
            {
                let why = |runtime| Gemm::ALL.map(|gemm| kernel.not_applied(gemm, runtime));
                assert_eq!(why(runtime), why(other), "{}", kernel.name);
            }
        }
    }

    #[test]
    fn runtimes_are_named_as_plans_write_them() {
        for runtime in Runtime::ALL {
            assert_eq!(serde_json::to_value(runtime).unwrap(), runtime.as_str());
            assert_eq!(runtime.as_str().parse(), Ok(runtime));
        }
        let unknown = "eager".parse::<Runtime>().unwrap_err();
        assert_eq!(unknown, "unknown runtime 'eager' (launched, graph or inference)");
    }

    #[test]
    fn the_python_package_carries_this_catalogue() {
        let text = include_str!("../../../python/loka/kernels/catalogue.json");
        let carried: Value = serde_json::from_str(text).unwrap();
        let again = "cargo run -p loka -- kernels --catalogue > python/loka/kernels/catalogue.json";
        assert!(carried == catalogue_json(), "the catalogue changed: {again}");
    }
}
