//! Files: written to a temporary in the same folder and renamed, so that a kill leaves the old one or
//! the new one.

use std::{
    io::{Read as _, Seek as _, Write as _},
    path::{Path, PathBuf},
};

use loka_core::model::{FileMagic, persist, persist_new};

/// Held while a file is read, changed and written: programs that do so at once take turns.
pub struct FileLock {
    path: PathBuf,
    _file: std::fs::File,
}

/// Waits for its turn. The lock is on a file beside it: the file itself is another one once it is written.
pub fn lock(path: &Path) -> anyhow::Result<FileLock> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let beside = folder(path).join(format!(".{name}.lock"));
    loop {
        let file = std::fs::File::options().create(true).truncate(false).write(true).open(&beside);
        let file = file.map_err(|error| cannot_write(&error, path))?;
        file.lock().map_err(|error| cannot_write(&error, path))?;
        // Whoever had it before has removed it: then it is no longer the one that others lock.
        if is_at(&file, &beside) {
            return Ok(FileLock { path: beside, _file: file });
        }
    }
}

#[cfg(unix)]
fn is_at(file: &std::fs::File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let same = |a: std::fs::Metadata, b: std::fs::Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
    file.metadata().ok().zip(std::fs::metadata(path).ok()).is_some_and(|(file, there)| same(file, there))
}

/// There an open file cannot be removed.
#[cfg(not(unix))]
fn is_at(_: &std::fs::File, _: &Path) -> bool {
    true
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // One that stays harms nothing.
        drop(std::fs::remove_file(&self.path));
    }
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// One line, cause first.
fn cannot_write(error: &std::io::Error, path: &Path) -> anyhow::Error {
    let cause = match error.kind() {
        std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory => "no such folder".to_owned(),
        std::io::ErrorKind::PermissionDenied => "no permission to write".to_owned(),
        std::io::ErrorKind::StorageFull => "the disk is full".to_owned(),
        std::io::ErrorKind::IsADirectory => "a folder, not a file".to_owned(),
        _ => error.to_string(),
    };
    anyhow::anyhow!("{cause}: {}", path.display())
}

/// Writes the whole file or nothing.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    write_with_mode(path, bytes, 0o644)
}

/// The same, for nobody else to read.
pub fn write_privately(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    write_with_mode(path, bytes, 0o600)
}

fn write_with_mode(path: &Path, bytes: &[u8], mode: u32) -> anyhow::Result<()> {
    let write = || -> std::io::Result<()> {
        if path.is_dir() {
            return Err(std::io::ErrorKind::IsADirectory.into());
        }
        let mut file = tempfile::Builder::new().prefix(".loka-").tempfile_in(folder(path))?;
        file.write_all(bytes)?;
        // A temporary is private; what a person asked for has the usual permissions.
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            file.as_file().set_permissions(std::fs::Permissions::from_mode(mode))?;
        }
        #[cfg(not(unix))]
        let _ = mode;
        persist(file, path)
    };
    write().map_err(|error| cannot_write(&error, path))
}

/// Writes a new file that nobody but its owner can read, at no moment; one that is there stays.
pub fn write_secret(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let write = || -> std::io::Result<()> {
        let mut new = tempfile::Builder::new();
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            new.permissions(std::fs::Permissions::from_mode(0o600));
        }
        let mut file = new.prefix(".loka-").tempfile_in(folder(path))?;
        file.write_all(bytes)?;
        persist_new(file, path).map_err(|failed| failed.error)
    };
    write().map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => anyhow::anyhow!("there is a file already, it stays: {}", path.display()),
        _ => cannot_write(&error, path),
    })
}

/// Reads what only its owner may read; one that others can get at is refused with what to run.
pub fn read_secret(path: &Path) -> anyhow::Result<String> {
    let bytes = read_private(path, SMALL, 0o077, |mode| {
        format!("others can get at this secret key (its mode is {mode:03o}): chmod 600 {}", path.display())
    })?;
    String::from_utf8(bytes).map_err(|_| anyhow::anyhow!("stream did not contain valid UTF-8: {}", path.display()))
}

/// Reads what has none of those bits in its mode, and at most so many bytes; `line` refuses one that has.
pub fn read_private(path: &Path, most: u64, forbidden: u32, line: impl Fn(u32) -> String) -> anyhow::Result<Vec<u8>> {
    let failed = |error: std::io::Error| anyhow::anyhow!("{}: {}", reason(&error), path.display());
    let file = std::fs::File::open(path).map_err(failed)?;
    // Of the open file: its name may be another's by now.
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = file.metadata().map_err(failed)?.permissions().mode() & 0o777;
        if mode & forbidden != 0 {
            anyhow::bail!(line(mode));
        }
    }
    #[cfg(not(unix))]
    let _ = (forbidden, line);
    all_of(file, path, most)
}

