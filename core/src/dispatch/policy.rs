//! Takes JSON or a built-in name, gives a policy that has been checked.

use serde::{Deserialize, Deserializer, Serialize, Serializer, ser::SerializeStruct as _};

use crate::{
    model::{KernelId, Metric, SiteId, baseline_kernel, bounded_list},
    review::ApprovalRule,
};

use super::PolicyGroup;

/// What a plan must keep to (docs/reference/policy.md).
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    pub name: String,
    pub metric: Metric,
    /// The largest error that is safe; for `sqnr_db` the smallest ratio.
    pub max_error: f64,
    #[serde(default = "default_min_speedup")]
    pub min_speedup: f64,
    /// Of the intervals that verdicts rest on.
    #[serde(default = "default_confidence")]
    pub confidence: f64,
    /// Share of the trace's loss that all forward GEMMs together may cost. Then the metric bounds
    /// the backward ones only.
    #[serde(default)]
    pub loss_budget: Option<f64>,
    /// How far from 0 the bias of a backward GEMM may be, beside what the metric bounds; `None`: it is not looked at.
    #[serde(default)]
    pub max_bias: Option<f64>,
    #[serde(default = "baseline_kernel")]
    pub baseline: KernelId,
    /// Who must sign a plan before it is run; `None`: nobody.
    #[serde(default)]
    pub approval: Option<ApprovalRule>,
    /// Parts of the model that are held to a bound of their own; of several that match a site the first counts.
    #[serde(default, deserialize_with = "bounded_groups")]
    pub groups: Vec<PolicyGroup>,
}

/// More than anybody writes by hand, and few enough to match every site against.
const GROUPS: usize = 1000;

fn bounded_groups<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<PolicyGroup>, D::Error> {
    bounded_list(deserializer, GROUPS)
}

/// A file leaves `max_bias`, `approval` and `groups` out where there are none, as files of before there were any:
/// digests stand. A binary coding, which has no names to miss a field by, has all of them.
impl Serialize for Policy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let in_full = !serializer.is_human_readable();
        let bias = in_full || self.max_bias.is_some();
        let (approval, groups) = (in_full || self.approval.is_some(), in_full || !self.groups.is_empty());
        let num_fields = 7 + [bias, approval, groups].map(usize::from).iter().sum::<usize>();
        let mut fields = serializer.serialize_struct("Policy", num_fields)?;
        fields.serialize_field("name", &self.name)?;
        fields.serialize_field("metric", &self.metric)?;
        fields.serialize_field("max_error", &self.max_error)?;
        fields.serialize_field("min_speedup", &self.min_speedup)?;
        fields.serialize_field("confidence", &self.confidence)?;
        fields.serialize_field("loss_budget", &self.loss_budget)?;
        if bias {
            fields.serialize_field("max_bias", &self.max_bias)?;
        }
        fields.serialize_field("baseline", &self.baseline)?;
        if approval {
            fields.serialize_field("approval", &self.approval)?;
        }
        if groups {
            fields.serialize_field("groups", &self.groups)?;
        }
        fields.end()
    }
}

fn none() -> String {
    "none".to_owned()
}

fn json<T: Serialize + ?Sized>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_else(|error| error.to_string())
}

fn default_min_speedup() -> f64 {
    1.05
}

fn default_confidence() -> f64 {
    0.95
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    #[error("unknown policy '{0}' (paper, rel-l2, loss-budget or balanced)")]
    Unknown(String),
    #[error("not a policy: {0}")]
    Json(String),
    #[error("policy '{name}': {problem}")]
    Invalid { name: String, problem: String },
}

/// [`Policy::DEFAULT`], for who has no name to look it up by.
impl Default for Policy {
    fn default() -> Self {
        Self::balanced()
    }
}

impl Policy {
    pub const BUILTIN: [&str; 4] = ["paper", "rel-l2", "loss-budget", "balanced"];

    /// What is used where nobody names one.
    pub const DEFAULT: &str = "balanced";

