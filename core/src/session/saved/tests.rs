//! There and back, and what another process makes of it.

use super::*;
use crate::{
    dispatch::testing::{results, row},
    session::{Command, Event},
};
use crate::{
    model::{Gemm, KernelId},
    session::Circumstances,
};

fn session() -> Session {
    let rows = vec![
        row("a", Gemm::Fprop, "cublaslt/bf16", 0.1, Some(1.2), 0.0),
        row("a", Gemm::Fprop, "te/current", 0.2, Some(1.4), 0.0),
        row("b", Gemm::Dgrad, "te/current", 0.2, None, 0.0),
    ];
    let mut session = Session::default();
    let results = Box::new(results(&["a", "b"], rows).into());
    session.event(Event::ResultsOpened { path: "r.parquet".to_owned(), results });
    let site = crate::model::SiteId::new("a");
    let (gemm, kernel, reason) = (Gemm::Fprop, KernelId::new("te/current"), "why".to_owned());
    session.command(Command::SetOverride { site, gemm, kernel, reason }).unwrap();
    session.command(Command::SetMaxError { value: 0.15, gesture: Some(1) }).unwrap();
    session
}

#[test]
fn a_session_comes_back_whole() {
    let first = session();
    let saved = first.save();
    let bytes = postcard::to_allocvec(&saved).unwrap();
    let read: SavedSession = postcard::from_bytes(&bytes).unwrap();
    assert_eq!(read, saved);
    let mut second = Session::restored(read);
    assert_eq!(second.save(), saved);
    assert_eq!(second.results(), first.results());
    assert_eq!(second.snapshot().map(|of| of.rows.clone()), first.snapshot().map(|of| of.rows.clone()));
    assert_eq!((saved.num_rows(), saved.shares.len()), (8, 2));
    second.command(Command::Undo).unwrap();
    second.command(Command::Undo).unwrap();
    assert_eq!(second.document, Document::default());
    assert_ne!(second.save().digest(), saved.digest());
}

#[test]
fn what_one_window_did_for_itself_is_not_in_the_digest() {
    let mut session = session();
    let digest = session.save().digest();
    session.notify(crate::session::NoticeKind::Info, "mine".to_owned());
    session.command(Command::DismissNotices).unwrap();
    session.command(Command::ClearLog).unwrap();
    assert_eq!(session.save().digest(), digest);
}

#[test]
fn shares_of_sites_that_are_not_there_go_nowhere() {
    let mut saved = session().save();
    saved.shares[0].at = 7;
    let restored = Session::restored(saved);
    assert_eq!(restored.rows().count(), 4);
}

/// Found by the fuzzer: more decisions than steps, in a journal or from a server that made them up.
#[test]
fn counts_that_were_made_up_overflow_nothing() {
    let mut saved = session().save();
    let head = &mut saved.head;
    (head.revision, head.num_decisions, head.next_run, head.next_notice) = (7, u64::MAX, u64::MAX, u64::MAX);
    (head.reviewing.revision, head.reviewing.last_release) = (u64::MAX, u32::MAX);
    let mut session = Session::restored(saved.clone());
    assert!(session.snapshot().is_some());
    saved.head.revision = u64::MAX;
    session = Session::restored(saved).in_place_of(&session);
    session.event(Event::Notice { kind: crate::session::NoticeKind::Info, message: "more".to_owned() });
    session.command(Command::SetMaxError { value: 0.3, gesture: None }).unwrap();
    session.command(Command::RequestApproval { note: String::new() }).unwrap();
    assert!(session.snapshot().is_some());
}

#[test]
fn nothing_runs_in_a_process_that_begins() {
    let mut session = session();
    let mods = crate::model::SiteMods::none();
    let sites = vec![crate::model::SiteId::new("a")];
    let meta = results(&["a"], Vec::new()).meta;
    let by = Box::new(Circumstances::from(&meta));
    session.event(Event::ProbeStarted { run: 1, mods, sites, by });
    assert!(session.is_running());
    let mut woken = Session::restored(session.save());
    woken.awaken();
    assert!(!woken.is_running() && woken.run.is_some_and(|run| run.cancelled));
    assert!(!woken.engines.looking);
}
