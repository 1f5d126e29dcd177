//! Takes a job, gives AMD Quark's QConfig as JSON; takes that, gives each module's scheme. What no rule names gets
//! the global configuration, which has no quantizers: a shared module is asked for under its other names too, which
//! no list of modules has.

use serde_json::{Map, Value, json};

use crate::export::{
    Module, Refusal,
    job::{Job, Written},
    matchers::{Quark, QuarkLayer, escape_glob},
    resolution::{LEFT, Resolved, around_linears},
    scheme::Scheme,
    text::{one_line, pretty},
};

use super::inference::{Abilities, Schemes, setting};

const CAN: Abilities<'static> = Abilities { schemes: &[Scheme::Tensor, Scheme::Row], fast: None, calibrated: &[] };

pub fn write(job: &Job<'_>) -> Result<Written, Refusal> {
    let schemes = Schemes::new(job, &CAN);
    let mut layers = Map::new();
    for (at, module) in job.modules.iter().enumerate().filter(|(at, _)| schemes.of[*at].is_fp8()) {
        layers.insert(escape_glob(&module.name), layer(schemes.of[at]));
    }
    if layers.is_empty() {
        return Err(Refusal::new("the plan has no forward GEMM in FP8 that this target can express"));
    }
    let excluded: Vec<String> = job
        .modules
        .iter()
        .enumerate()
        .filter(|(at, _)| !schemes.of[*at].is_fp8())
        .map(|(_, module)| escape_glob(&module.name))
        .collect();
    let file = json!({
        "quant_method": "quark", "version": "0.13", "quant_mode": "eager_mode", "global_quant_config": untouched(),
        "layer_quant_config": layers, "layer_type_quant_config": {}, "exclude": excluded, "algo_config": null,
        "softmax_quant_spec": null, "kv_cache_quant_config": {}, "kv_cache_post_rope": false,
    });
    let has_rows = schemes.with(Scheme::Row).next().is_some();
    let mut written = Written::new(pretty(&file) + "\n", schemes.settings(), schemes.losses);
    written.provenance_beside = true;
    if has_rows {
        let text = "activations of three dimensions get one scale an index of the first, not one a row";
        written.notes.push(text.to_owned());
    }
    Ok(written)
}

fn layer(scheme: Scheme) -> Value {
    // The first axis of [rows, features] has one scale a row; axis 1, as in Quark's own preset, one a feature.
    let axis = (scheme == Scheme::Row).then_some(0);
    quantizers(&tensor(axis, false), &tensor(axis, true))
}

/// No quantizer at all. A plain `null` instead is an error when Quark reads it.
fn untouched() -> Value {
    quantizers(&Value::Null, &Value::Null)
}

fn quantizers(weight: &Value, input: &Value) -> Value {
    json!({"weight": weight, "input_tensors": input, "output_tensors": null, "bias": null, "target_device": null})
}

/// One scale, or one an index along `axis`.
fn tensor(axis: Option<usize>, is_dynamic: bool) -> Value {
    let (scheme, observer, scale) = match axis {
        Some(_) => ("per_channel", "PerChannelMinMaxObserver", Some("float")),
        None => ("per_tensor", "PerTensorMinMaxObserver", None),
    };
    json!({
        "dtype": "fp8_e4m3", "is_dynamic": is_dynamic, "qscheme": scheme, "ch_axis": axis, "group_size": null,
        "block_size": null, "symmetric": true, "round_method": "half_even", "scale_type": scale,
        "zero_point_type": "int32", "scale_format": null, "scale_calculation_mode": null, "mx_element_dtype": null,
        "observer_cls": observer, "is_scale_quant": false, "enable_buffer_reuse": false, "max_input_numel": 4_194_304,
    })
}

pub fn resolve(text: &str, modules: &[Module]) -> Resolved {
    let file: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let layers = file["layer_quant_config"].as_object().ok_or("there is no layer_quant_config")?;
    let excluded: Vec<String> =
        file["exclude"].as_array().into_iter().flatten().filter_map(|name| name.as_str().map(str::to_owned)).collect();
    let names: Vec<String> = layers.keys().cloned().collect();
    let rules = Quark::new(&excluded, &names);
    let around = around_linears(modules);
    let mut is_hit = vec![false; names.len()];
    let mut settings = Vec::with_capacity(modules.len());
    for module in modules {
        let found = if module.is_plain_linear() { rules.of(&module.name) } else { QuarkLayer::Excluded };
        settings.push(match found {
            QuarkLayer::Excluded => LEFT.to_owned(),
            QuarkLayer::Global => read(&file["global_quant_config"])?,
            QuarkLayer::Own(_) if around.contains(module.name.as_str()) => {
                return Err(format!("'{}' is replaced, and the linears inside it are dropped", one_line(&module.name)));
            }
            QuarkLayer::Own(at) => {
                is_hit[at] = true;
                read(&layers[names[at].as_str()])?
            }
        });
    }
    match is_hit.iter().position(|hit| !hit) {
        Some(at) => Err(format!("'{}' hits no linear", names[at])),
        None => Ok(settings),
    }
}

fn read(layer: &Value) -> Result<String, String> {
    if *layer == untouched() {
        return Ok(LEFT.to_owned());
    }
    let scheme = [Scheme::Tensor, Scheme::Row].into_iter().find(|scheme| self::layer(*scheme) == *layer);
    scheme.map(setting).ok_or_else(|| "a configuration that was not written here".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_named_is_left() {
        let modules = ["a", "b"].map(|name| Module::new(name, ""));
        let file = |global: &Value| {
            json!({"global_quant_config": global, "layer_quant_config": {"a": layer(Scheme::Row)}, "exclude": []})
                .to_string()
        };
        let row = setting(Scheme::Row);
        assert_eq!(resolve(&file(&untouched()), &modules).unwrap(), [row.as_str(), LEFT]);
        assert_eq!(resolve(&file(&layer(Scheme::Row)), &modules).unwrap(), [row.as_str(), row.as_str()]);
        let scaled = [Module::new("a", "ScaledLinear")];
        assert_eq!(
            resolve(&file(&untouched()), &scaled).unwrap_err(),
            "'a' hits no linear",
            "a subclass is left alone"
        );
    }
}
