//! A disk that is full while people decide, and has space again.

use std::fs;

use loka_core::{
    journal::Trail,
    session::{Command, shared::Author},
    trace::write,
};
use loka_tests::{
    serving::{Server, Window},
    tiny,
};
use tempfile::TempDir;

use crate::shim;

#[test]
fn what_was_decided_while_the_disk_was_full_is_kept_when_there_is_room() {
    let folder = TempDir::new().unwrap();
    let place = folder.path().canonicalize().unwrap();
    let full = place.with_extension("full");
    write(&place.join("t.trace.safetensors"), &tiny::trace(2)).unwrap();
    let preload = format!("LD_PRELOAD={}", shim().display());
    let (below, toggle) = (format!("FAULT_FOLDER={}", place.display()), format!("FAULT_WHILE={}", full.display()));
    let starter = ["env", &preload, &below, &toggle];
    let none: [&str; 0] = [];
    let mut server = Server::under(&starter, &place.join("t.trace.safetensors"), "127.0.0.1:0", none);
    let mut window = Window::knock_as(&server, Author::new(7, "Anna"), None, None);
    window.until_probed();
    let comment =
        |at: usize| Command::Comment { site: None, gemm: None, reply_to: None, text: format!("comment {at}") };
    fs::write(&full, "").unwrap();
    (0..10).for_each(|at| window.submit(comment(at)));
    window.until("the window is told", |window| window.session.not_kept.is_some());
    assert!(window.session.not_kept.as_ref().unwrap().starts_with("the disk is full"), "{:?}", window.session.not_kept);
    let mut other = Window::knock_as(&server, Author::new(8, "Bo"), None, None);
    other.until("who joins is told", |window| window.session.not_kept.is_some());
    window.submit(Command::RequestApproval { note: String::new() });
    window.until("it is refused", |window| !window.refused.is_empty());
    assert!(
        window.refused[0].starts_with("changes cannot be kept for now, and an approval has to be: the disk is full")
    );
    fs::remove_file(&full).unwrap();
    window.until("it is kept again", |window| window.session.not_kept.is_none());
    other.until("it is kept again", |window| window.session.not_kept.is_none());
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    let trail = Trail::read(&place.join("t.journal.sqlite")).unwrap().unwrap();
    let comments = trail.entries.iter().filter(|entry| entry.command.contains("comment ")).count();
    assert_eq!(comments, 10);
    let again = Server::start(&place.join("t.trace.safetensors"), none);
    let mut window = Window::knock_as(&again, Author::new(9, "Cleo"), None, None);
    window.until("they are there", |window| window.session.reviewing.review.comments.len() == 10);
}
