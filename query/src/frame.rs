//! A data frame in the making: core names its columns and fills them, as it does when it writes a file.

use loka_core::tables::Columns;
use polars_core::prelude::{Column, DataFrame, NamedFrom as _, Series};

use crate::QueryError;

#[derive(Default)]
pub struct FrameColumns {
    columns: Vec<Column>,
}

impl FrameColumns {
    /// The same text in every row.
    pub fn label(&mut self, name: &str, value: &str, height: usize) {
        self.text(name, std::iter::repeat_n(Some(value), height));
    }

    pub fn into_frame(self) -> Result<DataFrame, QueryError> {
        DataFrame::new_infer_height(self.columns).map_err(|error| QueryError::Frame(error.to_string()))
    }
}

impl Columns for FrameColumns {
    fn text<'a>(&mut self, name: &str, values: impl Iterator<Item = Option<&'a str>>) {
        self.columns.push(Series::new(name.into(), values.collect::<Vec<_>>()).into());
    }

    fn int(&mut self, name: &str, values: impl Iterator<Item = Option<i64>>) {
        self.columns.push(Series::new(name.into(), values.collect::<Vec<_>>()).into());
    }

    fn float(&mut self, name: &str, values: impl Iterator<Item = Option<f64>>) {
        self.columns.push(Series::new(name.into(), values.collect::<Vec<_>>()).into());
    }

    fn flag(&mut self, name: &str, values: impl Iterator<Item = bool>) {
        self.columns.push(Series::new(name.into(), values.map(Some).collect::<Vec<_>>()).into());
    }
}
