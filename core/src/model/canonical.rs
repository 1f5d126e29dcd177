//! Takes a JSON value, gives the one text and the SHA-256 that stand for it.

use std::fmt::Write;

use serde_json::Value;
use sha2::{Digest, Sha256};

/// Keys sorted by code point, no spaces, numbers and strings as serde_json prints them (numbers:
/// the shortest digits that read back to the same value). Sorted here, not by serde_json's map:
/// another crate of the build may have asked it to keep insertion order.
pub fn canonical_json(value: &Value) -> String {
    let mut out = String::new();
    write_value(value, &mut out);
    out
}

fn write_value(value: &Value, out: &mut String) {
    match value {
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                separate(index, out);
                write_value(item, out);
            }
            out.push(']');
        }
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_by(|a, b| a.0.cmp(b.0));
            out.push('{');
            for (index, (key, item)) in entries.into_iter().enumerate() {
                separate(index, out);
                write_string(key, out);
                out.push(':');
                write_value(item, out);
            }
            out.push('}');
        }
        Value::String(text) => write_string(text, out),
        Value::Null | Value::Bool(_) | Value::Number(_) => append(value, out),
    }
}

fn separate(index: usize, out: &mut String) {
    if index > 0 {
        out.push(',');
    }
}

fn write_string(text: &str, out: &mut String) {
    let plain = |byte: u8| byte >= 0x20 && byte != b'"' && byte != b'\\';
    if text.bytes().all(plain) {
        out.extend(["\"", text, "\""]);
    } else {
        append(&Value::from(text), out);
    }
}

/// Writing to a String cannot fail.
fn append(value: &Value, out: &mut String) {
    let _ = write!(out, "{value}");
}

/// `sha256:` and 64 hexadecimal digits.
pub fn sha256(hasher: Sha256) -> String {
    let mut text = String::from("sha256:");
    for byte in hasher.finalize() {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Of all bytes at once.
pub fn sha256_of(bytes: &[u8]) -> String {
    let mut hasher = Sha256::new();
    hasher.update(bytes);
    sha256(hasher)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_are_sorted_at_every_depth_without_spaces() {
        let value = json!({"b": [1, {"z": null, "a": "x\"y"}], "a": 0.1, "é": true});
        assert_eq!(canonical_json(&value), r#"{"a":0.1,"b":[1,{"a":"x\"y","z":null}],"é":true}"#);
    }

    #[test]
    fn numbers_read_back_to_the_bit() {
        for value in [0.1 + 0.2, 1.0 / 3.0, 9.684000164270401, 6.6e-300, f64::MIN_POSITIVE] {
            let text = canonical_json(&json!(value));
            assert_eq!(serde_json::from_str::<f64>(&text).unwrap().to_bits(), value.to_bits(), "{text}");
        }
    }

    #[test]
    fn the_digest_is_sha256() {
        assert_eq!(sha256_of(b"abc"), "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
