//! The plan as its file holds it (docs/reference/plan.md), read with every check and written with its digest.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::{
    dispatch::{Chain, Choice, OverrideError, Policy, PolicyError, Totals},
    model::{
        Forward, Gemm, ModSet, Model, Runtime, SiteId, SiteMods, canonical_json, is_once, once, sha256, sha256_of,
    },
    review::{Approval, Review},
};

pub const FORMAT: &str = "loka-plan";
pub const VERSION: u64 = 1;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanSite {
    pub site: SiteId,
    /// Rows a step, in features and out features: whoever applies the plan can refuse a layer of another
    /// shape. `None` in plans that were made before these keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub m: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub k: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n: Option<usize>,
    /// How often the module is called in a step; `m` is of one call.
    #[serde(default = "once", skip_serializing_if = "is_once")]
    pub calls: usize,
    /// GEMMs whose result nobody needs there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub never_runs: Vec<Gemm>,
    /// The trace's, of a site that no framework should put a kernel at, or `loka.apply` alone can. `None`: a linear like others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forward: Option<Forward>,
    pub fprop: Choice,
    pub dgrad: Choice,
    pub wgrad: Choice,
    /// What the forward GEMM takes, or hands on, as codes. `None`: it reads and stores BF16.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain: Option<Chain>,
}

impl PlanSite {
    /// No module that another framework could find.
    pub fn is_ours_alone(&self) -> bool {
        self.forward.as_ref().is_some_and(Forward::is_ours_alone)
    }

