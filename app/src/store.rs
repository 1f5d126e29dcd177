//! Where parts of a probe lie and traces are read from: a folder, or a URL of one where this build knows stores (the
//! feature `stores`).

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    time::Duration,
};

use loka_core::{
    parts::{PartFault, PartKey, SplitRun},
    trace::Trace,
};

use crate::files;

/// What a part is written to before it has its name.
const DRAFT: (&str, &str) = (".loka-", ".tmp");

/// A draft is written within seconds: one so old is that of a process which was killed.
const DRAFT_LIFE: Duration = Duration::from_secs(3600);

/// A folder, here or in an object store.
#[derive(Debug)]
pub enum PartStore {
    Folder(PathBuf),
    #[cfg(feature = "stores")]
    Bucket(loka_stores::Bucket),
}

/// A file that may have been fetched; then it goes with this.
#[derive(Debug)]
pub struct Fetched {
    pub path: PathBuf,
    /// What to call it in messages.
    pub shown: String,
    _folder: Option<tempfile::TempDir>,
}

impl Fetched {
    /// The part that it has to be, or a line that says how it is made again. `read`: its error names no file; `check`: the
    /// part's name.
    pub fn part<P, E: fmt::Display>(
        &self,
        read: impl FnOnce(&Path) -> Result<P, E>,
        check: impl FnOnce(&P) -> Result<(), PartFault>,
    ) -> anyhow::Result<P> {
        let again =
            |cause: &dyn fmt::Display| anyhow::anyhow!("{cause}; remove it to have it made again: {}", self.shown);
        let part = read(&self.path).map_err(|error| again(&error))?;
        check(&part).map_err(|fault| again(&fault))?;
        Ok(part)
    }
}

/// Traces that may have been fetched; the mapped files go with this.
#[derive(Debug)]
pub struct FetchedTrace {
    pub trace: Trace,
    _folder: Option<tempfile::TempDir>,
}

/// `s3://bucket/folder` and the like.
pub fn is_url(path: &Path) -> bool {
    path.to_str().is_some_and(|text| text.split_once("://").is_some_and(|(scheme, _)| scheme.len() > 1))
}

#[cfg(not(feature = "stores"))]
fn without_stores(path: &Path) -> anyhow::Error {
    anyhow::anyhow!(
        "this build knows no object stores: cargo build --release --package loka --features stores makes one that does: {}",
        path.display()
    )
}

#[cfg(feature = "stores")]
fn bucket(path: &Path) -> anyhow::Result<loka_stores::Bucket> {
    loka_stores::Bucket::open(&path.to_string_lossy()).map_err(|error| anyhow::anyhow!("{error}: {}", path.display()))
}

impl PartStore {
    /// A folder that need not be there yet: the first part makes it.
    pub fn of(path: &Path) -> anyhow::Result<Self> {
        if is_url(path) {
            #[cfg(feature = "stores")]
            return Ok(Self::Bucket(bucket(path)?));
            #[cfg(not(feature = "stores"))]
            return Err(without_stores(path));
        }
        anyhow::ensure!(!path.is_file(), "a file, not a folder: {}", path.display());
        Ok(Self::Folder(path.to_owned()))
    }

    pub fn shown(&self, name: &str) -> String {
        match self {
            Self::Folder(folder) => folder.join(name).display().to_string(),
            #[cfg(feature = "stores")]
            Self::Bucket(bucket) => bucket.url_of(name),
        }
    }

    /// Fails early where a part that takes long to compute could not be written. Removes what killed writers left.
    pub fn check_writable(&self) -> anyhow::Result<()> {
        match self {
            Self::Folder(folder) => {
                fs::create_dir_all(folder)
                    .map_err(|error| anyhow::anyhow!("{}: {}", files::reason(&error), folder.display()))?;
                remove_old_drafts(folder);
                files::check_writable(&folder.join("part"))
            }
            // What a store allows is known once one has written there.
            #[cfg(feature = "stores")]
            Self::Bucket(_) => Ok(()),
        }
    }

    /// `None`: there is none.
    pub fn fetch(&self, name: &str) -> anyhow::Result<Option<Fetched>> {
        match self {
            Self::Folder(folder) => {
                let path = folder.join(name);
                let shown = path.display().to_string();
                Ok(path.exists().then_some(Fetched { path, shown, _folder: None }))
            }
            #[cfg(feature = "stores")]
            Self::Bucket(bucket) => {
                let shown = bucket.url_of(name);
                let found = bucket.read(name).map_err(|error| anyhow::anyhow!("{error}: {shown}"))?;
                let Some(bytes) = found else { return Ok(None) };
                let scratch = tempfile::tempdir()?;
                let path = scratch.path().join("fetched");
                files::write_atomically(&path, &bytes)?;
                Ok(Some(Fetched { path, shown, _folder: Some(scratch) }))
            }
        }
    }

