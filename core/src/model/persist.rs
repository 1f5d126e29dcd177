//! Takes a temporary file that is written and the path that it is meant for, gives it that name: whole or not at all, and
//! for good, also on a machine that loses power.

use std::{fs::File, io, path::Path};

use tempfile::NamedTempFile;

/// In the folder of `path`, hidden, and as readable as any other new file: a temporary's own default is the owner alone.
pub(crate) fn temporary_beside(path: &Path) -> io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".loka-").suffix(".tmp");
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    builder.tempfile_in(folder(path))
}

/// In the place of what is there.
pub fn persist(file: NamedTempFile, path: &Path) -> io::Result<()> {
    // On the disk before its name is: a crash leaves the old file or the new one.
    file.as_file().sync_all()?;
    file.persist(path).map_err(|failed| failed.error)?;
    sync_folder(path);
    Ok(())
}

/// Beside nothing: what is there stays, and the file comes back with an error of that kind.
pub fn persist_new(file: NamedTempFile, path: &Path) -> Result<(), tempfile::PersistError> {
    if let Err(error) = file.as_file().sync_all() {
        return Err(tempfile::PersistError { error, file });
    }
    file.persist_noclobber(path)?;
    sync_folder(path);
    Ok(())
}

/// The name itself is an entry of the folder, which the disk has for good by this alone: before it, whoever was told that
/// a file is written could find the old one. Where that cannot be made sure the file is there all the same.
fn sync_folder(path: &Path) {
    #[cfg(unix)]
    {
        drop(File::open(folder(path)).and_then(|folder| folder.sync_all()));
    }
    #[cfg(not(unix))]
    let _ = path;
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
