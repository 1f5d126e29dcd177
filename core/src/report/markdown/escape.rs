//! Takes what people and files say, gives Markdown in which it is nothing but text. Code: there a page makes no HTML,
//! no link, no picture, and neither a mention nor a reference of what begins with `@` or `#`; a backslash before them
//! would not keep it from that.

use crate::format::{block, line};

/// Characters of a name or reason, and of a comment.
const NAME: usize = 300;
const COMMENT: usize = 1_500;
/// Words of a comment go on in the next line here: code does not wrap by itself.
const COLUMNS: usize = 100;

/// In a line or in a cell of a table.
pub fn code(text: &str) -> String {
    // A pipe would end the cell whatever stands around or before it.
    let shown = line(text, NAME).replace('|', "│");
    if shown.is_empty() {
        return "(empty)".to_owned();
    }
    let fence = "`".repeat(longest_run(&shown) + 1);
    // Without the spaces a backtick at the end would join the fence.
    let space = if shown.starts_with('`') || shown.ends_with('`') { " " } else { "" };
    format!("{fence}{space}{shown}{space}{fence}")
}

/// A text of many lines.
pub fn fenced(text: &str) -> String {
    let shown = wrapped(&block(text, COMMENT));
    let fence = "`".repeat(longest_run(&shown).max(2) + 1);
    format!("{fence}text\n{shown}\n{fence}\n")
}

fn longest_run(text: &str) -> usize {
    text.split(|character| character != '`').map(str::len).max().unwrap_or_default()
}

fn wrapped(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for (at, paragraph) in text.lines().enumerate() {
        if at > 0 {
            shown.push('\n');
        }
        let mut column = 0;
        for word in paragraph.split_inclusive(' ') {
            let characters = word.chars().count();
            if column > 0 && column + characters > COLUMNS {
                shown.push('\n');
                column = 0;
            }
            shown.push_str(word);
            column += characters;
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_ends_where_it_should() {
        for (text, of) in [
            ("a", "`a`"),
            ("a`b", "``a`b``"),
            ("`", "`` ` ``"),
            ("```", "```` ``` ````"),
            ("a\nb", "`a b`"),
            ("a\\|b|", "`a\\│b│`"),
            ("  ", "(empty)"),
            ("\\", "`\\`"),
        ] {
            assert_eq!(code(text), of);
        }
    }

    #[test]
    fn a_comment_stays_in_its_fence() {
        assert_eq!(fenced("a\n```\n<b>"), "````text\na\n```\n<b>\n````\n");
        let long = fenced(&"word ".repeat(100));
        assert!(long.lines().all(|line| line.chars().count() <= COLUMNS), "{long}");
        assert!(fenced("~~~\n# x").starts_with("```text\n~~~\n# x\n"));
    }
}
