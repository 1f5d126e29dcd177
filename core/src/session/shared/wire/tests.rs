//! Every kind of message there and back, and messages that nobody should send.

use super::*;
use crate::{
    dispatch::testing::{results, row},
    model::{Gemm, SiteRows},
    session::{
        Event, FileKind, Origin, Session,
        shared::{By, Input},
    },
};

fn session() -> Session {
    let rows = vec![
        row("a", Gemm::Fprop, "cublaslt/bf16", 0.1, Some(1.2), 0.0),
        row("a", Gemm::Wgrad, "cublaslt/bf16", f64::INFINITY, None, 0.0),
    ];
    let mut session = Session::default();
    let results = Box::new(results(&["a", "b"], rows));
    session.event(Event::ResultsOpened { path: "r.parquet".to_owned(), results });
    session
}

fn back<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(message: &T) {
    let bytes = encode(message);
    assert_eq!(decode::<T>(&bytes, MAX_TO_CLIENT).as_ref(), Ok(message));
}

#[test]
fn messages_to_the_server_come_back() {
    let hello = Hello {
        protocol: PROTOCOL,
        version: "0.1.0".to_owned(),
        key: u64::MAX,
        name: "Zoë".to_owned(),
        trace: Some("a/b.trace.safetensors".to_owned()),
        resume: Some((3, 1 << 40)),
    };
    back(&ToServer::Hello(hello));
    back(&ToServer::Join { trace: "t".to_owned() });
    let command = Command::SetMaxError { value: 0.1 + 0.2, gesture: Some(3) };
    back(&ToServer::Command { number: 1, seen: 9, command: Box::new(command) });
    back(&ToServer::Ask(Question::Inspect { site: SiteId::new("a"), other: Some("o".to_owned()) }));
    back(&ToServer::Ask(Question::Series));
    back(&ToServer::At(Place { site: Some(SiteId::new("a")), view: "Plan".to_owned() }));
}

#[test]
fn messages_to_a_window_come_back() {
    let saved = session().save();
    back(&ToClient::Saved { seq: 4, num_shares: saved.shares.len() as u64, head: Box::new(saved.head) });
    back(&ToClient::Shares(saved.shares));
    let rows = row("a", Gemm::Fprop, "cublaslt/bf16", 0.1, Some(1.2), 0.0);
    let results = Box::new(results(&["a"], vec![rows.clone()]));
    let events = [
        Event::ResultsOpened { path: "r".to_owned(), results },
        Event::Rows { run: 1, rows: vec![rows] },
        Event::Identified { path: "p".to_owned(), kind: Ok(FileKind::Plan) },
        Event::Identified { path: "p".to_owned(), kind: Err("no".to_owned()) },
        Event::ProbeFinished { run: 1, cancelled: true, seconds: 0.5 },
    ];
    for event in events {
        back(&ToClient::Answer(Box::new(event.clone())));
        back(&ToClient::Steps(vec![Step { seq: 1, input: Input::Event(Box::new(event)) }]));
    }
    let input = Input::Command { by: By::program(), command: Command::StartProbe };
    back(&ToClient::Steps(vec![Step { seq: 2, input }]));
}

#[test]
fn large_messages_are_packed_and_bounded() {
    let text = "the same words again, ".repeat(1000);
    let message = ToClient::Refused { number: 1, reason: text.clone() };
    let bytes = encode(&message);
    assert!(bytes.len() < text.len() / 10);
    assert_eq!(decode(&bytes, MAX_TO_CLIENT), Ok(message));
    let refused = decode::<ToClient>(&bytes, 1000).unwrap_err();
    assert!(matches!(refused, WireError::TooLarge(size, 1000) if size > 20_000));
}

#[test]
fn what_nobody_should_send_is_an_error() {
    // A length of 4 GB in front of nothing; a list that claims more than there is; bytes after the end.
    let claims = [&[LZ4, 0xff, 0xff, 0xff, 0xff][..], &[AS_IT_IS, 2, 0xff, 0xff, 0xff, 0xff, 0x0f], &[LZ4, 1], &[9, 0]];
    for bytes in claims {
        assert!(decode::<ToClient>(bytes, MAX_TO_CLIENT).is_err(), "{bytes:?}");
        assert!(decode::<ToServer>(bytes, MAX_TO_SERVER).is_err(), "{bytes:?}");
    }
    let mut long = encode(&ToServer::Ask(Question::Series));
    long.push(0);
    assert!(matches!(decode::<ToServer>(&long, MAX_TO_SERVER), Err(WireError::Broken(_))));
    assert_eq!(decode::<ToServer>(&[], MAX_TO_SERVER), Err(WireError::Empty));
}

/// These bytes change when the coding does: then [`PROTOCOL`] has to go up, or old windows misread new servers.
#[test]
fn the_coding_is_that_of_its_number() {
    let command = Command::SetOverride {
        site: SiteId::new("s"),
        gemm: Gemm::Wgrad,
        kernel: crate::model::KernelId::new("te/current"),
        reason: "r".to_owned(),
    };
    let bytes = encode(&ToServer::Command { number: 300, seen: 5, command: Box::new(command) });
    assert_eq!((PROTOCOL, hex(&bytes)), (6, "0002ac02050f0173020a74652f63757272656e740172".to_owned()));
    let share = Share {
        origin: Origin { engine: "cpu".to_owned(), device: "d".to_owned() },
        at: 1,
        context: Default::default(),
        complete: true,
        rows: std::sync::Arc::new(SiteRows::default()),
    };
    assert_eq!(hex(&encode(&ToClient::Shares(vec![share]))), "0002010363707501640100000100");
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
