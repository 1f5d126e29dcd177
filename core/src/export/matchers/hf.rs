//! Takes `modules_to_not_convert` of Hugging Face, gives which of its keys skip a module: each key is a regular
//! expression from the beginning of the name to a dot or its end, and also a plain suffix.

use std::collections::{BTreeSet, HashMap};

use super::{NotRead, Pattern};

/// Which positions of a key may be any character, and the keys by their other characters.
type Masked = (Vec<usize>, HashMap<Vec<char>, Vec<usize>>);

/// The keys, compiled.
#[derive(Clone, Debug)]
pub struct SkipList {
    keys: Vec<(String, Pattern)>,
    /// Keys that match one name alone.
    whole: HashMap<Vec<char>, Vec<usize>>,
    /// Keys of a fixed length.
    masked: HashMap<usize, Vec<Masked>>,
    others: Vec<usize>,
    suffixes: HashMap<String, Vec<usize>>,
    suffix_lengths: BTreeSet<usize>,
}

impl SkipList {
    pub fn new(keys: &[String]) -> Result<Self, NotRead> {
        let keys = keys.iter().map(|key| Ok((key.clone(), Pattern::new(key)?))).collect::<Result<Vec<_>, NotRead>>()?;
        let mut list = Self {
            keys: Vec::new(),
            whole: HashMap::new(),
            masked: HashMap::new(),
            others: Vec::new(),
            suffixes: HashMap::new(),
            suffix_lengths: BTreeSet::new(),
        };
        for (number, (key, pattern)) in keys.iter().enumerate() {
            list.suffixes.entry(key.clone()).or_default().push(number);
            list.suffix_lengths.insert(key.len());
            list.file(number, pattern);
        }
        list.keys = keys;
        Ok(list)
    }

    fn file(&mut self, number: usize, pattern: &Pattern) {
        let Some((shape, is_whole)) = pattern.shape() else {
            self.others.push(number);
            return;
        };
        let any: Vec<usize> = (0..shape.len()).filter(|at| shape[*at].is_none()).collect();
        let rest: Vec<char> = shape.iter().flatten().copied().collect();
        if is_whole && any.is_empty() {
            self.whole.entry(rest).or_default().push(number);
        } else if is_whole {
            self.others.push(number);
        } else {
            let masks = self.masked.entry(shape.len()).or_default();
            let at = masks.iter().position(|(there, _)| *there == any).unwrap_or_else(|| {
                masks.push((any, HashMap::new()));
                masks.len() - 1
            });
            masks[at].1.entry(rest).or_default().push(number);
        }
    }

    /// The numbers of the keys that skip this module.
    pub fn hits(&self, name: &str) -> BTreeSet<usize> {
        let chars: Vec<char> = name.chars().collect();
        let mut hits: BTreeSet<usize> = self.whole.get(&chars).into_iter().flatten().copied().collect();
        for end in (0..=chars.len()).filter(|end| is_boundary(&chars, *end)) {
            for (any, keys) in self.masked.get(&end).into_iter().flatten() {
                if any.iter().all(|at| chars[*at] != '\n') {
                    let mut skipped = any.iter().peekable();
                    let rest: Vec<char> =
                        (0..end).filter(|at| skipped.next_if(|any| *any == at).is_none()).map(|at| chars[at]).collect();
                    hits.extend(keys.get(&rest).into_iter().flatten());
                }
            }
        }
        for length in self.suffix_lengths.iter().filter(|length| **length <= name.len()) {
            if let Some(suffix) = name.get(name.len() - length..) {
                hits.extend(self.suffixes.get(suffix).into_iter().flatten());
            }
        }
        hits.extend(self.others.iter().filter(|number| is_start(&self.keys[**number].1, &chars)));
        hits
    }

    /// The same one key after the other.
    pub fn hits_by_definition(&self, name: &str) -> BTreeSet<usize> {
        let chars: Vec<char> = name.chars().collect();
        let skips = |(key, pattern): &(String, Pattern)| is_start(pattern, &chars) || name.ends_with(key.as_str());
        (0..self.keys.len()).filter(|number| skips(&self.keys[*number])).collect()
    }
}

fn is_start(pattern: &Pattern, name: &[char]) -> bool {
    pattern.ends(name).into_iter().any(|end| is_boundary(name, end))
}

/// `(?:(?<=\.)|(?=\.|$))`
fn is_boundary(name: &[char], at: usize) -> bool {
    let behind_dot = at.checked_sub(1).is_some_and(|before| name[before] == '.');
    let at_end = at == name.len() || (at + 1 == name.len() && name[at] == '\n');
    behind_dot || at_end || name[at] == '.'
}

#[cfg(test)]
#[path = "hf_tests.rs"]
mod tests;
