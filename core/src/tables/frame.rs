//! Takes columns, gives a Parquet file. By polars: native. It reads none: what a damaged header claims it believes.

use std::{io::Write, path::Path};

use polars::prelude::{Column, DataFrame, IntoColumn, KeyValueMetadata, NamedFrom, ParquetWriter, PlSmallStr, Series};

use crate::model::persist;

use super::{Cause, TableError, columns::Columns};

/// Columns in the making, in the order in which they are added.
pub(super) struct FrameColumns {
    height: usize,
    columns: Vec<Column>,
}

impl FrameColumns {
    pub(super) fn new(height: usize) -> Self {
        Self { height, columns: Vec::new() }
    }

    fn push<T>(&mut self, name: &str, values: Vec<T>)
    where
        Series: NamedFrom<Vec<T>, [T]>,
    {
        self.columns.push(Series::new(PlSmallStr::from(name), values).into_column());
    }

    /// A list of numbers in every row.
    pub(super) fn floats<'a>(&mut self, name: &str, values: impl Iterator<Item = &'a [f64]>) {
        let lists: Vec<Series> = values.map(|list| Series::new(PlSmallStr::EMPTY, list)).collect();
        self.columns.push(Series::new(PlSmallStr::from(name), lists).into_column());
    }

    #[cfg(test)]
    pub(super) fn into_frame(self) -> DataFrame {
        DataFrame::new(self.height, self.columns).unwrap()
    }

    /// Whole or not at all: into a temporary file of the same folder, then renamed.
    pub(super) fn write(self, path: &Path, metadata: Vec<(String, String)>) -> Result<(), TableError> {
        let write = || -> Result<(), Cause> {
            let mut frame =
                DataFrame::new(self.height, self.columns).map_err(|error| Cause::Write(one_line(&error)))?;
            let mut file = temporary_beside(path)?;
            let writer = ParquetWriter::new(&mut file);
            let metadata = (!metadata.is_empty()).then(|| KeyValueMetadata::from_static(metadata));
            writer
                .with_key_value_metadata(metadata)
                .finish(&mut frame)
                .map_err(|error| Cause::Write(one_line(&error)))?;
            file.flush()?;
            Ok(persist(file, path)?)
        };
        write().map_err(|cause| cause.at(path))
    }
}

impl Columns for FrameColumns {
    fn text<'a>(&mut self, name: &str, values: impl Iterator<Item = Option<&'a str>>) {
        let values: Vec<Option<&str>> = values.collect();
        self.columns.push(Series::new(PlSmallStr::from(name), values).into_column());
    }

    fn int(&mut self, name: &str, values: impl Iterator<Item = Option<i64>>) {
        self.push(name, values.collect::<Vec<_>>());
    }

    fn float(&mut self, name: &str, values: impl Iterator<Item = Option<f64>>) {
        self.push(name, values.collect::<Vec<_>>());
    }

    fn flag(&mut self, name: &str, values: impl Iterator<Item = bool>) {
        self.push(name, values.collect::<Vec<_>>());
    }
}

fn temporary_beside(path: &Path) -> std::io::Result<tempfile::NamedTempFile> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    builder.prefix(".loka-").suffix(".tmp");
    // As readable as any other new file: a temporary's own default is the owner alone.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    builder.tempfile_in(folder)
}

fn one_line(error: &dyn std::fmt::Display) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}
