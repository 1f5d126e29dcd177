//! Looks after one file on a thread of its own while it is open: takes a path, tells when the file changed and
//! is quiet again, and when it is gone. A file that is being written is not told before it rests, so that nobody
//! reads half of it.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use loka_core::session::FileChange;

const EVERY: Duration = Duration::from_secs(1);

/// A file's size and time; `None`: it is not there.
type FileSeen = Option<(u64, Option<SystemTime>)>;

/// Watches until it is dropped.
pub(super) struct Watch {
    over: Arc<(Mutex<bool>, Condvar)>,
}

impl Watch {
    /// `tell` is called from the thread. Without a thread nothing is watched, and nothing else suffers.
    pub fn start(path: PathBuf, tell: impl Fn(FileChange) + Send + 'static) -> std::io::Result<Self> {
        let over = Arc::new((Mutex::new(false), Condvar::new()));
        let of_thread = over.clone();
        // What is there now is what was read.
        let mut eye = Eye::new(look(&path));
        std::thread::Builder::new().name("loka-watch".to_owned()).spawn(move || {
            while !is_over(&of_thread) {
                if let Some(change) = eye.see(look(&path)) {
                    tell(change);
                }
            }
        })?;
        Ok(Self { over })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        *self.over.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.over.1.notify_one();
    }
}

/// Sleeps until the next look, or the end.
fn is_over(over: &(Mutex<bool>, Condvar)) -> bool {
    let ended = over.0.lock().unwrap_or_else(PoisonError::into_inner);
    if *ended {
        return true;
    }
    let waited = over.1.wait_timeout(ended, EVERY).unwrap_or_else(PoisonError::into_inner);
    *waited.0
}

fn look(path: &Path) -> FileSeen {
    let about = std::fs::metadata(path).ok()?;
    Some((about.len(), about.modified().ok()))
}

/// What was told, and what was seen last.
struct Eye {
    told: FileSeen,
    last: FileSeen,
}

impl Eye {
    fn new(now: FileSeen) -> Self {
        Self { told: now, last: now }
    }

    /// A change counts once two looks agree.
    fn see(&mut self, now: FileSeen) -> Option<FileChange> {
        let rests = std::mem::replace(&mut self.last, now) == now;
        if !rests || now == self.told {
            return None;
        }
        self.told = now;
        Some(if now.is_some() { FileChange::Changed } else { FileChange::Gone })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_growing_file_is_told_when_it_rests() {
        let size = |size| Some((size, None));
        let mut eye = Eye::new(size(10));
        assert_eq!(eye.see(size(10)), None);
        assert_eq!(eye.see(size(20)), None, "it still grows");
        assert_eq!(eye.see(size(30)), None, "it still grows");
        assert_eq!(eye.see(size(30)), Some(FileChange::Changed));
        assert_eq!(eye.see(size(30)), None, "once");
    }

    #[test]
    fn a_replaced_file_is_not_gone() {
        let mut eye = Eye::new(Some((10, None)));
        assert_eq!(eye.see(None), None, "between the two");
        assert_eq!(eye.see(Some((12, None))), None);
        assert_eq!(eye.see(Some((12, None))), Some(FileChange::Changed));
        assert_eq!((eye.see(None), eye.see(None)), (None, Some(FileChange::Gone)));
    }

    #[test]
    fn a_file_on_disk_is_seen_to_go() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.parquet");
        std::fs::write(&path, "rows").unwrap();
        let (told, hears) = std::sync::mpsc::channel();
        let _watch = Watch::start(path.clone(), move |change| told.send(change).unwrap_or(())).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(hears.recv_timeout(Duration::from_secs(20)), Ok(FileChange::Gone));
    }
}
