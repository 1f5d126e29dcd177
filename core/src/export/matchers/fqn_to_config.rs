//! Takes the keys of torchao's FqnToConfig, gives the one that a module gets: the full name of a parameter, then of
//! the module, then `re:` and a pattern of a whole parameter's name, then of the module's, then `_default`.

use std::collections::HashMap;

use super::{Lookup, Matcher, NotRead, Pattern};

#[derive(Clone, Debug)]
struct Whole(Pattern);

impl Matcher for Whole {
    fn matches(&self, name: &str) -> bool {
        self.0.fullmatch(name)
    }

    fn literals(&self) -> Option<Vec<String>> {
        self.0.literals(true, true)
    }
}

#[derive(Clone, Debug)]
pub struct FqnToConfig {
    exact: HashMap<String, usize>,
    patterns: Lookup<Whole>,
    /// The numbers of the patterns among all keys.
    numbers: Vec<usize>,
}

/// How a module comes to its configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FqnMatch {
    None,
    /// torchao stops with an error: a module has the name of a pattern.
    Error,
    /// A key that is meant for, or also hits, one of its parameters.
    Parameter(usize),
    Module(usize),
}

impl FqnToConfig {
    /// In the file's order, which decides between patterns.
    pub fn new(keys: &[String]) -> Result<Self, NotRead> {
        let (mut patterns, mut numbers) = (Vec::new(), Vec::new());
        for (number, pattern) in keys.iter().enumerate().filter_map(|(at, key)| Some((at, key.strip_prefix("re:")?))) {
            patterns.push(Whole(Pattern::new(pattern)?));
            numbers.push(number);
        }
        let exact = keys.iter().enumerate().map(|(number, key)| (key.clone(), number)).collect();
        Ok(Self { exact, patterns: Lookup::new(patterns), numbers })
    }

    /// `parameters`: the names of the module's own.
    pub fn of(&self, name: &str, parameters: &[&str]) -> FqnMatch {
        self.decide(name, parameters, |name| self.patterns.hits(name))
    }

    pub fn of_by_definition(&self, name: &str, parameters: &[&str]) -> FqnMatch {
        self.decide(name, parameters, |name| self.patterns.hits_by_definition(name))
    }

    fn decide(&self, name: &str, parameters: &[&str], hits: impl Fn(&str) -> Vec<usize>) -> FqnMatch {
        let full: Vec<String> = parameters
            .iter()
            .map(|parameter| if name.is_empty() { (*parameter).to_owned() } else { format!("{name}.{parameter}") })
            .collect();
        if name.starts_with("re:") && self.exact.contains_key(name) {
            return FqnMatch::Error;
        }
        let pattern = |name: &str| hits(name).first().map(|at| self.numbers[*at]);
        let exactly = || full.iter().find_map(|name| self.exact.get(name.as_str()).copied());
        let by_pattern = || full.iter().find_map(|name| pattern(name));
        if let Some(number) = exactly() {
            FqnMatch::Parameter(number)
        } else if let Some(number) = self.exact.get(name) {
            FqnMatch::Module(*number)
        } else if let Some(number) = by_pattern() {
            FqnMatch::Parameter(number)
        } else {
            let default = || self.exact.get("_default").copied();
            pattern(name).or_else(default).map_or(FqnMatch::None, FqnMatch::Module)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINEAR: [&str; 2] = ["weight", "bias"];

    fn rules(keys: &[&str]) -> FqnToConfig {
        FqnToConfig::new(&keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn the_whole_name_must_match() {
        let of = |key: &str, name: &str| rules(&[key]).of(name, &LINEAR);
        assert_eq!(of(r"re:m\.layers\.1\..*", "m.layers.1.fc1"), FqnMatch::Parameter(0), "its weight matches too");
        assert_eq!(of(r"re:m\.layers\.1\..*", "m.layers.10.fc1"), FqnMatch::None);
        assert_eq!(of("m.layers.1", "m.layers.1.fc1"), FqnMatch::None);
        assert_eq!(of("m.layers.1.fc1", "m.layers.1.fc1"), FqnMatch::Module(0));
    }

    #[test]
    fn precedence() {
        let rules = rules(&["re:a.*", "a", r"re:b\.weight", "re:b", "c.weight", "c", "_default", "re:d", "re:d|e"]);
        for (name, found) in [
            ("a", FqnMatch::Module(1)),
            ("ab", FqnMatch::Parameter(0)),
            ("b", FqnMatch::Parameter(2)),
            ("c", FqnMatch::Parameter(4)),
            ("d", FqnMatch::Module(7)),
            ("e", FqnMatch::Module(8)),
            ("z", FqnMatch::Module(6)),
            ("re:d", FqnMatch::Error),
        ] {
            assert_eq!(rules.of(name, &LINEAR), found, "{name}");
            assert_eq!(rules.of_by_definition(name, &LINEAR), found, "{name}");
        }
    }
}
