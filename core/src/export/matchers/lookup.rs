//! Takes patterns in their order, gives which of them match a name: literal ones by hash, the others in turn.

use std::collections::HashMap;

/// One pattern of a framework.
pub trait Matcher {
    /// The definition.
    fn matches(&self, name: &str) -> bool;

    /// The only names that it matches, where they can be listed.
    fn literals(&self) -> Option<Vec<String>>;
}

/// Patterns by what they match.
#[derive(Clone, Debug)]
pub struct Lookup<M> {
    patterns: Vec<M>,
    literals: HashMap<String, Vec<usize>>,
    others: Vec<usize>,
}

impl<M: Matcher> Lookup<M> {
    pub fn new(patterns: Vec<M>) -> Self {
        let (mut literals, mut others) = (HashMap::<String, Vec<usize>>::new(), Vec::new());
        for (at, pattern) in patterns.iter().enumerate() {
            match pattern.literals() {
                Some(names) => {
                    for name in names {
                        let hits = literals.entry(name).or_default();
                        if hits.last() != Some(&at) {
                            hits.push(at);
                        }
                    }
                }
                None => others.push(at),
            }
        }
        Self { patterns, literals, others }
    }

    /// The numbers of the patterns that match, in their order.
    pub fn hits(&self, name: &str) -> Vec<usize> {
        let mut hits = self.literals.get(name).cloned().unwrap_or_default();
        if !self.others.is_empty() {
            hits.extend(self.others.iter().copied().filter(|at| self.patterns[*at].matches(name)));
            hits.sort_unstable();
        }
        hits
    }

    /// The same one pattern after the other.
    pub fn hits_by_definition(&self, name: &str) -> Vec<usize> {
        (0..self.patterns.len()).filter(|at| self.patterns[*at].matches(name)).collect()
    }

    pub fn len(&self) -> usize {
        self.patterns.len()
    }

    pub fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }
}