    /// LoKA §V: MERE below .2 and more than 1.05x.
    pub fn paper() -> Self {
        Self {
            name: "paper".to_owned(),
            metric: Metric::Mere,
            max_error: 0.2,
            min_speedup: default_min_speedup(),
            confidence: default_confidence(),
            loss_budget: None,
            max_bias: None,
            baseline: baseline_kernel(),
            approval: None,
            groups: Vec::new(),
        }
    }

    /// The bias apart from it: a wgrad that accumulates fast is near by rel L2 and off in the same way in every step, which
    /// cost a ranker .33 % of its loss.
    pub fn rel_l2() -> Self {
        let name = "rel-l2".to_owned();
        Self { name, metric: Metric::RelL2, max_error: 0.05, max_bias: Some(0.01), ..Self::paper() }
    }

    /// Both decide alike wherever both judge alike: they differ at most in what rows are held against.
    pub(crate) fn decides_like(&self, other: &Self) -> bool {
        self.min_speedup == other.min_speedup
            && self.baseline == other.baseline
            && self.loss_budget.is_some() == other.loss_budget.is_some()
    }

    /// Both hold the same of every row against a limit, and that on loss and bias is the same.
    pub(crate) fn asks_like(&self, other: &Self) -> bool {
        self.metric == other.metric
            && self.baseline == other.baseline
            && self.loss_budget == other.loss_budget
            && self.max_bias == other.max_bias
    }

    /// Any gain counts here: the optimiser weighs it against what it costs.
    pub fn loss_budget() -> Self {
        let name = "loss-budget".to_owned();
        Self { name, min_speedup: 1.0, loss_budget: Some(0.0002), ..Self::rel_l2() }
    }

    /// What a team can adopt: the forward within a loss budget, the backward within a hundredth of the noise that its
    /// gradients have anyway, and within a hundredth of their size.
    pub fn balanced() -> Self {
        Self {
            name: "balanced".to_owned(),
            metric: Metric::NoiseShare,
            max_error: 0.01,
            loss_budget: Some(0.0002),
            max_bias: Some(0.01),
            ..Self::paper()
        }
    }

    pub fn builtin(name: &str) -> Result<Self, PolicyError> {
        match name {
            "paper" => Ok(Self::paper()),
            "rel-l2" => Ok(Self::rel_l2()),
            "loss-budget" => Ok(Self::loss_budget()),
            "balanced" => Ok(Self::balanced()),
            _ => Err(PolicyError::Unknown(name.to_owned())),
        }
    }

    pub fn from_json(json: &str) -> Result<Self, PolicyError> {
        let policy: Self = serde_json::from_str(json).map_err(|error| PolicyError::Json(error.to_string()))?;
        policy.validate()?;
        Ok(policy)
    }

    pub fn validate(&self) -> Result<(), PolicyError> {
        match self.problem() {
            Some(problem) => Err(PolicyError::Invalid { name: self.name.clone(), problem }),
            None => Ok(()),
        }
    }

    /// What holds at a site in place of `max_error`; `None`: nothing else does.
    pub fn group_of(&self, site: &SiteId) -> Option<&PolicyGroup> {
        self.groups.iter().find(|group| group.sites.matches(site))
    }

    /// What this policy has otherwise than another: field, text here, text there.
    pub fn differences(&self, other: &Self) -> impl Iterator<Item = (&'static str, String, String)> {
        let pairs = self.fields().into_iter().zip(other.fields());
        pairs.filter(|(here, there)| here != there).map(|((name, here), (_, there))| (name, here, there))
    }

