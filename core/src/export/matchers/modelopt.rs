//! Takes the entries of modelopt's `quant_cfg`, gives those that reach a quantizer, in their order: each replaces
//! what the ones before it said.

use super::{Glob, Lookup};

/// The globs of `quantizer_name`, in the file's order.
#[derive(Clone, Debug)]
pub struct LastMatch(Lookup<Glob>);

impl LastMatch {
    pub fn new(patterns: &[String]) -> Self {
        Self(Lookup::new(patterns.iter().map(|pattern| Glob::new(pattern)).collect()))
    }

    /// `name`: of the quantizer, the module's with `.weight_quantizer` or `.input_quantizer` behind it.
    pub fn of(&self, name: &str) -> Vec<usize> {
        merged(name, |name| self.0.hits(name))
    }

    pub fn of_by_definition(&self, name: &str) -> Vec<usize> {
        merged(name, |name| self.0.hits_by_definition(name))
    }
}

fn merged(name: &str, hits: impl Fn(&str) -> Vec<usize>) -> Vec<usize> {
    let (mut all, without) = (hits(name), without_expert(name));
    if without != name {
        all.extend(hits(&without));
        all.sort_unstable();
        all.dedup();
    }
    all
}

/// modelopt also looks under the name without an expert's number: `x.weight_quantizers.3` is `x.weight_quantizer`
/// too. `re.sub(r"(weight_quantizers?|input_quantizers?)\.\d+(?=$|\.)", the word in the singular, name)`.
fn without_expert(name: &str) -> String {
    let (mut out, mut rest) = (String::with_capacity(name.len()), name);
    while let Some((at, word)) =
        ["weight_quantizer", "input_quantizer"].iter().filter_map(|word| rest.find(word).map(|at| (at, *word))).min()
    {
        let behind = &rest[at + word.len()..];
        let number = behind.strip_prefix('s').unwrap_or(behind).strip_prefix('.');
        // ASCII alone: nobody numbers experts in another script.
        let digits = |text: &str| text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        out.push_str(&rest[..at + word.len()]);
        rest = match number.map(|number| (number, digits(number))) {
            Some((number, length)) if length > 0 && ends_part(&number[length..]) => &number[length..],
            _ => behind,
        };
    }
    out + rest
}

fn ends_part(rest: &str) -> bool {
    rest.is_empty() || rest == "\n" || rest.starts_with('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_entries_come_last() {
        let patterns = ["*", "a.weight_quantizer", "a.*", "a.weight_quantizer"].map(str::to_owned);
        let entries = LastMatch::new(&patterns);
        assert_eq!(entries.of("a.weight_quantizer"), [0, 1, 2, 3]);
        assert_eq!(entries.of("a.input_quantizer"), [0, 2]);
        assert_eq!(entries.of("b.weight_quantizer"), [0]);
        assert_eq!(entries.of("a.weight_quantizers.3"), [0, 1, 2, 3]);
        for name in ["a.weight_quantizer", "a.input_quantizer", "b", "a.weight_quantizers.3"] {
            assert_eq!(entries.of(name), entries.of_by_definition(name));
        }
    }

    #[test]
    fn numbers_of_experts() {
        for (name, without) in [
            ("x.weight_quantizers.12", "x.weight_quantizer"),
            ("x.input_quantizer.0.y", "x.input_quantizer.y"),
            ("x.weight_quantizer.1.weight_quantizers.2.z", "x.weight_quantizer.weight_quantizer.z"),
            ("x.weight_quantizer.1a", "x.weight_quantizer.1a"),
            ("x.weight_quantizers", "x.weight_quantizers"),
            ("weight_quantizer.weight_quantizer.", "weight_quantizer.weight_quantizer."),
            ("x.output_quantizer.1", "x.output_quantizer.1"),
        ] {
            assert_eq!(without_expert(name), without);
        }
    }
}
