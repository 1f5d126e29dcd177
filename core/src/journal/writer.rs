//! The thread that writes: takes inputs as they are applied, commits them in groups, so that neither a frame nor
//! an engine waits for a disk. Whoever promised something to others waits for [`Journal::flush`].
//!
//! What cannot be written (a full disk, mostly) waits in memory and is tried again every few seconds; meanwhile
//! [`Journal::problem`] says why.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use super::{
    JournalError, Restored,
    file::{File, JournalEntry},
    restore::restore,
};
use crate::{
    runtime::Journaling,
    session::{Command, Event, SavedSession, shared::CommandContext},
};

/// Bytes of events after which a checkpoint is due: replaying more takes longer than reading the checkpoint.
const CHECKPOINT_BYTES: usize = 16 << 20;

/// How long what could not be written waits before it is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(2);

/// Tells whoever keeps the journal that [`Journaling::problem`] changed.
pub type Wake = Arc<dyn Fn() + Send + Sync>;

enum WriterAsk {
    Write(JournalEntry),
    /// Answered when everything before it is committed, or cannot be for now.
    Flush(Sender<()>),
}

/// What the thread says.
struct WriterState {
    /// Why nothing can be written for now.
    problem: Mutex<Option<String>>,
    /// Too much waits to be written: a checkpoint would take the place of most of it.
    crowded: AtomicBool,
    wake: Wake,
}

/// A journal that is kept. Dropping it writes what is left.
pub struct Journal {
    path: PathBuf,
    sender: Option<Sender<WriterAsk>>,
    thread: Option<JoinHandle<()>>,
    shared: Arc<WriterState>,
    /// Of events since the last checkpoint.
    bytes: usize,
    /// The session changed as a whole: it is written whole.
    due: bool,
}

impl Journal {
    /// Opens the journal at `path` for the trace with that stamp and digest; of a new one the digest may come later,
    /// with the session. What is there and cannot be taken up is set aside, not lost: the line says where and why.
    pub fn open(
        path: &Path,
        (stamp, digest): (&str, &str),
        wake: Wake,
    ) -> Result<(Self, Option<Restored>, Option<String>), JournalError> {
        let (mut file, restored, told) = match take_up(path, stamp, digest)? {
            Ok((file, restored)) => (file, restored, None),
            Err(reason) => {
                let aside = set_aside(path)?;
                let told = format!("The journal was set aside, {reason}: {}", aside.display());
                (File::open(path)?, None, Some(told))
            }
        };
        if !file.has_chain() {
            file.begin(stamp)?;
        }
        let shared = Arc::new(WriterState { problem: Mutex::default(), crowded: AtomicBool::new(false), wake });
        let (sender, receiver) = channel();
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("loka-journal".to_owned());
        let thread = thread
            .spawn(move || Writing { file, entries: Vec::new(), failed: None, shared: of_thread }.run(&receiver))
            .map_err(|error| JournalError::Storage {
                reason: format!("no thread could be started ({error})"),
                path: path.to_owned(),
            })?;
        // What was kept before the digest was known goes on with it.
        let due = restored.as_ref().is_none_or(|restored| restored.lacks_digest);
        let (sender, thread) = (Some(sender), Some(thread));
        Ok((Self { path: path.to_owned(), sender, thread, shared, bytes: 0, due }, restored, told))
    }

    /// What an earlier process left in the journal at `path`, which is kept no further and not set aside; `None`: nothing
    /// yet. The inner error: it is of no use, and why.
    pub fn left_at(
        path: &Path,
        (stamp, digest): (&str, &str),
    ) -> Result<Result<Option<Restored>, String>, JournalError> {
        Ok(take_up(path, stamp, digest)?.map(|(_, restored)| restored))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    fn send(&self, entry: JournalEntry) {
        if let Some(sender) = &self.sender {
            // A closed channel: the thread is gone, and said why.
            drop(sender.send(WriterAsk::Write(entry)));
        }
    }
}

impl Journaling for Journal {
    fn command(&mut self, by: &CommandContext, command: &Command) {
        if command.is_per_window() {
            return;
        }
        // Plain data without odd keys has JSON.
        let json = serde_json::to_string(command).unwrap_or_default();
        self.send(JournalEntry::Command { by: by.clone(), json });
    }

