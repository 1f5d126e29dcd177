//! Takes columns, gives a Parquet file; takes one, gives columns with their types checked. By polars: native.

use std::{
    fs::File,
    io::{Read as _, Seek as _, Write},
    panic::catch_unwind,
    path::Path,
};

use polars::prelude::{
    Column, DataFrame, DataType, IntoColumn, KeyValueMetadata, NamedFrom, ParquetReader, ParquetWriter, PlSmallStr,
    SerReader, Series,
};

use super::{
    Cause, TableError, bounds,
    columns::{Columns, Table},
    is_parquet,
};
use crate::model::HEAD_BYTES;

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
            file.as_file().sync_all()?;
            file.persist(path).map_err(|error| error.error)?;
            Ok(())
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

/// The first bytes; the file is where it was.
fn head_of(mut file: &File) -> Result<Vec<u8>, Cause> {
    let mut head = Vec::with_capacity(HEAD_BYTES);
    file.take(HEAD_BYTES as u64).read_to_end(&mut head)?;
    file.rewind()?;
    Ok(head)
}

/// A file read whole.
pub(super) struct FrameTable {
    frame: DataFrame,
    metadata: Vec<(String, Option<String>)>,
    /// Rows, by the footer.
    claims: usize,
}

impl FrameTable {
    /// A damaged footer makes polars panic at some bytes: to who reads the file that is a damaged file like others.
    pub(super) fn read(path: &Path) -> Result<Self, Cause> {
        let damaged = |_| Err(Cause::NotParquet("its metadata is damaged".to_owned()));
        catch_unwind(|| Self::read_sound(path, usize::MAX, None)).unwrap_or_else(damaged)
    }

    /// The same of a table each of whose rows has a key of its own. `most`: the rows that it can mean, by its metadata.
    pub(super) fn read_keyed(path: &Path, most: fn(&Self) -> Result<usize, Cause>) -> Result<Self, Cause> {
        let damaged = |_| Err(Cause::NotParquet("its metadata is damaged".to_owned()));
        let read = || {
            let footer = Self::read_sound(path, 0, Some(&[]))?;
            let rows = footer.claims;
            bounds::claimed(rows, most(&footer)?)?;
            bounds::each_once(rows, |num| Self::read_sound(path, num, Some(&bounds::KEY)))?;
            Self::read_sound(path, usize::MAX, None)
        };
        catch_unwind(read).unwrap_or_else(damaged)
    }

    /// The first `rows` rows; of these columns, where they are there.
    fn read_sound(path: &Path, rows: usize, names: Option<&[&str]>) -> Result<Self, Cause> {
        let file = File::open(path)?;
        if !file.metadata()?.is_file() {
            return Err(Cause::NotParquet("not a file".to_owned()));
        }
        is_parquet(&head_of(&file)?)?;
        let broken = |error| Cause::NotParquet(one_line(&error));
        let mut reader = ParquetReader::new(file);
        let pairs = reader.get_metadata().map_err(broken)?.key_value_metadata().clone().unwrap_or_default();
        let metadata = pairs.into_iter().map(|pair| (pair.key, pair.value)).collect();
        let footer = reader.get_metadata().map_err(broken)?;
        let claims = footer.num_rows;
        let sum = footer.row_groups.iter().fold(0_usize, |sum, group| sum.saturating_add(group.num_rows()));
        if sum != claims {
            return Err(Cause::NotParquet(format!("it claims {claims} rows and has {sum}")));
        }
        bounds::claimed(claims, bounds::MOST_ROWS)?;
        if rows == 0 {
            return Ok(Self { frame: DataFrame::empty(), metadata, claims });
        }
        if let Some(names) = names {
            let schema = reader.schema().map_err(broken)?;
            let there = names.iter().filter(|name| schema.contains(name)).map(|name| (*name).to_owned()).collect();
            reader = reader.with_columns(Some(there)).with_slice(Some((0, rows)));
        }
        let frame = reader.finish().map_err(broken)?;
        Ok(Self { frame, metadata, claims })
    }

    #[cfg(test)]
    pub(super) fn names(&self) -> Vec<String> {
        self.frame.get_column_names().into_iter().map(ToString::to_string).collect()
    }

    #[cfg(test)]
    pub(super) fn into_frame(self) -> DataFrame {
        self.frame
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.frame.column(name).is_ok()
    }

    /// A list of numbers in every row; null is an empty one.
    pub(super) fn floats(&self, name: &str) -> Result<Vec<Vec<f64>>, Cause> {
        let column = self.frame.column(name).map_err(|_| Cause::MissingColumn(name.to_owned()))?;
        let found = column.dtype().to_string();
        let wrong = || Cause::WrongType { column: name.to_owned(), found: found.clone(), expected: "list[f64]" };
        if matches!(column.dtype(), DataType::Null) {
            return Ok(vec![Vec::new(); self.height()]);
        }
        let lists = column.list().map_err(|_| wrong())?;
        let values = |list: Option<Series>| match list {
            None => Ok(Vec::new()),
            Some(list) if list.is_empty() || matches!(list.dtype(), DataType::Null) => Ok(Vec::new()),
            Some(list) => {
                let numbers = list.f64().map_err(|_| wrong())?;
                Ok(numbers.iter().map(|value| value.unwrap_or(f64::NAN)).collect())
            }
        };
        (0..self.height()).map(|row| values(lists.get_as_series(row))).collect()
    }

    /// `None`: a column of nulls without a type, as other writers leave an empty one.
    fn column(&self, name: &str, dtype: &DataType, expected: &'static str) -> Result<Option<&Column>, Cause> {
        let column = self.frame.column(name).map_err(|_| Cause::MissingColumn(name.to_owned()))?;
        match column.dtype() {
            DataType::Null => Ok(None),
            found if found == dtype => Ok(Some(column)),
            found => Err(Cause::WrongType { column: name.to_owned(), found: found.to_string(), expected }),
        }
    }
}

impl Table for FrameTable {
    fn height(&self) -> usize {
        self.frame.height()
    }

    fn metadata(&self, key: &str) -> Option<&str> {
        self.metadata.iter().find(|(name, _)| name == key)?.1.as_deref()
    }

    fn text(&self, name: &str) -> Result<Vec<Option<&str>>, Cause> {
        let column = self.column(name, &DataType::String, "str")?;
        Ok(column
            .and_then(|column| column.str().ok())
            .map_or_else(|| vec![None; self.height()], |values| values.iter().collect()))
    }

    fn int(&self, name: &str) -> Result<Vec<Option<i64>>, Cause> {
        let column = self.column(name, &DataType::Int64, "i64")?;
        Ok(column
            .and_then(|column| column.i64().ok())
            .map_or_else(|| vec![None; self.height()], |values| values.iter().collect()))
    }

    fn float(&self, name: &str) -> Result<Vec<Option<f64>>, Cause> {
        let column = self.column(name, &DataType::Float64, "f64")?;
        Ok(column
            .and_then(|column| column.f64().ok())
            .map_or_else(|| vec![None; self.height()], |values| values.iter().collect()))
    }

    fn flag(&self, name: &str) -> Result<Vec<Option<bool>>, Cause> {
        let column = self.column(name, &DataType::Boolean, "bool")?;
        Ok(column
            .and_then(|column| column.bool().ok())
            .map_or_else(|| vec![None; self.height()], |values| values.iter().collect()))
    }
}
