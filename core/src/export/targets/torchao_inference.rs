//! Takes a job, gives torchao's FqnToConfig as JSON; takes that, gives what `quantize_` does with each module.

use serde_json::{Value, json};

use crate::export::{
    Module, Refusal,
    job::{Job, Written},
    matchers::{FqnMatch, FqnToConfig, escape_regex},
    resolution::{LEFT, Resolved, unknown},
    scheme::Scheme,
    text::{json_string, one_line},
};

use super::inference::{Abilities, Schemes, setting};

/// torchao sums fast but for blocks.
const CAN: Abilities<'static> =
    Abilities { schemes: &Scheme::FP8, fast: Some(|scheme| scheme != Scheme::Block), calibrated: &[] };

/// Key of the provenance, beside `_type`, where torchao reads nothing else.
const PROVENANCE: &str = "loka";

pub fn write(job: &Job<'_>) -> Result<Written, Refusal> {
    let schemes = Schemes::new(job, &CAN);
    let lines: Vec<String> = job
        .linears()
        .map(|(at, module, _)| format!("    {}: {}", json_string(&key(&module.name)), config(schemes.of[at])))
        .collect();
    let text = format!(
        "{{\n  \"_type\": \"FqnToConfig\",\n  \"_version\": 1,\n  \"{PROVENANCE}\": {},\n  \"_data\": {{\"fqn_to_config\": {{\n{}\n  }}}}\n}}\n",
        job.provenance.json(),
        lines.join(",\n")
    );
    Ok(Written::new(text, schemes.settings(), schemes.losses))
}

/// The full name, which is exact; where that means something else to torchao, a pattern of it.
fn key(name: &str) -> String {
    if name.starts_with("re:") || name == "_default" { format!("re:{}", escape_regex(name)) } else { name.to_owned() }
}

fn config(scheme: Scheme) -> Value {
    let granularity = |kind: &str, data: Value| json!({"_type": kind, "_version": 1, "_data": data});
    let (activation, weight) = match scheme {
        Scheme::High | Scheme::Delayed | Scheme::DelayedGradient | Scheme::Static => return Value::Null,
        Scheme::Tensor => (granularity("PerTensor", json!({})), granularity("PerTensor", json!({}))),
        Scheme::Row => (granularity("PerRow", json!({"dim": -1})), granularity("PerRow", json!({"dim": -1}))),
        Scheme::Block => (
            granularity("PerBlock", json!({"block_size": [1, 128]})),
            granularity("PerBlock", json!({"block_size": [128, 128]})),
        ),
    };
    json!({
        "_type": "Float8DynamicActivationFloat8WeightConfig", "_version": 2,
        "_data": {"granularity": [activation, weight]},
    })
}

pub fn resolve(text: &str, modules: &[Module]) -> Resolved {
    let file: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if file["_type"] != "FqnToConfig" {
        return Err("it is no FqnToConfig".to_owned());
    }
    let configs = file["_data"]["fqn_to_config"].as_object().ok_or("there is no fqn_to_config")?;
    let keys: Vec<String> = configs.keys().cloned().collect();
    let rules = FqnToConfig::new(&keys).map_err(|error| error.to_string())?;
    unknown(keys.iter().map(String::as_str).filter(|key| !key.starts_with("re:")), modules)?;
    modules
        .iter()
        .map(|module| {
            let parameters: &[&str] = if module.is_linear() { &["weight", "bias"] } else { &[] };
            match rules.of(&module.name, parameters) {
                FqnMatch::None => Ok(LEFT.to_owned()),
                FqnMatch::Module(at) => read(&configs[keys[at].as_str()]),
                FqnMatch::Parameter(at) => Ok(format!("changed through its parameter by '{}'", one_line(&keys[at]))),
                FqnMatch::Error => Ok("an error when torchao loads it: a name that begins with re:".to_owned()),
            }
        })
        .collect()
}

fn read(config: &Value) -> Result<String, String> {
    if config.is_null() {
        return Ok(LEFT.to_owned());
    }
    let scheme = Scheme::FP8.into_iter().find(|scheme| self::config(*scheme) == *config);
    scheme.map(setting).ok_or_else(|| format!("a configuration that was not written here: {config}"))
}
