//! A trace's digest beside the frames: takes the trace, reads some of it in every frame, gives the digest. Nothing else
//! waits for it.

use loka_core::{
    session::Event,
    trace::{Digesting, Trace},
};

/// Bytes between two looks at the clock: two or three milliseconds.
const STEP: usize = 512 << 10;

/// Milliseconds in a frame: half of what a frame takes, and never so much that it is felt. Where drawing is slow there
/// are few frames to read in.
const LEAST: f64 = 8.0;
const MOST: f64 = 100.0;

pub(super) struct Reading {
    path: String,
    digesting: Digesting,
    /// When the last piece was read.
    last: Option<f64>,
}

impl Reading {
    pub fn new(path: String, trace: Trace) -> Self {
        Self { path, digesting: Digesting::new(trace), last: None }
    }

    pub fn path(&self) -> &str {
        &self.path
    }

    pub fn label(&self) -> String {
        format!("Reading the trace for its digest, {:.0} %", 100.0 * self.digesting.share())
    }

    /// A frame's piece; the digest after the last. `clock` tells milliseconds.
    pub fn read(&mut self, clock: fn() -> f64) -> Option<Event> {
        let start = clock();
        let since = self.last.replace(start).map_or(0.0, |last| start - last);
        let most = (0.5 * since).clamp(LEAST, MOST);
        loop {
            if let Some(digest) = self.digesting.read(STEP) {
                return Some(Event::TraceDigest { path: self.path.clone(), digest });
            }
            if clock() - start >= most {
                return None;
            }
        }
    }
}
