//! The chain of a journal's entries. Takes them in their order, gives each a hash that follows from the one before it;
//! takes what was read back, gives what is wrong with it and where.

use std::{
    cmp::Ordering,
    fmt::{self, Write as _},
    str::FromStr,
};

use sha2::{Digest, Sha256};

use crate::session::shared::CommandContext;

/// Before what is hashed first: no other chain has its links.
const CONTEXT: &[u8] = b"loka-journal-chain-v2\0";

/// What an entry follows from: SHA-256.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Link([u8; 32]);

impl Link {
    /// Before any entry: of this journal, kept for the trace of that stamp.
    pub fn first(id: &str, trace_stamp: &str) -> Self {
        let mut hasher = Sha256::new_with_prefix(CONTEXT);
        put(&mut hasher, id.as_bytes());
        put(&mut hasher, trace_stamp.as_bytes());
        Self(hasher.finalize().into())
    }

    pub fn next(self, line: &Line) -> Self {
        let mut hasher = Sha256::new_with_prefix(self.0);
        for number in [line.seq, line.at_ms, line.author_key, line.number, line.seen] {
            put(&mut hasher, &number.to_le_bytes());
        }
        for text in [&line.author, &line.role, &line.command] {
            put(&mut hasher, text.as_bytes());
        }
        put(&mut hasher, line.state.bytes());
        Self(hasher.finalize().into())
    }

    /// Bytes that are no hash follow from nothing.
    pub(super) fn of_bytes(bytes: &[u8]) -> Self {
        Self(bytes.try_into().unwrap_or_default())
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn of_hash(hash: [u8; 32]) -> Self {
        Self(hash)
    }
}

/// With its length: no two lists of values have the same bytes.
pub(super) fn put(hasher: &mut Sha256, bytes: &[u8]) {
    hasher.update((bytes.len() as u64).to_le_bytes());
    hasher.update(bytes);
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::from("sha256:");
        for byte in self.0 {
            write!(text, "{byte:02x}")?;
        }
        f.write_str(&text)
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Link {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is no head (sha256: and 64 hexadecimal digits)");
        let digits = text.strip_prefix("sha256:").filter(|digits| digits.len() == 64).ok_or_else(wrong)?;
        let mut link = [0; 32];
        for (byte, pair) in link.iter_mut().zip(digits.as_bytes().chunks(2)) {
            let pair = std::str::from_utf8(pair).ok().filter(|pair| pair.bytes().all(|of| of.is_ascii_hexdigit()));
            *byte = pair.and_then(|pair| u8::from_str_radix(pair, 16).ok()).ok_or_else(wrong)?;
        }
        Ok(Self(link))
    }
}

/// An entry as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub seq: i64,
    pub at_ms: i64,
    pub author_key: i64,
    pub author: String,
    pub role: String,
    pub number: i64,
    pub seen: i64,
    /// JSON.
    pub command: String,
    /// What the session was besides: the state's link when it was asked for.
    pub state: Link,
}

impl Line {
    pub(super) fn of(seq: i64, by: &CommandContext, command: &str, state: Link) -> Self {
        let CommandContext { author, number, seen, at } = by;
        Self {
            seq,
            at_ms: at.0,
            author_key: author.key.cast_signed(),
            author: author.name.clone(),
            role: author.role.as_str().to_owned(),
            number: number.cast_signed(),
            seen: seen.cast_signed(),
            command: command.to_owned(),
            state,
        }
    }
}

/// An entry and the hash beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chained {
    pub line: Line,
    pub hash: Link,
}

/// How far a chain goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chain {
    pub head: Link,
    pub count: u64,
}

impl Chain {
    pub fn new(first: Link) -> Self {
        Self { head: first, count: 0 }
    }

    /// The hash to be written beside the line.
    pub fn add(&mut self, line: &Line) -> Link {
        (self.head, self.count) = (self.head.next(line), self.count + 1);
        self.head
    }
}

