//! Several windows on one server, a server that goes and comes back, and pictures of page and window side by side for a
//! person to look at.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use loka::driving::Look;
use loka_tests::loka;

use crate::{
    in_browser::{BrowserServer, InBrowser},
    in_window::InWindow,
    player::{Playable, until},
    scenario::{Aim, is_part},
    skipped,
    stage::{Looks, Stage, USUAL, pictures},
    turn,
};

fn keep(window: &mut dyn Playable, name: &str) {
    if let Some(folder) = pictures() {
        window.picture(&folder.join(name)).unwrap();
    }
}

fn has(look: &Look, state: &serde_json::Value) -> bool {
    is_part(state, &look.state)
}

fn says(look: &Look, part: &str) -> bool {
    look.nodes.iter().any(|node| node.label.contains(part))
}

fn is_modified(look: &Look) -> bool {
    has(look, &serde_json::json!({"document": {"mods": {"default": ["hard_swish"]}}}))
}

fn click(window: &mut dyn Playable, role: &str, label: &str) {
    let target = Aim::of(role, label);
    let found = |look: &Look| look.nodes.iter().find(|node| target.fits(node)).map(|node| node.bounds);
    let look = until(window, label, |look| found(look).is_some());
    let [left, top, right, bottom] = found(&look).unwrap();
    window.point([(left + right) / 2.0, (top + bottom) / 2.0].map(|at| at.round() as i32));
    window.press();
    window.release();
}

fn toggle_swish(window: &mut dyn Playable) {
    click(window, "Button", "Everywhere…");
    click(window, "CheckBox", "Hard swish everywhere");
}

