//! Takes names and values, gives them quoted for YAML, for a comment or a line, and reads YAML back.

use std::fmt::Write as _;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::model::visible_within;

/// A name as part of a line for people: what would be hidden is seen, cut when very long.
pub fn one_line(text: &str) -> String {
    visible_within(text, 120)
}

/// What may stand in a quoted YAML string as it is, by YAML 1.1 and 1.2 alike.
fn is_plain(c: char) -> bool {
    let breaks_or_hidden = ['\u{2028}', '\u{2029}', '\u{feff}', '\u{fffe}', '\u{ffff}'];
    c >= ' ' && !('\u{7f}'..='\u{a0}').contains(&c) && !breaks_or_hidden.contains(&c)
}

/// A double-quoted scalar: the only style in which every name survives.
pub fn yaml_string(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            c if is_plain(c) => quoted.push(c),
            c => {
                let _ = write!(quoted, "\\u{:04x}", u32::from(c));
            }
        }
    }
    quoted.push('"');
    quoted
}

/// Reads YAML that was written here: large, never deep.
pub fn read_yaml<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! { max_events: 100_000_000, max_nodes: 50_000_000, max_total_scalar_bytes: 1 << 30 },
    };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| one_line(&error.to_string()))
}

/// Indented, keys in the order given, for files that people read.
pub fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

pub fn json_string(text: &str) -> String {
    Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_survives_yaml() {
        let names = crate::export::testing::HOSTILE;
        for name in names.into_iter().chain(["\u{0}\u{1}\u{7f}\u{85}\u{a0}\u{2028}\u{feff}\u{ffff}\u{1f600}", ""]) {
            let read: Vec<String> = read_yaml(&format!("- {}\n", yaml_string(name))).unwrap();
            assert_eq!(read, [name]);
        }
    }

    #[test]
    fn a_line_is_a_line() {
        assert_eq!(one_line("a\nb\u{85}é"), "a\\nb\\u{85}é");
        assert_eq!(one_line(&"x".repeat(200)).chars().count(), 121);
    }
}