    fn event(&mut self, event: &Event) {
        if event.is_transient() {
            return;
        }
        match event {
            // As large as the whole session: it is written as that.
            Event::TraceOpened { .. } | Event::ResultsOpened { .. } | Event::ResultsCompared { .. } => {
                return self.due = true;
            }
            // What was probed is complete, and changes no more; whose digest it is goes with a checkpoint.
            Event::ProbeFinished { .. } | Event::TraceDigest { .. } => self.due = true,
            _ => {}
        }
        let Ok(bytes) = postcard::to_allocvec(event) else { return };
        self.bytes += bytes.len();
        self.send(JournalEntry::Event(bytes));
    }

    fn wants_checkpoint(&self) -> bool {
        self.due || self.bytes > CHECKPOINT_BYTES || self.shared.crowded.load(Ordering::Relaxed)
    }

    fn checkpoint(&mut self, saved: SavedSession) {
        (self.bytes, self.due) = (0, false);
        self.shared.crowded.store(false, Ordering::Relaxed);
        self.send(JournalEntry::Checkpoint(Box::new(saved)));
    }

    /// Returns when everything so far is on its way to the disk for good, or cannot be for now.
    fn flush(&self) {
        let (sender, answer) = channel();
        if self.sender.as_ref().is_some_and(|to| to.send(WriterAsk::Flush(sender)).is_ok()) {
            // A closed channel: the thread is gone, and said why.
            _ = answer.recv();
        }
    }

    fn problem(&self) -> Option<String> {
        self.shared.problem.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.sender = None;
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// The thread.
struct Writing {
    file: File,
    /// What is not written yet.
    entries: Vec<JournalEntry>,
    /// When it could not be, last.
    failed: Option<Instant>,
    shared: Arc<WriterState>,
}

impl Writing {
    fn run(mut self, receiver: &Receiver<WriterAsk>) {
        loop {
            let first = match self.failed {
                None => receiver.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(at) => receiver.recv_timeout(RETRY_AFTER.saturating_sub(at.elapsed())),
            };
            let mut waiting = Vec::new();
            match first {
                Ok(first) => {
                    for ask in std::iter::once(first).chain(receiver.try_iter()) {
                        match ask {
                            WriterAsk::Write(entry) => self.take(entry),
                            WriterAsk::Flush(answer) => waiting.push(answer),
                        }
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                // The journal is let go of: once more, then whatever is left is lost.
                Err(RecvTimeoutError::Disconnected) => return self.write(),
            }
            if self.failed.is_none_or(|at| at.elapsed() >= RETRY_AFTER) {
                self.write();
            }
            // Whoever waited may be gone.
            waiting.into_iter().for_each(|answer| _ = answer.send(()));
        }
    }

    fn take(&mut self, entry: JournalEntry) {
        if self.failed.is_some() && matches!(entry, JournalEntry::Checkpoint(_)) {
            // It holds what they did. Commands stay: each is an entry for good.
            self.entries.retain(|entry| matches!(entry, JournalEntry::Command { .. }));
        }
        self.entries.push(entry);
        if self.failed.is_some() {
            let bytes: usize = self.entries.iter().map(JournalEntry::event_bytes).sum();
            self.shared.crowded.store(bytes > CHECKPOINT_BYTES, Ordering::Relaxed);
        }
    }

    fn write(&mut self) {
        let wrote = if self.entries.is_empty() { Ok(()) } else { self.file.write(&self.entries) };
        if wrote.is_ok() {
            self.entries.clear();
        }
        let was = self.failed.is_some();
        self.failed = wrote.is_err().then(Instant::now);
        *self.shared.problem.lock().unwrap_or_else(PoisonError::into_inner) =
            wrote.err().map(|error| error.to_string());
        if was != self.failed.is_some() {
            (self.shared.wake)();
        }
    }
}

/// The inner error: what is there is of no use.
fn take_up(path: &Path, stamp: &str, digest: &str) -> Result<Result<(File, Option<Restored>), String>, JournalError> {
    let mut file = match File::open(path) {
        Err(JournalError::Broken(_)) => return Ok(Err("it is none, or a broken one".to_owned())),
        opened => opened?,
    };
    let restored = restore(&mut file, stamp, digest);
    Ok(restored.map(|restored| (file, restored)))
}

/// Renames the file and what SQLite keeps beside it; gives where it is now.
fn set_aside(path: &Path) -> Result<PathBuf, JournalError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let free = (1..1000).map(|number| path.with_file_name(format!("{name}.old-{number}"))).find(|path| !path.exists());
    let aside = free.unwrap_or_else(|| path.with_file_name(format!("{name}.old")));
    let failed = |error: std::io::Error| JournalError::Storage { reason: error.to_string(), path: path.to_owned() };
    for end in ["-wal", "-shm"] {
        let beside = path.with_file_name(format!("{name}{end}"));
        if beside.exists() {
            let mut to = aside.clone().into_os_string();
            to.push(end);
            std::fs::rename(&beside, to).map_err(failed)?;
        }
    }
    std::fs::rename(path, &aside).map_err(failed)?;
    Ok(aside)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{journal::Trail, session::shared::Author};

    fn command(number: u64) -> JournalEntry {
        let json = serde_json::to_string(&Command::SetMaxError { value: number as f64, gesture: None }).unwrap();
        JournalEntry::Command { by: CommandContext::numbered(Author::new(7, "Anna"), number), json }
    }

    #[test]
    fn who_only_looks_leaves_a_journal_to_others() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.journal.sqlite");
        let wake: Wake = Arc::new(|| {});
        let (mut journal, ..) = Journal::open(&path, ("stamp", ""), wake.clone()).unwrap();
        assert!(matches!(Journal::left_at(&path, ("stamp", "")), Err(JournalError::InUse(_))));
        journal.checkpoint(SavedSession::default());
        drop(journal);
        let before = std::fs::read_dir(folder.path()).unwrap().count();
        assert!(Journal::left_at(&path, ("stamp", "")).unwrap().unwrap().is_some());
        assert!(Journal::left_at(&path, ("another", "")).unwrap().is_err_and(|why| why.contains("not the one")));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), before, "nothing is set aside");
        assert!(Journal::open(&path, ("stamp", ""), wake).is_ok(), "it is free");
    }

