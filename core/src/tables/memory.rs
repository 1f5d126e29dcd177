//! Takes columns, gives the bytes of a Parquet file; takes such bytes, gives columns with their types checked. By the
//! `parquet` crate. A page's codecs are Rust alone; a program of this machine packs by zstd, which takes less room.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use parquet::{
    basic::{Compression, LogicalType, Repetition, Type as Physical},
    data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type},
    errors::ParquetError,
    file::{
        metadata::KeyValue,
        properties::WriterProperties,
        reader::{FileReader, SerializedFileReader},
        writer::{SerializedFileWriter, SerializedRowGroupWriter},
    },
    schema::types::{ColumnDescPtr, Type},
};

use super::{
    Cause, bounds,
    columns::{Columns, Nullable, Table, TextColumn, Texts},
    decode::{self, Value, WordColumn},
    is_parquet,
    pages::Pages,
    thrift,
};
use crate::dispatch::parallel;

enum ColumnValues {
    Text(Vec<Option<ByteArray>>),
    Int(Vec<Option<i64>>),
    Float(Vec<Option<f64>>),
    Flag(Vec<Option<bool>>),
    /// In every row so many.
    #[cfg(feature = "native")]
    Lists(Vec<Vec<f64>>),
}

/// What every reader of Parquet knows: Rust alone in a page, and smaller from a program.
fn codec() -> Compression {
    #[cfg(feature = "native")]
    return Compression::ZSTD(parquet::basic::ZstdLevel::default());
    #[cfg(not(feature = "native"))]
    Compression::SNAPPY
}

/// Columns in the making, in the order in which they are added.
#[cfg(feature = "native")]
#[derive(Default)]
pub struct MemoryColumns {
    columns: Vec<(String, ColumnValues)>,
}

#[cfg(feature = "native")]
impl MemoryColumns {
    /// A list of numbers in every row.
    pub(super) fn floats<'a>(&mut self, name: &str, values: impl Iterator<Item = &'a [f64]>) {
        self.columns.push((name.to_owned(), ColumnValues::Lists(values.map(<[f64]>::to_vec).collect())));
    }

    pub(super) fn into_bytes(self, metadata: Vec<(String, String)>) -> Result<Vec<u8>, Cause> {
        self.written(metadata).map_err(|error| Cause::Write(one_line(&error)))
    }

    fn written(self, metadata: Vec<(String, String)>) -> Result<Vec<u8>, ParquetError> {
        let mut writer = opened(&self.columns, metadata)?;
        let mut group = writer.next_row_group()?;
        for (_, values) in &self.columns {
            values.write(&mut group)?;
        }
        group.close()?;
        writer.into_inner()
    }
}

/// A file that has its columns' names and types, and none of their values yet.
fn opened(
    columns: &[(String, ColumnValues)],
    metadata: Vec<(String, String)>,
) -> Result<SerializedFileWriter<Vec<u8>>, ParquetError> {
    let pairs = metadata.into_iter().map(|(key, value)| KeyValue::new(key, value)).collect();
    let properties = WriterProperties::builder()
        .set_compression(codec())
        .set_created_by(concat!("loka ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_key_value_metadata(Some(pairs))
        .build();
    let fields = columns.iter().map(|(name, values)| values.field(name)).collect::<Result<_, _>>()?;
    let schema = Type::group_type_builder("root").with_fields(fields).build()?;
    SerializedFileWriter::new(Vec::new(), Arc::new(schema), Arc::new(properties))
}

/// Rows that fill columns, the same ones each time.
pub(super) trait Fills {
    fn fill(&self, columns: &mut impl Columns);
}

/// The bytes of a file of them, a column at a time: of millions of rows all columns at once are more than the rows.
pub(super) fn bytes_of(rows: &impl Fills, metadata: Vec<(String, String)>) -> Result<Vec<u8>, Cause> {
    let write = || -> Result<Vec<u8>, ParquetError> {
        let mut heads = Heads::default();
        rows.fill(&mut heads);
        let mut writer = opened(&heads.0, metadata)?;
        stream(rows, &mut writer)?;
        writer.into_inner()
    };
    write().map_err(|error| Cause::Write(one_line(&error)))
}

fn stream(rows: &impl Fills, writer: &mut SerializedFileWriter<Vec<u8>>) -> Result<(), ParquetError> {
    let mut streamed = Streamed { group: writer.next_row_group()?, failed: None };
    rows.fill(&mut streamed);
    let Streamed { group, failed } = streamed;
    failed.map_or(Ok(()), Err)?;
    group.close()?;
    Ok(())
}

/// Names and types.
#[derive(Default)]
struct Heads(Vec<(String, ColumnValues)>);

impl Columns for Heads {
    fn text<'a>(&mut self, name: &str, _: impl Iterator<Item = Option<&'a str>>) {
        self.0.push((name.to_owned(), ColumnValues::Text(Vec::new())));
    }

    fn int(&mut self, name: &str, _: impl Iterator<Item = Option<i64>>) {
        self.0.push((name.to_owned(), ColumnValues::Int(Vec::new())));
    }

    fn float(&mut self, name: &str, _: impl Iterator<Item = Option<f64>>) {
        self.0.push((name.to_owned(), ColumnValues::Float(Vec::new())));
    }

    fn flag(&mut self, name: &str, _: impl Iterator<Item = bool>) {
        self.0.push((name.to_owned(), ColumnValues::Flag(Vec::new())));
    }
}

/// Values, each column written before the next one is made.
struct Streamed<'a> {
    group: SerializedRowGroupWriter<'a, Vec<u8>>,
    failed: Option<ParquetError>,
}

