//! Takes Megatron's matchers, gives the first enabled one that a module's path matches.

use super::{Glob, Lookup};

/// Globs in the file's order.
#[derive(Clone, Debug)]
pub struct FirstMatch(Lookup<Glob>);

impl FirstMatch {
    pub fn new(patterns: &[String]) -> Self {
        Self(Lookup::new(patterns.iter().map(|pattern| Glob::new(pattern)).collect()))
    }

    pub fn of(&self, name: &str) -> Option<usize> {
        self.0.hits(name).first().copied()
    }

    pub fn of_by_definition(&self, name: &str) -> Option<usize> {
        self.0.hits_by_definition(name).first().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_wins() {
        let patterns = ["m.a", "*layers.1*", "m.*", "m.a", "m.layers.10.fc1"].map(str::to_owned);
        let matchers = FirstMatch::new(&patterns);
        for (name, first) in
            [("m.a", Some(0)), ("m.b", Some(2)), ("m.layers.10.fc1", Some(1)), ("n", None), ("M.a", None)]
        {
            assert_eq!((matchers.of(name), matchers.of_by_definition(name)), (first, first), "{name}");
        }
    }
}
