//! A file that a page sends, while the server's disk fails or its process ends: it is there whole or not at all, and can be
//! sent again.

use std::{
    fs,
    io::{Read as _, Write as _},
};

use loka_core::trace::write;
use loka_tests::{serving::Server, tiny};
use tempfile::TempDir;

use crate::{Fault, everywhere, shim};

pub const NAME: &str = "new.trace.safetensors";
pub const NONE: [&str; 0] = [];

/// Sends the file, gives the status; 0: the server ended.
pub fn send(server: &Server, bytes: &[u8]) -> u16 {
    let mut stream = server.connect();
    let head = server.put_head(NAME, &format!("Content-Length: {}\r\n", bytes.len()));
    let mut said = Vec::new();
    drop(stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(bytes)));
    drop(stream.read_to_end(&mut said));
    let said = String::from_utf8_lossy(&said);
    said.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default()
}

#[test]
fn an_upload_is_whole_or_not_there() {
    let from = TempDir::new().unwrap();
    let whole = from.path().join(NAME);
    write(&whole, &tiny::trace(3)).unwrap();
    let whole = fs::read(whole).unwrap();
    let num = everywhere(1, |fault: Fault| {
        let folder = TempDir::new().unwrap();
        let served = folder.path().canonicalize().unwrap();
        let hit = served.with_extension("hit");
        drop(fs::remove_file(&hit));
        let words = [
            format!("LD_PRELOAD={}", shim().display()),
            format!("FAULT_FOLDER={}", served.display()),
            format!("FAULT_AT={}", fault.at),
            format!("FAULT_HOW={}", fault.how),
            format!("FAULT_HIT={}", hit.display()),
        ];
        let mut starter = vec!["env"];
        starter.extend(words.iter().map(String::as_str));
        if fault.lasts {
            starter.push("FAULT_LASTS=1");
        }
        let server = Server::under(&starter, &served, "127.0.0.1:0", NONE);
        let status = send(&server, &whole);
        let there = fs::read(served.join(NAME)).ok();
        assert!(there.as_ref().is_none_or(|bytes| *bytes == whole), "{fault:?}: a part of it is there");
        assert!((status == 201) == there.is_some() || fault.kills(), "{fault:?}: {status}, there: {}", there.is_some());
        assert!(status != 0 || fault.kills(), "{fault:?}: no answer");
        drop(server);
        // The next one takes it, whatever was left.
        if fault.kills() {
            let next = Server::start(&served, NONE);
            assert!(matches!(send(&next, &whole), 200 | 201), "{fault:?}");
            assert_eq!(fs::read(served.join(NAME)).unwrap(), whole);
        }
        let left: Vec<_> = fs::read_dir(&served).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        // What a process left that ended is taken away a minute later, by the next: another may still write it.
        let draft = |name: &str| fault.kills() && name.starts_with(".loka-upload-");
        let fine = left.iter().all(|name| name == NAME || draft(&name.to_string_lossy()));
        assert!(fine, "{fault:?}: {left:?} is left");
        let struck = hit.exists();
        drop(fs::remove_file(&hit));
        struck
    });
    assert!(num > 10, "{num} faults");
}
