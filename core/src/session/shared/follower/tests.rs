//! Joining, going on after a lost connection, and servers that break the order.

use super::*;
use crate::session::{
    Session,
    shared::{Ordered, Taken},
};

const TRACE: &str = "a.trace.safetensors";

fn follower() -> Follower {
    Follower::new(Author::new(7, "Anna"), "0.1.0", Some(TRACE.to_owned()))
}

fn welcome(session: u64, resumed: bool, heard: u64) -> ToClient {
    let (version, files) = ("0.1.0".to_owned(), vec![TRACE.to_owned()]);
    ToClient::Welcome(Welcome { protocol: PROTOCOL, version, session, resumed, heard, me: follower().author, files })
}

fn event(seq: u64) -> Step {
    let event = Event::Progress { run: 1, done: 0.5, seconds: seq as f64 };
    Step { seq, input: Input::Event(Box::new(event)) }
}

fn saved(seq: u64) -> ToClient {
    ToClient::Saved { seq, num_shares: 0, head: Box::default() }
}

/// A window with the session after step 4.
fn joined() -> Follower {
    let mut follower = follower();
    follower.hello();
    follower.take(welcome(5, false, 0)).unwrap();
    follower.take(saved(4)).unwrap();
    assert!(matches!(follower.poll(), Some(News::State(_))));
    follower
}

#[test]
fn a_session_comes_in_parts_and_then_its_steps() {
    let mut ordered = Ordered::default();
    let pull = Command::SetMaxError { value: 0.3, gesture: None };
    let done = ordered.command(By::numbered(Author::new(1, ""), 1), pull.clone());
    assert!(matches!(done, Ok(Taken::Done(..))));
    let mut follower = follower();
    follower.take(welcome(5, false, 0)).unwrap();
    let head = Box::new(ordered.save().head);
    follower.take(ToClient::Saved { seq: 1, num_shares: 2, head }).unwrap();
    assert_eq!(follower.loading(), Some(Loading { done: 0, all: 2 }));
    let share = || Share {
        origin: Default::default(),
        at: 0,
        context: Default::default(),
        complete: false,
        rows: Default::default(),
    };
    follower.take(ToClient::Shares(vec![share()])).unwrap();
    assert_eq!((follower.poll(), follower.at()), (None, None));
    follower.take(ToClient::Shares(vec![share()])).unwrap();
    let Some(News::State(state)) = follower.poll() else { panic!("no state") };
    assert_eq!(Session::restored(*state).document.policy.max_error, 0.3);
    follower.take(ToClient::Steps(vec![event(1), event(2)])).unwrap();
    assert!(matches!(follower.poll(), Some(News::Event(_))), "the second step is new");
    assert_eq!((follower.poll(), follower.at()), (None, Some((5, 2))));
}

#[test]
fn what_is_in_the_session_that_arrives_is_answered_by_it() {
    let mut ordered = Ordered::default();
    let mut follower = follower();
    follower.take(welcome(5, false, 0)).unwrap();
    follower.submit(Command::SetMaxError { value: 0.3, gesture: None });
    follower.submit(Command::Undo);
    let first = Command::SetMaxError { value: 0.3, gesture: None };
    ordered.command(By::numbered(follower.author().clone(), 1), first).unwrap();
    follower.take(ToClient::Saved { seq: 1, num_shares: 0, head: Box::new(ordered.save().head) }).unwrap();
    assert_eq!((follower.num_waiting(), follower.at()), (1, Some((5, 1))), "the second is still on its way");
}

#[test]
fn what_was_not_answered_is_sent_again() {
    let mut follower = joined();
    follower.submit(Command::Undo);
    follower.submit(Command::Redo);
    let ToServer::Hello(hello) = follower.hello() else { panic!("no hello") };
    assert_eq!(hello.resume, Some((5, 4)));
    let again = follower.take(welcome(5, true, 1)).unwrap();
    assert_eq!(again, [ToServer::Command { number: 2, seen: 4, command: Box::new(Command::Redo) }]);
    let input = Input::Command { by: By::numbered(follower.author().clone(), 2), command: Command::Redo };
    follower.take(ToClient::Steps(vec![Step { seq: 5, input }])).unwrap();
    assert_eq!((follower.num_waiting(), follower.at()), (0, Some((5, 5))));
}

#[test]
fn a_refusal_is_news_and_an_answer() {
    let mut follower = joined();
    follower.submit(Command::Undo);
    follower.take(ToClient::Refused { number: 1, reason: "nothing to undo".to_owned() }).unwrap();
    assert_eq!(follower.poll(), Some(News::Refused("nothing to undo".to_owned())));
    assert_eq!(follower.num_waiting(), 0);
}

#[test]
fn a_gap_asks_for_the_whole_session() {
    let mut follower = joined();
    assert!(follower.take(ToClient::Steps(vec![event(5), event(7)])).is_err());
    let ToServer::Hello(hello) = follower.hello() else { panic!("no hello") };
    assert_eq!(hello.resume, None);
}

#[test]
fn another_trace_is_another_session() {
    let mut follower = joined();
    follower.submit(Command::Undo);
    assert_eq!(follower.join("b"), ToServer::Join { trace: "b".to_owned() });
    // Still of the session before.
    follower.take(ToClient::Steps(vec![event(5)])).unwrap();
    assert_eq!((follower.poll(), follower.at(), follower.num_waiting()), (None, None, 0));
    follower.take(welcome(6, false, 0)).unwrap();
    follower.take(saved(9)).unwrap();
    assert_eq!(follower.at(), Some((6, 9)));
}
