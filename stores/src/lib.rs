//! Takes a URL of a folder in an object store; reads, lists and writes the files in it. A crate of its own, so that
//! neither the browser nor libloka, nor a build that asks for no stores, has anything of it.
//!
//! Calls wait: a command line has nothing else to do meanwhile.

use std::sync::Arc;

use futures_util::TryStreamExt as _;
use object_store::{Error, ObjectStore, ObjectStoreExt as _, PutMode, PutPayload, parse_url_opts, path::Path};
use tokio::runtime::{Builder, Runtime};
use url::Url;

/// Why a file in a store could not be had. The caller adds which.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("not a URL ({0})")]
    Url(#[from] url::ParseError),
    #[error("no store of this kind is known here ({0})")]
    Scheme(String),
    #[error("no permission ({0})")]
    Permission(String),
    #[error("this store cannot create a file only where there is none, which parts need ({0})")]
    NoCreate(String),
    #[error("{0}")]
    Other(String),
}

/// One line: what stores answer is mostly XML.
fn one_line(error: &dyn std::error::Error) -> String {
    const LONGEST: usize = 400;
    let words: Vec<String> = error.to_string().split_whitespace().map(str::to_owned).collect();
    words.join(" ").chars().take(LONGEST).collect()
}

impl From<Error> for StoreError {
    fn from(error: Error) -> Self {
        match &error {
            Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => Self::Permission(one_line(&error)),
            Error::NotImplemented { .. } | Error::NotSupported { .. } => Self::NoCreate(one_line(&error)),
            _ => Self::Other(one_line(&error)),
        }
    }
}

/// A folder of a store.
pub struct Bucket {
    url: String,
    store: Arc<dyn ObjectStore>,
    prefix: Path,
    runtime: Runtime,
}

impl std::fmt::Debug for Bucket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bucket").field("url", &self.url).finish_non_exhaustive()
    }
}

impl Bucket {
    /// Credentials and endpoints are those of the environment, as the store's own tools read them (`AWS_*`, `GOOGLE_*`,
    /// `AZURE_*`).
    pub fn open(url: &str) -> Result<Self, StoreError> {
        let parsed = Url::parse(url)?;
        let settings =
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        let (store, prefix) =
            parse_url_opts(&parsed, settings).map_err(|error| StoreError::Scheme(one_line(&error)))?;
        Self::of(url, Arc::from(store), prefix)
    }

    /// A folder of a store that is there already.
    pub fn of(url: &str, store: Arc<dyn ObjectStore>, prefix: Path) -> Result<Self, StoreError> {
        // Its own threads do what needs two at once; whoever calls is one of them.
        let runtime =
            Builder::new_current_thread().enable_all().build().map_err(|error| StoreError::Other(error.to_string()))?;
        Ok(Self { url: url.trim_end_matches('/').to_owned(), store, prefix, runtime })
    }

    /// The URL of a file in it; of "" its own.
    pub fn url_of(&self, name: &str) -> String {
        if name.is_empty() { self.url.clone() } else { format!("{}/{name}", self.url) }
    }

    fn path_of(&self, name: &str) -> Path {
        // The URL may be that of one file, which is read by the name "".
        name.split('/').filter(|part| !part.is_empty()).fold(self.prefix.clone(), |path, part| path.join(part))
    }

    /// `None`: there is none.
    pub fn read(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let path = self.path_of(name);
        let read = async {
            match self.store.get(&path).await {
                Ok(found) => Ok(Some(found.bytes().await?.to_vec())),
                Err(Error::NotFound { .. }) => Ok(None),
                Err(error) => Err(error),
            }
        };
        Ok(self.runtime.block_on(read)?)
    }

