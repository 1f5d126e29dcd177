//! Takes a path, gives the table there, read whole into memory by the reader that a page has; takes columns, writes them there.

use std::{
    fs::File,
    io::{Read as _, Seek as _, SeekFrom, Write as _},
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
};

use super::{
    Cause, TableError, is_parquet,
    memory::{MemoryColumns, MemoryTable},
};
use crate::model::{HEAD_BYTES, persist, temporary_beside};

/// Of a whole file.
const MOST_BYTES: u64 = 4 << 30;

/// Its rows have keys: see [`MemoryTable::read_keyed`].
pub(super) fn read_keyed<M>(
    path: &Path,
    head: fn(&MemoryTable) -> Result<(usize, M), Cause>,
) -> Result<(MemoryTable, M), Cause> {
    caught(path, |bytes| MemoryTable::read_keyed(bytes, head))
}

pub(super) fn read(path: &Path) -> Result<MemoryTable, Cause> {
    caught(path, MemoryTable::read)
}

/// Nothing that is read should panic; if a library does, the file is damaged like others, and whoever asked goes on.
fn caught<R>(path: &Path, read: impl Fn(Vec<u8>) -> Result<R, Cause>) -> Result<R, Cause> {
    let bytes = whole(path)?;
    // Of what is read nothing is looked at after a panic.
    catch_unwind(AssertUnwindSafe(|| read(bytes)))
        .unwrap_or_else(|_| Err(Cause::NotParquet("its metadata is damaged".to_owned())))
}

/// Whole or not at all: into a temporary file of the same folder, then renamed.
pub(super) fn write(path: &Path, columns: MemoryColumns, metadata: Vec<(String, String)>) -> Result<(), TableError> {
    write_bytes(path, || columns.into_bytes(metadata))
}

/// The same of bytes that are still to be made.
pub(super) fn write_bytes(path: &Path, bytes: impl FnOnce() -> Result<Vec<u8>, Cause>) -> Result<(), TableError> {
    let write = || -> Result<(), Cause> {
        let mut file = temporary_beside(path)?;
        file.write_all(&bytes()?)?;
        Ok(persist(file, path)?)
    };
    write().map_err(|cause| cause.at(path))
}

/// What is no Parquet file is not read to its end.
fn whole(path: &Path) -> Result<Vec<u8>, Cause> {
    let mut file = File::open(path)?;
    let about = file.metadata()?;
    if !about.is_file() {
        return Err(Cause::NotParquet("not a file".to_owned()));
    }
    let mut head = Vec::with_capacity(HEAD_BYTES);
    (&file).take(HEAD_BYTES as u64).read_to_end(&mut head)?;
    is_parquet(&head)?;
    let mut magic = [0; 4];
    if about.len() >= 12 {
        file.seek(SeekFrom::End(-4))?;
        file.read_exact(&mut magic)?;
    }
    if &magic != b"PAR1" || about.len() > MOST_BYTES {
        let why = if about.len() > MOST_BYTES { "larger than any of ours" } else { "its footer is missing or damaged" };
        return Err(Cause::NotParquet(why.to_owned()));
    }
    file.rewind()?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(about.len() as usize).map_err(|error| Cause::NotParquet(error.to_string()))?;
    file.take(MOST_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}
