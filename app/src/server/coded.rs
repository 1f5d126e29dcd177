//! A session as it is sent to a window that joins: takes it saved, gives coded parts, made once for all who join.

use std::time::Instant;

use bytes::Bytes;
use loka_core::session::{
    RowChunk, SavedSession, SessionHeader,
    shared::{ToClient, encode},
};

use super::limits;

/// The session after step `seq`.
#[derive(Debug)]
pub struct Coded {
    pub seq: u64,
    pub made: Instant,
    pub parts: Vec<Bytes>,
}

impl Coded {
    pub fn new(seq: u64, saved: SavedSession) -> Self {
        let SavedSession { head, shares } = saved;
        let num_shares = shares.len() as u64;
        let first = encode(&ToClient::Saved { seq, num_shares, head: Box::new(head) });
        let mut parts = vec![Bytes::from(first)];
        let (mut together, mut rows) = (Vec::<RowChunk>::new(), 0);
        for share in shares {
            rows += share.rows.all().len();
            together.push(share);
            // An empty share has its cost, too.
            if rows >= limits::SHARE_ROWS || together.len() >= limits::SHARE_ROWS {
                parts.push(encode(&ToClient::Shares(std::mem::take(&mut together))).into());
                rows = 0;
            }
        }
        if !together.is_empty() {
            parts.push(encode(&ToClient::Shares(together)).into());
        }
        Self { seq, made: Instant::now(), parts }
    }

    /// Nothing is open.
    pub fn nothing() -> Bytes {
        encode(&ToClient::Saved { seq: 0, num_shares: 0, head: Box::new(SessionHeader::default()) }).into()
    }
}
