//! Takes what people and files say, gives it as it may be shown: cut to a length, with nothing invisible in it.

use crate::model::is_hidden;

/// Characters of a name.
pub const NAME: usize = 200;
/// Characters of a reason or a note.
pub const SENTENCE: usize = 1_000;

/// In one line: spaces and line breaks become one space, what nobody would see is named.
pub fn line(text: &str, most: usize) -> String {
    let mut shown = String::with_capacity(text.len().min(most));
    let mut blank = false;
    for (at, character) in text.trim().chars().enumerate() {
        if at >= most {
            shown.push('…');
            break;
        }
        if character.is_whitespace() {
            blank = true;
            continue;
        }
        if std::mem::take(&mut blank) {
            shown.push(' ');
        }
        push_visible(&mut shown, character);
    }
    shown
}

/// With its line breaks.
pub fn block(text: &str, most: usize) -> String {
    let mut shown = String::with_capacity(text.len().min(most));
    let text = text.trim();
    for (at, character) in text.chars().enumerate() {
        match character {
            _ if at >= most => {
                shown.push('…');
                break;
            }
            '\n' => shown.push('\n'),
            '\r' => {}
            '\t' => shown.push_str("    "),
            _ => push_visible(&mut shown, character),
        }
    }
    shown
}

/// Controls, marks of writing direction and characters without width could make a text look like another one.
fn push_visible(shown: &mut String, character: char) {
    if is_hidden(character) {
        shown.push_str(&format!("[U+{:04X}]", u32::from(character)));
    } else {
        shown.push(character);
    }
}

/// A name of at most `most` characters, shortened in the middle: the ends tell sites apart.
pub fn shorten(name: &str, most: usize) -> String {
    let characters: Vec<char> = name.chars().collect();
    if characters.len() <= most || most < 5 {
        return name.to_owned();
    }
    let tail = (most - 1) * 3 / 5;
    let head = most - 1 - tail;
    characters[..head].iter().chain(['…'].iter()).chain(&characters[characters.len() - tail..]).collect()
}

/// What tells kernels apart, short enough for a column: `cublaslt row+fast`.
pub fn short_kernel(kernel: &str) -> String {
    let (library, recipe) = kernel.split_once('/').unwrap_or((kernel, ""));
    let recipe = recipe.trim_start_matches("fp8-").replace("rowwise_with_gw_hp", "row gw hp");
    let recipe = recipe.replace("tensorwise", "tensor").replace("rowwise", "row").replace("blockwise", "block");
    format!("{library} {recipe}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_one_line_and_shows_what_is_in_it() {
        assert_eq!(line("  a\n\t b\r\n", 10), "a b");
        assert_eq!(line("pay\u{202e}lla\u{0}", 40), "pay[U+202E]lla[U+0000]");
        assert_eq!(line("a\u{200b}b\u{feff}", 40), "a[U+200B]b[U+FEFF]");
        assert_eq!(line(&"x".repeat(1_000), 5), "xxxxx…");
        assert_eq!(
            line("\u{1F469}\u{200D}\u{1F527} ünïcödé", 40),
            "\u{1F469}\u{200D}\u{1F527} ünïcödé",
            "nothing hidden"
        );
    }

    #[test]
    fn a_block_keeps_its_breaks() {
        assert_eq!(block("a\r\n\n\tb\u{2066}\n", 40), "a\n\n    b[U+2066]");
        assert_eq!(block("abc", 2), "ab…");
    }

    #[test]
    fn names_keep_both_ends() {
        assert_eq!(shorten("net.layers.0.fmb.mlp.0", 14), "net.la…b.mlp.0");
        assert_eq!(shorten("net", 14), "net");
    }

    #[test]
    fn short_names_tell_all_kernels_apart() {
        let mut all: Vec<String> = crate::model::catalogue().iter().map(|kernel| short_kernel(kernel.name)).collect();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), crate::model::catalogue().len());
    }
}
