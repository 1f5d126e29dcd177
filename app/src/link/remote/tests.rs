//! A server that answers, one that goes away and comes back, one that breaks the rules; all made of two queues.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

use std::{cell::RefCell, collections::VecDeque, rc::Rc, sync::Arc};

use loka_core::{
    model::SiteId,
    session::NoticeKind,
    session::shared::{Author, MAX_TO_SERVER, PROTOCOL, Welcome},
};

use super::*;
use crate::executor::{Fetched, MemoryFiles, Outside, PageExecutor};

/// A browser that is not asked for anything.
struct Nobody;

impl Outside for Nobody {
    fn save(&self, _: &str, _: Vec<u8>) -> Result<(), String> {
        Ok(())
    }

    fn fetch(&self, _: &str) {}

    fn fetched(&self) -> Option<Fetched> {
        None
    }

    fn busy(&self) -> Option<String> {
        None
    }
}

#[derive(Default)]
struct World {
    now: f64,
    up: bool,
    to_window: VecDeque<SocketNews>,
    to_server: VecDeque<ToServer>,
}

#[derive(Clone, Default)]
struct Wire(Rc<RefCell<World>>);

impl Network for Wire {
    fn connect(&mut self) -> Result<Box<dyn Socket>, String> {
        if !self.0.borrow().up {
            return Err("nobody listens".to_owned());
        }
        self.0.borrow_mut().to_window.push_back(SocketNews::Opened);
        Ok(Box::new(self.clone()))
    }

    fn now(&self) -> f64 {
        self.0.borrow().now
    }
}

impl Socket for Wire {
    fn send(&mut self, bytes: &[u8]) {
        self.0.borrow_mut().to_server.push_back(decode(bytes, MAX_TO_SERVER).unwrap());
    }

    fn poll(&mut self) -> Option<SocketNews> {
        self.0.borrow_mut().to_window.pop_front()
    }
}

impl Wire {
    fn say(&self, message: &ToClient) {
        self.0.borrow_mut().to_window.push_back(SocketNews::Message(encode(message)));
    }

    fn heard(&self) -> Option<ToServer> {
        self.0.borrow_mut().to_server.pop_front()
    }

    fn welcome(&self, resumed: bool) {
        let (version, files) = (String::new(), vec!["a.trace.safetensors".to_owned()]);
        let welcome =
            Welcome { protocol: PROTOCOL, version, session: 5, resumed, heard: 0, me: Author::new(7, "Anna"), files };
        self.say(&ToClient::Welcome(welcome));
    }
}

fn joined() -> (Wire, RemoteLink) {
    let wire = Wire::default();
    wire.0.borrow_mut().up = true;
    let sync = SyncClient::new(Author::new(7, "Anna"), "0.1.0", None);
    let mut link = RemoteLink::new(
        Box::new(wire.clone()),
        Box::new(PageExecutor::new(MemoryFiles::default(), Box::new(Nobody), Arc::new(|| ()))),
        sync,
    );
    assert_eq!(link.status().connection, ConnectionState::Joining { share: None });
    assert_eq!(link.poll(), None);
    assert!(matches!(wire.heard(), Some(ToServer::Hello(_))));
    wire.welcome(false);
    wire.say(&ToClient::Saved { seq: 3, num_shares: 0, head: Box::default() });
    assert_eq!(link.poll(), Some(Applied::Replaced { same_trace: true }));
    assert!(matches!(link.status().connection, ConnectionState::Joined { .. }));
    (wire, link)
}

fn ask(link: &mut RemoteLink, command: Command) {
    link.submit(Submission::Command(command));
}

fn last_notice(link: &RemoteLink) -> String {
    link.session().notices.last().map(|notice| notice.text.clone()).unwrap_or_default()
}

#[test]
fn commands_go_to_the_server_and_private_ones_stay() {
    let (wire, mut link) = joined();
    ask(&mut link, Command::Undo);
    assert_eq!(wire.heard(), Some(ToServer::Command { number: 1, seen: 3, command: Box::new(Command::Undo) }));
    link.submit(Submission::notice(NoticeKind::Info, "a line".to_owned()));
    assert!(!link.session().log().entries().is_empty());
    ask(&mut link, Command::ClearLog);
    assert!(link.session().log().entries().is_empty());
    assert_eq!(wire.heard(), None, "nobody else hears of that");
    ask(&mut link, Command::OpenTrace { path: "b".to_owned() });
    assert_eq!(wire.heard(), Some(ToServer::Join { trace: "b".to_owned() }));
}