/// Fails early when a result that takes long to compute could not be written.
pub fn check_writable(path: &Path) -> anyhow::Result<()> {
    if path.is_dir() {
        return Err(cannot_write(&std::io::ErrorKind::IsADirectory.into(), path));
    }
    // Without a name: a program that is killed just now leaves nothing.
    tempfile::tempfile_in(folder(path)).map(drop).map_err(|error| cannot_write(&error, path))
}

/// Reads a text file; the error ends with its name.
pub fn read_text(path: &Path) -> anyhow::Result<String> {
    text_of(read(path, LONGEST)?, path)
}

/// The same of a JSON document of ours, `what` as in "not a plan"; the error says what another file is. `own`: how the
/// document looks, which for one without a format of its own is [`FileMagic::Json`].
pub fn read_document(path: &Path, what: &str, own: FileMagic) -> anyhow::Result<String> {
    let bytes = read(path, LONGEST)?;
    match FileMagic::of(&bytes) {
        Some(other) if other != own && other != FileMagic::Json => {
            anyhow::bail!("not {what}: it is {other}: {}", path.display())
        }
        _ => text_of(bytes, path),
    }
}

/// What stands behind a trace's name where the rows lie that `loka watch --keep-rows` drew of it: the chosen kernels' alone.
pub(crate) const WATCHED_ROWS: &str = "watched.results.parquet";

/// The whole lines of a log that were appended since, and where they end. One that is shorter by now was begun anew.
pub fn lines_from(path: &Path, from: u64) -> std::io::Result<(String, u64)> {
    let mut file = std::fs::File::open(path)?;
    let from = if file.metadata()?.len() < from { 0 } else { from };
    file.seek(std::io::SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(LONGEST).read_to_end(&mut bytes)?;
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    bytes.truncate(whole);
    Ok((String::from_utf8_lossy(&bytes).into_owned(), from + whole as u64))
}

/// Bytes of a text of ours: a plan of 100,000 sites is a third of it.
const LONGEST: u64 = 512 << 20;

/// Bytes of what is small: a certificate with those that lead to its root, a key, a window's settings.
pub const SMALL: u64 = 4 << 20;

/// Reads a file that has at most so many bytes. What claims no size (a device, a pipe) ends there, too.
pub fn read(path: &Path, most: u64) -> anyhow::Result<Vec<u8>> {
    let file = std::fs::File::open(path);
    all_of(file.map_err(|error| anyhow::anyhow!("{}: {}", reason(&error), path.display()))?, path, most)
}

fn all_of(file: std::fs::File, path: &Path, most: u64) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = file.take(most + 1).read_to_end(&mut bytes);
    read.map_err(|error| anyhow::anyhow!("{}: {}", reason(&error), path.display()))?;
    if bytes.len() as u64 > most {
        anyhow::bail!("larger than the {} MiB of any file of its kind: {}", most >> 20, path.display());
    }
    Ok(bytes)
}

fn text_of(bytes: Vec<u8>, path: &Path) -> anyhow::Result<String> {
    let known = FileMagic::of(&bytes).map_or_else(String::new, |is| format!(" (it is {is})"));
    String::from_utf8(bytes).map_err(|_| anyhow::anyhow!("not text{known}: {}", path.display()))
}

/// An I/O error in the words that we use everywhere.
pub fn reason(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory => "no such file or folder".to_owned(),
        std::io::ErrorKind::PermissionDenied => "no permission".to_owned(),
        std::io::ErrorKind::StorageFull => "the disk is full".to_owned(),
        std::io::ErrorKind::IsADirectory => "a folder, not a file".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_larger_than_its_kind_is_refused_before_it_is_in_memory() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key.json");
        // Sparse: it has no bytes on the disk.
        std::fs::File::create(&path).unwrap().set_len(1 << 40).unwrap();
        let line = read(&path, SMALL).unwrap_err().to_string();
        assert_eq!(line, format!("larger than the 4 MiB of any file of its kind: {}", path.display()));
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
            assert!(read_secret(&path).unwrap_err().to_string().starts_with("larger than the 4 MiB"));
            assert!(read(Path::new("/dev/zero"), SMALL).is_err(), "what has no end");
        }
        std::fs::write(&path, "{}").unwrap();
        assert_eq!(read(&path, 2).unwrap(), b"{}");
        assert!(read(&path, 1).is_err());
    }
}
