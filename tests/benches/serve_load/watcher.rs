//! A window that takes frames and looks into none of them: takes a server, gives what came and when. Reading two
//! hundred times what one probe says would be the load itself.

use std::{
    collections::hash_map::DefaultHasher,
    hash::{Hash as _, Hasher as _},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use loka_core::session::shared::{Author, SyncClient, encode};
use loka_tests::serving::{Server, open};
use tungstenite::Message;

/// A marked command's value as it stands in a frame, and when it was sent.
pub type TimeMark = ([u8; 8], Instant);

pub struct Watcher {
    thread: JoinHandle<Vec<(Arc<[u8]>, Instant)>>,
    num_frames: Arc<AtomicUsize>,
}

/// What one window saw.
pub struct Seen {
    /// Of every frame, in its order.
    pub frames: Vec<u64>,
    pub bytes: usize,
    /// Milliseconds from a marked command to its frame.
    pub marks_ms: Vec<f64>,
}

impl Watcher {
    pub fn start(server: &Server, key: u64, trace: Option<&str>, stop: &Arc<AtomicBool>) -> Self {
        let mut socket = open(&server.address, None);
        let author = Author::new(key, &format!("Watcher {key}"));
        let hello = SyncClient::new(author, "load", trace.map(str::to_owned)).hello();
        socket.send(Message::Binary(encode(&hello).into())).unwrap();
        let (num_frames, stop) = (Arc::new(AtomicUsize::new(0)), stop.clone());
        let told = num_frames.clone();
        let thread = std::thread::Builder::new().stack_size(256 << 10).spawn(move || {
            let mut frames = Vec::new();
            socket.get_ref().set_read_timeout(Some(Duration::from_millis(200))).unwrap();
            while !stop.load(Ordering::Relaxed) {
                match socket.read() {
                    Ok(Message::Binary(bytes)) => {
                        told.fetch_add(1, Ordering::Relaxed);
                        frames.push((Arc::from(&bytes[..]), Instant::now()));
                    }
                    Ok(Message::Close(frame)) => panic!("closed: {frame:?}"),
                    Ok(_) => {}
                    Err(tungstenite::Error::Io(_)) => {}
                    Err(error) => panic!("lost: {error}"),
                }
            }
            frames
        });
        Self { thread: thread.unwrap(), num_frames }
    }

    pub fn num_frames(&self) -> usize {
        self.num_frames.load(Ordering::Relaxed)
    }

    /// What came after the first `joining` frames, looked through after the run.
    pub fn seen(self, joining: usize, marks: &[TimeMark]) -> Seen {
        let frames = self.thread.join().unwrap().split_off(joining);
        let (mut at, mut marks_ms) = (0, Vec::with_capacity(marks.len()));
        for (value, sent) in marks {
            // Commands come in their order: what is before the last one's frame need not be looked at again.
            let found = frames[at..].iter().position(|(bytes, _)| holds(bytes, value));
            if let Some(found) = found {
                at += found;
                marks_ms.push(1000.0 * frames[at].1.duration_since(*sent).as_secs_f64());
            }
        }
        let bytes = frames.iter().map(|(bytes, _)| bytes.len()).sum();
        Seen { bytes, frames: frames.iter().map(|(bytes, _)| hash(bytes)).collect(), marks_ms }
    }
}

/// Frames that LZ4 packed hold doubles that occur once as they are.
fn holds(frame: &[u8], value: &[u8; 8]) -> bool {
    frame.windows(8).any(|eight| eight == value)
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}