    /// One that was there when it was looked for.
    pub fn fetch_known(&self, name: &str) -> anyhow::Result<Fetched> {
        let found = self.fetch(name)?;
        found.ok_or_else(|| anyhow::anyhow!("it was there and is gone: {}", self.shown(name)))
    }

    /// The names of all parts of such a run, of which there has to be one.
    pub fn names_of_parts<R: SplitRun>(&self, path: &Path) -> anyhow::Result<Vec<String>> {
        let mut names = self.names()?;
        names.retain(|name| PartKey::<R>::is_file_name(name));
        anyhow::ensure!(!names.is_empty(), "no parts of a {} are in this folder: {}", R::COMMAND, path.display());
        Ok(names)
    }

    /// What `write` writes, whole and only where there is no such file; false: there is one, and it stays.
    pub fn create(&self, name: &str, write: impl Fn(&Path) -> anyhow::Result<()>) -> anyhow::Result<bool> {
        match self {
            Self::Folder(folder) => {
                let draft = tempfile::Builder::new().prefix(DRAFT.0).suffix(DRAFT.1).tempfile_in(folder);
                let failed = |error: &std::io::Error| {
                    anyhow::anyhow!("{}: {}", files::reason(error), folder.join(name).display())
                };
                let draft = draft.map_err(|error| failed(&error))?.into_temp_path();
                write(&draft)?;
                match draft.persist_noclobber(folder.join(name)) {
                    Ok(()) => Ok(true),
                    Err(error) if error.error.kind() == std::io::ErrorKind::AlreadyExists => Ok(false),
                    Err(error) => Err(failed(&error.error)),
                }
            }
            #[cfg(feature = "stores")]
            Self::Bucket(bucket) => {
                let bytes = written(write)?;
                let shown = bucket.url_of(name);
                bucket.create(name, bytes).map_err(|error| anyhow::anyhow!("{error}: {shown}"))
            }
        }
    }

    /// Names of the files in it, sorted.
    pub fn names(&self) -> anyhow::Result<Vec<String>> {
        match self {
            Self::Folder(folder) => {
                let failed = |error: std::io::Error| anyhow::anyhow!("{}: {}", files::reason(&error), folder.display());
                let mut names = Vec::new();
                for entry in fs::read_dir(folder).map_err(failed)? {
                    names.push(entry.map_err(failed)?.file_name().to_string_lossy().into_owned());
                }
                names.sort();
                Ok(names)
            }
            #[cfg(feature = "stores")]
            Self::Bucket(bucket) => bucket.names().map_err(|error| anyhow::anyhow!("{error}: {}", bucket.url_of(""))),
        }
    }
}

/// What can't be removed is in nobody's way: drafts are not parts.
fn remove_old_drafts(folder: &Path) {
    let is_old = |entry: &fs::DirEntry| {
        let written = entry.metadata().and_then(|about| about.modified());
        written.is_ok_and(|written| written.elapsed().is_ok_and(|age| age > DRAFT_LIFE))
    };
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let is_draft = name.to_str().is_some_and(|name| name.starts_with(DRAFT.0) && name.ends_with(DRAFT.1));
        if is_draft && is_old(&entry) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(feature = "stores")]
fn written(write: impl Fn(&Path) -> anyhow::Result<()>) -> anyhow::Result<Vec<u8>> {
    let scratch = tempfile::tempdir()?;
    let path = scratch.path().join("draft");
    write(&path)?;
    Ok(fs::read(&path)?)
}

/// Writes a file at a path or a URL, in the place of what is there.
pub fn write_to(path: &Path, write: impl Fn(&Path) -> anyhow::Result<()>) -> anyhow::Result<()> {
    if !is_url(path) {
        return write(path);
    }
    #[cfg(feature = "stores")]
    return bucket(path)?.write("", written(write)?).map_err(|error| anyhow::anyhow!("{error}: {}", path.display()));
    #[cfg(not(feature = "stores"))]
    Err(without_stores(path))
}

/// A file at a path or a URL.
pub fn fetch_file(path: &Path) -> anyhow::Result<Fetched> {
    if !is_url(path) {
        return Ok(Fetched { path: path.to_owned(), shown: path.display().to_string(), _folder: None });
    }
    let found = PartStore::of(path)?.fetch("")?;
    found.ok_or_else(|| anyhow::anyhow!("no such file or folder: {}", path.display()))
}

/// A trace, or a folder of shards, at a path or a URL.
pub fn open_trace(path: &Path) -> anyhow::Result<FetchedTrace> {
    if !is_url(path) {
        return Ok(FetchedTrace { trace: Trace::open(path)?, _folder: None });
    }
    #[cfg(feature = "stores")]
    return fetch_trace(path);
    #[cfg(not(feature = "stores"))]
    Err(without_stores(path))
}

