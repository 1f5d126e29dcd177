//! Takes the unpacked pages of a flat Parquet column, gives its values with null as `None`. The encodings that polars,
//! Arrow and we write: plain, dictionary, and runs for flags.
//!
//! The `parquet` crate decodes these too, and panics where a page is shorter than it says. Natively that is a caught
//! thread; in a browser it is the end of the page, so every length is asked about here.

use std::collections::HashMap;

use bytes::Bytes;
use parquet::{basic::Encoding, column::page::Page, errors::ParquetError};

use super::columns::Nullable;

/// A type of values, as its plain encoding lays them out.
pub(super) trait Value: Copy + Default {
    /// `count` values from the beginning of `bytes`; `None`: there are fewer.
    fn plain(bytes: &Bytes, count: usize) -> Option<Vec<Self>>;
}

impl Value for i64 {
    fn plain(bytes: &Bytes, count: usize) -> Option<Vec<Self>> {
        Some(bytes.as_chunks().0.get(..count)?.iter().map(|bytes| Self::from_le_bytes(*bytes)).collect())
    }
}

impl Value for f64 {
    fn plain(bytes: &Bytes, count: usize) -> Option<Vec<Self>> {
        Some(bytes.as_chunks().0.get(..count)?.iter().map(|bytes| Self::from_le_bytes(*bytes)).collect())
    }
}

/// Eight to a byte, the lowest bit first.
impl Value for bool {
    fn plain(bytes: &Bytes, count: usize) -> Option<Vec<Self>> {
        (0..count).map(|at| Some((bytes.get(at / 8)? >> (at % 8)) & 1 == 1)).collect()
    }
}

/// Appends the values of the first `rows` rows to `all`. `nullable`: levels say which of them are there.
pub(super) fn column<T: Value>(
    pages: impl Iterator<Item = Result<Page, ParquetError>>,
    of: (usize, bool),
    all: &mut Nullable<T>,
) -> Result<(), ParquetError> {
    let mut dictionary = Vec::new();
    each_page(pages, of, |page| {
        match page {
            FlatPage::Dictionary { bytes, count } => {
                dictionary = T::plain(&bytes, count).ok_or_else(|| short("a dictionary"))?;
            }
            FlatPage::Values { bytes, count, encoding, present } => {
                let values = decoded(&bytes, count, encoding, &dictionary)?;
                all.extend(present.as_deref(), values);
            }
        }
        Ok(())
    })
}

/// A text column in the making: its words, each once, in the order in which they come, and which of them a row has.
#[derive(Default)]
pub(super) struct WordColumn {
    pub words: Vec<Bytes>,
    known: HashMap<Bytes, u32>,
    pub at: Nullable<u32>,
}

impl WordColumn {
    fn word(&mut self, text: Bytes) -> u32 {
        let next = self.words.len() as u32;
        let word = *self.known.entry(text.clone()).or_insert(next);
        if word == next {
            self.words.push(text);
        }
        word
    }

    /// Rows of which many have the word of the row before: that one is looked up once.
    fn plain(&mut self, bytes: &Bytes, count: usize) -> Option<Vec<u32>> {
        let (mut before, mut word) = (None, 0);
        let mut of = |text: Bytes| {
            if before.as_ref() != Some(&text) {
                word = self.word(text.clone());
                before = Some(text);
            }
            word
        };
        texts(bytes, count).map(|text| text.map(&mut of)).collect()
    }
}

/// Text: a length, then as many bytes. They stay where they are.
fn texts(bytes: &Bytes, count: usize) -> impl Iterator<Item = Option<Bytes>> {
    let mut at = 0_usize;
    (0..count).map(move |_| {
        let (length, _) = bytes.get(at..)?.split_first_chunk::<4>()?;
        let start = at + 4;
        at = start.checked_add(u32::from_le_bytes(*length) as usize)?;
        bytes.get(start..at)?;
        Some(bytes.slice(start..at))
    })
}

