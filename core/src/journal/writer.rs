//! The thread that writes: takes inputs as they are applied, commits them in groups, so that neither a frame nor
//! an engine waits for a disk. Whoever promised something to others waits for [`Journal::flush`].

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, Sender, channel},
    },
    thread::JoinHandle,
};

use super::{
    JournalError, Restored,
    file::{File, JournalEntry},
    restore::restore,
};
use crate::{
    runtime::Journaling,
    session::{Command, Event, Saved, shared::By},
};

/// Bytes of events after which a checkpoint is due: replaying more takes longer than reading the checkpoint.
const CHECKPOINT_BYTES: usize = 16 << 20;

enum WriterAsk {
    Write(JournalEntry),
    /// Answered when everything before it is committed.
    Flush(Sender<()>),
}

/// A journal that is kept. Dropping it writes what is left.
pub struct Journal {
    path: PathBuf,
    sender: Option<Sender<WriterAsk>>,
    thread: Option<JoinHandle<()>>,
    /// Why nothing is written any longer, until it is told.
    problem: Arc<Mutex<Option<String>>>,
    /// Of events since the last checkpoint.
    bytes: usize,
    /// The session changed as a whole: it is written whole.
    due: bool,
}

impl Journal {
    /// Opens the journal at `path` for the trace with that digest. What is there and cannot be taken up is set
    /// aside, not lost: the second line says where and why.
    pub fn open(path: &Path, digest: &str) -> Result<(Self, Option<Restored>, Option<String>), JournalError> {
        let (mut file, restored, told) = match take_up(path, digest)? {
            Ok((file, restored)) => (file, restored, None),
            Err(reason) => {
                let aside = set_aside(path)?;
                let told = format!("The journal was set aside, {reason}: {}", aside.display());
                (File::open(path)?, None, Some(told))
            }
        };
        if file.chain.is_none() {
            file.begin(digest)?;
        }
        let problem = Arc::default();
        let (sender, receiver) = channel();
        let told_by = Arc::clone(&problem);
        let thread = std::thread::Builder::new().name("loka-journal".to_owned());
        let thread = thread.spawn(move || work(file, &receiver, &told_by)).map_err(|error| JournalError::Storage {
            reason: format!("no thread could be started ({error})"),
            path: path.to_owned(),
        })?;
        let due = restored.is_none();
        let (sender, thread) = (Some(sender), Some(thread));
        Ok((Self { path: path.to_owned(), sender, thread, problem, bytes: 0, due }, restored, told))
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
    fn command(&mut self, by: &By, command: &Command) {
        if command.is_private() {
            return;
        }
        // Plain data without odd keys has JSON.
        let json = serde_json::to_string(command).unwrap_or_default();
        self.send(JournalEntry::Command { by: by.clone(), json });
    }

    fn event(&mut self, event: &Event) {
        if event.is_passing() {
            return;
        }
        match event {
            // As large as the whole session: it is written as that.
            Event::TraceOpened { .. } | Event::ResultsOpened { .. } | Event::ResultsCompared { .. } => {
                return self.due = true;
            }
            // What was probed is complete, and changes no more.
            Event::ProbeFinished { .. } => self.due = true,
            _ => {}
        }
        let Ok(bytes) = postcard::to_allocvec(event) else { return };
        self.bytes += bytes.len();
        self.send(JournalEntry::Event(bytes));
    }

    fn wants_checkpoint(&self) -> bool {
        self.due || self.bytes > CHECKPOINT_BYTES
    }

    fn checkpoint(&mut self, saved: Saved) {
        (self.bytes, self.due) = (0, false);
        self.send(JournalEntry::Checkpoint(Box::new(saved)));
    }

    /// Returns when everything so far is on its way to the disk for good, or cannot be.
    fn flush(&self) {
        let (sender, answer) = channel();
        if self.sender.as_ref().is_some_and(|to| to.send(WriterAsk::Flush(sender)).is_ok()) {
            // A closed channel: the thread is gone, and said why.
            _ = answer.recv();
        }
    }

    fn take_problem(&self) -> Option<String> {
        self.problem.lock().unwrap_or_else(PoisonError::into_inner).take()
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

fn work(mut file: File, receiver: &Receiver<WriterAsk>, problem: &Mutex<Option<String>>) {
    while let Ok(first) = receiver.recv() {
        let (mut entries, mut waiting) = (Vec::new(), Vec::new());
        for ask in std::iter::once(first).chain(receiver.try_iter()) {
            match ask {
                WriterAsk::Write(entry) => entries.push(entry),
                WriterAsk::Flush(answer) => waiting.push(answer),
            }
        }
        let wrote = if entries.is_empty() { Ok(()) } else { file.write(entries) };
        if let Err(error) = wrote {
            // What comes after a gap could not be replayed: it ends here, with what was committed.
            let line = format!("Changes are no longer kept: {error}");
            *problem.lock().unwrap_or_else(PoisonError::into_inner) = Some(line);
            return;
        }
        // Whoever waited may be gone.
        waiting.into_iter().for_each(|answer| _ = answer.send(()));
    }
}

/// The inner error: what is there is of no use.
fn take_up(path: &Path, digest: &str) -> Result<Result<(File, Option<Restored>), String>, JournalError> {
    let mut file = match File::open(path) {
        Err(JournalError::Broken(_)) => return Ok(Err("it is none, or a broken one".to_owned())),
        opened => opened?,
    };
    let restored = restore(&mut file, digest);
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
