//! Files that a person chooses in a page that a server gave, or drops on it: sent there, and opened as if they had lain in
//! its folder.

use loka::driving::Look;
use loka_tests::{run_in, tiny};
use serde_json::json;

use crate::{
    in_browser::{BrowserServer, InBrowser},
    player::{Playable as _, until},
    scenario::is_part,
    skipped,
    stage::{PERSON, Stage, USUAL},
    turn,
};

fn tells(look: &Look, part: &str) -> bool {
    let problems = look.state["problems"].as_array();
    problems.is_some_and(|all| all.iter().any(|line| line.as_str().is_some_and(|line| line.contains(part))))
}

#[test]
fn what_is_chosen_or_dropped_in_a_served_page_is_sent_and_opened() {
    let _turn = turn();
    let stage = Stage::new(None, &[], USUAL);
    let opened =
        BrowserServer::of_folder(&stage).and_then(|server| Ok((InBrowser::of(&stage, &server, PERSON)?, server)));
    let (mut page, _server) = match opened {
        Ok(opened) => opened,
        Err(why) => return skipped("files that are sent", &why),
    };
    let mine = stage.room("mine");
    let path = |name: &str| mine.join(name).to_str().unwrap().to_owned();
    let [trace, rows, plan] = ["mine.trace.safetensors", "mine.results.parquet", "mine.plan.json"].map(path);
    tiny::put(trace.as_ref(), 2);
    run_in(&mine, ["probe", &trace, "--out", &rows]).done();
    run_in(&mine, ["plan", &rows, "--out", &plan, "--policy", "paper"]).done();
    until(&mut page, "the folder's only trace", |look| {
        is_part(&json!({"trace": "clicks.trace.safetensors"}), &look.state)
    });

    page.hand(&trace);
    until(&mut page, "the trace that was sent", |look| {
        is_part(&json!({"trace": "mine.trace.safetensors", "standing": "joined", "complete": true}), &look.state)
    });
    let there = |name: &str| std::fs::read(stage.traces().join(name)).unwrap_or_default();
    assert!(there("mine.trace.safetensors") == std::fs::read(&trace).unwrap());
    page.drop_file(&plan);
    until(&mut page, "the plan to compare with", |look| look.state["compared"][0] == "mine.plan.json");
    assert!(there("mine.plan.json") == std::fs::read(&plan).unwrap());
    let look = page.look();
    assert_eq!(look.state["problems"], json!([]));
    assert!(page.complaints().is_empty());

    // Refused by the server, and by the page.
    std::fs::remove_file(&trace).unwrap();
    tiny::put(trace.as_ref(), 3);
    page.hand(&trace);
    until(&mut page, "the server's line", |look| {
        tells(look, "another file of that name, which stays: give yours another name: mine.trace.safetensors")
    });
    let notes = path("notes.txt");
    std::fs::write(&notes, "dear diary").unwrap();
    page.hand(&notes);
    until(&mut page, "the page's line", |look| tells(look, "the server takes .trace.safetensors"));
    assert!(!stage.traces().join("notes.txt").exists());
}
