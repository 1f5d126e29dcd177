//! Takes a job, gives a recipe of modelopt as YAML: first everything off, then each layer's quantizers; takes that,
//! gives what each linear's two quantizers become.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Deserialize;

use crate::export::{
    Module, Refusal,
    job::{Job, Written},
    matchers::{LastMatch, escape_glob},
    resolution::{LEFT, Resolved},
    scheme::Scheme,
    text::{read_yaml, yaml_string},
};

use super::inference::{Abilities, Schemes, setting};

const CAN: Abilities<'static> = Abilities { schemes: &Scheme::FP8, fast: None, calibrated: &[Scheme::Tensor] };

pub fn write(job: &Job<'_>) -> Result<Written, Refusal> {
    let schemes = Schemes::new(job, &CAN);
    if !schemes.of.iter().any(|scheme| scheme.is_fp8()) {
        return Err(Refusal::new("the plan has no forward GEMM in FP8: modelopt refuses a recipe without one"));
    }
    let mut text = format!(
        "# modelopt-schema: modelopt.recipe.config.ModelOptPTQRecipe\n{}metadata: {{recipe_type: ptq, description: {}}}\n\
         quantize:\n  algorithm: max\n  quant_cfg:\n    - {{quantizer_name: \"*\", enable: false}}\n",
        job.provenance.comments(),
        yaml_string(&job.provenance.line())
    );
    for (at, module, _) in job.linears() {
        for (number, quantizer) in QUANTIZERS.into_iter().enumerate() {
            if let Some(configs) = configs(schemes.of[at]) {
                let name = yaml_string(&escape_glob(&format!("{}.{quantizer}", module.name)));
                let _ = writeln!(text, "    - {{quantizer_name: {name}, cfg: {}}}", configs[number]);
            }
        }
    }
    Ok(Written::new(text, schemes.settings(), schemes.losses))
}

const QUANTIZERS: [&str; 2] = ["weight_quantizer", "input_quantizer"];

/// Of the weight and of the activations.
fn configs(scheme: Scheme) -> Option<[&'static str; 2]> {
    match scheme {
        Scheme::High | Scheme::Delayed | Scheme::DelayedGradient | Scheme::Static => None,
        Scheme::Tensor => Some(["{num_bits: e4m3, axis: null}", "{num_bits: e4m3, axis: null}"]),
        Scheme::Row => Some(["{num_bits: e4m3, axis: 0}", "{num_bits: e4m3, type: dynamic, block_sizes: {-1: null}}"]),
        Scheme::Block => Some([
            "{num_bits: e4m3, block_sizes: {-1: 128, -2: 128}}",
            "{num_bits: e4m3, type: dynamic, block_sizes: {-1: 128}}",
        ]),
    }
}

#[derive(Debug, Deserialize)]
struct ModelOptRecipe {
    quantize: Quantize,
}

#[derive(Debug, Deserialize)]
struct Quantize {
    quant_cfg: Vec<QuantEntry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct QuantEntry {
    quantizer_name: String,
    enable: Option<bool>,
    cfg: Option<Config>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    num_bits: String,
    #[serde(default)]
    axis: Option<i64>,
    #[serde(default, rename = "type")]
    kind: Option<String>,
    #[serde(default)]
    block_sizes: BTreeMap<i64, Option<i64>>,
}

pub fn resolve(text: &str, modules: &[Module]) -> Resolved {
    let entries = read_yaml::<ModelOptRecipe>(text)?.quantize.quant_cfg;
    let names: Vec<String> = entries.iter().map(|entry| entry.quantizer_name.clone()).collect();
    let rules = LastMatch::new(&names);
    let known = known()?;
    let mut is_hit = vec![false; entries.len()];
    let mut settings = Vec::with_capacity(modules.len());
    for module in modules {
        let mut found = [QuantState::Off, QuantState::Off];
        for (quantizer, found) in QUANTIZERS.into_iter().zip(&mut found).filter(|_| module.is_linear()) {
            let hits = rules.of(&format!("{}.{quantizer}", module.name));
            hits.iter().for_each(|at| is_hit[*at] = true);
            *found = last(&entries, &hits);
        }
        settings.push(match found {
            [QuantState::Off, QuantState::Off] => LEFT.to_owned(),
            [QuantState::On(weight), QuantState::On(input)] => known
                .iter()
                .find(|(_, configs)| [weight, input] == [&configs[0], &configs[1]])
                .map(|(scheme, _)| setting(*scheme))
                .ok_or("quantizers that were not written here")?,
            [QuantState::Default, _] | [_, QuantState::Default] => "quantized by modelopt's default".to_owned(),
            _ => "one of its two quantizers alone".to_owned(),
        });
    }
    match is_hit.iter().position(|hit| !hit) {
        Some(at) => Err(format!("'{}' hits no quantizer", names[at])),
        None => Ok(settings),
    }
}

/// A quantizer after all entries that reach it.
#[derive(Clone, Copy)]
enum QuantState<'a> {
    Off,
    /// On, and no entry says how.
    Default,
    On(&'a Config),
}

fn last<'a>(entries: &'a [QuantEntry], hits: &[usize]) -> QuantState<'a> {
    let (mut config, mut is_on) = (None, true);
    for entry in hits.iter().map(|at| &entries[*at]) {
        is_on = entry.enable.unwrap_or(true);
        config = entry.cfg.as_ref().or(config);
    }
    match config {
        _ if !is_on => QuantState::Off,
        None => QuantState::Default,
        Some(config) => QuantState::On(config),
    }
}

fn known() -> Result<Vec<(Scheme, [Config; 2])>, String> {
    let read = |scheme: Scheme| {
        let [weight, input] = configs(scheme).ok_or("high precision has no quantizer")?;
        Ok((scheme, [read_yaml(weight)?, read_yaml(input)?]))
    };
    Scheme::FP8.into_iter().map(read).collect()
}