    /// Every field as text, in a file's order.
    fn fields(&self) -> [(&'static str, String); 10] {
        // All are named, so that one that is added cannot be forgotten here.
        let Self {
            name,
            metric,
            max_error,
            min_speedup,
            confidence,
            loss_budget,
            max_bias,
            baseline,
            approval,
            groups,
        } = self;
        let bound = |bound: &Option<f64>| bound.map_or_else(none, |bound| bound.to_string());
        let groups = if groups.is_empty() { none() } else { json(groups) };
        [
            ("name", name.clone()),
            ("metric", metric.to_string()),
            ("max_error", max_error.to_string()),
            ("min_speedup", min_speedup.to_string()),
            ("confidence", confidence.to_string()),
            ("loss_budget", bound(loss_budget)),
            ("max_bias", bound(max_bias)),
            ("baseline", baseline.to_string()),
            ("approval", approval.as_ref().map_or_else(none, json)),
            ("groups", groups),
        ]
    }

    fn problem(&self) -> Option<String> {
        let thresholds = [
            ("max_error", Some(self.max_error)),
            ("min_speedup", Some(self.min_speedup)),
            ("loss_budget", self.loss_budget),
            ("max_bias", self.max_bias),
        ];
        for (name, value) in thresholds {
            // `!(>=)`: a NaN must not pass.
            if let Some(value) = value.filter(|value| !(*value >= 0.0 && value.is_finite())) {
                return Some(format!("{name} is {value}, it must be a number of at least 0"));
            }
        }
        if !(self.confidence > 0.0 && self.confidence < 1.0) {
            return Some(format!("confidence is {}, it must be between 0 and 1", self.confidence));
        }
        if self.name.trim().is_empty() {
            return Some("the name is empty".to_owned());
        }
        if let Some(problem) = self.approval.as_ref().and_then(ApprovalRule::problem) {
            return Some(problem);
        }
        if let Some(problem) = self.groups.iter().find_map(PolicyGroup::problem) {
            return Some(problem);
        }
        match self.baseline.known() {
            None => Some(format!("the baseline '{}' is not a known kernel", self.baseline)),
            Some(entry) if !entry.high_precision() => {
                Some(format!("the baseline '{}' is not in high precision", self.baseline))
            }
            Some(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_contract_example_is_the_builtin() {
        let json = r#"{"name": "paper", "metric": "mere", "max_error": 0.2, "min_speedup": 1.05, "confidence": 0.95, "loss_budget": null, "baseline": "cublaslt/bf16"}"#;
        assert_eq!(Policy::from_json(json).unwrap(), Policy::paper());
        assert_eq!(
            Policy::from_json(r#"{"name": "paper", "metric": "mere", "max_error": 0.2}"#).unwrap(),
            Policy::paper()
        );
    }

    #[test]
    fn builtins_are_valid_and_found_by_name() {
        for name in Policy::BUILTIN {
            let policy = Policy::builtin(name).unwrap();
            assert_eq!(policy.name, name);
            policy.validate().unwrap();
        }
        assert_eq!(
            Policy::builtin("papier").unwrap_err().to_string(),
            "unknown policy 'papier' (paper, rel-l2, loss-budget or balanced)"
        );
    }

    #[test]
    fn bad_policies_are_refused_in_one_line() {
        for (json, message) in [
            (
                r#"{"name":"p","metric":"mere","max_error":-0.2}"#,
                "policy 'p': max_error is -0.2, it must be a number of at least 0",
            ),
            (
                r#"{"name":"p","metric":"mere","max_error":0.2,"loss_budget":-1}"#,
                "policy 'p': loss_budget is -1, it must be a number of at least 0",
            ),
            (
                r#"{"name":"p","metric":"mere","max_error":0.2,"confidence":1}"#,
                "policy 'p': confidence is 1, it must be between 0 and 1",
            ),
            (
                r#"{"name":"p","metric":"mere","max_error":0.2,"baseline":"x/y"}"#,
                "policy 'p': the baseline 'x/y' is not a known kernel",
            ),
            (
                r#"{"name":"p","metric":"mere","max_error":0.2,"baseline":"te/current"}"#,
                "policy 'p': the baseline 'te/current' is not in high precision",
            ),
            (r#"{"name":" ","metric":"mere","max_error":0.2}"#, "policy ' ': the name is empty"),
        ] {
            assert_eq!(Policy::from_json(json).unwrap_err().to_string(), message);
        }
    }

    #[test]
    fn unknown_words_and_missing_keys_are_named() {
        for (json, part) in [
            (r#"{"name":"p","metric":"meer","max_error":0.2}"#, "unknown variant `meer`"),
            (r#"{"name":"p","metric":"mere","max_errors":0.2}"#, "unknown field `max_errors`"),
            (r#"{"name":"p","metric":"mere"}"#, "missing field `max_error`"),
            (r#"{"name":"p","metric":"mere","max_error":NaN}"#, "expected value"),
            ("", "EOF"),
        ] {
            let message = Policy::from_json(json).unwrap_err().to_string();
            assert!(
                message.starts_with("not a policy: ") && message.contains(part) && !message.contains('\n'),
                "{message}"
            );
        }
    }

    #[test]
    fn who_must_sign_is_part_of_it() {
        let json = r#"{"name": "p", "metric": "mere", "max_error": 0.2, "approval": {"approvers": 2, "own": true}}"#;
        let policy = Policy::from_json(json).unwrap();
        let again: Policy = serde_json::from_str(&serde_json::to_string(&policy).unwrap()).unwrap();
        assert_eq!((&again, again.approval.as_ref().unwrap().approvers), (&policy, 2));
        for policy in [policy, Policy::paper(), Policy::balanced()] {
            let bytes = postcard::to_allocvec(&policy).unwrap();
            assert_eq!(postcard::from_bytes::<Policy>(&bytes).unwrap(), policy);
        }
        let paper = serde_json::to_string(&Policy::paper()).unwrap();
        assert!(!paper.contains("approval") && !paper.contains("max_bias"), "digests of earlier plans stand");
        let balanced = serde_json::to_string(&Policy::balanced()).unwrap();
        assert_eq!(Policy::from_json(&balanced).unwrap(), Policy::balanced());
        assert_eq!(Policy::builtin(Policy::DEFAULT).unwrap(), Policy::default());
        assert!(Policy::from_json(&json.replace(": 2", ": 0")).is_err());
    }

    #[test]
    fn parts_of_the_model_may_have_bounds_of_their_own() {
        let json = r#"{"name": "p", "metric": "mere", "max_error": 0.2, "groups": [
            {"sites": "tokens.top", "max_error": 0.3}, {"sites": "tokens.*", "max_error": 0.1}]}"#;
        let policy = Policy::from_json(json).unwrap();
        let limit = |site: &str| policy.group_of(&SiteId::new(site)).map(|group| group.max_error);
        assert_eq!([limit("tokens.0"), limit("tokens.top"), limit("net.0")], [Some(0.1), Some(0.3), None]);
        let again: Policy = serde_json::from_str(&serde_json::to_string(&policy).unwrap()).unwrap();
        assert_eq!(again, policy);
        let bytes = postcard::to_allocvec(&policy).unwrap();
        assert_eq!(postcard::from_bytes::<Policy>(&bytes).unwrap(), policy);
        assert!(!serde_json::to_string(&Policy::paper()).unwrap().contains("groups"), "old digests stand");
        let refused = |from: &str, to: &str| Policy::from_json(&json.replace(from, to)).unwrap_err().to_string();
        assert_eq!(
            refused("0.1}", "-0.1}"),
            "policy 'p': max_error of the group tokens.* is -0.1, it must be a number of at least 0"
        );
        assert!(refused("tokens.*", "tokens.[").contains("'tokens.[' is no pattern of sites"));
        assert!(refused("\"max_error\": 0.1}", "\"max_err\": 0.1}").contains("unknown field `max_err`"));
    }

    #[test]
    fn nan_is_refused() {
        let policy = Policy { max_error: f64::NAN, ..Policy::paper() };
        assert_eq!(
            policy.validate().unwrap_err().to_string(),
            "policy 'paper': max_error is NaN, it must be a number of at least 0"
        );
    }
}
