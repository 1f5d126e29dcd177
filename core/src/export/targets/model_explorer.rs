//! Takes a job, gives the chosen kernels' errors as node data for Model Explorer: the worst of the three GEMMs, and
//! a file for each; takes such a file, gives which nodes it has.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::{
    export::{
        File, LossKind, Module, Refusal,
        job::{Job, Site, Written},
        loss::Losses,
        resolution::{LEFT, Resolved},
        text::{one_line, pretty},
    },
    model::{Gemm, Metric},
};

const SHOWN: &str = "shown";

pub fn write(job: &Job<'_>) -> Result<Written, Refusal> {
    let metric = job.plan.policy.metric;
    distinct_nodes(job)?;
    let (mut settings, mut losses) = (vec![LEFT.to_owned(); job.modules.len()], Losses::default());
    for (at, site) in job.sites.iter().enumerate() {
        let Some(site) = site else { continue };
        if worst(site, metric).is_some() {
            settings[at] = SHOWN.to_owned();
        } else {
            losses.add(
                LossKind::Errors,
                format!("no {metric} is in the plan: the node stays without a colour"),
                site.name(),
            );
        }
    }
    let mut written = Written::new(text(job, metric, "worst", |site| worst(site, metric)), settings, losses);
    for gemm in Gemm::ALL {
        let of_gemm = text(job, metric, gemm.as_str(), |site| error(site, gemm, metric));
        written.files.push(File { suffix: format!(".{gemm}.json"), text: of_gemm });
    }
    written.provenance_beside = true;
    Ok(written)
}

/// Two names that differ by a dot and a slash alone would be one node.
fn distinct_nodes(job: &Job<'_>) -> Result<(), Refusal> {
    let mut names = BTreeMap::new();
    for site in job.sites.iter().flatten() {
        if let Some(other) = names.insert(node(site.name()), site.name()) {
            let twice = format!("'{}' and '{}'", one_line(other), one_line(site.name()));
            return Err(Refusal::new(format!("Model Explorer would show {twice} as one node")));
        }
    }
    Ok(())
}

/// Model Explorer's names go down by slashes.
fn node(name: &str) -> String {
    name.replace('.', "/")
}

fn error(site: &Site<'_>, gemm: Gemm, metric: Metric) -> Option<f64> {
    site.planned.choice(gemm).error.get(&metric).copied().filter(|value| value.is_finite())
}

/// The largest error; of a ratio in decibels the smallest.
fn worst(site: &Site<'_>, metric: Metric) -> Option<f64> {
    metric.worst(Gemm::ALL.into_iter().filter_map(|gemm| error(site, gemm, metric)))
}

fn text(job: &Job<'_>, metric: Metric, of: &str, value: impl Fn(&Site<'_>) -> Option<f64>) -> String {
    let mut results = Map::new();
    for site in job.sites.iter().flatten() {
        if let Some(value) = value(site) {
            results.insert(node(site.name()), json!({"value": value}));
        }
    }
    let (good, bad) = if metric.larger_is_better() { ("#e63946", "#2a9d8f") } else { ("#2a9d8f", "#e63946") };
    let data = json!({
        "name": format!("LoKA {}, {of}", metric.label()), "results": results,
        "gradient": [{"stop": 0, "bgColor": good}, {"stop": 1, "bgColor": bad}],
    });
    pretty(&json!({one_line(&job.plan.model.name): data})) + "\n"
}

pub fn resolve(text: &str, modules: &[Module]) -> Resolved {
    let file: Map<String, Value> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let graphs = file.values().filter_map(|graph| graph["results"].as_object());
    let mut nodes: BTreeSet<&str> = graphs.flat_map(|results| results.keys().map(String::as_str)).collect();
    let resolved = modules
        .iter()
        .map(|module| if nodes.remove(node(&module.name).as_str()) { SHOWN } else { LEFT }.to_owned())
        .collect();
    match nodes.first() {
        Some(node) => Err(format!("the node '{}' is no module", one_line(node))),
        None => Ok(resolved),
    }
}
