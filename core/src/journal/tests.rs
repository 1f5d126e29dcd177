//! What is taken up again, what is set aside, and who may have a journal.

use std::{path::Path, sync::Arc};

use rusqlite::params;

use super::*;
use crate::{
    dispatch::testing::{results, row},
    model::{Gemm, KernelId, SiteId},
    runtime::Journaling,
    session::{
        Command, Event,
        shared::{Author, CommandContext, CommandOutcome, SequencedSession},
    },
    views::OpenedTrace,
};

const DIGEST: &str = "sha256:00";

/// A trace's stamp goes by its digest here.
fn open(path: &Path, digest: &str) -> Result<(Journal, Option<Restored>, Option<String>), JournalError> {
    Journal::open(path, (&format!("stamp of {digest}"), digest), Arc::new(|| {}))
}

fn by(number: u64) -> CommandContext {
    CommandContext::numbered(Author::new(u64::MAX, "Anna"), number)
}

/// A session and its journal, told the same things.
struct Kept {
    ordered: SequencedSession,
    journal: Journal,
}

impl Kept {
    fn open(path: &Path) -> (Self, Option<u64>) {
        let (journal, restored, told) = open(path, DIGEST).unwrap();
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
        assert!(matches!(done, Ok(CommandOutcome::Done(..))), "{done:?}");
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
    Event::ResultsOpened { path: "r".to_owned(), results: Box::new(results(&["a", "b"], rows).into()) }
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
    let refused = open(&path, DIGEST).err().map(|error| error.to_string()).unwrap();
    assert!(refused.starts_with("another LoKA has this trace open") && !refused.contains('\n'), "{refused}");
    drop(kept);
    assert!(open(&path, DIGEST).is_ok());
}

#[test]
fn what_cannot_be_taken_up_is_set_aside() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.journal.sqlite");
    let (mut kept, _) = Kept::open(&path);
    kept.event(opened());
    drop(kept);
    let (journal, restored, told) = open(&path, "of another trace").unwrap();
    assert!(restored.is_none() && told.is_some_and(|told| told.contains("old-1")));
    drop(journal);
    std::fs::write(&path, b"not a database at all, but long enough to look like one").unwrap();
    let (journal, restored, told) = open(&path, DIGEST).unwrap();
    assert!(restored.is_none() && told.is_some_and(|told| told.contains("old-2")));
    drop(journal);
    let cut = rusqlite::Connection::open(&path).unwrap();
    let sealed = state::checkpoint(1, DIGEST, &[1, 2], std::iter::empty());
    cut.execute("INSERT INTO head VALUES (1, 1, ?1, x'0102', ?2)", params![DIGEST, sealed.bytes()]).unwrap();
    cut.execute("UPDATE about SET value = ?1 WHERE key = 'state'", [sealed.to_string()]).unwrap();
    drop(cut);
    let told = open(&path, DIGEST).unwrap().2.unwrap();
    assert!(told.contains("its checkpoint cannot be read") && told.contains("old-3"), "{told}");
    assert!(folder.path().join("t.journal.sqlite.old-1").exists());
}

/// A journal of five commands; the numbers of their entries.
fn five(path: &Path) -> Vec<i64> {
    let (mut kept, _) = Kept::open(path);
    kept.event(opened());
    kept.event(rows());
    for number in 1..=5 {
        kept.command(number, &Command::SetMaxError { value: number as f64 / 10.0, gesture: None });
    }
    drop(kept);
    Trail::read(path).unwrap().unwrap().entries.iter().map(|entry| entry.seq.cast_signed()).collect()
}

/// As somebody who has the file and SQLite does it.
fn tampered(path: &Path, sql: &str) {
    let file = rusqlite::Connection::open(path).unwrap();
    let triggers = "DROP TRIGGER commands_stay; DROP TRIGGER commands_are_kept; DROP TRIGGER commands_follow;";
    file.execute_batch(triggers).unwrap();
    file.execute_batch(sql).unwrap();
}

