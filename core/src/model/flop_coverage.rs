//! What of a model's matrix products the sites are, as the recorder counted it: what a plan cannot change is said beside
//! what it can.

use serde::{Deserialize, Serialize};

use super::Manifest;

/// The manifest's key.
const KEY: &str = "coverage";

/// Below this share a person should look at what is missing before trusting a plan's speed-up of "the model".
pub const LITTLE_COVERED: f64 = 0.9;

/// Floating-point operations of one training forward, 2 m k n a matrix product.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlopCoverage {
    /// Of all matrix products.
    pub flops: u64,
    /// Of those that sites are.
    pub sites: u64,
    /// How it was counted: `forward`, or `fake` where a compiled model was counted from shapes alone.
    #[serde(default)]
    pub how: String,
    /// What is no site, most FLOPs first.
    #[serde(default)]
    pub unseen: Vec<Unseen>,
}

/// Matrix products of one place in the code that are no site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unseen {
    /// PyTorch's operator.
    pub op: String,
    pub flops: u64,
    /// `file.py:31`, the innermost line outside of PyTorch.
    #[serde(default, rename = "where", skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// The parameter that it reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Why it is no site.
    #[serde(default)]
    pub reason: String,
}

impl FlopCoverage {
    /// From 0 to 1; a model without a matrix product has nothing that could be missed.
    pub fn share(&self) -> f64 {
        if self.flops == 0 { 1.0 } else { self.sites as f64 / self.flops as f64 }
    }

    /// `of`: FLOPs of a part. Down to a tenth of a percent: what is short of all is never called all.
    pub fn percent(&self, of: u64) -> String {
        let all = if self.flops == 0 { 1.0 } else { self.flops as f64 };
        let tenths = (1000.0 * of as f64 / all).floor();
        match tenths {
            0.0 if of > 0 => "under .1 %".to_owned(),
            _ if tenths % 10.0 == 0.0 => format!("{} %", tenths / 10.0),
            _ => format!("{:.1} %", tenths / 10.0),
        }
    }

    pub fn is_little(&self) -> bool {
        self.share() < LITTLE_COVERED
    }

    /// "the sites are 83.2 % of the model's matmul FLOPs".
    pub fn sentence(&self) -> String {
        format!("the sites are {} of the model's matmul FLOPs", self.percent(self.sites))
    }

    /// One line for each place that is no site: its share, what it is, where, and why.
    pub fn missing(&self) -> impl Iterator<Item = String> {
        self.unseen.iter().map(|unseen| {
            let Unseen { op, place, name, reason, .. } = unseen;
            let place = place.as_ref().map_or_else(String::new, |place| format!(" at {place}"));
            let name = name.as_ref().map_or_else(String::new, |name| format!(" ({name})"));
            let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
            format!("{} {op}{place}{name}{reason}", self.percent(unseen.flops))
        })
    }

    /// With the largest of what is missing.
    pub fn warning(&self) -> Option<String> {
        let first = self.missing().next().map_or_else(String::new, |line| format!("; first of the rest: {line}"));
        self.is_little().then(|| format!("{}: a plan changes no more than those{first}", self.sentence()))
    }

    fn check(self) -> Result<Self, String> {
        let unseen = self.unseen.iter().try_fold(0_u64, |sum, unseen| sum.checked_add(unseen.flops));
        match unseen.and_then(|unseen| unseen.checked_add(self.sites)) {
            Some(sum) if sum == self.flops => Ok(self),
            _ => Err(format!("its parts do not add up to {} FLOPs", self.flops)),
        }
    }
}

impl Manifest {
    /// # Errors
    /// Why it is not known: an older recorder, or one that could not count, wrote nothing.
    pub fn flop_coverage(&self) -> Result<FlopCoverage, String> {
        let value = self.extra.get(KEY).ok_or("not recorded")?;
        let known: Result<FlopCoverage, _> = serde_json::from_value(value.clone());
        known
            .map_err(|error| error.to_string())
            .and_then(FlopCoverage::check)
            .map_err(|why| format!("not readable: {why}"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn manifest(coverage: Option<Value>) -> Manifest {
        let mut manifest = json!({
            "version": 1, "model": {"name": "m"}, "run": {"id": "r", "step": 1}, "loss": {"name": "l", "value": 0.5},
            "sites": [],
        });
        if let Some(coverage) = coverage {
            manifest["coverage"] = coverage;
        }
        serde_json::from_value(manifest).unwrap()
    }

    #[test]
    fn what_is_no_site_is_said_with_its_place() {
        let unseen = json!([
            {"op": "bmm", "flops": 150, "where": "model.py:31", "name": "mix.weight", "reason": "three dimensions"},
            {"op": "sdpa", "flops": 18},
        ]);
        let coverage = manifest(Some(json!({"flops": 1000, "sites": 832, "how": "forward", "unseen": unseen})));
        let coverage = coverage.flop_coverage().unwrap();
        assert_eq!(coverage.sentence(), "the sites are 83.2 % of the model's matmul FLOPs");
        let lines: Vec<String> = coverage.missing().collect();
        assert_eq!(lines, ["15 % bmm at model.py:31 (mix.weight): three dimensions", "1.8 % sdpa"]);
        assert_eq!(
            coverage.warning().unwrap(),
            "the sites are 83.2 % of the model's matmul FLOPs: a plan changes no more than those; first of the rest: \
             15 % bmm at model.py:31 (mix.weight): three dimensions"
        );
    }

    #[test]
    fn nearly_all_is_not_all() {
        let of = |sites: u64| {
            let rest = json!([{"op": "mm", "flops": 100_000 - sites, "reason": "r"}]);
            let coverage = manifest(Some(json!({"flops": 100_000, "sites": sites, "unseen": rest})));
            let coverage = coverage.flop_coverage().unwrap();
            (coverage.percent(sites), coverage.is_little())
        };
        assert_eq!(of(100_000), ("100 %".to_owned(), false));
        assert_eq!(of(99_999), ("99.9 %".to_owned(), false));
        assert_eq!(of(89_999), ("89.9 %".to_owned(), true));
        assert_eq!(of(1), ("under .1 %".to_owned(), true));
        assert_eq!(of(0), ("0 %".to_owned(), true));
        let nothing = manifest(Some(json!({"flops": 0, "sites": 0}))).flop_coverage().unwrap();
        assert_eq!((nothing.share(), nothing.warning()), (1.0, None));
    }

    #[test]
    fn old_traces_and_broken_counts_say_why_nothing_is_known() {
        assert_eq!(manifest(None).flop_coverage().unwrap_err(), "not recorded");
        let broken = manifest(Some(json!({"flops": -1, "sites": 1}))).flop_coverage().unwrap_err();
        assert!(broken.starts_with("not readable: invalid value: integer `-1`"), "{broken}");
        let more = manifest(Some(json!({"flops": 10, "sites": 11}))).flop_coverage().unwrap_err();
        assert_eq!(more, "not readable: its parts do not add up to 10 FLOPs");
    }
}
