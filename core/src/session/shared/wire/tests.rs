//! Every kind of message there and back, and messages that nobody should send.

use super::*;
use crate::{
    dispatch::{
        Policy,
        testing::{results, row},
    },
    export::Target,
    model::{Gemm, KernelId, ModKind, ModSet, Moment, Runtime, SiteMods, SiteRows},
    review::{Approval, ReviewState, SecretKey, Statement},
    session::{
        BaselineOf, Event, FileKind, Origin, Session,
        shared::{CommandContext, SessionInput},
    },
    views::drift::{Followed, FollowedGemm},
};

fn session() -> Session {
    let rows = vec![
        row("a", Gemm::Fprop, "cublaslt/bf16", 0.1, Some(1.2), 0.0),
        row("a", Gemm::Wgrad, "cublaslt/bf16", f64::INFINITY, None, 0.0),
    ];
    let mut session = Session::default();
    let results = Box::new(results(&["a", "b"], rows).into());
    session.event(Event::ResultsOpened { path: "r.parquet".to_owned(), results });
    session
}

fn followed() -> Followed {
    let gemms = vec![FollowedGemm { site: 300, gemm: Gemm::Wgrad, kernel: 0 }];
    Followed { policy: Policy::paper(), mods: SiteMods::none(), kernels: vec![KernelId::new("te/current")], gemms }
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
    back(&ToServer::Ask(ClientQuery::Inspect { site: SiteId::new("a"), other: Some("o".to_owned()) }));
    back(&ToServer::Ask(ClientQuery::Series));
    back(&ToServer::Ask(ClientQuery::Compare { path: "o".to_owned() }));
    back(&ToServer::Ask(ClientQuery::Checkpoints { followed: Box::new(followed()) }));
    back(&ToServer::At(Place { site: Some(SiteId::new("a")), view: "Plan".to_owned() }));
}

#[test]
fn messages_to_a_window_come_back() {
    let saved = session().save();
    back(&ToClient::Saved { seq: 4, num_shares: saved.shares.len() as u64, head: Box::new(saved.head) });
    back(&ToClient::Shares(saved.shares));
    let rows = row("a", Gemm::Fprop, "cublaslt/bf16", 0.1, Some(1.2), 0.0);
    let results = Box::new(results(&["a"], vec![rows.clone()]).into());
    let events = [
        Event::ResultsOpened { path: "r".to_owned(), results },
        Event::Rows { run: 1, rows: vec![rows] },
        Event::Identified { path: "p".to_owned(), kind: Ok(FileKind::Plan) },
        Event::Identified { path: "p".to_owned(), kind: Err("no".to_owned()) },
        Event::ProbeFinished { run: 1, cancelled: true, seconds: 0.5 },
    ];
    for event in events {
        back(&ToClient::Answer(Box::new(event.clone())));
        back(&ToClient::Steps(vec![SequencedInput { seq: 1, input: SessionInput::Event(Box::new(event)) }]));
    }
    let input = SessionInput::Command { by: CommandContext::program(), command: Command::StartProbe };
    back(&ToClient::Steps(vec![SequencedInput { seq: 2, input }]));
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
    let mut long = encode(&ToServer::Ask(ClientQuery::Series));
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
    assert_eq!((PROTOCOL, hex(&bytes)), (10, "0002ac02050f0173020a74652f63757272656e740172".to_owned()));
    let share = RowChunk {
        origin: Origin::new("cpu", "d"),
        at: 1,
        context: Default::default(),
        complete: true,
        rows: std::sync::Arc::new(SiteRows::default()),
    };
    assert_eq!(hex(&encode(&ToClient::Shares(vec![share]))), "0002010363707501640100000100");
}

