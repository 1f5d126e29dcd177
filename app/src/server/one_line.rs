//! Takes what somebody calls themselves or a view, gives what others can be shown of it: one line.

use loka_core::model::is_hidden;

/// A person's name as it is shown to others: bounded, one line, and nothing that turns the line around.
pub fn name(name: &str, most: usize) -> String {
    let plain = one_line(name, most);
    if plain.is_empty() { "Guest".to_owned() } else { plain }
}

/// Bounded, and nothing in it that a reader would not see.
pub fn one_line(text: &str, most: usize) -> String {
    // Joiners too, which belong to an emoji or to Persian: two names may not look alike.
    let odd = |character| is_hidden(character) || matches!(character, '\u{200c}' | '\u{200d}');
    let plain: String = text.chars().filter(|character| !odd(*character)).take(most).collect();
    plain.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_shown_as_one_line() {
        assert_eq!(name("  Anna\u{202e}\n\u{0}  ", 64), "Anna");
        assert_eq!(name("\u{200b}\u{7}", 64), "Guest");
        assert_eq!(name("An\u{ad}n\u{2060}a\u{200d}", 64), "Anna", "no second Anna who looks like the first");
        assert_eq!(name(&"ä".repeat(100), 64).chars().count(), 64);
    }
}