impl Streamed<'_> {
    fn put(&mut self, values: &ColumnValues) {
        if self.failed.is_none() {
            self.failed = values.write(&mut self.group).err();
        }
    }
}

impl Columns for Streamed<'_> {
    fn text<'a>(&mut self, _: &str, values: impl Iterator<Item = Option<&'a str>>) {
        self.put(&ColumnValues::Text(values.map(|value| value.map(ByteArray::from)).collect()));
    }

    fn int(&mut self, _: &str, values: impl Iterator<Item = Option<i64>>) {
        self.put(&ColumnValues::Int(values.collect()));
    }

    fn float(&mut self, _: &str, values: impl Iterator<Item = Option<f64>>) {
        self.put(&ColumnValues::Float(values.collect()));
    }

    fn flag(&mut self, _: &str, values: impl Iterator<Item = bool>) {
        self.put(&ColumnValues::Flag(values.map(Some).collect()));
    }
}

impl ColumnValues {
    fn field(&self, name: &str) -> Result<Arc<Type>, ParquetError> {
        let (physical, logical) = match self {
            Self::Text(_) => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            Self::Int(_) => (Physical::INT64, None),
            Self::Float(_) => (Physical::DOUBLE, None),
            Self::Flag(_) => (Physical::BOOLEAN, None),
            #[cfg(feature = "native")]
            Self::Lists(_) => return list_field(name),
        };
        let field = Type::primitive_type_builder(name, physical).with_repetition(Repetition::OPTIONAL);
        Ok(Arc::new(field.with_logical_type(logical).build()?))
    }

    fn write(&self, group: &mut SerializedRowGroupWriter<'_, Vec<u8>>) -> Result<(), ParquetError> {
        match self {
            Self::Text(values) => write::<ByteArrayType>(group, values),
            Self::Int(values) => write::<Int64Type>(group, values),
            Self::Float(values) => write::<DoubleType>(group, values),
            Self::Flag(values) => write::<BoolType>(group, values),
            #[cfg(feature = "native")]
            Self::Lists(values) => write_lists(group, values),
        }
    }
}

/// As the format's own document has a list: <https://github.com/apache/parquet-format/blob/master/LogicalTypes.md#lists>.
#[cfg(feature = "native")]
fn list_field(name: &str) -> Result<Arc<Type>, ParquetError> {
    let element = Type::primitive_type_builder("element", Physical::DOUBLE).with_repetition(Repetition::OPTIONAL);
    let list = Type::group_type_builder("list").with_repetition(Repetition::REPEATED);
    let list = list.with_fields(vec![Arc::new(element.build()?)]).build()?;
    let field = Type::group_type_builder(name).with_repetition(Repetition::OPTIONAL);
    let field = field.with_logical_type(Some(LogicalType::List)).with_fields(vec![Arc::new(list)]);
    Ok(Arc::new(field.build()?))
}