/// One of each.
fn every_command() -> Vec<Command> {
    let (site, kernel) = (SiteId::new("s"), crate::model::KernelId::new("te/current"));
    let (path, text, at) = ("p".to_owned(), String::new(), vec![(site.clone(), Gemm::Wgrad)]);
    let key = SecretKey::new("Anna", &[3; 32]).unwrap();
    let statement = Statement {
        digest: path.clone(),
        review_digest: path.clone(),
        name: "Anna".to_owned(),
        role: Role::Approver,
        at: Moment(0),
        note: text.clone(),
    };
    let approval = Box::new(Approval::sign(statement, &key));
    vec![
        Command::OpenTrace { path: path.clone() },
        Command::OpenResults { path: path.clone() },
        Command::FindEngines,
        Command::SelectEngine { name: text.clone() },
        Command::MeasureSpeeds,
        Command::StartProbe,
        Command::CancelProbe,
        Command::ProbeMore { site: site.clone(), max_draws: 1 },
        Command::PauseProbe { paused: true },
        Command::ToggleMod { kind: ModKind::NoBias },
        Command::SetMod { kind: ModKind::NoBias, on: true, sites: vec![site.clone()] },
        Command::SetPolicy { policy: Policy::paper() },
        Command::SetRuntime { runtime: Runtime::Graph },
        Command::SetMaxError { value: 0.1, gesture: None },
        Command::SetMinSpeedup { value: 1.1, gesture: None },
        Command::SetOverride { site: site.clone(), gemm: Gemm::Fprop, kernel: kernel.clone(), reason: text.clone() },
        Command::ClearOverride { site: site.clone(), gemm: Gemm::Fprop },
        Command::SetOverrides { at: at.clone(), kernel, reason: text.clone() },
        Command::ClearOverrides { at },
        Command::Mark { site: None, state: ReviewState::Agreed, of: text.clone() },
        Command::Comment { site: None, gemm: None, reply_to: None, text: text.clone() },
        Command::Resolve { comment: 1, resolved: true },
        Command::Look { site: site.clone(), of: text.clone() },
        Command::RequestApproval { note: text.clone() },
        Command::WithdrawRequest,
        Command::Sign { path: path.clone(), note: text },
        Command::Approve { approval },
        Command::ReadSeries,
        Command::OpenPlan { path: path.clone() },
        Command::ClosePlan,
        Command::Identify { path: path.clone() },
        Command::Undo,
        Command::Redo,
        Command::SaveResults { path: path.clone() },
        Command::ExportPlan { path: path.clone() },
        Command::InspectSite { site: site.clone() },
        Command::InspectOther { path, site },
        Command::DismissNotice { id: 1 },
        Command::DismissNotices,
        Command::ClearLog,
        Command::ExportTo { path: "p".to_owned(), target: Target::Te },
        Command::ExportReport { path: "p".to_owned() },
        Command::SetBaseline { of: BaselineOf::Mods { mods: ModSet([ModKind::NoBias].into()) } },
        Command::CompareTrace { path: "p".to_owned() },
        Command::ProbeSites { sites: vec![SiteId::new("s")], max_draws: 1 },
        Command::ReadCheckpoints { followed: Box::new(followed()) },
    ]
}

#[test]
fn what_a_command_needs_is_seen_before_it_is_made() {
    let every = every_command();
    for (place, command) in every.iter().enumerate() {
        let message = ToServer::Command { number: 300, seen: 7, command: Box::new(command.clone()) };
        let bytes = encode(&message);
        // Behind the coding, the message's own place, number and what was seen.
        assert_eq!(usize::from(bytes[5]), place, "the list above is in the order of the commands");
        let unread = Unread::of(&bytes, MAX_TO_SERVER).unwrap();
        assert_eq!(unread.command(), Some((300, command.needs())), "{command:?}");
        assert_eq!(unread.read(), Ok(message));
    }
    let unknown = [AS_IT_IS, 2, 1, 1, u8::try_from(every.len()).unwrap()];
    assert!(decode::<ToServer>(&unknown, MAX_TO_SERVER).is_err(), "a command that is not in the list above");
    assert_eq!(Unread::of(&unknown, MAX_TO_SERVER).unwrap().command(), Some((1, Role::Owner)));
    let asked = encode(&ToServer::Ask(ClientQuery::Series));
    assert_eq!(Unread::of(&asked, MAX_TO_SERVER).unwrap().command(), None);
}

/// Four million names without a character, 16 KB packed: 200 MB if they were made.
#[test]
fn a_list_of_nothing_costs_nothing() {
    let mut plain = vec![2, 1, 1, 10, 0, 1];
    let num = 4_190_000_u32;
    plain.extend(postcard::to_allocvec(&num).unwrap());
    plain.extend(std::iter::repeat_n(0, num as usize));
    let mut bytes = vec![LZ4];
    bytes.extend(lz4_flex::compress_prepend_size(&plain));
    assert!(bytes.len() < 20_000);
    assert_eq!(unpacked_size(&bytes, MAX_TO_SERVER), Ok(plain.len()));
    let unread = Unread::of(&bytes, MAX_TO_SERVER).unwrap();
    assert_eq!(unread.command(), Some((1, Role::Owner)));
    assert!(matches!(unread.read(), Err(WireError::Broken(_))));
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