#[test]
fn two_browsers_share_a_session() {
    let _turn = turn();
    let stage = Stage::new(None, &[], USUAL);
    let opened = BrowserServer::start(&stage, "127.0.0.1:0").and_then(|server| {
        let both = [InBrowser::of(&stage, &server, "Ada")?, InBrowser::of(&stage, &server, "Grace")?];
        Ok((server, both))
    });
    let (_server, [mut ada, mut grace]) = match opened {
        Ok(opened) => opened,
        Err(why) => return skipped("two browsers", &why),
    };
    until(&mut ada, "Ada sees Grace", |look| says(look, "with Grace"));
    until(&mut grace, "Grace sees Ada", |look| says(look, "with Ada"));
    for window in [&mut ada, &mut grace] {
        until(window, "every row", |look| has(look, &serde_json::json!({"complete": true})));
    }
    toggle_swish(&mut ada);
    for window in [&mut ada, &mut grace] {
        until(window, "the mod that Ada turned on", |look| {
            is_modified(look) && has(look, &serde_json::json!({"complete": true}))
        });
    }
    keep(&mut ada, "ada.png");
    keep(&mut grace, "grace.png");
    // What a screen reader finds, which follows within a second or two.
    let start = std::time::Instant::now();
    while !ada.text().contains("Plan: the kernel of each GEMM") {
        assert!(start.elapsed().as_secs() < 20, "nothing stands behind the canvas: {}", ada.text());
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
    let [ada, grace] = [ada.look(), grace.look()].map(|look| look.state["document"].clone());
    assert_eq!(ada, grace);
}

#[test]
fn a_page_says_that_its_server_is_away() {
    let _turn = turn();
    let stage = Stage::new(None, &[], USUAL);
    let opened = BrowserServer::start(&stage, "127.0.0.1:0")
        .and_then(|server| Ok((InBrowser::of(&stage, &server, "Ada")?, server)));
    let (mut page, server) = match opened {
        Ok(opened) => opened,
        Err(why) => return skipped("a server that goes", &why),
    };
    until(&mut page, "every row", |look| has(look, &serde_json::json!({"complete": true})));
    toggle_swish(&mut page);
    until(&mut page, "the mod", |look| is_modified(look) && has(look, &serde_json::json!({"complete": true})));
    let decided = page.look().state["document"].clone();

    let address = server.address.clone();
    server.kill();
    until(&mut page, "the line", |look| {
        has(look, &serde_json::json!({"standing": "away"})) && says(look, "The server has not answered")
    });
    keep(&mut page, "away.png");
    // The same as before is still there to be seen.
    assert_eq!(page.look().state["document"], decided);

    let _server = BrowserServer::start(&stage, &address).unwrap();
    until(&mut page, "the server again", |look| {
        has(look, &serde_json::json!({"standing": "joined", "complete": true})) && !says(look, "has not answered")
    });
    keep(&mut page, "back.png");
    assert_eq!(page.look().state["document"], decided, "what was decided came from the journal");
    // That a connection failed is what the browser says about it, and true.
    let other: Vec<String> = page.complaints().into_iter().filter(|line| !line.contains("WebSocket")).collect();
    assert!(other.is_empty(), "{other:?}");
}

/// A list of people with their tokens, made by the binary; gives what follows the server's address for each.
fn people(stage: &Stage, roles: &[(&str, &str)]) -> (PathBuf, Vec<String>) {
    let list = stage.room("people").join("users.json");
    let link = |(name, role): &(&str, &str)| {
        let mut add = Command::new(loka());
        add.args(["user", "add", name, "--role", role, "--users"]).arg(&list);
        let output = add.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let said = String::from_utf8(output.stdout).unwrap();
        said.split_whitespace().find(|word| word.starts_with("?token=")).unwrap().to_owned()
    };
    let links = roles.iter().map(link).collect();
    (list, links)
}

/// Owner and approver, each in a browser of their own: what one puts up the other signs, a change voids it.
#[test]
fn two_people_review_a_plan() {
    let _turn = turn();
    let stage = Stage::new(None, &["Grace".to_owned()], USUAL);
    let (list, links) = people(&stage, &[("Ada", "owner"), ("Grace", "approver")]);
    let opened = BrowserServer::with(&stage, "127.0.0.1:0", Some(&list)).and_then(|server| {
        let link = |at: usize| format!("http://{}/{}", server.address, links[at]);
        let both =
            [InBrowser::by(&stage, &server, &link(0), "Ada")?, InBrowser::by(&stage, &server, &link(1), "Grace")?];
        Ok((server, both))
    });
    let (_server, [mut ada, mut grace]) = match opened {
        Ok(opened) => opened,
        Err(why) => return skipped("a review by two", &why),
    };
    for window in [&mut ada, &mut grace] {
        until(window, "every row", |look| has(look, &serde_json::json!({"complete": true})));
        window.key("V");
        until(window, "the review", |look| has(look, &serde_json::json!({"view": "Review"})));
    }
    click(&mut ada, "ComboBox", "Approvals needed");
    let one = |look: &Look| look.nodes.iter().any(|node| node.label == "1 person");
    let look = until(&mut ada, "the menu", one);
    let role = look.nodes.iter().find(|node| node.label == "1 person").unwrap().role.clone();
    click(&mut ada, &role, "1 person");
    until(&mut ada, "the rule", |look| {
        has(look, &serde_json::json!({"document": {"policy": {"approval": {"approvers": 1}}}}))
    });
    click(&mut ada, "Button", "Request approval");
    let up = serde_json::json!({"review": {"release": {"number": 1, "changed": false}}});
    until(&mut grace, "the version", |look| has(look, &up));

    // An approver marks and says, and does not decide.
    grace.key("N");
    until(&mut grace, "a site", |look| !look.state["site"].is_null());
    grace.key("A");
    grace.key("Shift+C");
    let mark = |look: &Look| look.state["review"]["marks"].as_array().is_some_and(|marks| marks.len() == 1);
    until(&mut ada, "Grace's mark", mark);
    let off = |look: &Look| look.nodes.iter().any(|node| node.label == "Undo" && node.disabled);
    until(&mut grace, "an approver cannot undo", off);

    grace.hand("grace.key.json");
    let signed = serde_json::json!({"review": {"release": {"approvals": ["Grace"], "changed": false}}});
    for window in [&mut ada, &mut grace] {
        until(window, "the signature", |look| has(look, &signed) && says(look, "approved"));
    }
    keep(&mut ada, "review-owner.png");
    keep(&mut grace, "review-approver.png");

    toggle_swish(&mut ada);
    let void = serde_json::json!({"review": {"release": {"changed": true}}});
    until(&mut grace, "Ada's change", |look| has(look, &void) && says(look, "what is on screen is not version 1"));
    keep(&mut grace, "review-void.png");
}

#[test]
fn page_and_window_look_alike() {
    let Some(folder) = pictures() else {
        eprintln!("skipped: LOKA_SIDE_BY_SIDE=folder writes pictures there, for a person to look at");
        return;
    };
    let _turn = turn();
    for (size, ground) in
        [([1280.0, 800.0], "dark"), ([1280.0, 800.0], "light"), ([1920.0, 1080.0], "dark"), ([1920.0, 1080.0], "light")]
    {
        let stages = [(); 2].map(|()| Stage::new(None, &[], Looks { size, ground }));
        let mut windows: [Box<dyn Playable>; 2] =
            [Box::new(InBrowser::open(&stages[0]).unwrap()), Box::new(InWindow::open(&stages[1]).unwrap())];
        for window in &mut windows {
            // Nothing is hovered.
            window.point([1, 1]);
            until(window.as_mut(), "every row", |look| has(look, &serde_json::json!({"complete": true})));
        }
        for (key, view) in VIEWS {
            let shots = windows.each_mut().map(|window| {
                window.key(key);
                until(window.as_mut(), view, |look| has(look, &serde_json::json!({"view": view})));
                let name = format!("{}-{ground}-{view}-{}", size[0], window.name());
                shoot(window.as_mut(), &folder, &name)
            });
            // Page left, window right.
            let pair = folder.join(format!("{}-{ground}-{view}.png", size[0]));
            let joined = Command::new("convert").args(shots).arg("+append").arg(pair).status().unwrap();
            assert!(joined.success(), "imagemagick's convert joins two pictures");
        }
    }
}

/// By their keys.
const VIEWS: [(&str, &str); 8] = [
    ("1", "Heatmap"),
    ("2", "Quadrant"),
    ("3", "Frontier"),
    ("4", "Plan"),
    ("5", "Distribution"),
    ("6", "Drift"),
    ("7", "Mods"),
    ("V", "Review"),
];

/// With the first minute's lines gone.
fn shoot(window: &mut dyn Playable, folder: &Path, name: &str) -> PathBuf {
    let first = window.look().frame;
    until(window, "a window at rest", |look| look.frame > first + 8);
    let path = folder.join(format!("{name}.png"));
    window.picture(&path).unwrap();
    path
}
