//! Takes Quark's `exclude` and the names of `layer_quant_config`, gives what a layer gets: nothing when it is
//! excluded; else its own configuration, an exact name before globs and these in their order; else the global one.

use super::{Glob, Lookup};

#[derive(Clone, Debug)]
pub struct Quark {
    excluded: Lookup<Glob>,
    layers: Lookup<Glob>,
    /// Names without a wildcard, which are compared before any glob is tried.
    exact: std::collections::HashMap<String, usize>,
}

/// What a layer gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuarkLayer {
    Excluded,
    Global,
    /// The number of its entry in `layer_quant_config`.
    Own(usize),
}

impl Quark {
    pub fn new(excluded: &[String], layers: &[String]) -> Self {
        let globs = |patterns: &[String]| Lookup::new(patterns.iter().map(|pattern| Glob::new(pattern)).collect());
        let exact = layers.iter().enumerate().filter(|(_, name)| !name.contains(['*', '?', '[']));
        Self {
            excluded: globs(excluded),
            layers: globs(layers),
            exact: exact.map(|(at, name)| (name.clone(), at)).collect(),
        }
    }

    pub fn of(&self, name: &str) -> QuarkLayer {
        self.decide(name, &self.excluded.hits(name), || self.layers.hits(name))
    }

    pub fn of_by_definition(&self, name: &str) -> QuarkLayer {
        self.decide(name, &self.excluded.hits_by_definition(name), || self.layers.hits_by_definition(name))
    }

    fn decide(&self, name: &str, excluded: &[usize], layers: impl Fn() -> Vec<usize>) -> QuarkLayer {
        if !excluded.is_empty() {
            return QuarkLayer::Excluded;
        }
        let own = self.exact.get(name).copied().or_else(|| layers().first().copied());
        own.map_or(QuarkLayer::Global, QuarkLayer::Own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excluded_then_exact_then_globs_then_global() {
        let quark = Quark::new(&["a".to_owned(), "x.*".to_owned()], &["a", "b*", "bc", "x.y"].map(str::to_owned));
        for (name, layer) in [
            ("a", QuarkLayer::Excluded),
            ("x.y", QuarkLayer::Excluded),
            ("x", QuarkLayer::Global),
            ("bc", QuarkLayer::Own(2)),
            ("bd", QuarkLayer::Own(1)),
        ] {
            assert_eq!((quark.of(name), quark.of_by_definition(name)), (layer, layer), "{name}");
        }
    }
}
