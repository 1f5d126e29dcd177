//! Takes parts, gives them in order, once they are all of one run.

use std::collections::BTreeMap;

use super::key::{PartKey, PartOf, SplitRun};

/// Why parts are not one run. `name` and `other` are names of files.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MergeError {
    #[error("there are no parts to merge")]
    Nothing,
    #[error("parts of two runs: the {what} is {found}, but {expected} in {other}: {name}")]
    Differs { what: &'static str, found: String, expected: String, other: String, name: String },
    #[error("part {part} is there twice, the other one is {other}: {name}")]
    Twice { part: PartOf, other: String, name: String },
    #[error("{} of {of} {} missing: loka {command} --part {}/{of} makes {}", listed(.parts), is_or_are(.parts), .parts.first().copied().unwrap_or(0), it_or_first(.parts))]
    Missing { parts: Vec<usize>, of: usize, command: &'static str },
    /// Sites or shapes.
    #[error("its {what} do not follow those of {other}: {name}")]
    Gap { what: &'static str, other: String, name: String },
}

const NAMED: usize = 5;

fn listed(parts: &[usize]) -> String {
    let numbers: Vec<String> = parts.iter().take(NAMED).map(ToString::to_string).collect();
    let more = parts.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{} {}{more}", if parts.len() == 1 { "part" } else { "parts" }, numbers.join(", "))
}

fn is_or_are(parts: &[usize]) -> &'static str {
    if parts.len() == 1 { "is" } else { "are" }
}

fn it_or_first(parts: &[usize]) -> &'static str {
    if parts.len() == 1 { "it" } else { "the first" }
}

/// `parts`: each with the name that errors show, in any order.
pub(super) fn in_order<R: SplitRun, P>(
    parts: Vec<(String, P)>,
    key: fn(&P) -> &PartKey<R>,
) -> Result<Vec<(String, P)>, MergeError> {
    let Some((first_name, first)) = parts.first() else { return Err(MergeError::Nothing) };
    let (first_name, run) = (first_name.clone(), key(first).run.clone());
    let mut by_number: BTreeMap<usize, (String, P)> = BTreeMap::new();
    for (name, part) in parts {
        if let Some((what, found, expected)) = key(&part).run.difference(&run) {
            return Err(MergeError::Differs { what, found, expected, other: first_name, name });
        }
        let number = key(&part).part;
        if let Some((other, _)) = by_number.get(&number) {
            return Err(MergeError::Twice { part: key(&part).place(), other: other.clone(), name });
        }
        by_number.insert(number, (name, part));
    }
    let of = run.of();
    let missing: Vec<usize> = (1..=of).filter(|part| !by_number.contains_key(part)).collect();
    if !missing.is_empty() {
        return Err(MergeError::Missing { parts: missing, of, command: R::COMMAND });
    }
    let parts: Vec<(String, P)> = by_number.into_values().collect();
    let (mut end, mut before) = (0, "");
    for (name, part) in &parts {
        if key(part).first != end {
            let (other, name) = (before.to_owned(), name.clone());
            return Err(MergeError::Gap { what: R::PIECES, other, name });
        }
        (end, before) = (key(part).end, name);
    }
    Ok(parts)
}
