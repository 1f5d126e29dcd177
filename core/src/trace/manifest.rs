//! Takes the text under `loka.trace`; gives the manifest, with each site that does not parse kept as
//! unusable instead of hiding the others.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::error::{Fault, TraceCause};
use crate::model::{Grads, Loss, Manifest, Run, Site, SiteId};

/// A site's key in the manifest that says why it has no usable statistics. We write it when a merge
/// could not use a site; readers that do not know it find tensors missing.
pub(super) const UNUSABLE: &str = "unusable";

/// A run's key in a shard without weights: the rank whose shard has them, and its file.
pub(super) const WEIGHTS_IN: &str = "weights_in";

/// Why a shard has no weights; `None`: it has them.
pub(super) fn weights_elsewhere(run: &Run) -> Option<TraceCause> {
    let there = run.extra.get(WEIGHTS_IN)?;
    let file = there.get("file").and_then(Value::as_str).unwrap_or("another file");
    let rank = there.get("rank").and_then(Value::as_u64).unwrap_or_default();
    Some(TraceCause::WeightsElsewhere { file: file.to_owned(), rank })
}

/// Refuses another version, a manifest without its required keys, and site ids that are not unique.
pub(super) fn parse(text: &str) -> Result<Manifest, Fault> {
    let invalid = |error: serde_json::Error| TraceCause::Manifest(error.to_string());
    let mut value: Value = serde_json::from_str(text).map_err(invalid)?;
    check_version(&value)?;
    let Some(Value::Array(sites)) = value.get_mut("sites").map(Value::take) else {
        return Err(TraceCause::Manifest("sites is not a list".to_owned()).into());
    };
    if let Some(slot) = value.get_mut("sites") {
        *slot = Value::Array(Vec::new());
    }
    let mut manifest: Manifest = serde_json::from_value(value).map_err(invalid)?;
    manifest.sites = sites.into_iter().enumerate().map(|(i, site)| parse_site(i, site)).collect::<Result<_, _>>()?;
    check_unique(&manifest.sites)?;
    check_probs(&manifest.quantile_probs)?;
    check_weight(&manifest.loss)?;
    Ok(manifest)
}

fn check_version(manifest: &Value) -> Result<(), Fault> {
    match manifest.get("version") {
        Some(version) if version.as_u64() == Some(1) => Ok(()),
        Some(version) => Err(TraceCause::Version(version.to_string()).into()),
        None => Err(TraceCause::Version("missing".to_owned()).into()),
    }
}

/// Without an id nothing can name the site, or find its tensors: then the whole file is refused.
fn parse_site(index: usize, value: Value) -> Result<Site, Fault> {
    let id = value.get("id").and_then(Value::as_str).map(SiteId::new);
    match (serde_json::from_value::<Site>(value), id) {
        (Ok(site), _) => Ok(site),
        (Err(error), Some(id)) => Ok(unusable_site(id, &format!("the site's manifest is not valid: {error}"))),
        (Err(error), None) => Err(TraceCause::Manifest(format!("site {index}: {error}")).into()),
    }
}

fn unusable_site(id: SiteId, reason: &str) -> Site {
    let mut site = Site {
        id,
        class: String::new(),
        source: None,
        m: 0,
        k: 0,
        n: 0,
        dtype: String::new(),
        calls: 1,
        forward: None,
        grads: Grads::default(),
        bias: false,
        head: false,
        tail: Vec::new(),
        feeds: Vec::new(),
        extra: Map::new(),
    };
    mark_unusable(&mut site, reason);
    site
}

pub(super) fn mark_unusable(site: &mut Site, reason: &str) {
    site.extra.insert(UNUSABLE.to_owned(), Value::from(reason));
}

fn check_unique(sites: &[Site]) -> Result<(), Fault> {
    let mut seen = BTreeSet::new();
    match sites.iter().find(|site| !seen.insert(&site.id)) {
        Some(site) => Err(Fault::at_site(TraceCause::SiteTwice, &site.id)),
        None => Ok(()),
    }
}

fn check_probs(probs: &[f64]) -> Result<(), Fault> {
    let inside = probs.iter().all(|p| *p > 0.0 && *p < 1.0);
    if inside && probs.windows(2).all(|pair| pair[0] < pair[1]) {
        Ok(())
    } else {
        Err(TraceCause::QuantileProbs.into())
    }
}

/// Costs are divided by it.
fn check_weight(loss: &Loss) -> Result<(), Fault> {
    let times = loss.times();
    if times > 0.0 && times.is_finite() { Ok(()) } else { Err(TraceCause::LossWeight(times).into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(version: &str, sites: &str) -> String {
        format!(
            r#"{{"version":{version},"model":{{"name":"w","x":1}},"run":{{"id":"r","step":5}},"loss":{{"name":"l","value":0.5}},"sites":{sites},"later":[1]}}"#
        )
    }

    #[test]
    fn keeps_unknown_keys() {
        let manifest = parse(&text("1", r#"[{"id":"a","m":1,"k":2,"n":3,"dtype":"f32","colour":"red"}]"#)).unwrap();
        assert_eq!(manifest.extra["later"], Value::from(vec![1]));
        assert_eq!(manifest.model.extra["x"], Value::from(1));
        assert_eq!(manifest.sites[0].extra["colour"], Value::from("red"));
        let again = parse(&serde_json::to_string(&manifest).unwrap()).unwrap();
        assert_eq!(again, manifest);
    }

    #[test]
    fn a_site_that_does_not_parse_is_kept_as_unusable() {
        let manifest = parse(&text("1", r#"[{"id":"a","m":-1,"k":2,"n":3,"dtype":"f32"}]"#)).unwrap();
        assert!(manifest.sites[0].extra[UNUSABLE].as_str().unwrap().contains("invalid value: integer `-1`"));
        assert!(parse(&text("1", "[{}]")).is_err());
    }

    #[test]
    fn refuses_other_versions_and_duplicates() {
        assert_eq!(*parse(&text("2", "[]")).unwrap_err().cause, TraceCause::Version("2".into()));
        assert_eq!(*parse(&text("1.5", "[]")).unwrap_err().cause, TraceCause::Version("1.5".into()));
        assert_eq!(*parse("{}").unwrap_err().cause, TraceCause::Version("missing".into()));
        let site = r#"{"id":"a","m":1,"k":2,"n":3,"dtype":"f32"}"#;
        assert_eq!(*parse(&text("1", &format!("[{site},{site}]"))).unwrap_err().cause, TraceCause::SiteTwice);
        assert!(parse(&text("1", "3")).is_err());
    }

    #[test]
    fn costs_are_divided_by_a_positive_weight_of_the_loss_alone() {
        let with =
            |weight: &str| text("1", "[]").replace(r#""value":0.5"#, &format!(r#""value":0.5,"weight":{weight}"#));
        assert_eq!(parse(&text("1", "[]")).unwrap().loss.times(), 1.0);
        assert_eq!(parse(&with("0.25")).unwrap().loss.times(), 0.25);
        for (given, told) in [("0", 0.0), ("-1", -1.0)] {
            assert_eq!(*parse(&with(given)).unwrap_err().cause, TraceCause::LossWeight(told));
        }
        assert!(parse(&with("\"a quarter\"")).is_err());
    }
}
