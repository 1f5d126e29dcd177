//! A table that was asked for, as plain data: what prints it or writes it knows nothing of polars.

use loka_core::tables::Columns;
use polars_core::prelude::{AnyValue, DataFrame, DataType};

use crate::QueryError;

/// Columns of one length.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    pub columns: Vec<Column>,
    pub num_rows: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    pub name: String,
    /// Numbers stand to the right where a table is printed.
    pub is_number: bool,
    pub cells: Vec<Cell>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    Null,
    Flag(bool),
    Int(i64),
    Float(f64),
    /// Also what SQL can make and LoKA's files have not: lists, dates, counts beyond 2^63.
    Text(String),
}

impl Answer {
    pub(crate) fn of(frame: &DataFrame) -> Result<Self, QueryError> {
        let column = |column: &polars_core::prelude::Column| {
            let series = column.as_materialized_series();
            let cells = series.iter().map(|value| Cell::of(&value)).collect();
            Column { name: column.name().to_string(), is_number: is_number(column.dtype()), cells }
        };
        Ok(Self { columns: frame.columns().iter().map(column).collect(), num_rows: frame.height() })
    }

    /// As a table that LoKA writes: a column with a text in it is text.
    pub fn fill(&self, columns: &mut impl Columns) {
        for column in &self.columns {
            let (name, cells) = (&column.name, &column.cells);
            let has = |kind: fn(&Cell) -> bool| cells.iter().any(kind);
            if has(|cell| matches!(cell, Cell::Text(_)))
                || !column.is_number && !has(|cell| matches!(cell, Cell::Flag(_)))
            {
                let texts: Vec<Option<String>> = cells.iter().map(Cell::to_text).collect();
                columns.text(name, texts.iter().map(Option::as_deref));
            } else if has(|cell| matches!(cell, Cell::Float(_))) {
                columns.float(name, cells.iter().map(Cell::to_float));
            } else if has(|cell| matches!(cell, Cell::Flag(_))) {
                // A column of flags has no nulls in LoKA's tables; here it may: then 0 and 1.
                if has(|cell| matches!(cell, Cell::Null)) {
                    columns.int(name, cells.iter().map(Cell::to_int));
                } else {
                    columns.flag(name, cells.iter().map(|cell| matches!(cell, Cell::Flag(true))));
                }
            } else {
                columns.int(name, cells.iter().map(Cell::to_int));
            }
        }
    }
}

fn is_number(dtype: &DataType) -> bool {
    dtype.is_primitive_numeric()
}

impl Cell {
    fn of(value: &AnyValue<'_>) -> Self {
        match value {
            AnyValue::Null => Self::Null,
            AnyValue::Boolean(flag) => Self::Flag(*flag),
            AnyValue::Float32(float) => Self::Float(f64::from(*float)),
            AnyValue::Float64(float) => Self::Float(*float),
            AnyValue::String(text) => Self::Text((*text).to_owned()),
            AnyValue::StringOwned(text) => Self::Text(text.to_string()),
            value if value.is_integer() => {
                value.extract::<i64>().map_or_else(|| Self::Text(value.to_string()), Self::Int)
            }
            AnyValue::List(items) => {
                let items: Vec<String> =
                    items.iter().map(|item| Self::of(&item).to_text().unwrap_or_default()).collect();
                Self::Text(format!("[{}]", items.join(", ")))
            }
            other => Self::Text(other.to_string()),
        }
    }

    fn to_text(&self) -> Option<String> {
        Some(match self {
            Self::Null => return None,
            Self::Flag(flag) => flag.to_string(),
            Self::Int(int) => int.to_string(),
            Self::Float(float) => float.to_string(),
            Self::Text(text) => text.clone(),
        })
    }

    fn to_float(&self) -> Option<f64> {
        match self {
            Self::Float(float) => Some(*float),
            Self::Int(int) => Some(*int as f64),
            _ => None,
        }
    }

    fn to_int(&self) -> Option<i64> {
        match self {
            Self::Int(int) => Some(*int),
            Self::Flag(flag) => Some(i64::from(*flag)),
            _ => None,
        }
    }
}
