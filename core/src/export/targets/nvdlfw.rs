//! Takes a job, gives features of nvdlfw_inspect that turn FP8 off, as YAML: layers by identical decision, since one
//! may be in a single enabled section; takes that, gives what is off in each. FP8 itself is the run's autocast.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use serde::Deserialize;

use crate::{
    export::{
        LossKind, Module, Refusal,
        job::{Job, Site, Written},
        loss::Losses,
        matchers::{Pattern, Sections, escape_regex},
        resolution::{LEFT, Resolved},
        text::{read_yaml, yaml_string},
    },
    model::Gemm,
};

/// A linear that no section names.
const RUN: &str = "as the run";

pub fn write(job: &Job<'_>) -> Result<Written, Refusal> {
    let mut settings = vec![LEFT.to_owned(); job.modules.len()];
    // By what is off, so that no layer is in two sections.
    let mut sections: BTreeMap<Vec<Gemm>, Vec<&str>> = BTreeMap::new();
    for (at, module, site) in job.linears() {
        let off = off(site);
        settings[at] = setting(&off);
        if !off.is_empty() {
            sections.entry(off).or_default().push(&module.name);
        }
    }
    if sections.is_empty() {
        return Err(Refusal::new(
            "everything is in FP8: there is nothing to turn off, and nvdlfw_inspect refuses a file without a section",
        ));
    }
    let mut text = job.provenance.comments();
    for (off, names) in &sections {
        let pattern =
            format!("\\A(?:{})\\Z", names.iter().map(|name| escape_regex(name)).collect::<Vec<_>>().join("|"));
        let gemms: Vec<&str> = off.iter().map(|gemm| gemm.as_str()).collect();
        let (name, feature) = if off.len() == Gemm::ALL.len() {
            ("loka_layers_high_precision".to_owned(), "DisableQuantizationLayer: {enabled: true}".to_owned())
        } else {
            let feature = format!("DisableQuantizationGEMM: {{enabled: true, gemms: [{}]}}", gemms.join(", "));
            (format!("loka_{}_high_precision", gemms.join("_")), feature)
        };
        let _ = write!(
            text,
            "{name}:\n  enabled: true\n  layers:\n    layer_name_regex_pattern: {}\n  transformer_engine:\n    {feature}\n",
            yaml_string(&pattern)
        );
    }
    let mut written = Written::new(text, settings, losses(job));
    written.notes.push(
        "the file only turns FP8 off: the run must be in an FP8 autocast, and a debugging path is slower".to_owned(),
    );
    Ok(written)
}

/// GEMMs that are not in FP8; all of a linear that is not in the plan.
fn off(site: Option<&Site<'_>>) -> Vec<Gemm> {
    let is_off = |gemm: &Gemm| site.is_none_or(|site| !site.gemm(*gemm).scheme.is_fp8());
    Gemm::ALL.into_iter().filter(is_off).collect()
}

fn setting(off: &[Gemm]) -> String {
    match off.len() {
        0 => RUN.to_owned(),
        3 => LEFT.to_owned(),
        _ => format!("{} off", off.iter().map(|gemm| gemm.as_str()).collect::<Vec<_>>().join(" and ")),
    }
}

/// The run has one recipe, which the file does not say.
fn losses(job: &Job<'_>) -> Losses {
    let mut losses = Losses::default();
    let in_fp8 = |site: &&Site<'_>| site.is_fp8();
    let kinds: BTreeSet<_> = job
        .sites
        .iter()
        .flatten()
        .flat_map(|site| site.gemms)
        .filter(|wanted| wanted.scheme.is_fp8())
        .map(|wanted| (wanted.scheme, wanted.power_of_two, wanted.fast))
        .collect();
    let schemes: BTreeSet<&str> = kinds.iter().map(|(scheme, ..)| scheme.as_str()).collect();
    let schemes = schemes.into_iter().collect::<Vec<_>>().join(" and ");
    for site in job.sites.iter().flatten().filter(in_fp8) {
        let text = format!("the FP8 recipe is the run's autocast, in the plan it is {schemes}");
        losses.add(LossKind::Run, text, site.name());
    }
    losses
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Section {
    enabled: bool,
    layers: Layers,
    transformer_engine: Features,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Layers {
    layer_name_regex_pattern: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
struct Features {
    disable_quantization_layer: Option<Feature>,
    #[serde(rename = "DisableQuantizationGEMM")]
    disable_quantization_gemm: Option<Feature>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Feature {
    enabled: bool,
    #[serde(default)]
    gemms: Vec<Gemm>,
}

pub fn resolve(text: &str, modules: &[Module]) -> Resolved {
    let file: BTreeMap<String, Section> = read_yaml(text)?;
    let sections: Vec<(String, Section)> = file.into_iter().filter(|(_, section)| section.enabled).collect();
    let pattern = |(_, section): &(String, Section)| Pattern::new(&section.layers.layer_name_regex_pattern);
    let patterns = sections.iter().map(pattern).collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string())?;
    let rules = Sections::new(patterns);
    let resolve = |module: &Module| match rules.of(&module.name) {
        _ if !module.is_linear() => LEFT.to_owned(),
        Ok(None) => RUN.to_owned(),
        Ok(Some(at)) => setting(&turned_off(&sections[at].1.transformer_engine)),
        Err((first, second)) => format!("an error: in {} and in {}", sections[first].0, sections[second].0),
    };
    Ok(modules.iter().map(resolve).collect())
}

fn turned_off(features: &Features) -> Vec<Gemm> {
    let is_on = |feature: &Option<Feature>| feature.as_ref().is_some_and(|feature| feature.enabled);
    if is_on(&features.disable_quantization_layer) {
        return Gemm::ALL.to_vec();
    }
    let gemms = features.disable_quantization_gemm.as_ref().filter(|feature| feature.enabled);
    let gemms = gemms.map(|feature| feature.gemms.as_slice()).unwrap_or_default();
    Gemm::ALL.into_iter().filter(|gemm| gemms.contains(gemm)).collect()
}
