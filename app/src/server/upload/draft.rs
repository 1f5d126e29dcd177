//! A file on its way into the served folder: takes the folder, gives a hidden file; takes that and a name, gives the
//! file its name where that is free.

use std::{
    fs::File,
    io::{self, BufRead as _},
    path::Path,
    time::SystemTime,
};

use loka_core::model::persist_new;
use tempfile::NamedTempFile;

use crate::server::limits;

const PREFIX: &str = ".loka-upload-";

/// Hidden, so that nobody is offered it, and private to this request: removed when it is dropped.
pub fn new_draft(folder: &Path) -> io::Result<NamedTempFile> {
    let mut draft = tempfile::Builder::new();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        // As other programs' new files; a temporary would be for its owner alone.
        draft.permissions(std::fs::Permissions::from_mode(0o644));
    }
    let draft = draft.prefix(PREFIX).tempfile_in(folder)?;
    // For as long as it is open: another server of this folder must not take it for a remain. A file system without
    // locks has none to tell by, and its remains stay.
    drop(draft.as_file().try_lock());
    Ok(draft)
}

/// Removes what servers left that were killed while a file came in.
pub fn sweep(folder: &Path) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten().take(limits::LOOKED_AT) {
        if entry.file_name().to_string_lossy().starts_with(PREFIX) {
            // What cannot be removed lies there as before.
            drop(remove_old(&entry.path()));
        }
    }
}

fn remove_old(path: &Path) -> io::Result<()> {
    let about = std::fs::symlink_metadata(path)?;
    let age = SystemTime::now().duration_since(about.modified()?).unwrap_or_default();
    if !about.is_file() || age < limits::DRAFT_IS_OLD {
        return Ok(());
    }
    let file = File::options().write(true).open(path)?;
    if file.try_lock().is_ok() {
        std::fs::remove_file(path)?;
    }
    Ok(())
}

/// Whether nothing is there yet, or what may turn out to be the same file.
pub fn could_be(path: &Path, length: Option<u64>) -> io::Result<bool> {
    match std::fs::symlink_metadata(path) {
        Ok(about) => Ok(about.is_file() && length.is_none_or(|length| length == about.len())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error),
    }
}

#[derive(Debug, PartialEq)]
pub enum Kept {
    New,
    /// Those bytes were there under that name.
    Same,
}

/// Gives it its name. `None`: something else has it.
pub fn keep(draft: NamedTempFile, path: &Path) -> io::Result<Option<Kept>> {
    let draft = match persist_new(draft, path) {
        Ok(()) => return Ok(Some(Kept::New)),
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => error.file,
        Err(error) => return Err(error.error),
    };
    let same = could_be(path, Some(draft.as_file().metadata()?.len()))? && same_bytes(draft.path(), path)?;
    Ok(same.then_some(Kept::Same))
}

fn same_bytes(one: &Path, other: &Path) -> io::Result<bool> {
    let open = |path: &Path| File::open(path).map(|file| io::BufReader::with_capacity(1 << 16, file));
    let (mut one, mut other) = (open(one)?, open(other)?);
    loop {
        let (a, b) = (one.fill_buf()?, other.fill_buf()?);
        let both = a.len().min(b.len());
        if a[..both] != b[..both] {
            return Ok(false);
        }
        if both == 0 {
            return Ok(a.is_empty() && b.is_empty());
        }
        one.consume(both);
        other.consume(both);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn what_a_killed_server_left_goes_and_what_comes_in_stays() {
        let folder = tempfile::tempdir().unwrap();
        let old = SystemTime::now() - 2 * limits::DRAFT_IS_OLD;
        let left = |name: &str| {
            let path = folder.path().join(name);
            File::create(&path).unwrap().set_modified(old).unwrap();
            path
        };
        let (remain, other) = (left(".loka-upload-abc"), left("loka-upload-abc"));
        let young = folder.path().join(".loka-upload-young");
        File::create(&young).unwrap();
        let held = new_draft(folder.path()).unwrap();
        held.as_file().set_modified(old).unwrap();
        sweep(folder.path());
        assert_eq!([&remain, &other, &young, held.path()].map(Path::exists), [false, true, true, true]);
        sweep(&folder.path().join("nowhere"));
    }

    #[test]
    fn the_later_of_two_with_one_name_is_kept_only_as_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.plan.json");
        let draft = |text: &str| {
            let mut draft = new_draft(folder.path()).unwrap();
            draft.write_all(text.as_bytes()).unwrap();
            draft
        };
        let large = "x".repeat(200_000);
        assert_eq!(keep(draft(&large), &path).unwrap(), Some(Kept::New));
        assert_eq!(keep(draft(&large), &path).unwrap(), Some(Kept::Same));
        for other in ["", &large[1..], &format!("{}y", &large[1..]), &format!("{large}x")] {
            assert_eq!(keep(draft(other), &path).unwrap(), None);
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap(), large);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
    }
}