    #[test]
    fn what_a_full_disk_did_not_take_waits_and_is_written_when_there_is_room() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.journal.sqlite");
        let mut file = File::open(&path).unwrap();
        file.begin("stamp").unwrap();
        let pages: i64 = file.connection.pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
        let limit = |file: &File, pages: i64| {
            file.connection.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(())).unwrap();
        };
        limit(&file, pages);
        let problem = Mutex::default();
        let shared = Arc::new(WriterState { problem, crowded: AtomicBool::new(false), wake: Arc::new(|| {}) });
        let mut writing = Writing { file, entries: Vec::new(), failed: None, shared };
        let problem = |writing: &Writing| writing.shared.problem.lock().unwrap().clone();
        (1..=50).for_each(|number| writing.take(command(number)));
        writing.write();
        let line = problem(&writing).unwrap();
        assert!(line.starts_with("the disk is full: "), "{line}");
        // Rows that come meanwhile are more than may wait: a checkpoint is asked for, and takes their place.
        writing.take(JournalEntry::Event(vec![0; CHECKPOINT_BYTES]));
        assert!(!writing.shared.crowded.load(Ordering::Relaxed));
        writing.take(JournalEntry::Event(vec![0]));
        assert!(writing.shared.crowded.load(Ordering::Relaxed));
        writing.take(JournalEntry::Checkpoint(Box::default()));
        assert_eq!(writing.entries.len(), 51);
        writing.take(command(51));
        writing.write();
        assert!(problem(&writing).is_some());
        limit(&writing.file, 1 << 20);
        writing.write();
        assert_eq!(problem(&writing), None);
        assert!(writing.entries.is_empty());
        drop(writing);
        let trail = Trail::read(&path).unwrap().unwrap();
        let numbers: Vec<u64> = trail.entries.iter().map(|entry| entry.number).collect();
        assert_eq!(numbers, (1..=51).collect::<Vec<_>>(), "none twice, none lost");
    }
}