/// The same of text. A word that no row has, though a dictionary has it, is none of the column's.
pub(super) fn words(
    pages: impl Iterator<Item = Result<Page, ParquetError>>,
    of: (usize, bool),
    all: &mut WordColumn,
) -> Result<(), ParquetError> {
    // Of each text which word it is, once a row has it.
    let mut dictionary: Vec<(Bytes, Option<u32>)> = Vec::new();
    each_page(pages, of, |page| {
        let (bytes, count, encoding, present) = match page {
            FlatPage::Dictionary { bytes, count } => {
                let read = texts(&bytes, count).map(|text| Some((text?, None))).collect::<Option<_>>();
                dictionary = read.ok_or_else(|| short("a dictionary"))?;
                return Ok(());
            }
            FlatPage::Values { bytes, count, encoding, present } => (bytes, count, encoding, present),
        };
        let of_rows = match encoding {
            _ if count == 0 => Some(Vec::new()),
            Encoding::PLAIN => all.plain(&bytes, count),
            encoding => indices(&bytes, count, encoding)?.and_then(|indices| {
                let word = |at: u32| {
                    let (text, word) = dictionary.get_mut(at as usize)?;
                    Some(*word.get_or_insert_with(|| all.word(text.clone())))
                };
                indices.into_iter().map(word).collect()
            }),
        };
        all.at.extend(present.as_deref(), of_rows.ok_or_else(|| short("a page"))?);
        Ok(())
    })
}

/// A page of a column without lists.
enum FlatPage {
    Dictionary {
        bytes: Bytes,
        count: usize,
    },
    /// `count` values; `present`: which rows they are of, `None`: each of as many.
    Values {
        bytes: Bytes,
        count: usize,
        encoding: Encoding,
        present: Option<Vec<bool>>,
    },
}

/// Gives the pages of the first `rows` rows to `take`.
fn each_page(
    pages: impl Iterator<Item = Result<Page, ParquetError>>,
    (rows, nullable): (usize, bool),
    mut take: impl FnMut(FlatPage) -> Result<(), ParquetError>,
) -> Result<(), ParquetError> {
    let mut left = rows;
    for page in pages {
        let (buf, count, encoding, levels) = match page? {
            Page::DictionaryPage { buf, num_values, .. } => {
                take(FlatPage::Dictionary { bytes: buf, count: num_values as usize })?;
                continue;
            }
            Page::DataPage { buf, num_values, encoding, .. } => (buf, num_values, encoding, None),
            Page::DataPageV2 { buf, num_values, encoding, def_levels_byte_len, .. } => {
                (buf, num_values, encoding, Some(def_levels_byte_len as usize))
            }
        };
        // No more of a page than is asked for: a few bytes can be a run of any length.
        let count = (count as usize).min(left);
        left -= count;
        let (present, bytes) = match nullable {
            true => levels_of(&buf, count, levels, 1).map(|(levels, bytes)| (Some(levels), bytes))?,
            false => (None, buf),
        };
        let present: Option<Vec<bool>> = present.map(|levels| levels.into_iter().map(|level| level == 1).collect());
        let count = present.as_ref().map_or(count, |present| present.iter().filter(|present| **present).count());
        take(FlatPage::Values { bytes, count, encoding, present })?;
        if left == 0 {
            break;
        }
    }
    if left == 0 { Ok(()) } else { Err(ParquetError::EOF(format!("{left} rows are missing"))) }
}

/// What the levels of a column of lists mean.
#[cfg(feature = "web")]
pub(super) struct ListLevels {
    /// Of a number that is there.
    pub largest: u32,
    /// Of an element of a list, null or not; below it the list is empty or null.
    pub of_element: u32,
    /// Elements in all.
    pub most: usize,
}

