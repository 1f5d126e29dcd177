//! Takes the bytes of a Parquet footer or of a page's header, refuses those that no reader should be handed. It walks over
//! Thrift's compact protocol and keeps nothing.
//!
//! Readers believe sizes: one byte of a header made one of them ask for 2^61 bytes, which no caught panic survives, and
//! another makes room for as many columns as a footer claims, and calls itself for each group in a group. They do not look
//! at the types of fields either, so a field of another type would be other fields to them than to this walk: every field
//! that Parquet names must have the type that it gives it.

use super::decode::varint;

/// Of structs and lists in one another. Parquet's own need six.
const DEEPEST: usize = 12;

/// Of groups in groups. Ours have two: a column, a list in it.
const DEEPEST_GROUP: usize = 8;

/// Names of compact types; those of flags are one here.
const FLAG: u8 = 1;
const I32: u8 = 5;
const I64: u8 = 6;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const STRUCT: u8 = 12;

/// What a walk tells: a whole number of a field, or the end of a struct that is an element of a list.
enum ThriftEvent {
    Number(i64),
    End,
}

type Hear<'h> = &'h mut dyn FnMut(&[i16], ThriftEvent);

struct Walk<'b> {
    bytes: &'b [u8],
    /// The type of the field with these ids, where Parquet names one.
    types: fn(&[i16]) -> Option<u8>,
    path: Vec<i16>,
}

impl Walk<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(*first)
    }

    fn skip(&mut self, num: u64) -> Option<()> {
        self.bytes = self.bytes.get(usize::try_from(num).ok()?..)?;
        Some(())
    }

    fn number(&mut self) -> Option<i64> {
        let value = varint(&mut self.bytes)?;
        Some((value >> 1).cast_signed() ^ -((value & 1).cast_signed()))
    }

    /// Ids go up: what follows the schema cannot stand before it.
    fn structure(&mut self, depth: usize, hear: Hear) -> Option<()> {
        let mut last = 0_i16;
        loop {
            let header = self.byte()?;
            if header == 0 {
                return Some(());
            }
            let id = match header >> 4 {
                0 => i16::try_from(self.number()?).ok().filter(|id| *id > last)?,
                delta => last.checked_add(i16::from(delta))?,
            };
            last = id;
            self.path.push(id);
            let kind = if header & 15 == 2 { FLAG } else { header & 15 };
            if (self.types)(&self.path).is_some_and(|wanted| wanted != kind) {
                return None;
            }
            // A field's flag lies in its header.
            if kind != FLAG {
                self.value(kind, depth, hear)?;
            }
            self.path.pop();
        }
    }

    fn value(&mut self, kind: u8, depth: usize, hear: Hear) -> Option<()> {
        match kind {
            3 => self.skip(1),
            4 | I32 | I64 => {
                let number = self.number()?;
                hear(&self.path, ThriftEvent::Number(number));
                Some(())
            }
            7 => self.skip(8),
            BINARY => {
                let length = varint(&mut self.bytes)?;
                self.skip(length)
            }
            LIST | 10 => self.list(depth, hear),
            STRUCT if depth > 0 => self.structure(depth - 1, hear),
            // No map and no identifier is in Parquet's.
            _ => None,
        }
    }

    fn list(&mut self, depth: usize, hear: Hear) -> Option<()> {
        let header = self.byte()?;
        let num = match header >> 4 {
            15 => varint(&mut self.bytes)?,
            num => u64::from(num),
        };
        // Every element is a byte at least: lists of flags, which some readers take for none, are not in a header.
        if num > self.bytes.len() as u64 || (num > 0 && matches!(header & 15, 1 | 2)) {
            return None;
        }
        for _ in 0..num {
            self.value(header & 15, depth.checked_sub(1)?, hear)?;
            if header & 15 == STRUCT {
                hear(&self.path, ThriftEvent::End);
            }
        }
        Some(())
    }
}

/// Walks over one struct; the bytes that it takes.
fn walk(bytes: &[u8], types: fn(&[i16]) -> Option<u8>, hear: Hear) -> Option<usize> {
    let mut walk = Walk { bytes, types, path: Vec::new() };
    walk.structure(DEEPEST, hear)?;
    Some(bytes.len() - walk.bytes.len())
}

/// `FileMetaData` and what its lists hold.
fn footer_types(path: &[i16]) -> Option<u8> {
    match path {
        [1] | [2, 1 | 2 | 3 | 5 | 6 | 7 | 8 | 9] => Some(I32),
        [3] | [4, 2 | 3 | 5 | 6] | [4, 1, 2] | [4, 1, 3, 5 | 6 | 7 | 9 | 10 | 11] => Some(I64),
        [2 | 4 | 5 | 7] | [4, 1 | 4] | [4, 1, 3, 2 | 3 | 8 | 13] => Some(LIST),
        [6] | [2, 4] | [5, 1 | 2] | [4, 1, 1] | [4, 1, 3, 8, 1 | 2] => Some(BINARY),
        [2, 10] | [4, 1, 3] | [4, 1, 3, 12] => Some(STRUCT),
        _ => None,
    }
}

