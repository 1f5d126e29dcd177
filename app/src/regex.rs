//! Regular expressions in filters of sites: takes a pattern, gives what says whether a name matches, or one line.

/// Whether a name matches.
type SiteMatcher = Box<dyn Fn(&str) -> bool>;

/// Case does not matter, as in plain text.
pub(crate) fn compile(pattern: &str) -> Result<SiteMatcher, String> {
    let regex = regex_lite::RegexBuilder::new(pattern).case_insensitive(true).build();
    let regex = regex.map_err(|error| error.to_string().lines().last().unwrap_or_default().to_owned())?;
    Ok(Box::new(move |name| regex.is_match(name)))
}

#[cfg(test)]
mod tests {
    use loka_core::views::Filter;

    use super::*;

    #[test]
    fn regular_expressions_are_read_and_refused_in_a_line() {
        let filter = |text: &str| Filter::read(text, &compile);
        assert!(filter("/mlp\\.\\d+$/").is_ok());
        let error = filter("/a(/").err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.starts_with("/a(/ is no regular expression: ") && !error.contains('\n'), "{error}");
        // What would take forever in other engines.
        let long = "a".repeat(4000);
        assert!(!compile("(a*)*b").is_ok_and(|matches| matches(&long)));
    }
}