#[cfg(feature = "native")]
fn write_lists(group: &mut SerializedRowGroupWriter<'_, Vec<u8>>, lists: &[Vec<f64>]) -> Result<(), ParquetError> {
    // An element that is there, and a list that is there and has none.
    const ELEMENT: i16 = 3;
    const EMPTY: i16 = 1;
    let (mut defined, mut repeated) = (Vec::new(), Vec::new());
    for list in lists {
        defined.extend(std::iter::repeat_n(ELEMENT, list.len()).chain(list.is_empty().then_some(EMPTY)));
        repeated.extend((0..list.len().max(1)).map(|at| i16::from(at > 0)));
    }
    let Some(mut column) = group.next_column()? else {
        return Err(ParquetError::General("more columns than in the schema".to_owned()));
    };
    column.typed::<DoubleType>().write_batch(&lists.concat(), Some(&defined), Some(&repeated))?;
    column.close()
}

fn write<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, Vec<u8>>,
    values: &[Option<T::T>],
) -> Result<(), ParquetError> {
    let levels: Vec<i16> = values.iter().map(|value| i16::from(value.is_some())).collect();
    let values: Vec<T::T> = values.iter().flatten().cloned().collect();
    let Some(mut column) = group.next_column()? else {
        return Err(ParquetError::General("more columns than in the schema".to_owned()));
    };
    column.typed::<T>().write_batch(&values, Some(&levels), None)?;
    column.close()
}

#[cfg(feature = "native")]
impl Columns for MemoryColumns {
    fn text<'a>(&mut self, name: &str, values: impl Iterator<Item = Option<&'a str>>) {
        let values = values.map(|value| value.map(ByteArray::from)).collect();
        self.columns.push((name.to_owned(), ColumnValues::Text(values)));
    }

    fn int(&mut self, name: &str, values: impl Iterator<Item = Option<i64>>) {
        self.columns.push((name.to_owned(), ColumnValues::Int(values.collect())));
    }

    fn float(&mut self, name: &str, values: impl Iterator<Item = Option<f64>>) {
        self.columns.push((name.to_owned(), ColumnValues::Float(values.collect())));
    }

    fn flag(&mut self, name: &str, values: impl Iterator<Item = bool>) {
        self.columns.push((name.to_owned(), ColumnValues::Flag(values.map(Some).collect())));
    }
}

fn one_line(error: &dyn std::fmt::Display) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

fn broken(error: &ParquetError) -> Cause {
    match error {
        ParquetError::NYI(line) => Cause::Unreadable(line.clone()),
        error => Cause::NotParquet(one_line(error)),
    }
}

/// A file read from memory. Numbers are decoded when they are asked for, text at once.
pub(super) struct MemoryTable {
    reader: Arc<SerializedFileReader<Bytes>>,
    bytes: Arc<Bytes>,
    height: usize,
    texts: BTreeMap<String, TextColumn>,
}

impl MemoryTable {
    /// Each of whose rows has a key of its own. `head` gives the rows that it can mean, and what it read to know that.
    pub(super) fn read_keyed<M>(
        bytes: impl AsRef<[u8]> + Send + Sync + 'static,
        head: fn(&Self) -> Result<(usize, M), Cause>,
    ) -> Result<(Self, M), Cause> {
        let mut table = Self::opened(bytes)?;
        let (most, read) = head(&table)?;
        bounds::claimed(table.height, most)?;
        let keys = bounds::each_once(table.height, |num| table.first(num))?;
        table.texts = table.read_texts(|name| !bounds::KEY.contains(&name))?;
        table.texts.extend(keys.map(|keys| keys.texts).unwrap_or_default());
        Ok((table, read))
    }

    /// One of whose rows nothing is known but that each was written.
    pub(super) fn read(bytes: impl AsRef<[u8]> + Send + Sync + 'static) -> Result<Self, Cause> {
        let mut table = Self::opened(bytes)?;
        bounds::claimed(table.height, bounds::most_in(table.bytes.len()))?;
        table.texts = table.read_texts(|_| true)?;
        Ok(table)
    }

    /// The footer alone.
    fn opened(bytes: impl AsRef<[u8]> + Send + Sync + 'static) -> Result<Self, Cause> {
        let bytes = Bytes::from_owner(bytes);
        is_parquet(&bytes)?;
        if !thrift::is_sound_footer(&bytes) {
            return Err(Cause::NotParquet("its footer is missing or damaged".to_owned()));
        }
        let reader = SerializedFileReader::new(bytes.clone()).map_err(|error| broken(&error))?;
        let rows = reader.metadata().file_metadata().num_rows();
        let groups = reader.metadata().row_groups().iter().map(|group| group.num_rows());
        let sum = groups.fold(0_i64, |sum, rows| sum.saturating_add(rows));
        let negative = reader.metadata().row_groups().iter().any(|group| group.num_rows() < 0);
        if negative || sum != rows || rows < 0 {
            return Err(Cause::NotParquet(format!("it claims {rows} rows and has {sum}")));
        }
        let height = rows as usize;
        bounds::claimed(height, bounds::MOST_ROWS)?;
        Ok(Self { reader: Arc::new(reader), bytes: Arc::new(bytes), height, texts: BTreeMap::new() })
    }

