//! Reads lines of a stream that may be anybody's: takes bytes, gives a line at a time, and nothing larger than its bound
//! is ever in memory.

use std::io::{BufRead, ErrorKind};

/// What came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientLine {
    Text(String),
    /// Longer than the bound: it was read to its end and thrown away.
    TooLong,
    /// Not UTF-8.
    NoText,
}

/// The next line without its end; `None`: the stream is over.
pub fn next(input: &mut impl BufRead, most: usize) -> Option<ClientLine> {
    let mut line: Vec<u8> = Vec::new();
    let (mut any, mut long) = (false, false);
    loop {
        let bytes = match input.fill_buf() {
            Ok([]) => break,
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            // A stream that breaks has ended.
            Err(_) => break,
        };
        any = true;
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let taken = end.unwrap_or(bytes.len());
        long |= line.len() + taken > most;
        if !long {
            line.extend_from_slice(&bytes[..taken]);
        }
        input.consume(end.map_or(taken, |end| end + 1));
        if end.is_some() {
            break;
        }
    }
    if !any {
        return None;
    }
    if long {
        return Some(ClientLine::TooLong);
    }
    Some(String::from_utf8(line).map_or(ClientLine::NoText, ClientLine::Text))
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use super::*;

    fn all(bytes: &[u8], most: usize) -> Vec<ClientLine> {
        // Smaller than a line: it comes in pieces.
        let mut input = BufReader::with_capacity(3, bytes);
        std::iter::from_fn(|| next(&mut input, most)).collect()
    }

    fn text(line: &str) -> ClientLine {
        ClientLine::Text(line.to_owned())
    }

    #[test]
    fn lines_come_whole_and_the_last_needs_no_end() {
        assert_eq!(all(b"one\n\ntwo three\nfour", 100), [text("one"), text(""), text("two three"), text("four")]);
        assert!(all(b"", 100).is_empty());
    }

    #[test]
    fn what_is_too_long_is_skipped_to_its_end() {
        assert_eq!(all(b"12345\n123456\nabc\n", 5), [text("12345"), ClientLine::TooLong, text("abc")]);
        assert_eq!(all(b"1234567", 5), [ClientLine::TooLong]);
    }

    #[test]
    fn what_is_no_text_is_said_to_be_none() {
        assert_eq!(all(b"\xff\xfe\nok\n", 100), [ClientLine::NoText, text("ok")]);
    }
}
