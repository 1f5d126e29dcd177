//! What the tests of this folder send, and the folder that they send it to.

use std::{
    collections::BTreeMap,
    io::Write as _,
    net::TcpStream,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use loka_tests::{
    serving::{Answer, PATIENCE, Server},
    tiny,
};
use tempfile::TempDir;

pub const TRACE: &str = "tiny.trace.safetensors";
pub const TOKEN: &str = "a-token-of-thirty-two-characters";

/// A served folder with a trace, and room around it that nobody may reach.
pub struct Served {
    pub around: TempDir,
}

impl Served {
    pub fn new() -> Self {
        let around = TempDir::new().unwrap();
        std::fs::create_dir(around.path().join("served")).unwrap();
        std::fs::write(around.path().join("secret.plan.json"), "secret").unwrap();
        tiny::put(&around.path().join("served").join(TRACE), 1);
        Self { around }
    }

    pub fn folder(&self) -> PathBuf {
        self.around.path().join("served")
    }

    pub fn start(&self, args: &[&str]) -> Server {
        Server::start(&self.folder(), args)
    }

    /// Everything here, with what is in it.
    pub fn all(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut found = BTreeMap::new();
        below(self.around.path(), &mut found);
        // The journal's own, which come and go.
        found.retain(|path, _| !["-wal", "-shm", "-journal"].iter().any(|end| path.to_string_lossy().ends_with(end)));
        found
    }
}

fn below(folder: &Path, found: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            below(&path, found);
        }
        found.insert(path.clone(), std::fs::read(&path).unwrap_or_default());
    }
}

/// A trace's bytes, another one for each number of sites.
pub fn trace(num_sites: usize) -> Vec<u8> {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join(TRACE);
    tiny::put(&path, num_sites);
    std::fs::read(path).unwrap()
}

/// What begins as a trace does, of any length.
pub fn large(bytes: usize) -> Vec<u8> {
    let mut all = 4096_u64.to_le_bytes().to_vec();
    all.push(b'{');
    all.resize(bytes, b' ');
    all
}

pub const PLAN: &[u8] = b"{\"format\": \"loka-plan\"}";

#[track_caller]
pub fn is_refused(answer: &Answer, status: u16, part: &str) {
    let text = answer.text();
    assert!(answer.status == status && text.contains(part), "{status} {part}: {answer:?}: {text}");
    assert!(text.ends_with('\n') && text.trim_end().lines().count() == 1, "one line: {text}");
    assert!(answer.header("content-security-policy").is_some() && answer.header("cache-control") == Some("no-store"));
}

/// Files that are not there yet under their names.
pub fn drafts(folder: &Path) -> usize {
    let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_string_lossy().starts_with('.')).count()
}

#[track_caller]
pub fn until(what: &str, mut so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !so() {
        assert!(start.elapsed() < PATIENCE, "it never happens that {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The first half of a file is on its way, and the server has begun to keep it.
pub fn half(server: &Server, folder: &Path, name: &str, bytes: &[u8], more: &str) -> TcpStream {
    let before = drafts(folder);
    let mut stream = server.connect();
    let head = server.put_head(name, &format!("Content-Length: {}\r\n{more}", bytes.len()));
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&bytes[..bytes.len() / 2]).unwrap();
    until("a file is begun", || drafts(folder) > before);
    stream
}
