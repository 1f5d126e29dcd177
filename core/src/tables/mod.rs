//! Takes rows, gives Parquet, and back (docs/reference/results.md names the columns): files with the feature `native`,
//! bytes in memory with the feature `web`. One reader for both, by the `parquet` crate; what a reader of strangers' files
//! must not believe is looked at first (`thrift`, `pages`, `bounds`). One writer, too.
//!
//! A file is written beside its place and renamed into it, so that nobody ever sees half of one. A
//! reader refuses what it cannot trust in one line: the cause first, the file last.

#[cfg(feature = "native")]
mod bench_part;
mod bounds;
mod check;
mod columns;
#[cfg(feature = "web")]
mod decode;
#[cfg(feature = "native")]
mod file;
#[cfg(feature = "web")]
mod kernels;
#[cfg(feature = "web")]
mod memory;
#[cfg(feature = "web")]
mod pages;
#[cfg(feature = "native")]
mod part;
mod results;
mod seal;
#[cfg(feature = "web")]
mod thrift;

#[cfg(feature = "native")]
pub use bench_part::{read_bench_part, write_bench_part};
pub use columns::Columns;
#[cfg(feature = "web")]
pub use kernels::{BENCH_PART_KEY, kernels_from_bytes};
#[cfg(feature = "native")]
pub use kernels::{kernel_columns, read_kernels, write_kernels};
#[cfg(feature = "native")]
pub use memory::MemoryColumns;
#[cfg(feature = "native")]
pub use part::{PART_KEY, read_part, write_part};
pub use results::{RESULTS_KEY, result_columns};
#[cfg(feature = "native")]
pub use results::{read_results, read_results_by_site, write_results};
#[cfg(feature = "web")]
pub use results::{results_by_site_from_bytes, results_from_bytes, results_to_bytes};

use std::path::{Path, PathBuf};

use crate::{
    model::FileMagic,
    parts::{PartFault, PartOf},
};

/// Why a table could not be read or written, and which.
#[derive(Debug, thiserror::Error)]
#[error("{cause}: {}", .path.display())]
pub struct TableError {
    pub cause: Cause,
    pub path: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum Cause {
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("not a Parquet file: it is {0}")]
    AnotherFile(FileMagic),
    #[error("not a Parquet file, or a truncated one ({0})")]
    NotParquet(String),
    /// Parquet all the same.
    #[error("{0}")]
    Unreadable(String),
    #[error("it claims {rows} rows, it can mean no more than {most}")]
    TooManyRows { rows: usize, most: usize },
    #[error("column '{0}' is missing")]
    MissingColumn(String),
    #[error("column '{column}' is {found}, not {expected}")]
    WrongType { column: String, found: String, expected: &'static str },
    #[error("row {row}: {problem}")]
    Row { row: usize, problem: String },
    #[error("not a results file: its metadata has no '{RESULTS_KEY}'")]
    NoMetadata,
    #[error("its metadata '{0}' is broken: {1}")]
    BrokenMetadata(&'static str, String),
    /// Of a probe or a bench that was split.
    #[error("it is part {1} of a {0}: loka merge joins all of them")]
    IsPart(&'static str, PartOf),
    #[error("no part of a {0}: its metadata has no '{1}'")]
    NoPart(&'static str, &'static str),
    #[error(transparent)]
    Part(#[from] PartFault),
    #[error("could not be written ({0})")]
    Write(String),
}

impl Cause {
    fn at(self, path: &Path) -> TableError {
        TableError { cause: self, path: path.to_owned() }
    }
}

/// By its first bytes, before anything is made of its last ones. What is cut to less than those is truncated.
fn is_parquet(head: &[u8]) -> Result<(), Cause> {
    match FileMagic::of(head).filter(|_| head.len() >= b"PAR1".len()) {
        Some(FileMagic::Parquet) | None => Ok(()),
        Some(other) => Err(Cause::AnotherFile(other)),
    }
}

/// Any table as Parquet, whole or not at all.
#[cfg(feature = "native")]
pub fn write_table(path: &Path, columns: MemoryColumns) -> Result<(), TableError> {
    file::write(path, columns, Vec::new())
}
