//! Bytes as a stranger sends them to a server, and as a broken server sends them to a window: read within their
//! bounds, refused or taken, and what was taken leaves a session that can be saved.

#![no_main]

use libfuzzer_sys::fuzz_target;
use loka_core::{
    model::{Loss, Manifest, Model, Results, ResultsMeta, Run, Site, SiteId},
    session::{
        Event, Session,
        shared::{Author, CommandContext, SyncClient, MAX_TO_SERVER, LinkMessage, SequencedSession, ToClient, ToServer, decode, encode},
    },
};

/// Messages of a window are small here: what is large is tested by its bound.
const MOST: usize = 1 << 20;

fuzz_target!(|bytes: &[u8]| {
    let mut ordered = opened();
    // Several messages: each behind its length.
    let mut rest = bytes;
    let mut sync = SyncClient::new(Author::new(1, ""), "", None);
    let mut window = Session::default();
    while let Some((length, tail)) = rest.split_first_chunk::<2>() {
        let (message, tail) = tail.split_at(tail.len().min(usize::from(u16::from_le_bytes(*length))));
        rest = tail;
        if let Ok(message) = decode::<ToServer>(message, MAX_TO_SERVER.min(MOST)) {
            assert!(decode::<ToServer>(&encode(&message), MAX_TO_SERVER).is_ok());
            if let ToServer::Command { number, seen, command } = message {
                let by = CommandContext { seen, ..CommandContext::numbered(Author::new(2, ""), number) };
                drop(ordered.command(by, *command));
            }
        }
        if let Ok(message) = decode::<ToClient>(message, MOST) {
            drop(sync.take(message));
            while let Some(news) = sync.poll() {
                take(&mut window, news);
            }
        }
    }
    drop(ordered.save().digest());
    drop(window.save().digest());
});

/// As a window does.
fn take(window: &mut Session, news: LinkMessage) {
    match news {
        LinkMessage::Event(event) => window.event(*event),
        LinkMessage::Command { by, seq, command } => drop(window.command_by(&by, seq, *command)),
        LinkMessage::State(saved) => *window = Session::restored(*saved),
        LinkMessage::Refused(_) => {}
    }
    drop(window.snapshot());
}

/// A session with two sites and no rows.
fn opened() -> SequencedSession {
    let site = |name: &str| Site {
        id: SiteId::new(name),
        class: String::new(),
        source: None,
        m: 16,
        k: 16,
        n: 16,
        dtype: "bf16".to_owned(),
        calls: 1,
        forward: None,
        grads: Default::default(),
        bias: false,
        head: false,
        tail: Vec::new(),
        feeds: Vec::new(),
        extra: Default::default(),
    };
    let manifest = Manifest {
        version: 1,
        model: Model {
            name: "fuzz".to_owned(),
            family: String::new(),
            framework: String::new(),
            parameters: 0,
            note: None,
            extra: Default::default(),
        },
        run: Run {
            id: "0".to_owned(),
            rank: 0,
            world_size: 1,
            step: 0,
            every: 1,
            device: String::new(),
            recorded_at: None,
            extra: Default::default(),
        },
        loss: Loss { name: "loss".to_owned(), value: 1.0, weight: None, extra: Default::default() },
        quantile_probs: Vec::new(),
        sites: vec![site("a"), site("a.b")],
        extra: Default::default(),
    };
    let text = String::new;
    let meta = ResultsMeta {
        trace_digest: "00".to_owned(),
        manifest,
        engine: text(),
        device: text(),
        driver: text(),
        versions: text(),
        time: text(),
        seed: 0,
        confidence: 0.95,
        problems: Vec::new(),
        site_times: None,
    };
    let mut ordered = SequencedSession::default();
    ordered.event(Event::ResultsOpened {
        path: "r".to_owned(),
        results: Box::new(Results { meta, rows: Vec::new() }.into()),
    });
    ordered
}
