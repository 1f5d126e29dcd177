//! What the trace says of the run it was recorded from (docs/reference/trace.md).

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::Site;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Model {
    pub name: String,
    #[serde(default)]
    pub family: String,
    #[serde(default)]
    pub framework: String,
    #[serde(default)]
    pub parameters: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    pub id: String,
    #[serde(default)]
    pub rank: u64,
    #[serde(default)]
    pub world_size: u64,
    pub step: u64,
    #[serde(default)]
    pub every: u64,
    #[serde(default)]
    pub device: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recorded_at: Option<String>,
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// What plain steps of the run took on a GPU, each from an idle one: medians, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub struct StepPace {
    /// How many were timed.
    pub steps: u64,
    /// Of them, in how many the GPU had caught up with its host before all was launched.
    pub waited: u64,
    /// What the host takes to launch one.
    pub host_ms: f64,
    /// What the step takes in all.
    pub step_ms: f64,
    /// What one takes among others, whose launches wait in line while the GPU works. Unknown of older traces, and where nearly every
    /// step was recorded.
    #[serde(default)]
    pub period_ms: Option<f64>,
}

impl StepPace {
    /// The GPU waits for its host: in nine steps of ten, as training's own look at it has it.
    pub fn is_the_hosts(&self) -> bool {
        10 * u128::from(self.waited) >= 9 * u128::from(self.steps)
    }

    /// (of its host, in all) of a step as training runs it, in milliseconds: no step is shorter than its launches.
    pub fn in_training_ms(&self) -> (f64, f64) {
        let step_ms = self.period_ms.unwrap_or(self.step_ms);
        (self.host_ms.min(step_ms), step_ms)
    }
}

impl Run {
    /// `None`: it ran on no GPU, or its recorder did not look. What cannot be such figures is none.
    pub fn pace(&self) -> Option<StepPace> {
        let pace = StepPace::deserialize(self.extra.get("pace")?).ok()?;
        let is_time = |ms: f64| ms > 0.0 && ms.is_finite();
        let all = [Some(pace.host_ms), Some(pace.step_ms), pace.period_ms];
        (pace.steps > 0 && pace.waited <= pace.steps && all.into_iter().flatten().all(is_time)).then_some(pace)
    }

    /// How many ranks wrote a shard: all, unless the recorder was given `ranks`.
    pub fn num_shards(&self) -> u64 {
        self.extra.get("recorded_ranks").and_then(Value::as_u64).unwrap_or(self.world_size)
    }
}

/// The training loss that a loss budget is relative to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Loss {
    pub name: String,
    pub value: f64,
    /// How many times the log loss of the model's predictions it is, where a recorder saw that in the heads' gradients. `None`: once, as far
    /// as is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<f64>,
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl Loss {
    /// How many times a log loss; 1 where nobody said.
    pub fn times(&self) -> f64 {
        self.weight.unwrap_or(1.0)
    }
}

/// The value of the safetensors metadata key `loka.trace`. Unknown keys are kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    pub version: u64,
    pub model: Model,
    pub run: Run,
    pub loss: Loss,
    #[serde(default)]
    pub quantile_probs: Vec<f64>,
    pub sites: Vec<Site>,
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}
