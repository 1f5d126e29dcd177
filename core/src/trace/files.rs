//! Takes paths; gives opened traces, mapped and not read, and writes traces so that a half-written
//! file is never seen.

use std::{
    fs::{self, File},
    io::{BufWriter, Write},
    path::{Path, PathBuf},
};

use memmap2::Mmap;

use crate::model::{persist, temporary_beside};

use super::{
    Trace, TraceData, TraceError,
    error::{Fault, TraceCause},
    extremes::Extremes,
    write::Layout,
};

const EXTENSION: &str = ".trace.safetensors";

/// Of a rank that records nothing else.
const EXTREMES: &str = ".extremes.safetensors";

impl Trace {
    /// Opens a file, or all `*.trace.safetensors` files of a folder as the shards of one run. Checks
    /// structure only; a site's data is checked when it is read. Refuses a shard whose weights another has, by itself.
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        Self::open_shard(path)?.with_weights()
    }

    /// The same, also of such a shard: for who joins it with the others ([`super::merge`]).
    pub fn open_shard(path: &Path) -> Result<Self, TraceError> {
        let metadata = fs::metadata(path).map_err(|error| io_error(&error, path))?;
        if !metadata.is_dir() {
            return open_file(path);
        }
        let paths = files_in(path, EXTENSION)?;
        if paths.is_empty() {
            return Err(Fault::from(TraceCause::EmptyFolder).in_file(&path.to_string_lossy()));
        }
        let shards = paths.iter().map(|path| open_file(path)).collect::<Result<Vec<Self>, _>>()?;
        let extremes =
            files_in(path, EXTREMES)?.iter().map(|path| open_extremes(path)).collect::<Result<Vec<_>, _>>()?;
        // A folder of one is that file: the same name, and the same digest in results.
        let (name, file) = match shards.as_slice() {
            [one] if extremes.is_empty() => return Ok(one.clone()),
            [one] => (one.name().to_owned(), one.file().to_owned()),
            _ => (name_of(path), path.to_string_lossy().into_owned()),
        };
        Self::from_shards_beside(&name, &file, shards, extremes)
    }
}

/// Sorted.
fn files_in(folder: &Path, ending: &str) -> Result<Vec<PathBuf>, TraceError> {
    let error = |error| io_error(&error, folder);
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).map_err(error)? {
        let path = entry.map_err(error)?.path();
        if path.is_file() && path.to_string_lossy().ends_with(ending) {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

fn open_extremes(path: &Path) -> Result<Extremes, TraceError> {
    let bytes = fs::read(path).map_err(|error| io_error(&error, path))?;
    Extremes::open(&path.to_string_lossy(), Box::new(bytes))
}

fn open_file(path: &Path) -> Result<Trace, TraceError> {
    let error = |error| io_error(&error, path);
    // Opening a pipe would wait for its other end.
    if !fs::metadata(path).map_err(error)?.is_file() {
        return Err(Fault::from(TraceCause::NotAFile).in_file(&path.to_string_lossy()));
    }
    let file = File::open(path).map_err(error)?;
    // SAFETY: the map is read-only and lives as long as the trace. Another process that cuts the file
    // short meanwhile ends this one (SIGBUS), as with every mapped file; recorders and `write` below
    // replace files by renaming, which leaves the mapped one alone.
    #[allow(unsafe_code)]
    let map = unsafe { Mmap::map(&file) }.map_err(error)?;
    Trace::from_container(&name_of(path), &path.to_string_lossy(), Box::new(map))
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

fn io_error(error: &std::io::Error, path: &Path) -> TraceError {
    Fault::from(TraceCause::from_io(error)).in_file(&path.to_string_lossy())
}

/// Writes a trace in the place of whatever is at `path`, at once and only when it is complete.
pub fn write(path: &Path, data: &TraceData) -> Result<(), TraceError> {
    let error = |error: std::io::Error| io_error(&error, path);
    let layout = Layout::of(data).map_err(|fault| fault.in_file(&path.to_string_lossy()))?;
    let mut out = BufWriter::new(temporary_beside(path).map_err(error)?);
    layout.write_to(&mut out).and_then(|()| out.flush()).map_err(error)?;
    let file = out.into_inner().map_err(|failed| error(failed.into_error()))?;
    persist(file, path).map_err(error)
}