#[test]
fn whatever_is_done_to_an_entry_is_noticed_and_named_and_not_taken_up() {
    let swap = "UPDATE commands SET seq = -1 WHERE seq = {1}; UPDATE commands SET seq = {1} WHERE seq = {3};
                UPDATE commands SET seq = {3} WHERE seq = -1";
    let put_in = "INSERT INTO commands SELECT {new}, at_ms, author_key, 'Eve', role, number, seen, command, state,
                  hash FROM commands WHERE seq = {4}";
    // {0} to {4}: the numbers of the entries, {new}: the next.
    let cases = [
        ("UPDATE commands SET command = replace(command, '3', '9') WHERE seq = {2}", "entry {2} was changed"),
        ("UPDATE commands SET author = 'Eve' WHERE seq = {0}", "entry {0} was changed"),
        ("UPDATE commands SET at_ms = at_ms + 1 WHERE seq = {4}", "entry {4} was changed"),
        ("UPDATE commands SET hash = x'00' WHERE seq = {1}", "entry {1} was changed"),
        ("DELETE FROM commands WHERE seq = {2}", "1 entry was cut out before entry {3}"),
        ("DELETE FROM commands WHERE seq >= {3}", "2 entries were cut off at its end, after entry {2}"),
        (swap, "entry {1} was swapped with entry {3}"),
        (put_in, "1 entry was put in, from entry {new} on"),
        ("UPDATE about SET value = 'aa' WHERE key = 'id'", "entry {0} was changed"),
        ("DELETE FROM about", "what journal it is was taken out of it"),
    ];
    for (edit, line) in cases {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.journal.sqlite");
        let at = five(&path);
        let filled = |text: &str| {
            let named = at.iter().enumerate().map(|(number, seq)| (format!("{{{number}}}"), *seq));
            let new = std::iter::once(("{new}".to_owned(), at[4] + 1));
            named.chain(new).fold(text.to_owned(), |text, (name, seq)| text.replace(&name, &seq.to_string()))
        };
        tampered(&path, &filled(edit));
        let line = filled(line);
        let found = Trail::read(&path).unwrap().unwrap_err().to_string();
        assert!(found.starts_with(&line), "{edit}: {found}, not {line}");
        let (_, restored, told) = open(&path, DIGEST).unwrap();
        let told = told.unwrap();
        assert!(restored.is_none(), "{edit}");
        assert!(told.starts_with(&format!("The journal was set aside, its trail is broken ({line}")), "{told}");
        assert!(told.ends_with("t.journal.sqlite.old-1") && !told.contains('\n'), "{told}");
        assert!(Trail::read(&path).unwrap().unwrap().entries.is_empty(), "a new one is begun");
    }
}

#[test]
fn a_line_put_in_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.journal.sqlite");
    let at = five(&path);
    let last = at[4] + 1;
    let trail = Trail::read(&path).unwrap().unwrap();
    let hash = trail.head();
    // With a hash that follows, which anybody can make: the count tells.
    let made = chain::Line {
        seq: last,
        at_ms: 0,
        author_key: 1,
        author: "Eve".to_owned(),
        role: "owner".to_owned(),
        number: 1,
        seen: 0,
        command: "\"undo\"".to_owned(),
        state: chain::Link::first("", ""),
    };
    let hex = |link: Link| link.to_string().replace("sha256:", "");
    let (state, hash) = (hex(made.state), hex(hash.next(&made)));
    let values =
        format!("INSERT INTO commands VALUES ({last}, 0, 1, 'Eve', 'owner', 1, 0, '\"undo\"', x'{state}', x'{hash}')");
    tampered(&path, &values);
    let found = Trail::read(&path).unwrap().unwrap_err();
    assert_eq!(found, Break::Inserted { at: last, num: 1 });
}

#[test]
fn a_chain_made_anew_is_noticed_by_a_head_that_was_noted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.journal.sqlite");
    five(&path);
    let noted = Trail::read(&path).unwrap().unwrap();
    let (mut kept, _) = Kept::open(&path);
    kept.command(6, &Command::Undo);
    drop(kept);
    let grown = Trail::read(&path).unwrap().unwrap();
    assert!(grown.has(noted.head()) && grown.has(noted.first) && grown.head() != noted.head());
    assert_eq!(grown.entries.len(), 6);
    std::fs::remove_file(&path).unwrap();
    five(&path);
    let other = Trail::read(&path).unwrap().unwrap();
    assert_eq!(other.entries.len(), 5);
    assert!(!other.has(noted.head()), "the same again, and another journal");
}