/// The first thing that is wrong with a chain. Entries are named by their numbers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Break {
    #[error("entry {0} was changed, or what is before it was, hash and all")]
    Changed(i64),
    #[error("entry {0}, the last, is not the one that the journal notes: it was changed, hash and all")]
    Last(i64),
    #[error("{} cut out before entry {before}", entries(*.num))]
    Cut { before: i64, num: u64 },
    #[error("{} cut off at its end, after entry {after}", entries(*.num))]
    End { after: i64, num: u64 },
    #[error("entry {0} was swapped with entry {1}")]
    Swapped(i64, i64),
    #[error("{} put in, from entry {at} on", entries(*.num))]
    Inserted { at: i64, num: u64 },
    #[error("its beginning was changed: what journal it is, or of which trace")]
    Beginning,
    #[error("what journal it is was taken out of it")]
    Unsigned,
    #[error("its checkpoint was changed: the session as it was kept, or its rows")]
    Checkpoint,
    #[error("what came after its checkpoint was changed, before entry {0}")]
    Events(i64),
    #[error("what came last was changed, after every entry")]
    LastEvents,
}

fn entries(num: u64) -> String {
    if num == 1 { "1 entry was".to_owned() } else { format!("{num} entries were") }
}

/// `noted`: how far it goes by what the journal says of itself. One pass where nothing is wrong.
pub fn verify(first: Link, lines: &[Chained], noted: Chain) -> Result<(), Break> {
    let mut chain = Chain::new(first);
    for (at, found) in lines.iter().enumerate() {
        let before = chain.head;
        if chain.add(&found.line) != found.hash {
            return Err(cause(first, before, lines, at, noted.count));
        }
    }
    let num = lines.len() as u64;
    let last = lines.last().map_or(0, |last| last.line.seq);
    if num < noted.count {
        return Err(Break::End { after: last, num: noted.count - num });
    }
    if let Some(more) = lines.get(usize::try_from(noted.count).unwrap_or(usize::MAX)) {
        return Err(Break::Inserted { at: more.line.seq, num: num - noted.count });
    }
    match chain.head == noted.head {
        true => Ok(()),
        false if lines.is_empty() => Err(Break::Beginning),
        false => Err(Break::Last(last)),
    }
}