    pub fn choice(&self, gemm: Gemm) -> &Choice {
        match gemm {
            Gemm::Fprop => &self.fprop,
            Gemm::Dgrad => &self.dgrad,
            Gemm::Wgrad => &self.wgrad,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    pub format: String,
    pub version: u64,
    /// Where it is meant to run; plans that say nothing are of a launched step.
    #[serde(default, skip_serializing_if = "Runtime::is_default")]
    pub runtime: Runtime,
    /// The type of GPU whose times it was made by, where one was chosen of several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    pub name: String,
    pub created_at: String,
    pub model: Model,
    pub trace_digest: String,
    pub results_digest: String,
    pub policy: Policy,
    /// Sites with at least one mod.
    pub mods: BTreeMap<SiteId, ModSet>,
    /// Every site of the trace, in forward order.
    pub sites: Vec<PlanSite>,
    pub totals: Totals,
    /// Whoever decided something in it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub authors: Vec<String>,
    /// It was submitted for approval as this version of the trace's plan, and changed no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release: Option<u32>,
    /// Over everything else but [`BESIDE`].
    pub digest: String,
    /// Signatures under the digest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<Approval>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub review: Option<Review>,
    /// Why this is no plan to run yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draft: Option<String>,
}

/// Keys that are not under the digest: what is said of a plan does not change it.
pub const BESIDE: [&str; 4] = ["approvals", "digest", "draft", "review"];

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PlanError {
    #[error("not a plan: {0}")]
    Json(String),
    #[error("not a plan: format is {0}, not \"{FORMAT}\"")]
    Format(Value),
    #[error("plan version {0} is not known (this program reads {VERSION})")]
    Version(Value),
    #[error("the plan was changed after it was made: its digest is {found}, its content's is {content}")]
    Digest { found: Value, content: String },
    #[error("site '{0}' is in the plan twice")]
    DuplicateSite(SiteId),
    #[error(transparent)]
    Policy(#[from] PolicyError),
    #[error(transparent)]
    Override(#[from] OverrideError),
    #[error("the results have no rows with mods '{asked}' (they have: {known})")]
    NoRows { asked: String, known: String },
    #[error("mods for an unknown site '{0}'")]
    UnknownModSite(SiteId),
}

impl Plan {
    /// Reads a plan and refuses one that was edited, is of another version or says what cannot be.
    pub fn from_json(text: &str) -> Result<Self, PlanError> {
        let mut value: Value = serde_json::from_str(text).map_err(|error| PlanError::Json(error.to_string()))?;
        let key = |value: &Value, name: &str| value.get(name).cloned().unwrap_or_default();
        if key(&value, "format") != FORMAT {
            return Err(PlanError::Format(key(&value, "format")));
        }
        if key(&value, "version") != VERSION {
            return Err(PlanError::Version(key(&value, "version")));
        }
        let content = digest_of(&mut value);
        let found = key(&value, "digest");
        if found != content.as_str() {
            return Err(PlanError::Digest { found, content });
        }
        let plan: Self = serde_json::from_value(value).map_err(|error| PlanError::Json(error.to_string()))?;
        plan.policy.validate()?;
        let mut seen = BTreeSet::new();
        match plan.sites.iter().find(|site| !seen.insert(&site.site)) {
            Some(twice) => Err(PlanError::DuplicateSite(twice.site.clone())),
            None => Ok(plan),
        }
    }

    /// Indented, for people and for version control; the digest does not depend on it.
    pub fn to_json(&self) -> String {
        // Cannot fail: every key is text and no number is NaN.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    /// What `digest` must be: [`digest_of`] without ever holding the whole plan as a JSON tree, which
    /// for 10,000 sites is slower than choosing their kernels.
    pub fn content_digest(&self) -> String {
        let mut hasher = Sha256::new();
        let mut separator = "{";
        for (key, value) in self.small_parts() {
            hasher.update(format!("{separator}\"{key}\":"));
            separator = ",";
            if key == "sites" {
                self.hash_sites(&mut hasher);
            } else {
                hasher.update(canonical_json(&value));
            }
        }
        hasher.update("}");
        sha256(hasher)
    }

    /// Dates the plan, and with that gives it its digest: whoever writes the file calls this last.
    pub fn stamp(&mut self, created_at: String) {
        self.created_at = created_at;
        self.digest = self.content_digest();
    }

    /// Every key but `digest`, sorted, with no sites in `sites`.
    fn small_parts(&self) -> BTreeMap<String, Value> {
        let small = Self {
            format: self.format.clone(),
            version: self.version,
            runtime: self.runtime,
            device: self.device.clone(),
            name: self.name.clone(),
            created_at: self.created_at.clone(),
            model: self.model.clone(),
            trace_digest: self.trace_digest.clone(),
            results_digest: self.results_digest.clone(),
            policy: self.policy.clone(),
            mods: self.mods.clone(),
            sites: Vec::new(),
            totals: self.totals,
            authors: self.authors.clone(),
            release: self.release,
            digest: String::new(),
            approvals: Vec::new(),
            review: None,
            draft: None,
        };
        let mut parts: BTreeMap<String, Value> = match serde_json::to_value(&small) {
            Ok(Value::Object(map)) => map.into_iter().collect(),
            _ => BTreeMap::new(),
        };
        BESIDE.iter().for_each(|key| drop(parts.remove(*key)));
        parts
    }

    /// Of what was said of it so far.
    pub fn review_digest(&self) -> String {
        review_digest(self.review.as_ref())
    }

    fn hash_sites(&self, hasher: &mut Sha256) {
        let mut separator = "[";
        for site in &self.sites {
            hasher.update(separator);
            hasher.update(canonical_json(&serde_json::to_value(site).unwrap_or_default()));
            separator = ",";
        }
        hasher.update(if self.sites.is_empty() { "[]" } else { "]" });
    }

    pub fn site_mods(&self) -> SiteMods {
        SiteMods::new(ModSet::none(), self.mods.clone())
    }

    pub fn choices(&self) -> impl Iterator<Item = (&SiteId, Gemm, &Choice)> {
        self.sites.iter().flat_map(|site| Gemm::ALL.map(|gemm| (&site.site, gemm, site.choice(gemm))))
    }
}

/// Of what was said of a plan, which may be nothing.
pub fn review_digest(review: Option<&Review>) -> String {
    let value = serde_json::to_value(review).unwrap_or_default();
    sha256_of(canonical_json(&value).as_bytes())
}

/// Over everything but [`BESIDE`], which comes back as it was.
fn digest_of(plan: &mut Value) -> String {
    let take =
        |key: &str, map: &mut serde_json::Map<String, Value>| map.remove(key).map(|value| (key.to_owned(), value));
    let beside: Vec<_> =
        plan.as_object_mut().map(|map| BESIDE.iter().filter_map(|key| take(key, map)).collect()).unwrap_or_default();
    let content = sha256_of(canonical_json(plan).as_bytes());
    if let Some(map) = plan.as_object_mut() {
        map.extend(beside);
    }
    content
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        dispatch::{
            Overrides,
            testing::{results, row},
        },
        plan::build,
    };

    fn text() -> String {
        let results = results(&["a", "b"], vec![row("a", Gemm::Fprop, "te/current", 0.1, Some(1.0 / 0.3), 1e-6)]);
        build(&results, &Policy::paper(), &SiteMods::default(), &Overrides::new(), "nightly", "2026-11-20T00:00:00Z")
            .unwrap()
            .plan
            .to_json()
    }

    #[test]
    fn reads_what_it_wrote() {
        let plan = Plan::from_json(&text()).unwrap();
        assert_eq!(plan.to_json(), text());
        assert_eq!(plan.digest, plan.content_digest());
        let empty = Plan { sites: Vec::new(), ..plan.clone() };
        for plan in [&plan, &empty] {
            assert_eq!(
                plan.content_digest(),
                digest_of(&mut serde_json::to_value(plan).unwrap()),
                "streamed or as a tree"
            );
        }
        assert_eq!(plan.sites[0].fprop.kernel.as_str(), "te/current");
    }

    #[test]
    fn the_keys_are_the_contracts() {
        let value: Value = serde_json::from_str(&text()).unwrap();
        let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<BTreeSet<_>>();
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        let top = [
            "format",
            "version",
            "name",
            "created_at",
            "model",
            "trace_digest",
            "results_digest",
            "policy",
            "mods",
            "sites",
            "totals",
            "digest",
        ];
        assert_eq!(keys(&value), set(&top));
        assert_eq!(keys(&value["sites"][0]), set(&["site", "m", "k", "n", "fprop", "dgrad", "wgrad"]));
        assert_eq!(
            keys(&value["sites"][0]["fprop"]),
            set(&["kernel", "source", "reason", "error", "speedup", "rel_l2_lo", "rel_l2_hi", "runners_up"])
        );
        assert_eq!(value["sites"][0]["fprop"]["source"], "dispatch");
    }

    /// With the digest made right again, as a careful forger would.
    fn edited(edit: impl FnOnce(&mut Value)) -> String {
        let mut value: Value = serde_json::from_str(&text()).unwrap();
        edit(&mut value);
        value["digest"] = digest_of(&mut value).into();
        Plan::from_json(&value.to_string()).unwrap_err().to_string()
    }

    #[test]
    fn an_edited_plan_is_noticed() {
        let changed = text().replacen("te/current", "te/blockwise", 1);
        let message = Plan::from_json(&changed).unwrap_err().to_string();
        assert!(message.starts_with("the plan was changed after it was made: its digest is \"sha256:"), "{message}");
        let compact: Value = serde_json::from_str(&text()).unwrap();
        Plan::from_json(&compact.to_string()).expect("spaces are not an edit");
    }

    #[test]
    fn shapes_may_be_missing_and_are_under_the_digest() {
        let mut value: Value = serde_json::from_str(&text()).unwrap();
        assert_eq!(
            (&value["sites"][0]["m"], &value["sites"][0]["k"], &value["sites"][0]["n"]),
            (&64.into(), &32.into(), &16.into())
        );
        value["sites"][0]["k"] = 33.into();
        let message = Plan::from_json(&value.to_string()).unwrap_err().to_string();
        assert!(message.starts_with("the plan was changed after it was made"), "{message}");
        for site in value["sites"].as_array_mut().unwrap() {
            site.as_object_mut().unwrap().retain(|key, _| !["m", "k", "n"].contains(&key.as_str()));
        }
        value["digest"] = digest_of(&mut value).into();
        let before_shapes = Plan::from_json(&value.to_string()).unwrap();
        assert_eq!((before_shapes.sites[1].m, before_shapes.sites[1].k, before_shapes.sites[1].n), (None, None, None));
        assert_eq!(serde_json::from_str::<Value>(&before_shapes.to_json()).unwrap(), value, "written as it was read");
        assert_eq!(before_shapes.content_digest(), before_shapes.digest);
    }

    #[test]
    fn the_runtime_is_under_the_digest_and_launched_when_it_is_not_said() {
        let launched = Plan::from_json(&text()).unwrap();
        assert_eq!(launched.runtime, Runtime::Launched);
        assert!(!text().contains("\"runtime\""), "plans of before there were runtimes keep their digests");
        let mut graph = Plan { runtime: Runtime::Graph, ..launched.clone() };
        assert_ne!(graph.content_digest(), launched.digest);
        graph.stamp(graph.created_at.clone());
        assert_eq!(Plan::from_json(&graph.to_json()).unwrap(), graph);
        assert!(edited(|plan| plan["runtime"] = "eager".into()).contains("unknown variant `eager`"));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        assert_eq!(edited(|plan| plan["format"] = "x".into()), "not a plan: format is \"x\", not \"loka-plan\"");
        assert_eq!(edited(|plan| plan["version"] = 2.into()), "plan version 2 is not known (this program reads 1)");
        assert_eq!(
            edited(|plan| plan["policy"]["max_error"] = (-1.0).into()),
            "policy 'paper': max_error is -1, it must be a number of at least 0"
        );
        assert_eq!(edited(|plan| plan["sites"][1]["site"] = "a".into()), "site 'a' is in the plan twice");
        assert!(
            edited(|plan| plan["sites"][0]["bprop"] = plan["sites"][0]["fprop"].clone())
                .contains("unknown field `bprop`")
        );
        assert!(edited(|plan| plan["sites"][0]["fprop"]["source"] = "luck".into()).contains("unknown variant `luck`"));
        assert!(
            edited(|plan| {
                plan["sites"][0].as_object_mut().unwrap().remove("dgrad");
            })
            .contains("missing field `dgrad`")
        );
        for text in ["", "[]", "{", "\u{0}"] {
            assert!(Plan::from_json(text).unwrap_err().to_string().starts_with("not a plan: "));
        }
    }
}