    #[cfg(test)]
    pub(super) fn names(&self) -> Vec<String> {
        let root = self.reader.metadata().file_metadata().schema_descr().root_schema();
        root.get_fields().iter().map(|field| field.name().to_owned()).collect()
    }

    pub(super) fn has(&self, name: &str) -> bool {
        let root = self.reader.metadata().file_metadata().schema_descr().root_schema();
        root.get_fields().iter().any(|field| field.name() == name)
    }

    /// A list of numbers in every row; null is an empty one.
    pub(super) fn floats(&self, name: &str) -> Result<Vec<Vec<f64>>, Cause> {
        let metadata = self.reader.metadata();
        let schema = metadata.file_metadata().schema_descr();
        if !self.has(name) {
            return Err(Cause::MissingColumn(name.to_owned()));
        }
        let is_its = |column: &ColumnDescPtr| column.path().parts().first().is_some_and(|first| first == name);
        let leaves: Vec<usize> =
            schema.columns().iter().enumerate().filter(|(_, column)| is_its(column)).map(|(at, _)| at).collect();
        let wrong = || Cause::WrongType {
            column: name.to_owned(),
            found: type_word(schema.root_schema(), name).to_owned(),
            expected: "list[f64]",
        };
        let &[at] = leaves.as_slice() else { return Err(wrong()) };
        let leaf = schema.column(at);
        // A column of nulls, and lists without anything in any of them, have no type of their own.
        if matches!(leaf.logical_type_ref(), Some(LogicalType::Unknown)) {
            return Ok(vec![Vec::new(); self.height]);
        }
        if leaf.max_rep_level() != 1 || leaf.physical_type() != Physical::DOUBLE {
            return Err(wrong());
        }
        let repeated = schema.root_schema().get_fields().iter().find(|field| field.name() == name);
        let optional = repeated.is_some_and(|field| field.get_basic_info().repetition() == Repetition::OPTIONAL);
        let levels = decode::ListLevels {
            largest: leaf.max_def_level().unsigned_abs().into(),
            of_element: u32::from(optional) + 1,
            most: bounds::most_in(self.bytes.len()),
        };
        let mut all = Vec::new();
        for group in metadata.row_groups() {
            let rows = usize::try_from(group.num_rows()).unwrap_or_default().min(self.height - all.len());
            let read =
                Pages::of(&self.bytes, group, at).and_then(|pages| decode::lists(pages, rows, &levels, &mut all));
            read.map_err(|error| broken(&error))?;
        }
        Ok(all)
    }

    /// Of its first rows what makes their keys.
    fn first(&self, height: usize) -> Result<Self, Cause> {
        let mut table =
            Self { reader: Arc::clone(&self.reader), bytes: Arc::clone(&self.bytes), height, texts: BTreeMap::new() };
        table.texts = table.read_texts(|name| bounds::KEY.contains(&name))?;
        Ok(table)
    }

    fn read_texts(&self, wanted: fn(&str) -> bool) -> Result<BTreeMap<String, TextColumn>, Cause> {
        let schema = self.reader.metadata().file_metadata().schema_descr();
        let is_wanted = |column: &ColumnDescPtr| match column.path().parts() {
            [name] => wanted(name) && type_word(schema.root_schema(), name) == "str",
            _ => false,
        };
        let found: Vec<usize> =
            schema.columns().iter().enumerate().filter(|(_, column)| is_wanted(column)).map(|(at, _)| at).collect();
        let read = |place: usize| {
            let name = schema.column(found[place]).name().to_owned();
            text_column(self.words(found[place])?, &name).map(|column| (name, column))
        };
        parallel::map_long(found.len(), read).into_iter().collect()
    }

