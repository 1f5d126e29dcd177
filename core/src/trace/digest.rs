//! Takes a trace, gives its digest a piece at a time: for a page, which has no thread to read a large file on.

use sha2::{Digest, Sha256};

use super::trace::{Source, Trace};

/// A digest that is being computed.
#[derive(Clone)]
pub struct Digesting {
    trace: Trace,
    hash: Sha256,
    done: usize,
}

impl Digesting {
    pub fn new(trace: Trace) -> Self {
        Self { trace, hash: Sha256::new(), done: 0 }
    }

    /// Reads at most so many bytes more. Gives the digest, which the trace knows from then on, when all are read. Shards
    /// are read in one go: who has folders has threads too.
    pub fn read(&mut self, bytes: usize) -> Option<String> {
        if let Some(known) = self.trace.known_digest().get() {
            return Some(known.clone());
        }
        let computed = match self.trace.source() {
            Source::File { bytes: file, .. } => {
                let file = (**file).as_ref();
                let end = self.done.saturating_add(bytes).min(file.len());
                self.hash.update(&file[self.done..end]);
                self.done = end;
                if end < file.len() {
                    return None;
                }
                hex(&std::mem::take(&mut self.hash).finalize())
            }
            // A folder of one is that file.
            Source::Shards(shards, _) if shards.len() == 1 => shards.iter().map(Trace::digest).collect(),
            Source::Shards(shards, _) => {
                let all: String = shards.iter().map(Trace::digest).collect();
                hex(&Sha256::digest(all.as_bytes()))
            }
        };
        Some(self.trace.known_digest().get_or_init(|| computed).clone())
    }

    /// How much is read, of 1.
    pub fn share(&self) -> f32 {
        match self.trace.source() {
            Source::File { bytes, .. } => self.done as f32 / ((**bytes).as_ref().len() as f32).max(1.0),
            Source::Shards(..) => 0.0,
        }
    }
}

pub(super) fn hex(digest: &[u8]) -> String {
    let mut text = "sha256:".to_owned();
    text.extend(digest.iter().map(|byte| format!("{byte:02x}")));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../sample-traces/wukong-clicks.trace.safetensors");

    #[test]
    fn pieces_give_the_digest_of_the_whole() {
        let bytes = std::fs::read(TRACE).unwrap();
        let expected = hex(&Sha256::digest(&bytes));
        for piece in [1 << 20, bytes.len(), bytes.len() - 1, 1_000_003] {
            let mut digesting = Digesting::new(Trace::from_bytes("a", bytes.clone()).unwrap());
            let mut pieces = 1;
            let digest = loop {
                if let Some(digest) = digesting.read(piece) {
                    break digest;
                }
                assert_eq!(digesting.share(), (pieces * piece) as f32 / bytes.len() as f32);
                pieces += 1;
            };
            assert_eq!((digest, pieces), (expected.clone(), bytes.len().div_ceil(piece)));
            assert_eq!(digesting.read(1), Some(expected.clone()), "it is known now");
        }
        assert_eq!(Trace::from_bytes("a", bytes).unwrap().digest(), expected);
    }
}