/// Appends the lists of `rows` rows to `all`; a null in a list is NaN.
#[cfg(feature = "web")]
pub(super) fn lists(
    pages: impl Iterator<Item = Result<Page, ParquetError>>,
    rows: usize,
    levels: &ListLevels,
    all: &mut Vec<Vec<f64>>,
) -> Result<(), ParquetError> {
    let (mut dictionary, mut left, before) = (Vec::new(), levels.most, all.len());
    for page in pages {
        let (buf, count, encoding, sizes) = match page? {
            Page::DictionaryPage { buf, num_values, .. } => {
                dictionary = f64::plain(&buf, num_values as usize).ok_or_else(|| short("a dictionary"))?;
                continue;
            }
            Page::DataPage { buf, num_values, encoding, .. } => (buf, num_values, encoding, [None; 2]),
            Page::DataPageV2 { buf, num_values, encoding, rep_levels_byte_len, def_levels_byte_len, .. } => {
                (buf, num_values, encoding, [rep_levels_byte_len, def_levels_byte_len].map(|size| Some(size as usize)))
            }
        };
        left = left
            .checked_sub(count as usize)
            .ok_or_else(|| ParquetError::General(format!("its lists claim more than {} numbers", levels.most)))?;
        let bits = 32 - levels.largest.leading_zeros();
        let (repeated, buf) = levels_of(&buf, count as usize, sizes[0], 1)?;
        let (defined, values) = levels_of(&buf, count as usize, sizes[1], bits)?;
        let num = defined.iter().filter(|level| **level == levels.largest).count();
        let mut values = decoded::<f64>(&values, num, encoding, &dictionary)?.into_iter();
        for (repeated, level) in repeated.into_iter().zip(defined) {
            if repeated == 0 {
                if all.len() - before == rows {
                    return Err(ParquetError::General(format!("it has more than {rows} lists")));
                }
                all.push(Vec::new());
            }
            let list = all.last_mut().ok_or_else(|| short("a page"))?;
            if level >= levels.of_element {
                list.push(if level == levels.largest { values.next().unwrap_or(f64::NAN) } else { f64::NAN });
            }
        }
    }
    let missing = rows - (all.len() - before);
    if missing == 0 { Ok(()) } else { Err(ParquetError::EOF(format!("{missing} rows are missing"))) }
}

/// The level of each value, and what lies behind them. `size`: theirs, where it does not stand before them.
fn levels_of(page: &Bytes, count: usize, size: Option<usize>, bits: u32) -> Result<(Vec<u32>, Bytes), ParquetError> {
    let lengths = || -> Option<(usize, usize)> {
        let Some(size) = size else {
            let (length, _) = page.split_first_chunk::<4>()?;
            return Some((4, u32::from_le_bytes(*length) as usize));
        };
        Some((0, size))
    };
    let split = || {
        let (start, size) = lengths()?;
        let end = start.checked_add(size)?;
        let levels = runs(page.get(start..end)?, bits, count)?;
        Some((levels, page.slice(end..)))
    };
    split().ok_or_else(|| short("a page"))
}

fn decoded<T: Value>(
    bytes: &Bytes,
    count: usize,
    encoding: Encoding,
    dictionary: &[T],
) -> Result<Vec<T>, ParquetError> {
    let values = match encoding {
        // Of a page of nulls nothing is there, not even the width.
        _ if count == 0 => Some(Vec::new()),
        Encoding::PLAIN => T::plain(bytes, count),
        // Flags alone are written so: a length, then runs of bits, laid out plainly here.
        Encoding::RLE => bytes.split_first_chunk::<4>().and_then(|(_, bits)| {
            let mut packed = vec![0_u8; count.div_ceil(8)];
            for (at, bit) in runs(bits, 1, count)?.into_iter().enumerate() {
                packed[at / 8] |= ((bit & 1) as u8) << (at % 8);
            }
            T::plain(&packed.into(), count)
        }),
        encoding => indices(bytes, count, encoding)?
            .and_then(|indices| indices.into_iter().map(|at| dictionary.get(at as usize).copied()).collect()),
    };
    values.ok_or_else(|| short("a page"))
}

/// Places in a dictionary; `None`: there are fewer.
fn indices(bytes: &Bytes, count: usize, encoding: Encoding) -> Result<Option<Vec<u32>>, ParquetError> {
    if !matches!(encoding, Encoding::RLE_DICTIONARY | Encoding::PLAIN_DICTIONARY) {
        return Err(ParquetError::NYI(format!("its values are encoded by {encoding}: save it again with loka")));
    }
    Ok(bytes.split_first().and_then(|(width, indices)| runs(indices, u32::from(*width), count)))
}

fn short(what: &str) -> ParquetError {
    ParquetError::EOF(format!("{what} is shorter than it says"))
}

