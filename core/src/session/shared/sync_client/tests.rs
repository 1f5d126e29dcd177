//! Joining, going on after a lost connection, and servers that break the order.

use super::*;
use crate::session::{
    Session,
    shared::{CommandOutcome, SequencedSession},
};

const TRACE: &str = "a.trace.safetensors";

fn sync() -> SyncClient {
    SyncClient::new(Author::new(7, "Anna"), "0.1.0", Some(TRACE.to_owned()))
}

fn welcome(session: u64, resumed: bool, heard: u64) -> ToClient {
    let (version, files) = ("0.1.0".to_owned(), vec![TRACE.to_owned()]);
    ToClient::Welcome(Welcome { protocol: PROTOCOL, version, session, resumed, heard, me: sync().author, files })
}

fn event(seq: u64) -> SequencedInput {
    let event = Event::Progress { run: 1, done: 0.5, seconds: seq as f64 };
    SequencedInput { seq, input: SessionInput::Event(Box::new(event)) }
}

fn saved(seq: u64) -> ToClient {
    ToClient::Saved { seq, num_shares: 0, head: Box::default() }
}

/// A window with the session after step 4.
fn joined() -> SyncClient {
    let mut sync = sync();
    sync.hello();
    sync.take(welcome(5, false, 0)).unwrap();
    sync.take(saved(4)).unwrap();
    assert!(matches!(sync.poll(), Some(LinkMessage::State(_))));
    sync
}

#[test]
fn a_session_comes_in_parts_and_then_its_steps() {
    let mut ordered = SequencedSession::default();
    let pull = Command::SetMaxError { value: 0.3, gesture: None };
    let done = ordered.command(CommandContext::numbered(Author::new(1, ""), 1), pull.clone());
    assert!(matches!(done, Ok(CommandOutcome::Done(..))));
    let mut sync = sync();
    sync.take(welcome(5, false, 0)).unwrap();
    let head = Box::new(ordered.save().head);
    sync.take(ToClient::Saved { seq: 1, num_shares: 2, head }).unwrap();
    assert_eq!(sync.loading(), Some(Loading { done: 0, all: 2 }));
    let share = || RowChunk {
        origin: Default::default(),
        at: 0,
        context: Default::default(),
        complete: false,
        rows: Default::default(),
    };
    sync.take(ToClient::Shares(vec![share()])).unwrap();
    assert_eq!((sync.poll(), sync.at()), (None, None));
    sync.take(ToClient::Shares(vec![share()])).unwrap();
    let Some(LinkMessage::State(state)) = sync.poll() else { panic!("no state") };
    assert_eq!(Session::restored(*state).document.policy.max_error, 0.3);
    sync.take(ToClient::Steps(vec![event(1), event(2)])).unwrap();
    assert!(matches!(sync.poll(), Some(LinkMessage::Event(_))), "the second step is new");
    assert_eq!((sync.poll(), sync.at()), (None, Some((5, 2))));
}

#[test]
fn what_is_in_the_session_that_arrives_is_answered_by_it() {
    let mut ordered = SequencedSession::default();
    let mut sync = sync();
    sync.take(welcome(5, false, 0)).unwrap();
    sync.submit(Command::SetMaxError { value: 0.3, gesture: None });
    sync.submit(Command::Undo);
    let first = Command::SetMaxError { value: 0.3, gesture: None };
    ordered.command(CommandContext::numbered(sync.author().clone(), 1), first).unwrap();
    sync.take(ToClient::Saved { seq: 1, num_shares: 0, head: Box::new(ordered.save().head) }).unwrap();
    assert_eq!((sync.num_waiting(), sync.at()), (1, Some((5, 1))), "the second is still on its way");
}

#[test]
fn what_was_not_answered_is_sent_again() {
    let mut sync = joined();
    sync.submit(Command::Undo);
    sync.submit(Command::Redo);
    let ToServer::Hello(hello) = sync.hello() else { panic!("no hello") };
    assert_eq!(hello.resume, Some((5, 4)));
    let again = sync.take(welcome(5, true, 1)).unwrap();
    assert_eq!(again, [ToServer::Command { number: 2, seen: 4, command: Box::new(Command::Redo) }]);
    let input =
        SessionInput::Command { by: CommandContext::numbered(sync.author().clone(), 2), command: Command::Redo };
    sync.take(ToClient::Steps(vec![SequencedInput { seq: 5, input }])).unwrap();
    assert_eq!((sync.num_waiting(), sync.at()), (0, Some((5, 5))));
}

#[test]
fn a_refusal_is_news_and_an_answer() {
    let mut sync = joined();
    sync.submit(Command::Undo);
    sync.take(ToClient::Refused { number: 1, reason: "nothing to undo".to_owned() }).unwrap();
    assert_eq!(sync.poll(), Some(LinkMessage::Refused("nothing to undo".to_owned())));
    assert_eq!(sync.num_waiting(), 0);
}

#[test]
fn a_gap_asks_for_the_whole_session() {
    let mut sync = joined();
    assert!(sync.take(ToClient::Steps(vec![event(5), event(7)])).is_err());
    let ToServer::Hello(hello) = sync.hello() else { panic!("no hello") };
    assert_eq!(hello.resume, None);
}

#[test]
fn another_trace_is_another_session() {
    let mut sync = joined();
    sync.submit(Command::Undo);
    assert_eq!(sync.join("b"), ToServer::Join { trace: "b".to_owned() });
    // Still of the session before.
    sync.take(ToClient::Steps(vec![event(5)])).unwrap();
    assert_eq!((sync.poll(), sync.at(), sync.num_waiting()), (None, None, 0));
    sync.take(welcome(6, false, 0)).unwrap();
    sync.take(saved(9)).unwrap();
    assert_eq!(sync.at(), Some((6, 9)));
}
