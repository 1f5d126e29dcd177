//! What a table is to those who fill and read one, whichever crate knows the file: columns by name, null as `None`.

use super::Cause;

/// Columns in the making, in the order in which they are added, all of one length.
pub(super) trait Columns {
    fn text<'a>(&mut self, name: &str, values: impl Iterator<Item = Option<&'a str>>);

    fn int(&mut self, name: &str, values: impl Iterator<Item = Option<i64>>);

    fn float(&mut self, name: &str, values: impl Iterator<Item = Option<f64>>);

    fn flag(&mut self, name: &str, values: impl Iterator<Item = bool>);
}

/// A table that was read whole. A column that is missing or of another type is refused by name.
pub(super) trait Table {
    fn height(&self) -> usize;

    fn metadata(&self, key: &str) -> Option<&str>;

    fn text(&self, name: &str) -> Result<Vec<Option<&str>>, Cause>;

    fn int(&self, name: &str) -> Result<Vec<Option<i64>>, Cause>;

    fn float(&self, name: &str) -> Result<Vec<Option<f64>>, Cause>;

    fn flag(&self, name: &str) -> Result<Vec<Option<bool>>, Cause>;
}
