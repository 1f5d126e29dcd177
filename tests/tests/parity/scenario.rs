//! Takes a file of tests/scenarios, gives its steps. What they mean is in the README there.

use std::path::PathBuf;

use loka::driving::Node;
use loka_tests::here;
use serde::Deserialize;
use serde_json::Value;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    #[serde(skip)]
    pub name: String,
    pub about: String,
    /// The trace is probed by each window; else its rows lie beside it.
    #[serde(default)]
    pub probes: bool,
    /// A plan that lies in the folder under this name, made by `loka plan` with these arguments.
    #[serde(default)]
    pub plan: Option<Given>,
    /// Whose keys lie in the folder, as `ada.key.json`.
    #[serde(default)]
    pub keys: Vec<String>,
    pub steps: Vec<ScenarioStep>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Given {
    pub name: String,
    pub arguments: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ScenarioStep {
    Click(Aim),
    Drag {
        from: Aim,
        by: [f32; 2],
    },
    /// `Ctrl+Shift+Z`.
    Key(String),
    Type(String),
    /// Answers the dialog that asks for a file with one of the folder.
    Path(String),
    Wait(Wait),
    /// Exports the plan under that name.
    Export(String),
    /// Signs the submitted version with the key of that name beside the trace, or as the browser is handed it.
    Sign(String),
}

/// All that is given must be so.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Wait {
    pub seen: Option<Aim>,
    pub gone: Option<Aim>,
    pub state: Option<Value>,
    pub state_is_not: Option<Value>,
    /// A hand led there: where exactly is a matter of how the window is laid out, and not compared.
    pub by_pixels: bool,
}

/// Which control: every word that is given must be its own.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Aim {
    pub label: String,
    pub role: Option<String>,
    pub on: Option<bool>,
    pub focused: Option<bool>,
}

impl Aim {
    pub fn fits(&self, node: &Node) -> bool {
        let role = self.role.as_ref().is_none_or(|role| *role == node.role);
        let on = self.on.is_none_or(|on| node.on == Some(on));
        node.label == self.label && role && on && self.focused.is_none_or(|focused| node.focused == focused)
    }

    pub fn of(role: &str, label: &str) -> Self {
        Self { label: label.to_owned(), role: Some(role.to_owned()), ..Self::default() }
    }
}

impl Scenario {
    pub fn of(name: &str) -> Self {
        let path = folder().join(format!("{name}.json"));
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{error}: {}", path.display()));
        let scenario: Self = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {}", path.display()));
        Self { name: name.to_owned(), ..scenario }
    }
}

fn folder() -> PathBuf {
    here("scenarios")
}

pub fn names() -> Vec<String> {
    let entries = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    entries.filter_map(|name| name.strip_suffix(".json").map(str::to_owned)).collect()
}

/// All of `part` is in `whole`: objects by their keys, everything else as it is.
pub fn is_part(part: &Value, whole: &Value) -> bool {
    match (part, whole) {
        (Value::Object(part), Value::Object(whole)) => {
            part.iter().all(|(key, part)| whole.get(key).is_some_and(|whole| is_part(part, whole)))
        }
        (Value::Array(part), Value::Array(whole)) => {
            part.len() == whole.len() && part.iter().zip(whole).all(|(part, whole)| is_part(part, whole))
        }
        _ => part == whole,
    }
}

#[test]
fn parts_are_found_and_others_not() {
    let whole = serde_json::json!({"a": {"b": [1, {"c": 2, "d": 3}]}, "e": null});
    for (part, is) in [
        (serde_json::json!({"a": {"b": [1, {"c": 2}]}}), true),
        (serde_json::json!({"a": {"b": [1]}}), false),
        (serde_json::json!({"e": null}), true),
        (serde_json::json!({"f": null}), false),
    ] {
        assert_eq!(is_part(&part, &whole), is, "{part}");
    }
}
