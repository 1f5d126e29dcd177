//! What is taken up again, what is set aside, and who may have a journal.

use std::path::Path;

use super::*;
use crate::{
    dispatch::testing::{results, row},
    model::{Gemm, KernelId, SiteId},
    session::{
        Command, Event, OpenedTrace,
        shared::{Author, By, Ordered, Taken},
    },
};

const DIGEST: &str = "00ff";

fn by(number: u64) -> By {
    By::numbered(Author::new(u64::MAX, "Anna"), number)
}

/// A session and its journal, told the same things.
struct Kept {
    ordered: Ordered,
    journal: Journal,
}

impl Kept {
    fn open(path: &Path) -> (Self, Option<u64>) {
        let (journal, restored, told) = Journal::open(path, DIGEST).unwrap();
        assert_eq!(told, None);
        let num = restored.as_ref().map(|restored| restored.num_commands);
        (Self { ordered: restored.map(|restored| restored.ordered).unwrap_or_default(), journal }, num)
    }

    fn event(&mut self, event: Event) {
        self.journal.event(&event);
        self.ordered.event(event);
        self.whole();
    }

    fn command(&mut self, number: u64, command: &Command) {
        let done = self.ordered.command(by(number), command.clone());
        assert!(matches!(done, Ok(Taken::Done(..))), "{done:?}");
        self.journal.command(&by(number), command);
        self.whole();
    }

    fn whole(&mut self) {
        if self.journal.wants_checkpoint() {
            self.journal.checkpoint(self.ordered.save());
        }
    }
}

fn opened() -> Event {
    let meta = results(&["a", "b"], Vec::new()).meta;
    Event::TraceOpened { trace: Box::new(OpenedTrace { path: "t".to_owned(), name: "t".to_owned(), meta }) }
}

fn rows() -> Event {
    let rows = vec![
        row("a", Gemm::Fprop, "cublaslt/bf16", 0.1, Some(1.0), 0.0),
        row("a", Gemm::Fprop, "te/current", f64::INFINITY, Some(1.3), 0.0),
    ];
    Event::ResultsOpened { path: "r".to_owned(), results: Box::new(results(&["a", "b"], rows)) }
}

fn override_a() -> Command {
    let (site, kernel) = (SiteId::new("a"), KernelId::new("te/current"));
    Command::SetOverride { site, gemm: Gemm::Fprop, kernel, reason: "it is fast".to_owned() }
}

#[test]
fn what_was_decided_and_found_is_there_again_and_can_be_undone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.journal.sqlite");
    let (mut first, restored) = Kept::open(&path);
    assert_eq!(restored, None);
    first.event(opened());
    first.event(rows());
    first.command(1, &Command::SetMaxError { value: 0.1 + 0.2, gesture: Some(1) });
    first.command(2, &override_a());
    first.command(3, &Command::Undo);
    let digest = first.ordered.save().digest();
    drop(first);
    let (mut second, restored) = Kept::open(&path);
    assert_eq!(restored, Some(3));
    assert_eq!(second.ordered.save().digest(), digest);
    assert_eq!(second.ordered.heard(by(0).author.key), 3);
    second.command(4, &Command::Redo);
    assert_eq!(second.ordered.session.document.overrides.len(), 1);
    second.command(5, &Command::Undo);
    second.command(6, &Command::Undo);
    assert!(!second.ordered.session.can_undo());
}

#[test]
fn only_what_changed_is_written_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.journal.sqlite");
    let (mut kept, _) = Kept::open(&path);
    kept.event(opened());
    kept.event(rows());
    let digest = kept.ordered.save().digest();
    kept.journal.checkpoint(kept.ordered.save());
    drop(kept);
    let file = rusqlite::Connection::open(&path).unwrap();
    let count = |table: &str| -> i64 {
        file.query_row(&format!("SELECT COUNT(*) FROM {table}"), [], |row| row.get(0)).unwrap()
    };
    // Results come with a checkpoint; the second found nothing to write.
    assert_eq!((count("shares"), count("events"), count("head")), (2, 0, 1));
    drop(file);
    assert_eq!(Kept::open(&path).0.ordered.save().digest(), digest);
}

#[test]
fn one_process_has_it_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.journal.sqlite");
    let (kept, _) = Kept::open(&path);
    let refused = Journal::open(&path, DIGEST).err().map(|error| error.to_string()).unwrap();
    assert!(refused.starts_with("another LoKA has this trace open") && !refused.contains('\n'), "{refused}");
    drop(kept);
    assert!(Journal::open(&path, DIGEST).is_ok());
}

#[test]
fn what_cannot_be_taken_up_is_set_aside() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.journal.sqlite");
    let (mut kept, _) = Kept::open(&path);
    kept.event(opened());
    drop(kept);
    let (journal, restored, told) = Journal::open(&path, "of another trace").unwrap();
    assert!(restored.is_none() && told.is_some_and(|told| told.contains("old-1")));
    drop(journal);
    std::fs::write(&path, b"not a database at all, but long enough to look like one").unwrap();
    let (journal, restored, told) = Journal::open(&path, DIGEST).unwrap();
    assert!(restored.is_none() && told.is_some_and(|told| told.contains("old-2")));
    drop(journal);
    let cut = rusqlite::Connection::open(&path).unwrap();
    cut.execute("INSERT INTO head VALUES (1, 1, x'0102')", []).unwrap();
    cut.execute("INSERT OR REPLACE INTO about VALUES ('trace_digest', ?1)", [DIGEST]).unwrap();
    drop(cut);
    let told = Journal::open(&path, DIGEST).unwrap().2.unwrap();
    assert!(told.contains("its checkpoint cannot be read") && told.contains("old-3"), "{told}");
    assert!(folder.path().join("t.journal.sqlite.old-1").exists());
}

#[test]
fn a_folder_that_cannot_be_written_is_one_line() {
    let nowhere = Path::new("/nowhere at all/t.journal.sqlite");
    let line = Journal::open(nowhere, DIGEST).err().map(|error| error.to_string()).unwrap();
    assert_eq!(line, "it cannot be opened or made: /nowhere at all/t.journal.sqlite");
}

#[test]
fn it_lies_beside_its_trace() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(beside(Path::new("a/m.trace.safetensors")), Path::new("a/m.journal.sqlite"));
    assert_eq!(beside(folder.path()), folder.path().join("trace.journal.sqlite"));
}