/// Whole: a part's key needs the digest of all of it.
#[cfg(feature = "stores")]
fn fetch_trace(path: &Path) -> anyhow::Result<FetchedTrace> {
    const EXTENSION: &str = ".trace.safetensors";
    let at_url = |error: loka_stores::StoreError| anyhow::anyhow!("{error}: {}", path.display());
    let (bucket, scratch) = (bucket(path)?, tempfile::tempdir()?);
    let url = bucket.url_of("");
    let mut fetched = Vec::new();
    let mut keep = |name: &str, bytes: Option<Vec<u8>>| -> anyhow::Result<()> {
        let Some(bytes) = bytes else { return Ok(()) };
        let file = scratch.path().join(name);
        files::write_atomically(&file, &bytes)?;
        fetched.push(file);
        Ok(())
    };
    if url.ends_with(EXTENSION) {
        keep(url.rsplit('/').next().unwrap_or(&url), bucket.read("").map_err(at_url)?)?;
    } else {
        for name in bucket.names().map_err(at_url)?.iter().filter(|name| name.ends_with(EXTENSION)) {
            keep(name, bucket.read(name).map_err(at_url)?)?;
        }
    }
    let opened = match fetched.as_slice() {
        [] => anyhow::bail!("no such file or folder: {}", path.display()),
        [one] => Trace::open(one),
        _ => Trace::open(scratch.path()),
    };
    // What is wrong is said of the file that the person named.
    let here = scratch.path().display().to_string();
    let folder = url.rsplit_once('/').filter(|_| url.ends_with(EXTENSION)).map_or(url.as_str(), |(folder, _)| folder);
    let trace = opened.map_err(|error| anyhow::anyhow!("{}", error.to_string().replace(&here, folder)))?;
    Ok(FetchedTrace { trace, _folder: Some(scratch) })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_url_is_told_from_a_path() {
        for (text, url) in
            [("s3://a/b", true), ("file:///a", true), ("a/b", false), ("C://a", false), ("://", false), ("a:b", false)]
        {
            assert_eq!(is_url(Path::new(text)), url, "{text}");
        }
    }

    #[test]
    fn in_a_folder_a_part_is_created_once() {
        let scratch = tempfile::tempdir().unwrap();
        let place = PartStore::of(&scratch.path().join("parts")).unwrap();
        place.check_writable().unwrap();
        let write = |text: &'static str| move |path: &Path| files::write_atomically(path, text.as_bytes());
        assert!(place.fetch("a").unwrap().is_none());
        assert!(place.create("a", write("first")).unwrap());
        assert!(!place.create("a", write("second")).unwrap());
        assert_eq!(fs::read_to_string(place.fetch("a").unwrap().unwrap().path).unwrap(), "first");
        assert!(place.create("b", |_| anyhow::bail!("no")).is_err());
        assert_eq!(place.names().unwrap(), ["a"], "and no draft stays");
    }

    #[test]
    fn a_killed_writers_draft_goes_with_the_next_part_that_begins_an_hour_later() {
        let scratch = tempfile::tempdir().unwrap();
        let old = std::time::SystemTime::now() - DRAFT_LIFE - Duration::from_secs(1);
        for (name, written) in [(".loka-old.tmp", Some(old)), (".loka-new.tmp", None), ("part", Some(old))] {
            let file = fs::File::create(scratch.path().join(name)).unwrap();
            written.into_iter().for_each(|at| file.set_modified(at).unwrap());
        }
        let place = PartStore::of(scratch.path()).unwrap();
        place.check_writable().unwrap();
        assert_eq!(place.names().unwrap(), [".loka-new.tmp", "part"]);
    }

    #[cfg(not(feature = "stores"))]
    #[test]
    fn a_build_without_stores_says_how_to_get_one() {
        let line = PartStore::of(Path::new("s3://a/b")).unwrap_err().to_string();
        let expected = "this build knows no object stores: cargo build --release --package loka --features stores makes one \
                        that does: s3://a/b";
        assert_eq!(line, expected);
        assert_eq!(open_trace(Path::new("s3://a/b")).unwrap_err().to_string(), expected);
    }

    #[cfg(feature = "stores")]
    #[test]
    fn a_url_of_this_machine_is_a_folder_like_another() {
        let scratch = tempfile::tempdir().unwrap();
        let url = format!("file://{}/parts", scratch.path().display());
        let place = PartStore::of(Path::new(&url)).unwrap();
        let write = |path: &Path| files::write_atomically(path, b"first");
        assert!(place.create("a", write).unwrap() && !place.create("a", write).unwrap());
        assert_eq!(fs::read(place.fetch("a").unwrap().unwrap().path).unwrap(), b"first");
        assert_eq!(place.names().unwrap(), ["a"]);
        assert_eq!(place.shown("a"), format!("{url}/a"));
        let missing = format!("{url}/x.trace.safetensors");
        let line = open_trace(Path::new(&missing)).unwrap_err().to_string();
        assert_eq!(line, format!("no such file or folder: {missing}"));
        fs::write(scratch.path().join("parts/x.trace.safetensors"), b"nothing").unwrap();
        let line = open_trace(Path::new(&missing)).unwrap_err().to_string();
        assert!(line.ends_with(&missing), "{line}");
    }
}
