//! Takes data and a template, gives a Python file with the data as one literal that is JSON and Python alike; takes
//! such a file, gives the data.

use serde::de::DeserializeOwned;
use serde_json::Value;

/// Where the literal stands.
const MARK: &str = "\nPLAN = ";

/// `sections`: the keys of the literal with their values; the values of `modules` stand a line each, by name. Only
/// strings, lists and mappings: `null` and `true` are no Python.
pub fn with_data(template: &str, comments: &str, data: &[(&str, Value)], modules: &[(String, Value)]) -> String {
    let mut literal = String::from("{\n");
    for (key, value) in data {
        literal += &format!("  \"{key}\": {value},\n");
    }
    let lines: Vec<String> =
        modules.iter().map(|(name, value)| format!("    {}: {value}", Value::from(name.as_str()))).collect();
    literal += &format!("  \"modules\": {{\n{}\n  }}\n}}", lines.join(",\n"));
    template.replacen("@PROVENANCE@\n", comments, 1).replacen("@DATA@", &literal, 1)
}

/// The literal, as JSON.
pub fn data_of<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    let from = text.find(MARK).ok_or("there is no PLAN")? + MARK.len();
    let mut values = serde_json::Deserializer::from_str(&text[from..]).into_iter::<T>();
    values.next().ok_or("PLAN is empty")?.map_err(|error| format!("PLAN is not JSON: {error}"))
}