    /// Whole, and only where there is none; false: there is one, and it stays.
    pub fn create(&self, name: &str, bytes: Vec<u8>) -> Result<bool, StoreError> {
        let path = self.path_of(name);
        let put = self.store.put_opts(&path, PutPayload::from(bytes), PutMode::Create.into());
        match self.runtime.block_on(put) {
            Ok(_) => Ok(true),
            Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Whole, in the place of what is there.
    pub fn write(&self, name: &str, bytes: Vec<u8>) -> Result<(), StoreError> {
        let path = self.path_of(name);
        self.runtime.block_on(self.store.put(&path, PutPayload::from(bytes)))?;
        Ok(())
    }

    /// Names of the files that lie in it, sorted; not those of folders in it.
    pub fn names(&self) -> Result<Vec<String>, StoreError> {
        let prefix = (!self.prefix.as_ref().is_empty()).then_some(&self.prefix);
        let listed = async { self.store.list(prefix).try_collect::<Vec<_>>().await };
        let found = self.runtime.block_on(listed)?;
        let own = |location: &Path| {
            let mut parts = location.prefix_match(&self.prefix)?;
            let name = parts.next()?.as_ref().to_owned();
            parts.next().is_none().then_some(name)
        };
        let mut names: Vec<String> = found.iter().filter_map(|object| own(&object.location)).collect();
        names.sort();
        Ok(names)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::sync::atomic::{AtomicUsize, Ordering};

    use object_store::{local::LocalFileSystem, memory::InMemory};

    use super::*;

    fn each(test: impl Fn(&dyn Fn() -> Bucket)) {
        let memory = Arc::new(InMemory::new());
        test(&|| Bucket::of("memory:///run", memory.clone(), Path::from("run")).unwrap());
        let folder = tempfile::tempdir().unwrap();
        let local = Arc::new(LocalFileSystem::new_with_prefix(folder.path()).unwrap());
        test(&|| Bucket::of("file:///run/", local.clone(), Path::from("run")).unwrap());
    }

    #[test]
    fn what_is_created_stays_and_what_is_written_is_replaced() {
        each(|open| {
            let bucket = open();
            assert_eq!(bucket.names().unwrap(), Vec::<String>::new());
            assert_eq!(bucket.read("a").unwrap(), None);
            assert!(bucket.create("a", b"first".to_vec()).unwrap());
            assert!(!bucket.create("a", b"second".to_vec()).unwrap());
            assert_eq!(bucket.read("a").unwrap(), Some(b"first".to_vec()));
            bucket.write("a", b"third".to_vec()).unwrap();
            bucket.write("deeper/b", b"x".to_vec()).unwrap();
            bucket.write("0", Vec::new()).unwrap();
            assert_eq!(bucket.read("a").unwrap(), Some(b"third".to_vec()));
            assert_eq!(bucket.names().unwrap(), ["0", "a"], "what lies deeper is another folder's");
            assert!(bucket.url_of("a").ends_with("/run/a"));
        });
    }

    /// Sixteen workers write one part: one is first, whoever it is, and its bytes are what everybody reads.
    #[test]
    fn of_those_who_race_for_one_name_one_is_first() {
        each(|open| {
            for round in 0..20 {
                let (name, first) = (format!("part-{round}"), AtomicUsize::new(0));
                std::thread::scope(|scope| {
                    for worker in 0..16_u8 {
                        let (bucket, name, first) = (open(), &name, &first);
                        scope.spawn(move || {
                            let wrote = bucket.create(name, vec![worker; 10_000]).unwrap();
                            first.fetch_add(usize::from(wrote), Ordering::Relaxed);
                            let read = bucket.read(name).unwrap().unwrap();
                            assert!(
                                read.len() == 10_000 && read.iter().all(|byte| *byte == read[0]),
                                "never half of one"
                            );
                            assert!(!wrote || read[0] == worker);
                        });
                    }
                });
                assert_eq!(first.into_inner(), 1);
            }
        });
    }

    /// A server that speaks a store's own protocol: `LOKA_TEST_BUCKET=s3://bucket/prefix`, with its endpoint and
    /// credentials in the environment.
    #[cfg(feature = "cloud")]
    #[test]
    fn a_server_of_ones_own_creates_once() {
        let Some(url) = std::env::var_os("LOKA_TEST_BUCKET").and_then(|url| url.into_string().ok()) else {
            eprintln!("skipped: LOKA_TEST_BUCKET names no store");
            return;
        };
        let name = format!("part-{}", std::process::id());
        let first = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for worker in 0..8_u8 {
                let (url, name, first) = (&url, &name, &first);
                scope.spawn(move || {
                    let bucket = Bucket::open(url).unwrap();
                    first
                        .fetch_add(usize::from(bucket.create(name, vec![worker; 100_000]).unwrap()), Ordering::Relaxed);
                    let read = bucket.read(name).unwrap().unwrap();
                    assert!(read.len() == 100_000 && read.iter().all(|byte| *byte == read[0]));
                });
            }
        });
        assert_eq!(first.into_inner(), 1);
        let bucket = Bucket::open(&url).unwrap();
        assert!(bucket.names().unwrap().contains(&name));
        assert_eq!(bucket.read("none").unwrap(), None);
        bucket.write(&name, b"over".to_vec()).unwrap();
        assert_eq!(bucket.read(&name).unwrap(), Some(b"over".to_vec()));
        let missing = Bucket::open("s3://there-is-no-such-bucket/x").unwrap();
        let line = missing.create("a", Vec::new()).unwrap_err().to_string();
        assert!(!line.contains('\n') && line.len() <= 500, "{line}");
    }

    #[test]
    fn what_is_no_store_is_refused() {
        let line = |url: &str| Bucket::open(url).unwrap_err().to_string();
        assert_eq!(line("nothing"), "not a URL (relative URL without a base)");
        assert!(line("ftp://a/b").starts_with("no store of this kind is known here ("), "{}", line("ftp://a/b"));
    }

    #[test]
    fn a_url_of_a_folder_on_this_machine_is_one() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("file://{}/run", folder.path().display());
        let bucket = Bucket::open(&url).unwrap();
        assert!(bucket.create("a", b"x".to_vec()).unwrap());
        assert_eq!(std::fs::read(folder.path().join("run/a")).unwrap(), b"x");
        // And the URL of one file.
        assert_eq!(Bucket::open(&format!("{url}/a")).unwrap().read("").unwrap(), Some(b"x".to_vec()));
    }
}
