//! One GEMM's choice with its reason, the sums over all of them, and what warns.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::model::{KernelId, Metric};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChoiceSource {
    Dispatch,
    Override,
}

/// Why a kernel that is faster than the chosen one was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PassedOver {
    Unsafe,
    Uncertain,
    /// Its loss cost is better spent elsewhere, or not known.
    Budget,
    /// A person chose otherwise.
    Override,
    /// `loka.apply` does not run it in the plan's runtime, or it was not timed there.
    Runtime,
    /// The module's forward is its own.
    Forward,
}

impl PassedOver {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unsafe => "unsafe",
            Self::Uncertain => "uncertain",
            Self::Budget => "beyond the loss budget",
            Self::Override => "overridden",
            Self::Runtime => "not for this runtime",
            Self::Forward => "a forward of its own",
        }
    }
}

/// What gave a GEMM another kernel than it would have had by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Together {
    /// A cast that it shares with another GEMM of its site.
    Sharing,
    /// Codes that sites hand on.
    Chain,
}

/// What was decided for one GEMM. Its words and figures ([`Choice`]) are for who reads or writes them: they follow from the
/// rows, and nobody looks at thirty thousand.
#[derive(Clone, Debug, PartialEq)]
pub struct Pick {
    pub kernel: KernelId,
    pub source: ChoiceSource,
    /// As in a [`Choice`].
    pub together: Option<Together>,
    /// By name.
    pub passed_over: Vec<(KernelId, PassedOver)>,
}

/// `C` of the plan (docs/reference/plan.md); `passed_over` is an addition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct Choice {
    pub kernel: KernelId,
    pub source: ChoiceSource,
    /// A sentence for a person.
    pub reason: String,
    /// `None`: it has the kernel that is best by itself, or a person's. Files keep it in the sentence alone, so that a
    /// plan's digest is what it was before there was this.
    #[serde(skip)]
    pub together: Option<Together>,
    /// The chosen kernel's, every metric that is known.
    pub error: BTreeMap<Metric, f64>,
    /// Over BF16 of the kernel's own source, with casts of its own: below the policy's least where only
    /// what it shares makes it worth it; then the reason says so.
    pub speedup: Option<f64>,
    /// The left operand's scale and the probability that a step saturates with it: of kernels with a static scale
    /// alone, which cannot run without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub static_scale: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saturation: Option<f64>,
    /// Share of the left operand's elements that its cast to FP8 makes zero, as probed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flushed: Option<f64>,
    /// The interval of the rel L2 among `error`, at the confidence that was probed with: the canary holds a training step against it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rel_l2_lo: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rel_l2_hi: Option<f64>,
    /// rel L2 of a weight's gradient in the first recorded step, and in the last five.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rel_l2_first: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rel_l2_last: Option<f64>,
    /// What could run instead, fastest first, at most three.
    pub runners_up: Vec<KernelId>,
    /// Faster kernels that were not taken, and why: `diff` explains changes with it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub passed_over: BTreeMap<KernelId, PassedOver>,
}

impl Serialize for Choice {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for Choice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut choice = Self::deserialize(deserializer)?;
        if choice.source == ChoiceSource::Dispatch {
            choice.together = super::reason::together(&choice.reason);
        }
        Ok(choice)
    }
}

fn is_zero(value: &f64) -> bool {
    *value == 0.0
}

fn is_none(value: &usize) -> bool {
    *value == 0
}

/// What a person should see before shipping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    pub kind: WarningKind,
    /// The group it is about, by number; `None`: the plan as a whole.
    pub at: Option<usize>,
    pub text: String,
}

/// Warnings of a kind are shown together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WarningKind {
    /// An override that is not safe by the policy.
    BreaksPolicy,
    /// An override that nothing will run.
    NotApplied,
    /// A site whose loss cost is no number that a budget could hold.
    LeavesBudget,
    /// GEMMs that no total counts.
    NoLatency,
    /// Launched, the GPU would wait for its host, and the plan gain little of what it promises.
    SlowHost,
    /// Anything else about the plan as a whole.
    Plan,
}

impl Warning {
    pub(super) fn whole(text: String) -> Self {
        Self { kind: WarningKind::Plan, at: None, text }
    }

    pub(super) fn at(kind: WarningKind, at: usize, text: String) -> Self {
        Self { kind, at: Some(at), text }
    }
}

impl PartialEq<&str> for Warning {
    fn eq(&self, text: &&str) -> bool {
        self.text == *text
    }
}

/// Sums over the plan. Times are in the policy's baseline's; tails are not in them. Of a site that was timed as a whole
/// they are the site's: casts, launches, what makes x and what reads y, as a compiled model runs them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Totals {
    pub baseline_us: f64,
    /// A cast that two GEMMs of a site have in common counts once.
    pub planned_us: f64,
    /// What `planned_us` is less by because codes are handed on, the stores that it takes paid; modelled.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub handed_on_us: f64,
    /// `None` when no GEMM has a latency.
    pub speedup: Option<f64>,
    /// In units of the loss and beyond BF16's, over the forward GEMMs; `None` when none has one.
    pub loss_cost: Option<f64>,
    /// The sum of the intervals' upper ends: what a loss budget bounds.
    pub loss_cost_hi: Option<f64>,
    /// Forward GEMMs whose loss cost means nothing: they are in neither of the two sums.
    #[serde(default, skip_serializing_if = "is_none")]
    pub num_cost_out_of_range: usize,
    pub num_gemms: usize,
    /// GEMMs that no time is known for, in neither of the two sums.
    pub num_without_latency: usize,
    /// `baseline_us` less `planned_us`: what a step of the plan's runtime is promised to gain. Missing, as the two
    /// counts, in plans of before there were site times.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub saved_us: f64,
    /// Sites whose times were measured as a whole, in the plan's runtime.
    #[serde(default, skip_serializing_if = "is_none")]
    pub measured_sites: usize,
    /// Sites whose times are added up from latencies of single GEMMs in CUDA graphs.
    #[serde(default, skip_serializing_if = "is_none")]
    pub modelled_sites: usize,
}
