//! Text as each of our documents, which the first byte chooses: refused, or read, and what was read can be written and
//! read again.

#![no_main]

use std::fmt::Display;

use libfuzzer_sys::fuzz_target;
use loka_core::{
    bench::parse_shapes,
    dispatch::Policy,
    model::{SiteTimes, visible},
    plan::{Plan, standing},
    review::{KeyRing, SecretKey},
};

/// What is wrong may hold names as they were: whoever shows it makes them visible.
fn read<T, E: Display>(found: Result<T, E>) -> Option<T> {
    found.map_err(|error| assert!(!visible(&error.to_string()).contains('\n'))).ok()
}

fuzz_target!(|bytes: &[u8]| {
    let Some((which, rest)) = bytes.split_first() else { return };
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
        b's' => drop(read(SecretKey::from_json(text)).map(|key| key.public())),
        b't' => drop(read(SiteTimes::from_json(text))),
        b'c' => drop(read(parse_shapes(text))),
        _ => drop(read(Policy::from_json(text))),
    }
});
