//! Takes fragments and a name, gives whether the name contains one: torchtitan's `filter_fqns`, torchao's
//! `_auto_filter_for_recipe`, nvdlfw's `layer_types`. Nothing is exported by this rule: it cannot tell
//! `layers.1` from `layers.10`.

pub fn contains_any(fragments: &[&str], name: &str) -> bool {
    fragments.iter().any(|fragment| name.contains(fragment))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_hits_too_much() {
        assert!(contains_any(&["layers.1"], "m.layers.1.fc1") && contains_any(&["layers.1"], "m.layers.10.fc1"));
        assert!(!contains_any(&["Layers"], "m.layers.1") && !contains_any(&[], "m"));
    }
}
