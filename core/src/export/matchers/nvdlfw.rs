//! Takes the sections of an nvdlfw_inspect file, gives the one that a layer is in: `re.search` of a pattern, and
//! two enabled sections for one layer are an error when training starts.

use super::{Lookup, Matcher, Pattern};

#[derive(Clone, Debug)]
struct Searched(Pattern);

impl Matcher for Searched {
    fn matches(&self, name: &str) -> bool {
        self.0.search(name)
    }

    fn literals(&self) -> Option<Vec<String>> {
        self.0.literals(false, false)
    }
}

/// The patterns of the enabled sections, in the file's order.
#[derive(Clone, Debug)]
pub struct Sections(Lookup<Searched>);

impl Sections {
    pub fn new(patterns: Vec<Pattern>) -> Self {
        Self(Lookup::new(patterns.into_iter().map(Searched).collect()))
    }

    /// The number of its section; `Err` with two that it is in.
    pub fn of(&self, name: &str) -> Result<Option<usize>, (usize, usize)> {
        one(&self.0.hits(name))
    }

    pub fn of_by_definition(&self, name: &str) -> Result<Option<usize>, (usize, usize)> {
        one(&self.0.hits_by_definition(name))
    }
}

fn one(hits: &[usize]) -> Result<Option<usize>, (usize, usize)> {
    match hits {
        [] => Ok(None),
        [only] => Ok(Some(*only)),
        [first, second, ..] => Err((*first, *second)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::matchers::escape_regex;

    fn sections(patterns: &[&str]) -> Sections {
        Sections::new(patterns.iter().map(|text| Pattern::new(text).unwrap()).collect())
    }

    #[test]
    fn a_search_hits_more_than_meant() {
        let loose = sections(&[r"layers\.1"]);
        assert_eq!((loose.of("m.layers.1.fc1"), loose.of("m.layers.10.fc1")), (Ok(Some(0)), Ok(Some(0))));
        let exact = sections(&[r"^m\.layers\.1\.fc1$"]);
        assert_eq!((exact.of("m.layers.1.fc1"), exact.of("m.layers.10.fc1")), (Ok(Some(0)), Ok(None)));
        assert_eq!(exact.of("m.layers.1.fc1\n"), Ok(Some(0)), "a dollar sign stands before a last line break too");
    }

    #[test]
    fn a_layer_in_two_sections_is_an_error() {
        let names = ["a.b", "a.bc", "b", "a", "(", ""];
        let listed = names.map(escape_regex).join("|");
        let both = sections(&[&format!(r"\A(?:{listed})\Z"), "a", r"\Ab\Z", r"\Ac\Z"]);
        assert_eq!(both.of("a.b"), Err((0, 1)));
        assert_eq!(both.of("c"), Ok(Some(3)));
        for name in names.into_iter().chain(["c", "a.b.c", "xa", "b\n"]) {
            assert_eq!(both.of(name), both.of_by_definition(name), "{name:?}");
        }
    }
}
