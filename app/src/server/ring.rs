//! The latest steps of a session as they are sent: takes frames, gives those after a number, or nothing when they
//! are gone.

use std::collections::VecDeque;

use bytes::Bytes;

/// Steps that were coded together.
#[derive(Clone, Debug)]
struct RingFrame {
    /// Number of its first and last step.
    first: u64,
    last: u64,
    bytes: Bytes,
}

/// Bounded by bytes; the oldest go first.
#[derive(Debug)]
pub struct Ring {
    frames: VecDeque<RingFrame>,
    bytes: usize,
    most: usize,
    /// The newest step, also one that was never here.
    last: u64,
}

impl Ring {
    pub fn new(last: u64, most: usize) -> Self {
        Self { frames: VecDeque::new(), bytes: 0, most, last }
    }

    pub fn push(&mut self, first: u64, last: u64, bytes: Bytes) {
        self.last = last;
        self.bytes += bytes.len();
        self.frames.push_back(RingFrame { first, last, bytes });
        while self.bytes > self.most {
            let Some(oldest) = self.frames.pop_front() else { break };
            self.bytes -= oldest.bytes.len();
        }
    }

    /// Steps up to `last` are not here, nor any before: whoever lacks them needs the whole session.
    pub fn cut(&mut self, last: u64) {
        (self.bytes, self.last) = (0, last);
        self.frames.clear();
    }

    /// Frames that hold what comes after step `seq`, oldest first, at most `most` of them; the first may hold steps
    /// before it, too. `None`: something after it is gone, or it never was.
    pub fn after(&self, seq: u64, most: usize) -> Option<Vec<(u64, Bytes)>> {
        if seq == self.last {
            return Some(Vec::new());
        }
        let first = self.frames.front()?.first;
        if seq > self.last || seq + 1 < first {
            return None;
        }
        let from = self.frames.partition_point(|frame| frame.last <= seq);
        Some(self.frames.iter().skip(from).take(most).map(|frame| (frame.last, frame.bytes.clone())).collect())
    }

    pub fn reaches(&self, seq: u64) -> bool {
        self.after(seq, 0).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(ring: &Ring, seq: u64) -> Option<Vec<u64>> {
        Some(ring.after(seq, 9)?.into_iter().map(|(last, _)| last).collect())
    }

    #[test]
    fn what_is_there_goes_on_and_what_is_gone_does_not() {
        let mut ring = Ring::new(10, 100);
        assert_eq!((of(&ring, 10), of(&ring, 9), of(&ring, 11)), (Some(vec![]), None, None));
        for (first, last) in [(11, 13), (14, 14), (15, 20)] {
            ring.push(first, last, Bytes::from(vec![0; 40]));
        }
        assert_eq!(of(&ring, 10), None, "the first frame had to go");
        assert_eq!(of(&ring, 13), Some(vec![14, 20]));
        assert_eq!(of(&ring, 17), Some(vec![20]), "a client in the middle of a frame");
        assert_eq!((of(&ring, 20), of(&ring, 21)), (Some(vec![]), None));
        assert_eq!(ring.after(13, 1).map(|frames| frames.len()), Some(1));
    }

    #[test]
    fn one_frame_that_is_too_large_is_no_frame() {
        let mut ring = Ring::new(0, 100);
        ring.push(1, 1, Bytes::from(vec![0; 50]));
        ring.push(2, 2, Bytes::from(vec![0; 200]));
        assert_eq!((of(&ring, 0), of(&ring, 1), of(&ring, 2)), (None, None, Some(vec![])));
        ring.push(3, 3, Bytes::from(vec![0; 50]));
        assert_eq!(of(&ring, 2), Some(vec![3]));
        ring.cut(7);
        assert_eq!((of(&ring, 2), of(&ring, 7)), (None, Some(vec![])));
    }
}
