//! Takes what files and people say, gives it as a terminal, a trail or a page may show it: nothing in it that steers a
//! terminal, turns a line around or hides.

/// A control, a mark of writing direction, or a character without width: with it a text could look like another one. What
/// joins characters (of an emoji, in Persian) is seen in them.
pub fn is_hidden(character: char) -> bool {
    character.is_control()
        || matches!(u32::from(character),
            0xAD | 0x61C | 0x180E | 0x200B | 0x200E | 0x200F | 0x2028..=0x202E | 0x2060..=0x206F | 0xFEFF
            | 0xFFF9..=0xFFFB | 0xE0000..=0xE007F)
}

/// One line in which hidden characters are seen as what they are: `\n`, `\u{202e}`.
pub fn visible(text: &str) -> String {
    visible_within(text, usize::MAX)
}

/// The same of its first `most` characters; a megabyte of a name must not bury a message.
pub fn visible_within(text: &str, most: usize) -> String {
    let mut line = String::with_capacity(text.len().min(most));
    for (at, character) in text.chars().enumerate() {
        match character {
            _ if at >= most => {
                line.push('…');
                break;
            }
            _ if is_hidden(character) => line.extend(character.escape_default()),
            _ => line.push(character),
        }
    }
    line
}

/// JSON without hidden characters, which says the same: they stand in its strings alone.
pub fn visible_json(json: &str) -> String {
    let mut line = String::with_capacity(json.len());
    for character in json.chars() {
        if is_hidden(character) {
            line.extend(character.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")));
        } else {
            line.push(character);
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_or_turns_a_line_is_seen() {
        assert_eq!(visible("a\u{1b}[2J\nb\u{202e}c\u{9b}é"), "a\\u{1b}[2J\\nb\\u{202e}c\\u{9b}é");
        assert_eq!(visible("\u{e0041}\u{200f}"), "\\u{e0041}\\u{200f}");
        assert_eq!(visible_within("äbcd", 3), "äbc…");
        assert_eq!(visible_within("äbc", 3), "äbc");
    }

    #[test]
    fn json_says_the_same() {
        let text = "a\u{7f}\u{202e}\u{e0041}\u{9b}é\n";
        let json = visible_json(&serde_json::to_string(text).unwrap());
        assert!(!json.contains(is_hidden), "{json}");
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
    }
}