#[test]
fn a_lost_server_is_told_and_tried_again() {
    let (wire, mut link) = joined();
    link.run(Effect::ReadSeries { path: "t".to_owned() });
    assert_eq!(wire.heard(), Some(ToServer::Ask(ClientQuery::Series)));
    wire.0.borrow_mut().up = false;
    wire.0.borrow_mut().to_window.push_back(SocketNews::Closed);
    assert_eq!(link.poll(), None);
    assert!(matches!(link.status().connection, ConnectionState::Away { retry_in: Some(_), .. }));
    ask(&mut link, Command::Undo);
    assert_eq!(link.poll(), Some(Applied::Refused(AWAY.to_owned())));
    assert_eq!(last_notice(&link), AWAY);
    let site = SiteId::new("s");
    link.run(Effect::Inspect { trace: "t".to_owned(), site: site.clone() });
    let unanswered = |news| matches!(news, LinkMessage::Event(event) if matches!(*event, Event::SiteInspected { outcome: Err(_), .. }));
    assert!(link.next_news().is_some_and(unanswered));
    wire.0.borrow_mut().now = 0.3;
    assert_eq!(link.poll(), None, "it is tried, and still down");
    wire.0.borrow_mut().up = true;
    wire.0.borrow_mut().now = 100.0;
    assert_eq!(link.poll(), None);
    let Some(ToServer::Hello(hello)) = wire.heard() else { panic!("no hello") };
    assert_eq!(hello.resume, Some((5, 3)));
    wire.welcome(true);
    assert_eq!(link.poll(), None);
    assert!(matches!(link.status().connection, ConnectionState::Joined { .. }));
    assert_eq!(wire.heard(), Some(ToServer::Ask(ClientQuery::Series)), "what was not answered is asked again");
}

#[test]
fn why_a_server_went_stands_while_it_is_tried_again() {
    let (wire, mut link) = joined();
    wire.say(&ToClient::Closing { reason: "the server is being stopped".to_owned(), again: true });
    wire.0.borrow_mut().to_window.push_back(SocketNews::Closed);
    let why = |link: &RemoteLink| match link.status().connection {
        ConnectionState::Away { why, .. } => why,
        other => panic!("{other:?}"),
    };
    assert_eq!(link.poll(), None);
    assert_eq!(why(&link), "the server is being stopped");
    wire.0.borrow_mut().now = 1.0;
    assert_eq!(link.poll(), None);
    wire.0.borrow_mut().to_window.clear();
    wire.0.borrow_mut().to_window.push_back(SocketNews::Closed);
    assert_eq!(link.poll(), None);
    assert_eq!(why(&link), "the server is being stopped");
}

#[test]
fn a_silent_server_is_noticed_and_what_waits_is_told() {
    let (wire, mut link) = joined();
    let waiting = |link: &RemoteLink| match link.status().connection {
        ConnectionState::Joined { waiting, .. } => waiting,
        other => panic!("{other:?}"),
    };
    ask(&mut link, Command::SetMaxError { value: 0.5, gesture: None });
    let asked = wire.heard();
    assert_eq!((link.poll(), waiting(&link)), (None, 0), "an answer takes a moment");
    wire.0.borrow_mut().now = 2.0;
    assert_eq!((link.poll(), waiting(&link)), (None, 1));
    wire.0.borrow_mut().now = 24.0;
    wire.say(&ToClient::Alive);
    assert_eq!((link.poll(), waiting(&link)), (None, 1));
    wire.0.borrow_mut().now = 48.9;
    assert_eq!((link.poll(), waiting(&link)), (None, 1));
    wire.0.borrow_mut().now = 49.1;
    assert_eq!(link.poll(), None);
    let away = link.status().connection;
    assert!(matches!(&away, ConnectionState::Away { why, .. } if why.contains("25 s")), "{away:?}");
    ask(&mut link, Command::Undo);
    assert_eq!((link.poll(), last_notice(&link).as_str()), (Some(Applied::Refused(AWAY.to_owned())), AWAY));
    wire.0.borrow_mut().now = 50.0;
    assert_eq!(link.poll(), None);
    assert!(matches!(wire.heard(), Some(ToServer::Hello(_))));
    wire.welcome(true);
    assert_eq!(link.poll(), None);
    assert_eq!(wire.heard(), asked, "what was not answered is sent again");
    assert_eq!(waiting(&link), 1);
}

#[test]
fn a_page_that_nobody_looked_at_hears_first_and_judges_then() {
    let (wire, mut link) = joined();
    wire.say(&ToClient::Alive);
    wire.0.borrow_mut().now = 600.0;
    assert_eq!(link.poll(), None);
    assert!(matches!(link.status().connection, ConnectionState::Joined { .. }));
}

#[test]
fn a_refused_window_does_not_try_for_ever() {
    let (wire, mut link) = joined();
    wire.say(&ToClient::Closing { reason: "another version".to_owned(), again: false });
    wire.0.borrow_mut().to_window.push_back(SocketNews::Closed);
    assert_eq!(link.poll(), None);
    let away = ConnectionState::Away { why: "another version".to_owned(), seconds_away: 0, retry_in: None };
    assert_eq!(link.status().connection, away);
}

#[test]
fn garbage_ends_the_connection_and_nothing_else() {
    let (wire, mut link) = joined();
    wire.0.borrow_mut().to_window.push_back(SocketNews::Message(vec![9, 9, 9]));
    assert_eq!(link.poll(), None);
    assert!(matches!(link.status().connection, ConnectionState::Away { retry_in: Some(_), .. }));
}
