//! Takes what a check found, gives it as SARIF 2.1.0: what code scanning shows beside the lines of the plan.

use std::{fmt::Write as _, path::Path};

use loka_core::plan::{Finding, Rule, Severity};
use serde_json::{Value, json};

use super::{Checked, lines::Lines};

/// More of them GitHub neither shows nor keeps; what fails goes first.
const MAX_RESULTS: usize = 5_000;

pub fn sarif(checked: &Checked<'_>) -> Value {
    let lines = Lines::of(checked.text);
    let uri = uri_of(checked.path);
    let mut findings: Vec<&Finding> = checked.findings.iter().collect();
    // Stable: within a severity they stay in the plan's order.
    findings.sort_by_key(|finding| finding.severity);
    let results: Vec<Value> =
        findings.iter().take(MAX_RESULTS).map(|finding| result(finding, &uri, lines.of_finding(finding))).collect();
    let left_out = findings.len().saturating_sub(MAX_RESULTS);
    let notes: Vec<Value> = if left_out == 0 {
        Vec::new()
    } else {
        vec![json!({"level": "warning", "message": {"text": format!("{left_out} more findings are left out here")}})]
    };
    let driver = json!({
        "name": "LoKA", "version": env!("CARGO_PKG_VERSION"), "semanticVersion": env!("CARGO_PKG_VERSION"),
        "rules": Rule::ALL.map(rule),
    });
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": driver},
            "invocations": [{"executionSuccessful": true, "toolExecutionNotifications": notes}],
            "columnKind": "unicodeCodePoints",
            "results": results,
        }],
    })
}

fn rule(rule: Rule) -> Value {
    json!({
        "id": rule.id(),
        "name": name_of(rule),
        "shortDescription": {"text": rule.about()},
        "fullDescription": {"text": rule.about()},
        "help": {"text": format!("{} A rule of loka check.", rule.about())},
        "defaultConfiguration": {"level": "error"},
        "properties": {"tags": [rule.group()]},
    })
}

/// `policy/error`: PolicyError.
fn name_of(rule: Rule) -> String {
    let part = |part: &str| part[..1].to_uppercase() + &part[1..];
    rule.id().split('/').map(part).collect()
}

fn result(finding: &Finding, uri: &str, line: usize) -> Value {
    let place = match (&finding.site, finding.gemm) {
        (Some(site), Some(gemm)) => format!("{site}:{gemm}"),
        (Some(site), None) => site.to_string(),
        _ => String::new(),
    };
    let mut location = json!({"physicalLocation": {"artifactLocation": {"uri": uri}, "region": {"startLine": line}}});
    if !place.is_empty() {
        location["logicalLocations"] = json!([{"fullyQualifiedName": &place, "kind": "element"}]);
    }
    json!({
        "ruleId": finding.rule.id(),
        "ruleIndex": Rule::ALL.iter().position(|rule| *rule == finding.rule),
        "level": if finding.severity == Severity::Fails { "error" } else { "warning" },
        "message": {"text": finding.to_string()},
        "locations": [location],
        // The same finding at another line is the same one.
        "partialFingerprints": {"lokaRuleAndPlace/v1": format!("{} {place}", finding.rule.id())},
    })
}

/// Relative paths stay relative: code scanning counts them from the repository's root.
fn uri_of(path: &Path) -> String {
    let text = path.to_string_lossy().replace('\\', "/");
    let mut uri = String::new();
    if path.is_absolute() {
        uri.push_str(if text.starts_with('/') { "file://" } else { "file:///" });
    }
    for byte in text.trim_start_matches("./").bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => uri.push(char::from(byte)),
            other => drop(write!(uri, "%{other:02X}")),
        }
    }
    uri
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_become_addresses() {
        assert_eq!(uri_of(Path::new("plans/a b%.plan.json")), "plans/a%20b%25.plan.json");
        assert_eq!(uri_of(Path::new("./é.json")), "%C3%A9.json");
        #[cfg(unix)]
        assert_eq!(uri_of(Path::new("/a/b.json")), "file:///a/b.json");
        assert_eq!(name_of(Rule::PolicyError), "PolicyError");
    }
}
