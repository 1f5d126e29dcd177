//! Takes a job, gives a compressed-tensors quantization_config as JSON; takes that, gives each module's scheme.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::export::{
    Module, Refusal,
    job::{Job, Written},
    matchers::{CompressedTensors, escape_regex},
    resolution::{LEFT, Resolved},
    scheme::Scheme,
    text::pretty,
};

use super::inference::{Abilities, Schemes, setting};

const CAN: Abilities<'static> = Abilities { schemes: &Scheme::FP8, fast: None, calibrated: &[] };

pub fn write(job: &Job<'_>) -> Result<Written, Refusal> {
    let schemes = Schemes::new(job, &CAN);
    let classes = classes(job.modules);
    let target = |at: usize| target(&job.modules[at].name, &classes);
    let mut groups = serde_json::Map::new();
    for scheme in Scheme::FP8 {
        let targets: Vec<String> = schemes.with(scheme).map(target).collect();
        if let (false, Some(mut group)) = (targets.is_empty(), group(scheme)) {
            group["targets"] = targets.into();
            groups.insert(format!("group_{}", groups.len()), group);
        }
    }
    if groups.is_empty() {
        return Err(Refusal::new("the plan has no forward GEMM in FP8 that this target can express"));
    }
    let ignored: Vec<String> =
        job.linears().filter(|(at, ..)| !schemes.of[*at].is_fp8()).map(|(at, ..)| target(at)).collect();
    let file = json!({
        "quant_method": "compressed-tensors", "format": "float-quantized", "quantization_status": "initialized",
        "config_groups": groups, "ignore": ignored,
    });
    let mut written = Written::new(pretty(&file) + "\n", schemes.settings(), schemes.losses);
    written.provenance_beside = true;
    Ok(written)
}

/// What a target may be taken for: the classes of the modules and those that every module is of.
fn classes(modules: &[Module]) -> BTreeSet<&str> {
    modules.iter().map(Module::class_name).chain(["Module", "Linear", "LinearBase"]).collect()
}

/// The full name, which is exact; where it could be a class or a pattern, a pattern of it.
fn target(name: &str, classes: &BTreeSet<&str>) -> String {
    if name.starts_with("re:") || classes.contains(name) {
        format!("re:{}\\Z", escape_regex(name))
    } else {
        name.to_owned()
    }
}

fn group(scheme: Scheme) -> Option<Value> {
    let float = |strategy: &str, is_dynamic: bool| json!({"num_bits": 8, "type": "float", "strategy": strategy, "symmetric": true, "dynamic": is_dynamic});
    let (mut weights, mut inputs) = match scheme {
        Scheme::High | Scheme::Delayed | Scheme::DelayedGradient | Scheme::Static => return None,
        Scheme::Tensor => (float("tensor", false), float("tensor", true)),
        Scheme::Row => (float("channel", false), float("token", true)),
        Scheme::Block => (float("block", false), float("group", true)),
    };
    if scheme == Scheme::Block {
        weights["block_structure"] = json!([128, 128]);
        inputs["group_size"] = json!(128);
    }
    Some(json!({"targets": [], "weights": weights, "input_activations": inputs}))
}

pub fn resolve(text: &str, modules: &[Module]) -> Resolved {
    let file: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let texts = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(|text| text.as_str().map(str::to_owned)).collect()
    };
    let (mut targets, mut settings) = (Vec::new(), Vec::new());
    for group in file["config_groups"].as_object().into_iter().flat_map(|groups| groups.values()) {
        let setting = read(group)?;
        for target in texts(&group["targets"]) {
            targets.push(target);
            settings.push(setting.clone());
        }
    }
    let rules = CompressedTensors::new(&targets, &texts(&file["ignore"])).map_err(|error| error.to_string())?;
    let mut hit = vec![false; targets.len()];
    let resolved = modules
        .iter()
        .map(|module| {
            let found = rules.of(&module.name, &[module.class_name(), "Module"]);
            if let Some(at) = found {
                hit[at] = true;
            }
            // Of what a target names, linears and embeddings alone are changed.
            let changed = found.filter(|_| module.is_linear() || module.class_name() == "Embedding");
            changed.map_or(LEFT.to_owned(), |at| settings[at].clone())
        })
        .collect();
    match hit.iter().position(|hit| !hit) {
        Some(at) => Err(format!("the target '{}' hits no module", targets[at])),
        None => Ok(resolved),
    }
}

fn read(group: &Value) -> Result<String, String> {
    let same = |scheme: &Scheme| {
        self::group(*scheme).is_some_and(|known| {
            known["weights"] == group["weights"] && known["input_activations"] == group["input_activations"]
        })
    };
    Scheme::FP8.into_iter().find(same).map(setting).ok_or_else(|| "a group that was not written here".to_owned())
}