    /// A column that is no list, by its place; `None`: it has nulls alone and no type.
    fn column(&self, name: &str, expected: &'static str) -> Result<Option<usize>, Cause> {
        let schema = self.reader.metadata().file_metadata().schema_descr();
        let has = schema.root_schema().get_fields().iter().any(|field| field.name() == name);
        if !has {
            return Err(Cause::MissingColumn(name.to_owned()));
        }
        match type_word(schema.root_schema(), name) {
            "null" => Ok(None),
            found if found == expected => {
                Ok(schema.columns().iter().position(|column| column.path().parts() == [name.to_owned()]))
            }
            found => Err(Cause::WrongType { column: name.to_owned(), found: found.to_owned(), expected }),
        }
    }

    fn numbers<T: Value>(&self, name: &str, expected: &'static str) -> Result<Nullable<T>, Cause> {
        match self.column(name, expected)? {
            Some(at) => self.values(at),
            None => Ok(Nullable::nulls(self.height)),
        }
    }

    fn values<T: Value>(&self, at: usize) -> Result<Nullable<T>, Cause> {
        let mut all = Nullable::default();
        self.each_group(at, |pages, of| decode::column(pages, of, &mut all))?;
        Ok(all)
    }

    fn words(&self, at: usize) -> Result<WordColumn, Cause> {
        let mut all = WordColumn::default();
        self.each_group(at, |pages, of| decode::words(pages, of, &mut all))?;
        Ok(all)
    }

    /// Gives `decode` the pages of a column, one group of rows after the other, with the number of rows and whether some
    /// can be null.
    fn each_group(
        &self,
        at: usize,
        mut decode: impl FnMut(Pages, (usize, bool)) -> Result<(), ParquetError>,
    ) -> Result<(), Cause> {
        let metadata = self.reader.metadata();
        let nullable = metadata.file_metadata().schema_descr().column(at).max_def_level() > 0;
        let mut left = self.height;
        for group in metadata.row_groups() {
            // Their sum was found to be small and not negative.
            let rows = usize::try_from(group.num_rows()).unwrap_or_default().min(left);
            if rows == 0 {
                continue;
            }
            left -= rows;
            let read = Pages::of(&self.bytes, group, at).and_then(|pages| decode(pages, (rows, nullable)));
            read.map_err(|error| broken(&error))?;
        }
        Ok(())
    }
}

fn text_column(column: WordColumn, name: &str) -> Result<TextColumn, Cause> {
    let text = |word: &Bytes| std::str::from_utf8(word).map(Arc::from);
    let words = column.words.iter().map(text).collect::<Result<_, _>>();
    let words = words.map_err(|_| Cause::NotParquet(format!("column '{name}' is not UTF-8")))?;
    Ok(TextColumn { words, at: column.at })
}

impl Table for MemoryTable {
    fn height(&self) -> usize {
        self.height
    }

    fn metadata(&self, key: &str) -> Option<&str> {
        let pairs = self.reader.metadata().file_metadata().key_value_metadata()?;
        pairs.iter().find(|pair| pair.key == key)?.value.as_deref()
    }

    fn text(&self, name: &str) -> Result<Texts<'_>, Cause> {
        Ok(Texts(self.column(name, "str")?.and_then(|_| self.texts.get(name))))
    }

    fn int(&self, name: &str) -> Result<Nullable<i64>, Cause> {
        self.numbers(name, "i64")
    }

    fn float(&self, name: &str) -> Result<Nullable<f64>, Cause> {
        self.numbers(name, "f64")
    }

    fn flag(&self, name: &str) -> Result<Nullable<bool>, Cause> {
        self.numbers(name, "bool")
    }
}

/// A column's type in the words of the other reader.
fn type_word(root: &Type, name: &str) -> &'static str {
    let Some(field) = root.get_fields().iter().find(|field| field.name() == name) else { return "missing" };
    if !field.is_primitive() || field.get_basic_info().repetition() == Repetition::REPEATED {
        return "list";
    }
    let logical = field.get_basic_info().logical_type_ref();
    match (field.get_physical_type(), logical) {
        (_, Some(LogicalType::Unknown)) => "null",
        (Physical::BYTE_ARRAY, Some(LogicalType::String)) => "str",
        (Physical::INT64, None) => "i64",
        (Physical::INT64, Some(_)) => "another type of i64",
        (Physical::DOUBLE, _) => "f64",
        (Physical::BOOLEAN, _) => "bool",
        (Physical::INT32, None) => "i32",
        (Physical::INT32, Some(_)) => "another type of i32",
        (Physical::FLOAT, _) => "f32",
        (Physical::BYTE_ARRAY | Physical::FIXED_LEN_BYTE_ARRAY, _) => "binary",
        (Physical::INT96, _) => "datetime",
    }
}
