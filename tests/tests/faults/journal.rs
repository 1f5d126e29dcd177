//! A journal on such a disk.

use std::{fmt::Debug, path::Path, process::Command, sync::Arc};

use loka_core::{
    journal::{Journal, Restored, Trail},
    runtime::Journaling as _,
    session::{
        Command as Asked, Event, NoticeKind,
        shared::{Author, CommandContext, SequencedSession},
    },
};
use tempfile::TempDir;

use crate::{Fault, everywhere};

/// In its environment a process of this test is the one that keeps the journal there.
const KEEPS: &str = "LOKA_TEST_KEEPS";
pub const COMMANDS: u64 = 6;
pub const NAME: &str = "t.journal.sqlite";

type Opened = (Journal, Option<Restored>, Option<String>);

fn open(path: &Path) -> Result<Opened, String> {
    Journal::open(path, ("stamp", ""), Arc::new(|| {})).map_err(|error| error.to_string())
}

/// Keeps commands, events and checkpoints; says of each command when it is kept. No more than that, in its own process.
#[test]
fn keeper() {
    let Some(path) = std::env::var_os(KEEPS) else { return };
    let (mut journal, restored, told) = match open(Path::new(&path)) {
        Ok(opened) => opened,
        Err(line) => return println!("refused {line}"),
    };
    assert!(restored.is_none() && told.is_none());
    let mut ordered = SequencedSession::default();
    journal.checkpoint(ordered.save());
    for number in 1..=COMMANDS {
        let by = CommandContext::numbered(Author::new(7, "Anna"), number);
        let command = Asked::SetMaxError { value: number as f64, gesture: None };
        ordered.command(by.clone(), command.clone()).unwrap();
        journal.command(&by, &command);
        let event = Event::Notice { kind: NoticeKind::Info, message: "x".repeat(2000 * number as usize) };
        journal.event(&event);
        ordered.event(event);
        if number % 3 == 0 {
            journal.checkpoint(ordered.save());
        }
        journal.flush();
        if journal.problem().is_none() {
            println!("kept {number}");
        }
    }
    // Once more before the end, as a window that is closed does.
    drop(journal);
    println!("ended");
}

/// Opens what is left there, where `told` commands were told; how many are kept. `None`: there is no journal.
pub fn kept(path: &Path, told: u64, when: impl Debug) -> Option<u64> {
    if !path.exists() {
        assert_eq!(told, 0, "{when:?}");
        return None;
    }
    let (journal, restored, aside) = open(path).unwrap();
    drop(journal);
    // Of a journal that never began there is nothing to take up, and nothing was told.
    assert!(aside.is_none() || told == 0, "{when:?}: {aside:?}");
    let trail = Trail::read(path).unwrap().unwrap();
    let numbers: Vec<u64> = trail.entries.iter().map(|entry| entry.number).collect();
    let last = numbers.len() as u64;
    assert_eq!(numbers, (1..=last).collect::<Vec<_>>(), "{when:?}: none twice, none left out");
    assert!(last >= told, "{when:?}: {told} were told, {last} are kept");
    if last > 0 {
        let session = restored.unwrap().ordered.session;
        assert_eq!(session.document.policy.max_error, last as f64, "{when:?}");
    }
    Some(last)
}

/// What keeps a journal there.
pub fn keeper_of(path: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "journal::keeper", "--nocapture"]).env(KEEPS, path);
    command
}

/// The last command that it said was kept.
pub fn told_in(text: &str) -> u64 {
    let numbers = text.lines().filter_map(|line| line.rsplit_once("kept ").and_then(|(_, number)| number.parse().ok()));
    numbers.max().unwrap_or_default()
}

/// `None`: nothing went wrong, there are no more operations.
fn kept_through(fault: Fault) -> Option<(u64, String, TempDir)> {
    let folder = TempDir::new().unwrap();
    let mut command = keeper_of(&folder.path().join(NAME));
    let hit = fault.strike(&mut command, folder.path());
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let struck = hit.exists();
    drop(std::fs::remove_file(&hit));
    struck.then(|| (told_in(&text), text.clone(), folder))
}

#[test]
fn nothing_told_is_lost_and_nothing_half_written_is_believed() {
    let num = everywhere(1, |fault| {
        let Some((told, text, folder)) = kept_through(fault) else { return false };
        let Some(last) = kept(&folder.path().join(NAME), told, fault) else { return true };
        // What failed once was tried again.
        let begun = !text.contains("refused");
        if begun && !fault.lasts && !fault.kills() {
            assert!(text.contains("ended") && last == COMMANDS, "{fault:?}: {last} of {COMMANDS} kept\n{text}");
        }
        true
    });
    println!("{num} faults");
}
