//! What a table is to those who fill and read one, whichever crate knows the file: columns by name, null as `None`.

use std::{ops::Range, sync::Arc};

use super::Cause;

/// Columns in the making, in the order in which they are added, all of one length.
pub trait Columns {
    fn text<'a>(&mut self, name: &str, values: impl Iterator<Item = Option<&'a str>>);

    fn int(&mut self, name: &str, values: impl Iterator<Item = Option<i64>>);

    fn float(&mut self, name: &str, values: impl Iterator<Item = Option<f64>>);

    fn flag(&mut self, name: &str, values: impl Iterator<Item = bool>);
}

/// A table that was read whole. A column that is missing or of another type is refused by name.
pub(super) trait Table {
    fn height(&self) -> usize;

    fn metadata(&self, key: &str) -> Option<&str>;

    fn text(&self, name: &str) -> Result<Texts<'_>, Cause>;

    fn int(&self, name: &str) -> Result<Nullable<i64>, Cause>;

    fn float(&self, name: &str) -> Result<Nullable<f64>, Cause>;

    fn flag(&self, name: &str) -> Result<Nullable<bool>, Cause>;
}

/// A column as it was read. `Option<f64>` is twice as large as what it holds, which counts where there are dozens of
/// columns of millions of rows: so a bit of each row says whether it has a value, and nulls before the first take no room.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Nullable<T> {
    /// None at all, or one of each row.
    values: Vec<T>,
    present: Vec<u64>,
    height: usize,
}

impl<T: Copy + Default> Nullable<T> {
    pub fn nulls(height: usize) -> Self {
        Self { values: Vec::new(), present: Vec::new(), height }
    }

    /// Appends a row for each of `present`, the next of `values` where it is true; `None`: a row for each of `values`.
    pub fn extend(&mut self, present: Option<&[bool]>, mut values: Vec<T>) {
        let before = self.height;
        match present {
            None if values.is_empty() => {}
            Some(present) if values.is_empty() => {
                self.height += present.len();
                if !self.values.is_empty() {
                    self.values.resize(self.height, T::default());
                }
            }
            Some(present) if values.len() < present.len() => {
                self.values.reserve(before + present.len() - self.values.len());
                let mut values = values.into_iter();
                present.iter().for_each(|present| self.push(if *present { values.next() } else { None }));
            }
            _ => {
                self.height += values.len();
                self.values.resize(before, T::default());
                self.values.append(&mut values);
                self.mark(before..self.height);
            }
        }
    }

    /// These rows have a value.
    fn mark(&mut self, rows: Range<usize>) {
        self.present.resize(rows.end.div_ceil(64), 0);
        for word in rows.start / 64..rows.end.div_ceil(64) {
            let (from, to) = (rows.start.max(64 * word) - 64 * word, rows.end.min(64 * word + 64) - 64 * word);
            self.present[word] |= (u64::MAX >> (64 - (to - from))) << from;
        }
    }

    pub fn push(&mut self, value: Option<T>) {
        let row = self.height;
        self.height += 1;
        match value {
            Some(value) => {
                self.values.resize(row, T::default());
                self.values.push(value);
                self.present.resize(row / 64 + 1, 0);
                self.present[row / 64] |= 1 << (row % 64);
            }
            None if self.values.is_empty() => {}
            None => self.values.push(T::default()),
        }
    }

    /// `None` beyond its last row, too.
    pub fn at(&self, row: usize) -> Option<T> {
        let bits = self.present.get(row / 64)?;
        if bits >> (row % 64) & 1 == 1 { self.values.get(row).copied() } else { None }
    }
}

/// A text column: each of its words once.
#[derive(Debug, PartialEq)]
pub(super) struct TextColumn {
    pub words: Vec<Arc<str>>,
    /// The word of each row.
    pub at: Nullable<u32>,
}

/// A text column of a table; without any it is all null.
#[derive(Clone, Copy)]
pub(super) struct Texts<'t>(pub Option<&'t TextColumn>);

impl<'t> Texts<'t> {
    pub fn num_words(self) -> usize {
        self.0.map_or(0, |column| column.words.len())
    }

    /// Which of its words it is: two rows have the same text where they have the same word.
    pub fn word(self, row: usize) -> Option<u32> {
        self.0?.at.at(row)
    }

    pub fn at(self, row: usize) -> Option<&'t Arc<str>> {
        self.0?.words.get(self.word(row)? as usize)
    }

    /// Something of each of its words, made once.
    pub fn each<T>(self, of: impl Fn(&str) -> T) -> Words<'t, T> {
        let words = self.0.map(|column| column.words.iter().map(|word| of(word)).collect());
        Words { texts: self, of_words: words.unwrap_or_default() }
    }
}

/// See [`Texts::each`].
pub(super) struct Words<'t, T> {
    pub texts: Texts<'t>,
    of_words: Vec<T>,
}

impl<T> Words<'_, T> {
    pub fn at(&self, row: usize) -> Option<&T> {
        self.of_words.get(self.texts.word(row)? as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(column: &Nullable<f64>) -> Vec<Option<f64>> {
        (0..column.height).map(|row| column.at(row)).collect()
    }

    #[test]
    fn a_column_is_what_was_pushed() {
        let of = |values: &[Option<f64>]| {
            let mut column = Nullable::default();
            values.iter().for_each(|value| column.push(*value));
            assert_eq!(rows(&column), values);
            assert_eq!(column.at(values.len()), None);
            column
        };
        of(&[]);
        assert!(of(&[None; 200]).values.is_empty());
        of(&[Some(0.0), None, Some(2.0)]);
        let late: Vec<_> = (0..200).map(|row| (row > 130 && row % 3 == 0).then_some(f64::from(row))).collect();
        of(&late);
        assert_eq!(rows(&Nullable::nulls(3)), [None; 3]);
    }

    /// In pieces of every kind: full, empty, neither; that end within a word of bits and at its end.
    #[test]
    fn a_column_is_the_same_in_pieces() {
        let row = |row: usize| (row.is_multiple_of(3) || (50..130).contains(&row)).then_some(row as f64);
        for ends in [vec![200], vec![64, 128, 200], vec![1, 2, 49, 60, 64, 130, 131, 199, 200], vec![127, 129, 200]] {
            let (mut pushed, mut column, mut from) = (Nullable::default(), Nullable::default(), 0);
            for to in ends {
                let rows: Vec<_> = (from..to).map(row).collect();
                rows.iter().for_each(|row| pushed.push(*row));
                let (present, values): (Vec<_>, Vec<_>) =
                    (rows.iter().map(Option::is_some).collect(), rows.into_iter().flatten().collect());
                column.extend(Some(&present), values);
                from = to;
            }
            assert_eq!(column, pushed);
        }
        let (mut late, mut all) = (Nullable::nulls(70), Nullable::default());
        late.extend(None, vec![1.0; 70]);
        late.extend(Some(&[false; 3]), Vec::new());
        (0..143).for_each(|row| all.push((70..140).contains(&row).then_some(1.0)));
        assert_eq!(late, all);
        late.extend(None, Vec::new());
        assert_eq!((late.height, late.at(142), late.at(139)), (143, None, Some(1.0)));
    }
}
