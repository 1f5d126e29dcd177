//! Takes a job, gives Megatron's --te-precision-config-file; takes that, gives what the first matcher of each
//! module's path says. Every linear is listed: what is not would run as the run's default.

use std::{collections::BTreeMap, fmt::Write as _};

use serde::Deserialize;

use crate::{
    export::{
        LossKind, Module, Refusal,
        job::{Job, Site, Written, entry, numeric_losses},
        loss::Losses,
        matchers::{FirstMatch, escape_glob},
        resolution::{LEFT, Resolved},
        scheme::{Scheme, Wanted},
        text::{read_yaml, yaml_string},
    },
    model::Gemm,
};

/// Scheme, its key in `configs`, Megatron's word for it, the FP8 format, and the kernel whose numerics it has.
const RECIPES: [(Scheme, &str, &str, &str, &str); 2] = [
    (Scheme::Tensor, "fp8_tensorwise", "tensorwise", "hybrid", "te/current"),
    (Scheme::Block, "fp8_blockwise", "blockwise", "e4m3", "te/blockwise"),
];

const HIGH: &str = "bf16";

pub fn write(job: &Job<'_>) -> Result<Written, Refusal> {
    let (mut settings, mut losses) = (vec![LEFT.to_owned(); job.modules.len()], Losses::default());
    let mut matchers = String::new();
    for (number, (at, module, site)) in job.linears().enumerate() {
        let config = match site {
            Some(site) => config(site, &mut losses)?,
            None => None,
        };
        if let Some(config) = config {
            settings[at] = config.to_owned();
        }
        let pattern = yaml_string(&escape_glob(&module.name));
        let config = config.unwrap_or(HIGH);
        let _ = writeln!(
            matchers,
            "  r{number}: {{config: \"{config}\", type: \"glob\", pattern: {pattern}, enabled: true}}"
        );
    }
    let text = format!("{}{}matchers:\n{matchers}", job.provenance.comments(), configs());
    let mut written = Written::new(text, settings, losses);
    written
        .notes
        .push("patterns are the plan's names: they must be the full module paths of the Megatron model".to_owned());
    Ok(written)
}

/// The override is needed where the run itself is in BF16, and harmless where it is not.
fn configs() -> String {
    let kind = "transformer_engine_config_type: \"TEQuantizationParams\"";
    let mut text = format!("configs:\n  {HIGH}:\n    {kind}\n    training_recipe: {{}}\n");
    for (_, name, word, format, _) in RECIPES {
        let _ = write!(
            text,
            "  {name}:\n    {kind}\n    training_recipe:\n      fp8_quantization_recipe: \"{word}\"\n      \
             fp8_format: \"{format}\"\n      override_nonquantized_autocast: true\n"
        );
    }
    text
}

/// One recipe for the three GEMMs.
fn config(site: &Site<'_>, losses: &mut Losses) -> Result<Option<&'static str>, Refusal> {
    if !site.is_fp8() {
        return Ok(None);
    }
    if !site.gemms.iter().all(|wanted| wanted.scheme.is_fp8()) {
        let text = "one choice a layer: where not every GEMM is in FP8 the whole layer stays in high precision";
        losses.add(LossKind::PerGemm, text, site.name());
        return Ok(None);
    }
    let has = [Scheme::Tensor, Scheme::Block];
    let Some(scheme) = site.gemms.iter().map(|wanted| wanted.scheme.nearest(&has)).max() else { return Ok(None) };
    if site.gemms.iter().any(|wanted| wanted.scheme != site.gemms[0].scheme) {
        let text = format!("one choice a layer: GEMMs of several schemes are all {}", scheme.as_str());
        losses.add(LossKind::PerGemm, text, site.name());
    }
    let Some((_, name, _, _, kernel)) = RECIPES.into_iter().find(|recipe| recipe.0 == scheme) else {
        return Ok(None);
    };
    let kernel = entry(kernel)?;
    let mut of_site = Losses::default();
    for gemm in Gemm::ALL {
        numeric_losses(&mut of_site, site.name(), site.gemm(gemm), Wanted::of_kernel(kernel, gemm));
    }
    losses.add_once(of_site);
    Ok(Some(name))
}

#[derive(Debug, Deserialize)]
struct MegatronFile {
    configs: BTreeMap<String, Config>,
    matchers: BTreeMap<String, MegatronRule>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    transformer_engine_config_type: String,
    training_recipe: MegatronRecipe,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct MegatronRecipe {
    fp8_quantization_recipe: Option<String>,
    fp8_format: Option<String>,
    override_nonquantized_autocast: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MegatronRule {
    config: String,
    #[serde(rename = "type")]
    kind: String,
    pattern: String,
    enabled: bool,
}

pub fn resolve(text: &str, modules: &[Module]) -> Resolved {
    let file: MegatronFile = read_yaml(text)?;
    let mut matchers: Vec<(String, MegatronRule)> =
        file.matchers.into_iter().filter(|(_, rule)| rule.enabled).collect();
    // Written in the order of their numbers, which the map has lost.
    matchers.sort_by_key(|(name, _)| (name.len(), name.clone()));
    if let Some((name, _)) = matchers.iter().find(|(_, rule)| rule.kind != "glob") {
        return Err(format!("the matcher {name} is not a glob"));
    }
    let patterns: Vec<String> = matchers.iter().map(|(_, rule)| rule.pattern.clone()).collect();
    let rules = FirstMatch::new(&patterns);
    let mut is_hit = vec![false; matchers.len()];
    let mut settings = Vec::with_capacity(modules.len());
    for module in modules {
        let found = rules.of(&module.name).filter(|_| module.is_linear());
        if let Some(at) = found {
            is_hit[at] = true;
        }
        settings.push(match found {
            None if module.is_linear() => "as the run's default".to_owned(),
            None => LEFT.to_owned(),
            Some(at) => read(&file.configs, &matchers[at].1.config)?,
        });
    }
    match is_hit.iter().position(|hit| !hit) {
        Some(at) => Err(format!("'{}' hits no linear", patterns[at])),
        None => Ok(settings),
    }
}

fn read(configs: &BTreeMap<String, Config>, name: &str) -> Result<String, String> {
    let config = configs.get(name).ok_or_else(|| format!("there is no configuration {name}"))?;
    let recipe = &config.training_recipe;
    let found = (recipe.fp8_quantization_recipe.as_deref(), recipe.fp8_format.as_deref());
    if config.transformer_engine_config_type != "TEQuantizationParams" {
        return Err(format!("the configuration {name} is of another type"));
    }
    if found == (None, None) {
        return Ok(LEFT.to_owned());
    }
    RECIPES
        .into_iter()
        .find(|(_, _, word, format, _)| found == (Some(word), Some(format)) && recipe.override_nonquantized_autocast)
        .map(|(_, name, ..)| name.to_owned())
        .ok_or_else(|| format!("the configuration {name} was not written here"))
}
