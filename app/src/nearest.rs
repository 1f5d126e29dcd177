//! A name that nobody knows: takes it and the names that there are, gives those that may have been meant.

/// No more are named.
const MOST: usize = 3;
/// Of 1: below it two names have nothing to do with each other.
const ALIKE: f64 = 0.75;
/// Names that are looked at, and their bytes: a trace may have 100,000 sites, and a name a megabyte.
const LOOKED_AT: usize = 20_000;
const BYTES: usize = 200;

/// The nearest first. Those that hold what was typed, or end as it does, come before those that are only spelt alike.
pub(crate) fn nearest<'a>(typed: &str, known: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let typed = typed.to_lowercase();
    if typed.is_empty() || typed.len() > BYTES {
        return Vec::new();
    }
    let score = |name: &'a str| {
        let lower = name.to_lowercase();
        let within = if lower.contains(&typed) { 1.0 } else { 0.0 };
        let alike = strsim::jaro_winkler(&lower, &typed);
        (within > 0.0 || alike >= ALIKE).then_some((within + alike, name))
    };
    let mut found: Vec<(f64, &str)> =
        known.take(LOOKED_AT).filter(|name| name.len() <= BYTES).filter_map(score).collect();
    found.sort_by(|(a, x), (b, y)| b.total_cmp(a).then(x.cmp(y)));
    found.truncate(MOST);
    found.into_iter().map(|(_, name)| name).collect()
}

/// `; did you mean 'a' or 'b'?`, or nothing.
pub(crate) fn did_you_mean<'a>(typed: &str, known: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<String> = nearest(typed, known).into_iter().map(|name| format!("'{name}'")).collect();
    match &names[..] {
        [] => String::new(),
        [one] => format!("; did you mean {one}?"),
        [first @ .., last] => format!("; did you mean {} or {last}?", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 4] = ["view.heatmap", "view.quadrant", "site.override", "edit.undo"];

    #[test]
    fn what_was_meant_is_named_first() {
        let of = |typed| nearest(typed, KNOWN.into_iter());
        assert_eq!(of("view.heatmpa")[0], "view.heatmap");
        assert_eq!(of("Undo")[0], "edit.undo");
        assert_eq!(of("override")[0], "site.override");
        assert!(of("zzzz").is_empty() && of("").is_empty());
    }

    #[test]
    fn a_question_follows_the_error() {
        assert_eq!(did_you_mean("edit.und", ["edit.undo"].into_iter()), "; did you mean 'edit.undo'?");
        assert_eq!(did_you_mean("ab", ["abc", "abd"].into_iter()), "; did you mean 'abc' or 'abd'?");
        assert_eq!(did_you_mean("q", KNOWN.into_iter().filter(|_| false)), "");
    }
}