/// Numbers of `width` bits, in runs of one or packed by eight; `None`: there are fewer than `count`.
fn runs(mut bytes: &[u8], width: u32, count: usize) -> Option<Vec<u32>> {
    let bits = (width <= 32).then_some(width as usize)?;
    let mut values = Vec::new();
    while values.len() < count {
        let left = count - values.len();
        let header = varint(&mut bytes)?;
        let times = usize::try_from(header >> 1).ok().filter(|times| *times > 0)?;
        if header & 1 == 0 {
            let (value, rest) = bytes.split_at_checked(bits.div_ceil(8))?;
            let value = value.iter().rev().fold(0, |value, byte| value << 8 | u32::from(*byte));
            values.extend(std::iter::repeat_n(value, times.min(left)));
            bytes = rest;
            continue;
        }
        // Some writers cut what pads the last eight.
        let (packed, rest) = bytes.split_at(times.saturating_mul(bits).min(bytes.len()));
        let num = times.saturating_mul(8).min(left);
        if packed.len() * 8 < num * bits {
            return None;
        }
        values.extend((0..num).map(|at| number(packed, at * bits, bits)));
        bytes = rest;
    }
    Some(values)
}

/// `width` bits from the bit at `from`, the lowest first; the caller knows that they are there.
fn number(bytes: &[u8], from: usize, width: usize) -> u32 {
    let mut window = [0; 8];
    let part = &bytes[from / 8..bytes.len().min(from / 8 + 8)];
    window[..part.len()].copy_from_slice(part);
    ((u64::from_le_bytes(window) >> (from % 8)) & ((1_u64 << width) - 1)) as u32
}

/// Seven bits a byte, the lowest first.
pub(super) fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..63).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_and_packed_numbers_are_read() {
        // 4 times 7, then 8 numbers of three bits: the example of the format's own text.
        assert_eq!(runs(&[0x08, 0x07], 3, 4), Some(vec![7; 4]));
        assert_eq!(runs(&[0x03, 0x88, 0xc6, 0xfa], 3, 8), Some((0..8).collect()));
        assert_eq!(runs(&[0x03, 0x88, 0xc6, 0xfa], 3, 5), Some((0..5).collect()));
        assert_eq!(runs(&[0x06, 0xff, 0xff, 0xff, 0xff], 32, 3), Some(vec![u32::MAX; 3]));
        assert_eq!(runs(&[0x06], 0, 3), Some(vec![0; 3]));
    }

    #[test]
    fn what_is_cut_short_is_none() {
        for (bytes, width) in
            [(&[0x08][..], 3), (&[0x03, 0x88], 3), (&[], 1), (&[0x80; 12], 1), (&[0x00], 1), (&[2, 0], 33)]
        {
            assert_eq!(runs(bytes, width, 4), None, "{bytes:?}");
        }
        assert_eq!(bool::plain(&Bytes::from_static(&[0b101]), 3), Some(vec![true, false, true]));
        assert_eq!(bool::plain(&Bytes::from_static(&[0b101]), 9), None);
        assert_eq!(i64::plain(&Bytes::from_static(&[1, 0, 0, 0, 0, 0, 0, 0, 9]), 2), None);
        let read = |bytes: &'static [u8], count| texts(&Bytes::from_static(bytes), count).collect::<Option<Vec<_>>>();
        assert_eq!(read(&[1, 0, 0, 0, b'a', 200, 0, 0, 0], 2), None);
        assert_eq!(read(&[1, 0, 0, 0, b'a'], 1), Some(vec![Bytes::from_static(b"a")]));
    }

    #[test]
    fn a_word_is_known_again() {
        let plain = Bytes::from_static(b"\x01\0\0\0a\x01\0\0\0a\x02\0\0\0bb\x01\0\0\0a");
        let mut column = WordColumn::default();
        assert_eq!(column.plain(&plain, 4), Some(vec![0, 0, 1, 0]));
        assert_eq!(column.plain(&plain.slice(10..), 2), Some(vec![1, 0]));
        assert_eq!(column.words, [Bytes::from_static(b"a"), Bytes::from_static(b"bb")]);
        assert_eq!(column.plain(&plain, 5), None);
    }
}
