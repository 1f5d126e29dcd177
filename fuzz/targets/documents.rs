//! Each of our documents, and what a journal's tables hold, which the first byte chooses: refused, or read, and what was
//! read can be written and read again.

#![no_main]

// The server's list of people, by itself: the rest of the server would be fuzzed through a network.
#[allow(dead_code)]
#[path = "../../app/src/server/limits.rs"]
mod limits;
#[allow(dead_code)]
#[path = "../../app/src/server/one_line.rs"]
mod one_line;
#[allow(dead_code)]
#[path = "../../app/src/server/people.rs"]
mod people;
#[allow(dead_code)]
#[path = "../../app/src/server/token.rs"]
mod token;

use std::fmt::Display;

use libfuzzer_sys::fuzz_target;
use loka_core::{
    bench::{from_csv, parse_shapes, to_csv},
    dispatch::Policy,
    model::{SiteTimes, visible},
    plan::{Plan, standing},
    review::{KeyRing, SecretKey},
    session::{
        Command, Event, RowChunk, SavedSession, SessionHeader,
        shared::{Author, CommandContext, SequencedInput, SequencedSession, SessionInput},
    },
};
use people::People;
use serde::de::DeserializeOwned;

/// What is wrong may hold names as they were: whoever shows it makes them visible.
fn read<T, E: Display>(found: Result<T, E>) -> Option<T> {
    found.map_err(|error| assert!(!visible(&error.to_string()).contains('\n'))).ok()
}

fuzz_target!(|bytes: &[u8]| {
    let Some((which, rest)) = bytes.split_first() else { return };
    if let b'H' | b'R' | b'E' | b'C' = which {
        return journal(*which, rest);
    }
    let Ok(text) = std::str::from_utf8(rest) else { return };
    match which {
        b'p' => {
            if let Some(plan) = read(Plan::from_json(text)) {
                drop(standing(&plan, None, None).missing());
                assert_eq!(Plan::from_json(&plan.to_json()).ok().as_ref(), Some(&plan));
            }
        }
        b'k' => {
            if let Some(ring) = read(KeyRing::from_json(text)) {
                assert_eq!(KeyRing::from_json(&ring.to_json()).ok().as_ref(), Some(&ring));
            }
        }
        b'u' => {
            if let Some(people) = read(People::from_json(text)) {
                assert_eq!(People::from_json(&people.to_json()).ok().as_ref(), Some(&people));
            }
        }
        b's' => drop(read(SecretKey::from_json(text)).map(|key| key.public())),
        b't' => drop(read(SiteTimes::from_json(text))),
        b'c' => drop(read(parse_shapes(text))),
        b'd' => {
            if let Some(records) = read(from_csv(text)) {
                // Rounded once, and a reason in one line.
                let written = from_csv(&to_csv(&records)).expect("what was written can be read");
                assert_eq!(from_csv(&to_csv(&written)).as_ref(), Ok(&written));
            }
        }
        _ => drop(read(Policy::from_json(text))),
    }
});

/// What SQLite gave of one cell, by whoever made up a journal whose chain holds: a session is restored from it.
fn journal(which: u8, bytes: &[u8]) {
    let mut saved = SavedSession::default();
    let mut input = None;
    match which {
        b'H' => saved.head = coded::<SessionHeader>(bytes).unwrap_or_default(),
        b'R' => saved.shares.extend(coded::<RowChunk>(bytes)),
        b'E' => input = coded::<Event>(bytes).map(|event| SessionInput::Event(Box::new(event))),
        _ => {
            let command = serde_json::from_slice::<Command>(bytes).ok();
            let by = CommandContext::numbered(Author::new(7, "Anna"), 1);
            input = command.map(|command| SessionInput::Command { by, command });
        }
    }
    let mut ordered = SequencedSession::of(saved, 0);
    if let Some(input) = input {
        ordered.follow(SequencedInput { seq: 1, input }).expect("it is the next one");
    }
    ordered.session.awaken();
    drop(ordered.session.snapshot());
    drop(ordered.save().digest());
}

fn coded<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    postcard::from_bytes(bytes).ok()
}
