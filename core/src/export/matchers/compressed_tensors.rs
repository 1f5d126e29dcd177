//! Takes compressed-tensors' targets and `ignore`, gives the target whose scheme a module gets: a target is a full
//! name, or the name of a class of the module, or `re:` and a pattern from the beginning; `ignore` wins.

use super::{Lookup, Matcher, NotRead, Pattern};

#[derive(Clone, Debug)]
enum ModulePattern {
    Name(String),
    Regex(Pattern),
}

impl ModulePattern {
    fn new(text: &str) -> Result<Self, NotRead> {
        match text.strip_prefix("re:") {
            Some(pattern) => Pattern::new(pattern).map(Self::Regex),
            None => Ok(Self::Name(text.to_owned())),
        }
    }
}

impl Matcher for ModulePattern {
    fn matches(&self, name: &str) -> bool {
        match self {
            Self::Name(wanted) => wanted == name,
            Self::Regex(pattern) => pattern.matches_start(name),
        }
    }

    fn literals(&self) -> Option<Vec<String>> {
        match self {
            Self::Name(name) => Some(vec![name.clone()]),
            Self::Regex(pattern) => pattern.literals(true, false),
        }
    }
}

#[derive(Clone, Debug)]
pub struct CompressedTensors {
    /// Exact names first, then what has `re:` in it, each by the alphabet: the order in which the first wins.
    targets: Lookup<ModulePattern>,
    order: Vec<usize>,
    ignored: Lookup<ModulePattern>,
    texts: Vec<String>,
    ignored_texts: Vec<String>,
}

impl CompressedTensors {
    /// `targets`: of all groups, in the file's order.
    pub fn new(targets: &[String], ignored: &[String]) -> Result<Self, NotRead> {
        let mut order: Vec<usize> = (0..targets.len()).collect();
        order.sort_by_key(|at| (targets[*at].contains("re:"), targets[*at].as_str()));
        let texts: Vec<String> = order.iter().map(|at| targets[*at].clone()).collect();
        let read = |texts: &[String]| texts.iter().map(|text| ModulePattern::new(text)).collect::<Result<Vec<_>, _>>();
        Ok(Self {
            targets: Lookup::new(read(&texts)?),
            order,
            ignored: Lookup::new(read(ignored)?),
            texts,
            ignored_texts: ignored.to_vec(),
        })
    }

    /// The number of the target, in the file's order. `classes`: of the module and its ancestors.
    pub fn of(&self, name: &str, classes: &[&str]) -> Option<usize> {
        let ignored = self.ignored.hits(name);
        self.decide(classes, &ignored, || self.targets.hits(name))
    }

    pub fn of_by_definition(&self, name: &str, classes: &[&str]) -> Option<usize> {
        let ignored = self.ignored.hits_by_definition(name);
        self.decide(classes, &ignored, || self.targets.hits_by_definition(name))
    }

    fn decide(&self, classes: &[&str], ignored: &[usize], targets: impl Fn() -> Vec<usize>) -> Option<usize> {
        let of_class = |texts: &[String]| -> Option<usize> {
            classes.iter().filter_map(|class| texts.iter().position(|text| text == class)).min()
        };
        if !ignored.is_empty() || of_class(&self.ignored_texts).is_some() {
            return None;
        }
        let found = targets().first().copied().or_else(|| of_class(&self.texts));
        found.map(|at| self.order[at])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(targets: &[&str], ignored: &[&str]) -> CompressedTensors {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        CompressedTensors::new(&owned(targets), &owned(ignored)).unwrap()
    }

    #[test]
    fn names_are_whole_and_patterns_are_not() {
        let of = |target: &str, name: &str| rules(&[target], &[]).of(name, &["Linear"]).is_some();
        assert!(!of("m.layers.1", "m.layers.1.fc1") && !of("m.layers.1", "m.layers.10.fc1"));
        assert!(of(r"re:.*layers\.1", "m.layers.1.fc1") && of(r"re:.*layers\.1", "m.layers.10.fc1"));
        assert!(of("Linear", "anything"));
    }

    #[test]
    fn ignore_wins_then_names_then_patterns_then_classes() {
        let rules = rules(&["Linear", "re:a", "a.b", r"re:re:x\Z", "re:c.*"], &["a.c", "re:d", "ReLU"]);
        for (name, class, found) in [
            ("a.b", "Linear", Some(2)),
            ("a.x", "Linear", Some(1)),
            ("z", "Linear", Some(0)),
            ("z", "Conv2d", None),
            ("z", "ReLU", None),
            ("a.c", "Linear", None),
            ("da", "Linear", None),
            ("re:x", "Conv2d", Some(3)),
            ("re:xy", "Conv2d", None),
        ] {
            assert_eq!(rules.of(name, &[class]), found, "{name}");
            assert_eq!(rules.of_by_definition(name, &[class]), found, "{name}");
        }
    }
}