#[test]
fn sqlite_itself_refuses_to_change_what_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.journal.sqlite");
    five(&path);
    let file = rusqlite::Connection::open(&path).unwrap();
    let again = "INSERT OR REPLACE INTO commands SELECT * FROM commands WHERE seq = (SELECT MIN(seq) FROM commands)";
    for sql in ["UPDATE commands SET author = 'Eve'", "DELETE FROM commands", again] {
        let error = file.execute(sql, []).unwrap_err().to_string();
        assert_eq!(error, "a journal only grows", "{sql}");
    }
}

#[test]
fn a_trail_is_read_while_its_journal_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.journal.sqlite");
    let (mut kept, _) = Kept::open(&path);
    kept.event(opened());
    kept.command(1, &Command::SetMaxError { value: 0.3, gesture: None });
    kept.journal.flush();
    // Gives up this process's lock, as another's reading would not: nothing else is done with it here.
    let trail = Trail::read(&path).unwrap().unwrap();
    assert_eq!(trail.trace_digest, DIGEST);
    let entry = &trail.entries[0];
    assert_eq!((entry.author.as_str(), entry.role.as_str(), entry.author_key), ("Anna", "owner", u64::MAX));
    assert_eq!(crate::session::said(&entry.asked().unwrap()), "set max error to .3");
    let copies = std::fs::read_dir(folder.path()).unwrap().count();
    assert!(copies <= 3, "the file and what SQLite keeps beside it");
}

#[test]
fn what_is_no_journal_has_no_trail() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.journal.sqlite");
    let refused = |path: &Path| Trail::read(path).unwrap_err().to_string();
    assert!(refused(&path).starts_with("no such file or folder: "));
    for text in ["", "x", "not a database at all, but long enough to look like one"] {
        std::fs::write(&path, text).unwrap();
        assert!(refused(&path).starts_with("it is no journal, or a broken one: "), "{text}");
    }
    std::fs::write(&path, [b"SQLite format 3\0".as_slice(), &[7; 4096]].concat()).unwrap();
    assert!(!refused(&path).contains('\n'));
    std::fs::remove_file(&path).unwrap();
    rusqlite::Connection::open(&path).unwrap().execute_batch("CREATE TABLE commands (seq INTEGER)").unwrap();
    assert!(refused(&path).starts_with("it is no journal, or one of an earlier LoKA"), "{}", refused(&path));
    let (_, restored, told) = open(&path, DIGEST).unwrap();
    assert!(restored.is_none() && told.unwrap().contains("another version of LoKA"));
}

#[test]
fn a_folder_that_cannot_be_written_is_one_line() {
    let nowhere = Path::new("/nowhere at all/t.journal.sqlite");
    let line = open(nowhere, DIGEST).err().map(|error| error.to_string()).unwrap();
    assert_eq!(line, "it cannot be opened or made: /nowhere at all/t.journal.sqlite");
}

#[test]
fn it_lies_beside_its_trace() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(beside(Path::new("a/m.trace.safetensors")), Path::new("a/m.journal.sqlite"));
    assert_eq!(beside(folder.path()), folder.path().join("trace.journal.sqlite"));
}

/// Events of a probe after the last checkpoint, and commands between them.
fn eventful(path: &Path) {
    let (mut kept, _) = Kept::open(path);
    kept.event(opened());
    kept.event(rows());
    let notice = |text: &str| Event::Notice { kind: crate::session::NoticeKind::Info, message: text.to_owned() };
    kept.event(notice("one"));
    kept.command(1, &Command::SetMaxError { value: 0.3, gesture: None });
    kept.event(notice("two"));
    kept.event(notice("three"));
    kept.command(2, &Command::SetMaxError { value: 0.4, gesture: None });
    kept.event(notice("four"));
}