/// Why the entry at `at` does not follow from `before`.
fn cause(first: Link, before: Link, lines: &[Chained], at: usize, noted: u64) -> Break {
    let Chained { line, hash } = &lines[at];
    // It follows from an earlier one: those between, each with a hash that follows, are not from here.
    let links = std::iter::once(first).chain(lines[..at].iter().map(|earlier| earlier.hash));
    if let Some(from) = links.take(at).position(|link| link.next(line) == *hash) {
        return Break::Inserted { at: lines[from].line.seq, num: (at - from) as u64 };
    }
    let later = || lines[at + 1..].iter().enumerate();
    if let Some((num, _)) = later().find(|(_, later)| before.next(&later.line) == later.hash) {
        return Break::Inserted { at: line.seq, num: num as u64 + 1 };
    }
    let moved = |other: &Chained| before.next(&Line { seq: line.seq, ..other.line.clone() });
    if let Some((_, other)) = later().find(|(_, other)| [*hash, other.hash].contains(&moved(other))) {
        return Break::Swapped(line.seq, other.line.seq);
    }
    let num = lines.len() as u64;
    match num.cmp(&noted) {
        Ordering::Less => Break::Cut { before: line.seq, num: noted - num },
        Ordering::Equal => Break::Changed(line.seq),
        Ordering::Greater => Break::Inserted { at: line.seq, num: num - noted },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(seq: i64) -> Line {
        Line {
            seq,
            at_ms: 1000 * seq,
            author_key: 7,
            author: "Anna".to_owned(),
            role: "owner".to_owned(),
            number: seq,
            seen: 0,
            command: format!("\"{seq}\""),
            state: Link::of_hash([3; 32]),
        }
    }

    fn first() -> Link {
        Link::first("id", "trace")
    }

    /// Entries 2, 4, 6…: events have the numbers between.
    fn made(num: i64) -> (Vec<Chained>, Chain) {
        let mut chain = Chain::new(first());
        let lines = (1..=num).map(|at| line(2 * at));
        (lines.map(|line| Chained { hash: chain.add(&line), line }).collect(), chain)
    }

    fn broken(edit: impl FnOnce(&mut Vec<Chained>)) -> Break {
        let (mut lines, noted) = made(5);
        edit(&mut lines);
        verify(first(), &lines, noted).unwrap_err()
    }

    #[test]
    fn a_whole_chain_holds_and_every_column_is_in_it() {
        for num in [0, 1, 5] {
            let (lines, noted) = made(num);
            assert_eq!(verify(first(), &lines, noted), Ok(()));
        }
        let same = line(4);
        let next = first().next(&same);
        assert_eq!(next.to_string().parse(), Ok(next));
        for other in [
            Line { seq: 5, ..same.clone() },
            Line { at_ms: 1, ..same.clone() },
            Line { author_key: 8, ..same.clone() },
            Line { author: "Ann".to_owned(), role: "aowner".to_owned(), ..same.clone() },
            Line { role: "viewer".to_owned(), ..same.clone() },
            Line { number: 1, ..same.clone() },
            Line { seen: 1, ..same.clone() },
            Line { command: "\"5\"".to_owned(), ..same.clone() },
            Line { state: first(), ..same.clone() },
        ] {
            assert_ne!(first().next(&other), next, "{other:?}");
            let found = broken(|lines| lines[1].line = other);
            assert!(matches!(found, Break::Changed(4 | 5)), "{found:?}");
        }
    }

    #[test]
    fn what_was_done_to_it_is_named() {
        let swap = |lines: &mut Vec<Chained>, whole: bool| {
            let (a, b) = (lines[1].clone(), lines[3].clone());
            lines[1].line = Line { seq: 4, ..b.line };
            lines[3].line = Line { seq: 8, ..a.line };
            if whole {
                (lines[1].hash, lines[3].hash) = (b.hash, a.hash);
            }
        };
        assert_eq!(broken(|lines| swap(lines, false)), Break::Swapped(4, 8));
        assert_eq!(broken(|lines| swap(lines, true)), Break::Swapped(4, 8));
        assert_eq!(broken(|lines| drop(lines.remove(1))), Break::Cut { before: 6, num: 1 });
        assert_eq!(broken(|lines| drop(lines.drain(..2))), Break::Cut { before: 6, num: 2 });
        assert_eq!(broken(|lines| lines.truncate(3)), Break::End { after: 6, num: 2 });
        assert_eq!(broken(Vec::clear), Break::End { after: 0, num: 5 });
        let wrong = Chained { line: line(5), hash: first() };
        assert_eq!(broken(|lines| lines.insert(2, wrong)), Break::Inserted { at: 5, num: 1 });
        // With a hash that follows, as anybody can make one.
        let after =
            |lines: &[Chained], at: usize, seq| Chained { hash: lines[at].hash.next(&line(seq)), line: line(seq) };
        assert_eq!(broken(|lines| lines.insert(2, after(lines, 1, 5))), Break::Inserted { at: 5, num: 1 });
        assert_eq!(broken(|lines| lines.push(after(lines, 4, 11))), Break::Inserted { at: 11, num: 1 });
        let again = |lines: &mut Vec<Chained>, at: usize| {
            lines[at].line.author = "Eve".to_owned();
            lines[at].hash = lines[at - 1].hash.next(&lines[at].line);
        };
        assert_eq!(broken(|lines| again(lines, 2)), Break::Changed(8), "the next does not follow from it");
        assert_eq!(broken(|lines| again(lines, 4)), Break::Last(10));
        let (_, noted) = made(0);
        assert_eq!(verify(Link::first("id", "another"), &[], noted), Err(Break::Beginning));
        assert_eq!(Break::Cut { before: 6, num: 2 }.to_string(), "2 entries were cut out before entry 6");
    }

    #[test]
    fn a_head_is_what_it_looks_like() {
        for text in
            ["", "sha256:", "abc", &format!("sha256:{}", "g".repeat(64)), &format!("sha256:{}", "+1".repeat(32))]
        {
            assert!(text.parse::<Link>().unwrap_err().contains("is no head"), "{text}");
        }
    }
}
