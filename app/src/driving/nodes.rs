//! Takes the tree that screen readers get, gives its controls and texts as plain data.

use std::collections::HashMap;

use egui::accesskit::{Node as Source, NodeId, Role, Toggled, TreeUpdate};
use serde::{Deserialize, Serialize};

/// A control or a text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// As AccessKit names it: `Button`, `CheckBox`, `Slider`, `TextInput`, `Label`.
    pub role: String,
    /// What a screen reader says first; of a text, the text.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// On or off; `mixed` is neither. Of what can be selected too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on: Option<bool>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub mixed: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub disabled: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub focused: bool,
    /// Left, top, right, bottom, in points from the window's corner.
    pub bounds: [f32; 4],
}

/// What has a place and something to say.
pub fn nodes_of(tree: &TreeUpdate) -> Vec<Node> {
    let by_id: HashMap<NodeId, &Source> = tree.nodes.iter().map(|(id, node)| (*id, node)).collect();
    let told = tree.nodes.iter().filter_map(|(id, source)| node(source, *id == tree.focus, &by_id));
    told.filter(|node| !node.label.is_empty() || !node.value.is_empty()).collect()
}

fn node(source: &Source, focused: bool, by_id: &HashMap<NodeId, &Source>) -> Option<Node> {
    let bounds = source.bounds()?;
    // Characters of a text, which has them as its value.
    if source.role() == Role::TextRun {
        return None;
    }
    let toggled = source.toggled();
    Some(Node {
        role: format!("{:?}", source.role()),
        label: label(source, by_id),
        value: value(source),
        on: toggled.map(|toggled| toggled == Toggled::True).or(source.is_selected()),
        mixed: toggled == Some(Toggled::Mixed),
        disabled: source.is_disabled(),
        focused,
        bounds: [bounds.x0, bounds.y0, bounds.x1, bounds.y1].map(|side| side as f32),
    })
}

/// Its own, or the texts that label it.
fn label(source: &Source, by_id: &HashMap<NodeId, &Source>) -> String {
    let own = if source.role() == Role::Label { source.value() } else { source.label() };
    if let Some(own) = own {
        return own.to_owned();
    }
    let by = source.labelled_by().iter().filter_map(|id| by_id.get(id));
    by.filter_map(|node| node.value().or(node.label())).collect::<Vec<_>>().join(" ")
}

fn value(source: &Source) -> String {
    if source.role() == Role::Label {
        return String::new();
    }
    let number = || source.numeric_value().map(|number| number.to_string());
    source.value().map(str::to_owned).or_else(number).unwrap_or_default()
}