#[test]
fn a_session_that_was_changed_is_noticed_and_not_taken_up() {
    let changed = "its checkpoint was changed";
    // As somebody who has the file and SQLite does it, with what hash they like.
    let cases = [
        ("UPDATE head SET head = CAST(head || x'00' AS BLOB)", changed),
        ("UPDATE head SET trace_digest = 'ab'", changed),
        ("UPDATE shares SET share = CAST(share || x'00' AS BLOB)", changed),
        ("UPDATE shares SET share = CAST(share || x'00' AS BLOB), hash = x'00'", changed),
        ("DELETE FROM shares", changed),
        ("DELETE FROM head", "what came after its checkpoint was changed, before entry"),
        ("UPDATE head SET state = x'00'", changed),
        (
            "UPDATE events SET event = CAST(event || x'00' AS BLOB) WHERE seq = 3",
            "what came after its checkpoint was changed, before entry 5",
        ),
        ("DELETE FROM events WHERE seq = 1", "what came after its checkpoint was changed, before entry 2"),
        ("UPDATE events SET event = (SELECT event FROM events WHERE seq = 3) WHERE seq = 6", "what came last"),
        ("INSERT INTO events SELECT 7, event FROM events WHERE seq = 3", "what came last"),
        ("DELETE FROM events WHERE seq = 6", "what came last"),
    ];
    for (edit, line) in cases {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.journal.sqlite");
        eventful(&path);
        assert_eq!(Trail::read(&path).unwrap().unwrap().entries.len(), 2);
        let file = rusqlite::Connection::open(&path).unwrap();
        file.execute(edit, []).unwrap();
        drop(file);
        let found = Trail::read(&path).unwrap().unwrap_err().to_string();
        assert!(found.starts_with(line), "{edit}: {found}, not {line}");
        let (_, restored, told) = open(&path, DIGEST).unwrap();
        assert!(restored.is_none(), "{edit}");
        assert!(
            told.unwrap().starts_with(&format!("The journal was set aside, its trail is broken ({line}")),
            "{edit}"
        );
    }
}

#[test]
fn any_byte_of_a_checkpoint_that_is_changed_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.journal.sqlite");
    eventful(&path);
    let file = rusqlite::Connection::open(&path).unwrap();
    let (head, share): (Vec<u8>, Vec<u8>) = file
        .query_row("SELECT head, (SELECT share FROM shares LIMIT 1) FROM head", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .unwrap();
    for (table, bytes) in [("head", head), ("shares", share)] {
        let column = if table == "head" { "head" } else { "share" };
        let put = |value: &[u8]| {
            let which = if table == "head" { "" } else { " WHERE key = (SELECT key FROM shares LIMIT 1)" };
            file.execute(&format!("UPDATE {table} SET {column} = ?1{which}"), [value]).unwrap();
        };
        for at in (0..bytes.len()).step_by(bytes.len() / 7 + 1) {
            let mut other = bytes.clone();
            other[at] ^= 1;
            put(&other);
            assert_eq!(Trail::read(&path).unwrap().unwrap_err(), Break::Checkpoint, "{table} {at}");
        }
        put(&bytes);
        assert!(Trail::read(&path).unwrap().is_ok());
    }
}

#[test]
fn what_is_decided_before_the_digest_is_known_is_taken_up_and_the_digest_chained() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.journal.sqlite");
    let nobody = || -> Wake { Arc::new(|| {}) };
    let of = |stamp: &str, digest: &str| Journal::open(&path, (stamp, digest), nobody()).unwrap();
    let undigested = || {
        let mut meta = results(&["a", "b"], Vec::new()).meta;
        meta.trace_digest = String::new();
        Event::TraceOpened { trace: Box::new(OpenedTrace { path: "t".to_owned(), name: "t".to_owned(), meta }) }
    };
    let (journal, ..) = of("stamp", "");
    let mut first = Kept { ordered: SequencedSession::default(), journal };
    first.event(undigested());
    first.command(1, &Command::SetMaxError { value: 0.3, gesture: None });
    // Killed here: what was flushed is all there is.
    drop(first);
    assert_eq!(Trail::read(&path).unwrap().unwrap().trace_digest, "");
    let (journal, restored, told) = of("stamp", DIGEST);
    let restored = restored.unwrap();
    assert!(told.is_none() && restored.lacks_digest && restored.num_commands == 1);
    let mut second = Kept { ordered: restored.ordered, journal };
    assert_eq!(second.ordered.session.document.policy.max_error, 0.3);
    second.event(Event::TraceDigest { path: "t".to_owned(), digest: DIGEST.to_owned() });
    drop(second);
    assert_eq!(Trail::read(&path).unwrap().unwrap().trace_digest, DIGEST);
    // From now on the digest tells, whatever the stamp.
    let (journal, restored, told) = of("another stamp", DIGEST);
    assert!(told.is_none() && restored.is_some_and(|restored| !restored.lacks_digest));
    drop(journal);
    assert!(of("stamp", "another").2.unwrap().contains("not the one that it was kept for"));
}
