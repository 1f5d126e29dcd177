//! Takes a job, gives Hugging Face's quantization_config of fine-grained FP8; takes that, gives which linears it
//! converts. One scheme for all: the file says which layers are left out.

use serde_json::{Value, json};

use crate::export::{
    Module, Refusal,
    job::{Job, Written},
    matchers::{SkipList, escape_regex},
    resolution::{Resolved, around_linears},
    scheme::Scheme,
    text::{one_line, pretty},
};

use super::inference::{Abilities, Schemes, setting};

const CAN: Abilities<'static> = Abilities { schemes: &[Scheme::Block], fast: None, calibrated: &[] };

pub fn write(job: &Job<'_>) -> Result<Written, Refusal> {
    let schemes = Schemes::new(job, &CAN);
    let on: Vec<&str> = schemes.with(Scheme::Block).map(|at| job.modules[at].name.as_str()).collect();
    if on.is_empty() {
        return Err(Refusal::new("the plan has no forward GEMM in FP8: there is nothing to convert"));
    }
    let off: Vec<&str> =
        job.linears().filter(|(at, ..)| !schemes.of[*at].is_fp8()).map(|(_, module, _)| module.name.as_str()).collect();
    let file = json!({
        "quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128],
        "modules_to_not_convert": keys(&off, &on)?,
    });
    let mut written = Written::new(pretty(&file) + "\n", schemes.settings(), schemes.losses);
    written.provenance_beside = true;
    Ok(written)
}

/// Plain names, as other readers of this list expect them; where one would also skip a layer that is to be
/// converted, by a dot that stands for anything or as its end, a pattern of it alone.
fn keys(off: &[&str], on: &[&str]) -> Result<Vec<String>, Refusal> {
    let is_plain = |name: &str| !name.is_empty() && !name.contains(|c: char| "()[]{}?*+|^$\\".contains(c));
    let exact = |name: &str| format!("{}\\Z", escape_regex(name));
    let mut keys: Vec<String> =
        off.iter().map(|name| if is_plain(name) { (*name).to_owned() } else { exact(name) }).collect();
    let list = SkipList::new(&keys).map_err(|error| Refusal::new(error.to_string()))?;
    for number in on.iter().flat_map(|name| list.hits(name)) {
        keys[number] = exact(off[number]);
    }
    Ok(keys)
}

pub fn resolve(text: &str, modules: &[Module]) -> Resolved {
    let file: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let keys: Vec<String> = file["modules_to_not_convert"]
        .as_array()
        .ok_or("there is no modules_to_not_convert")?
        .iter()
        .filter_map(|key| key.as_str().map(str::to_owned))
        .collect();
    let list = SkipList::new(&keys).map_err(|error| error.to_string())?;
    let around = around_linears(modules);
    let mut is_hit = vec![false; keys.len()];
    let mut settings = Vec::with_capacity(modules.len());
    for module in modules {
        let hits = list.hits(&module.name);
        hits.iter().for_each(|number| is_hit[*number] = true);
        let converted = hits.is_empty() && module.is_plain_linear();
        if converted && around.contains(module.name.as_str()) {
            return Err(format!("'{}' is replaced, and the linears inside it are dropped", one_line(&module.name)));
        }
        settings.push(setting(if converted { Scheme::Block } else { Scheme::High }));
    }
    match is_hit.iter().position(|hit| !hit) {
        Some(number) => Err(format!("'{}' hits no module", keys[number])),
        None => Ok(settings),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::resolution::LEFT;

    #[test]
    fn a_suffix_becomes_a_pattern() {
        assert_eq!(keys(&["fc1", "m.layers.1"], &["m.fc2"]).unwrap(), ["fc1", "m.layers.1"]);
        assert_eq!(keys(&["fc1"], &["m.fc1"]).unwrap(), [r"fc1\Z"]);
        assert_eq!(keys(&["a.b"], &["aXb"]).unwrap(), [r"a\.b\Z"]);
        assert_eq!(keys(&["a"], &["a.b"]).unwrap(), [r"a\Z"], "a layer inside one that is left out");
        assert_eq!(keys(&["a[0]"], &["b"]).unwrap(), [r"a\[0\]\Z"]);
    }

    #[test]
    fn resolved_by_the_text() {
        let modules = ["fc1", "m.fc1", "b"].map(|name| Module::new(name, ""));
        let text = |key: &str| format!(r#"{{"modules_to_not_convert": [{key}]}}"#);
        let on = setting(Scheme::Block);
        assert_eq!(resolve(&text(r#""fc1""#), &modules).unwrap(), [LEFT, LEFT, on.as_str()]);
        assert_eq!(resolve(&text(r#""fc1\\Z""#), &modules).unwrap(), [LEFT, on.as_str(), on.as_str()]);
        let nested = ["a", "a.fc1"].map(|name| Module::new(name, ""));
        let dropped = "'a' is replaced, and the linears inside it are dropped";
        assert_eq!(resolve(&text(r#""a.fc1""#), &nested).unwrap_err(), dropped);
        let scaled = ["fc1", "b"].map(|name| Module::new(name, "ScaledLinear"));
        assert_eq!(resolve(&text(r#""fc1""#), &scaled).unwrap(), [LEFT, LEFT], "a subclass is left alone");
        assert_eq!(resolve(&text(r#""fc2""#), &modules).unwrap_err(), "'fc2' hits no module");
    }
}
