//! What a table is to those who fill and read one, whichever crate knows the file: columns by name, null as `None`.

use std::sync::Arc;

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
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Nullable<T> {
    /// None at all, or one of each row.
    values: Vec<T>,
    present: Vec<u64>,
    height: usize,
}

impl<T: Clone + Default> Nullable<T> {
    pub fn new() -> Self {
        Self::nulls(0)
    }

    pub fn nulls(height: usize) -> Self {
        Self { values: Vec::new(), present: Vec::new(), height }
    }

    pub fn len(&self) -> usize {
        self.height
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
    pub fn get(&self, row: usize) -> Option<&T> {
        let bits = self.present.get(row / 64)?;
        if bits >> (row % 64) & 1 == 1 { self.values.get(row) } else { None }
    }

    pub fn iter(&self) -> impl Iterator<Item = Option<&T>> {
        (0..self.height).map(|row| self.get(row))
    }
}

impl<T: Copy + Default> Nullable<T> {
    pub fn at(&self, row: usize) -> Option<T> {
        self.get(row).copied()
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

    #[test]
    fn a_column_is_what_was_pushed() {
        let of = |values: &[Option<f64>]| {
            let mut column = Nullable::new();
            values.iter().for_each(|value| column.push(*value));
            assert_eq!(column.iter().map(Option::<&f64>::copied).collect::<Vec<_>>(), values);
            assert_eq!((column.len(), column.at(values.len())), (values.len(), None));
            column
        };
        of(&[]);
        assert!(of(&[None; 200]).values.is_empty());
        of(&[Some(0.0), None, Some(2.0)]);
        let late: Vec<_> = (0..200).map(|row| (row > 130 && row % 3 == 0).then_some(f64::from(row))).collect();
        of(&late);
        assert_eq!(Nullable::<f64>::nulls(3).iter().collect::<Vec<_>>(), [None; 3]);
    }
}
