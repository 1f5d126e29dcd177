//! Takes what came of one scenario in two windows, says where they differ.

use std::collections::BTreeMap;

use loka::driving::Node;
use loka_core::plan::Plan;
use serde_json::Value;

use crate::{player::Played, scenario::Scenario};

impl Played {
    /// Something was exported, and each plan is whole: its digest is that of its content.
    pub fn check(&self, scenario: &Scenario) {
        assert!(!self.exports.is_empty(), "{} exports nothing", scenario.name);
        for (name, bytes) in &self.exports {
            let plan = Plan::from_json(std::str::from_utf8(bytes).unwrap());
            let plan = plan.unwrap_or_else(|error| panic!("{}, {name} of {}: {error}", scenario.name, self.window));
            assert!(!plan.created_at.is_empty());
        }
    }
}

pub fn compare(scenario: &Scenario, one: &Played, other: &Played) {
    other.check(scenario);
    let between = format!("{}, {} and {}", scenario.name, one.window, other.window);
    for ((at, one), (_, other)) in one.states.iter().zip(&other.states) {
        assert_eq!(decided(one), decided(other), "{between} after step {at}");
    }
    assert_eq!(one.exports.len(), other.exports.len());
    for (name, bytes) in &one.exports {
        let texts = [bytes, &other.exports[name]].map(|bytes| timeless(std::str::from_utf8(bytes).unwrap()));
        assert_eq!(texts[0], texts[1], "{between}: {name}");
    }
    eprintln!("{between}: the same plans");
    let (ours, theirs) = (controls(&one.last.nodes), controls(&other.last.nodes));
    let missing = |of: &BTreeMap<String, usize>, from: &BTreeMap<String, usize>| -> Vec<String> {
        of.iter().filter(|(key, count)| from.get(*key) != Some(count)).map(|(key, _)| key.clone()).collect()
    };
    let differ = [missing(&ours, &theirs), missing(&theirs, &ours)];
    assert!(differ.iter().all(Vec::is_empty), "{between}: on screen at the end, here and there alone: {differ:#?}");
}

/// Without what depends on where a session is.
fn decided(state: &Value) -> Value {
    let mut state = state.clone();
    let fields = state.as_object_mut().unwrap();
    fields.remove("standing");
    if fields["complete"] == false {
        // Of as many rows as had come by then.
        fields.remove("speedup");
    }
    state
}

/// Times, and what is of the time too.
const OF_TIME: [&str; 5] = ["created_at", "digest", "at", "review_digest", "signature"];

/// The very text, apart from the lines of times and of digests and signatures, which are of the time too.
fn timeless(text: &str) -> String {
    let of_time = |line: &str| OF_TIME.iter().any(|key| line.trim_start().starts_with(&format!("\"{key}\":")));
    let lines: Vec<&str> = text.lines().filter(|line| !of_time(line)).collect();
    assert!(lines.len() + 2 <= text.lines().count(), "a plan has its time and its digest on a line each");
    lines.join("\n")
}

/// Everything on screen, by role and label, with how it stands; counted, because a word may be there twice.
fn controls(nodes: &[Node]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for node in nodes.iter().filter(|node| !is_of_its_place(node)) {
        let stands = (node.on, node.mixed, node.disabled);
        *counts.entry(format!("{} {:?} {:?} {stands:?}", node.role, node.label, node.value)).or_default() += 1;
    }
    counts
}

/// What a window says about where it is: times of runs and of people, its own paths, who else looks on. And the rows of
/// lists: how many fit is a matter of a pixel, and how the words around them fall.
fn is_of_its_place(node: &Node) -> bool {
    let timed = ["probed in ", "cancelled at ", "Version "].iter().any(|word| node.label.starts_with(word))
        || node.label.contains("UTC");
    // Lines of what was done name files, and fade.
    let fades =
        ["Dismiss", "Show log", "Done"].contains(&node.label.as_str()) || node.label.starts_with("Plan written");
    let dated = node.label.starts_with("20") && node.label.contains(':');
    timed || fades || dated || node.label.contains('/') || node.label.contains("sha256:") || is_row(node)
}

/// Of the sample's sites.
fn is_row(node: &Node) -> bool {
    let folder = node.role != "Button" && node.role != "CheckBox" && node.role != "Label";
    node.label.contains("net.") || node.label.contains(" sites, ") || folder && node.label.parse::<u32>().is_ok()
}