/// `PageHeader` and the header of the kind of page that it is.
fn page_types(path: &[i16]) -> Option<u8> {
    match path {
        [1..=4] | [5, 1..=4] | [7, 1 | 2] | [8, 1..=6] => Some(I32),
        [5..=8] | [5, 5] | [8, 8] => Some(STRUCT),
        [7, 3] | [8, 7] => Some(FLAG),
        _ => None,
    }
}

/// A file whose footer can be read without more room than its bytes are worth.
pub(super) fn is_sound_footer(file: &[u8]) -> bool {
    footer(file).and_then(|footer| is_sound_schema(footer).then_some(())).is_some()
}

/// Before the last eight bytes, which are its length and the format's name.
fn footer(file: &[u8]) -> Option<&[u8]> {
    let (rest, end) = file.split_last_chunk::<8>()?;
    let (length, magic) = end.split_first_chunk::<4>()?;
    let start = rest.len().checked_sub(u32::from_le_bytes(*length) as usize)?;
    (magic == b"PAR1").then(|| &rest[start..])
}

/// The schema's tree lies flat: each element says how many of those behind it are its own.
fn is_sound_schema(footer: &[u8]) -> bool {
    let mut children: Vec<i64> = Vec::new();
    let mut of_this = 0;
    let walked = walk(footer, footer_types, &mut |path, token| match (path, token) {
        ([2, 5], ThriftEvent::Number(number)) => of_this = number,
        ([2], ThriftEvent::End) => children.push(std::mem::take(&mut of_this)),
        _ => {}
    });
    if walked.is_none() {
        return false;
    }
    // How many are left of each group that is open.
    let mut open: Vec<i64> = vec![1];
    for num in &children {
        while open.last() == Some(&0) {
            open.pop();
        }
        let Some(left) = open.last_mut() else { return false };
        *left -= 1;
        if *num < 0 || *num > children.len() as i64 || open.len() > DEEPEST_GROUP {
            return false;
        }
        if *num > 0 {
            open.push(*num);
        }
    }
    open.iter().all(|left| *left == 0)
}

/// The pages of a column follow one another to its end, each with a header that can be read.
pub(super) fn are_sound_pages(column: &[u8]) -> bool {
    let mut left = column;
    while !left.is_empty() {
        let mut size = None;
        let header = walk(left, page_types, &mut |path, token| {
            if let ([3], ThriftEvent::Number(number)) = (path, token) {
                size = usize::try_from(number).ok();
            }
        });
        let behind = header.zip(size).and_then(|(header, size)| left.get(header..)?.get(size..));
        let Some(behind) = behind else { return false };
        left = behind;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `FileMetaData` with these elements of a schema, each the bytes of a struct.
    fn with_schema(elements: &[Vec<u8>]) -> Vec<u8> {
        let mut footer = vec![0x15, 0x02, 0x19, 0xfc];
        footer.extend([0x80 | (elements.len() & 0x7f) as u8, (elements.len() >> 7) as u8]);
        footer.extend(elements.concat());
        footer.extend([0x16, 0x00, 0]);
        let length = (footer.len() as u32).to_le_bytes();
        [b"PAR1".as_slice(), &footer, &length, b"PAR1"].concat()
    }

    /// Name "a", and a number of children as a varint, where it has any.
    fn element(children: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0x48, 1, b'a'];
        if !children.is_empty() {
            bytes.push(0x15);
            bytes.extend(children);
        }
        bytes.push(0);
        bytes
    }

    #[test]
    fn a_schema_that_claims_more_than_it_has_is_refused() {
        let sound = [element(&[4]), element(&[]), element(&[])];
        assert!(is_sound_footer(&with_schema(&sound)));
        assert!(!is_sound_footer(&with_schema(&sound[..2])), "one is missing");
        assert!(!is_sound_footer(&with_schema(&[&sound[..], &[element(&[])]].concat())), "one too many");
        let huge = element(&[0xfe, 0xff, 0xff, 0xff, 0x0f]);
        assert!(!is_sound_footer(&with_schema(&[huge, element(&[])])), "2^31 - 1 children");
        assert!(!is_sound_footer(&with_schema(&[element(&[1]), element(&[])])), "-1 children");
        let nested = |num: usize| [vec![element(&[2]); num], vec![element(&[])]].concat();
        assert!(is_sound_footer(&with_schema(&nested(4))));
        assert!(!is_sound_footer(&with_schema(&nested(10_000))), "10,000 groups in one another");
        // The schema as text of that length: other readers take its bytes for the list all the same.
        let mut retyped = with_schema(&sound);
        retyped[6] = 0x18;
        assert!(!is_sound_footer(&retyped));
    }

    #[test]
    fn lists_that_claim_more_than_there_is_are_refused() {
        let types = |_: &[i16]| None;
        let walks = |bytes: &[u8]| walk(bytes, types, &mut |_, _| {});
        assert_eq!(walks(&[0x19, 0x25, 2, 4, 0]), Some(5));
        assert_eq!(walks(&[0x19, 0xf5, 0xff, 0xff, 0xff, 0xff, 0x07, 0]), None);
        assert_eq!(walks(&[0x19, 0x31, 0, 0, 0, 0]), None, "flags in a list");
        assert_eq!(walks(&[0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x1f, 0]), None, "2^61 bytes of text");
        assert_eq!(walks(&[0x1c; 100]), None, "100 structs in one another");
        assert_eq!(walks(&[0x15, 2]), None, "cut short");
    }
}
