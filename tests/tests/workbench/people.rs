//! The workbench in a session of several people: where this one looks is told, who else is where is shown, and what
//! another one chose says so.

use std::{cell::RefCell, rc::Rc};

use egui::Key;
use egui_kittest::kittest::{NodeT as _, Queryable as _};
use loka::{LokaApp, clock::now, layout::Pane};
use loka_core::{
    model::{Gemm, KernelId, Moment, SiteId},
    review::Role,
    session::{
        Command, Event,
        shared::{Author, CommandContext, LinkMessage, Person, Place},
    },
    views::Column,
};
use loka_tests::{
    big,
    scripted::{Script, ScriptedLink, Window, window},
};

fn me() -> Author {
    Author::new(1, "Me")
}

fn person(key: u64, name: &str, role: Role, site: Option<&SiteId>, view: &str) -> Person {
    Person { key, name: name.to_owned(), role, at: Place { site: site.cloned(), view: view.to_owned() } }
}

fn joined() -> (Window, Rc<RefCell<Script>>, Vec<SiteId>) {
    let results = big::results(6, 5);
    let sites: Vec<SiteId> = results.meta.manifest.sites.iter().map(|site| site.id.clone()).collect();
    let link = ScriptedLink::new(Script { me: me(), ..Script::default() });
    let script = link.script.clone();
    let opened = Event::ResultsOpened { path: "made.results.parquet".to_owned(), results: Box::new(results.into()) };
    script.borrow_mut().tell(opened);
    script.borrow_mut().people = Some(vec![
        person(1, "Me", Role::Owner, None, ""),
        person(2, "Bo", Role::Reviewer, None, "Heatmap"),
        person(3, "Anna", Role::Approver, Some(&sites[3]), "Plan"),
    ]);
    let mut harness = window(LokaApp::new(Box::new(link)), [1280.0, 800.0]);
    harness.run_steps(4);
    harness.state_mut().view_mut().select(sites[0].clone(), None);
    harness.run_steps(2);
    (harness, script, sites)
}

/// What would be refused is greyed, and says whom it takes.
#[test]
fn what_a_role_does_not_allow_is_greyed() {
    for (role, may) in [(Role::Approver, false), (Role::Owner, true)] {
        let (mut harness, script, _) = joined();
        script.borrow_mut().me.role = role;
        harness.run_steps(3);
        let enabled = |harness: &Window, of: egui::accesskit::Role, label: &str| {
            let mut found: Vec<bool> = Vec::new();
            for node in harness.get_all_by_role(of) {
                let node = node.accesskit_node();
                if node.label().is_some_and(|text| text.starts_with(label)) {
                    found.push(!node.is_disabled());
                }
            }
            assert!(!found.is_empty(), "{label}");
            found.into_iter().all(|on| on)
        };
        use egui::accesskit::Role as Part;
        for (part, label) in [(Part::SpinButton, ""), (Part::Button, "Everywhere")] {
            assert_eq!(enabled(&harness, part, label), may, "{label} for {role}");
        }
    }
}

#[test]
fn where_this_person_looks_is_told() {
    let (mut harness, script, sites) = joined();
    let last = |script: &Rc<RefCell<Script>>| script.borrow().looked.last().cloned().unwrap();
    assert_eq!(last(&script).site, Some(sites[0].clone()));
    harness.state_mut().view_mut().select(sites[2].clone(), None);
    harness.state_mut().view_mut().layout.show(Pane::Plan);
    harness.run_steps(2);
    assert_eq!(last(&script), Place { site: Some(sites[2].clone()), view: "Plan".to_owned() });
    let told = script.borrow().looked.len();
    harness.run_steps(4);
    assert_eq!(script.borrow().looked.len(), told, "nothing is new");
}

#[test]
fn who_else_is_here_is_told_with_their_place_and_leads_there() {
    let (mut harness, script, sites) = joined();
    harness.get_by_label("with 2 others").hover();
    harness.run_steps(6);
    let hint = format!("Anna, approver, at {} in Plan\nBo, reviewer, in Heatmap", sites[3]);
    assert!(harness.query_by_label_contains(&hint).is_some(), "{hint}");
    assert!(harness.query_by_label_contains("You are Me, owner").is_some());

    // With keys alone.
    harness.get_by_label("with 2 others").focus();
    harness.run_steps(2);
    harness.key_press(Key::Enter);
    harness.run_steps(3);
    harness.get_by_label("Go where Anna is").focus();
    harness.run_steps(2);
    harness.key_press(Key::Enter);
    harness.run_steps(3);
    assert_eq!(harness.state().view().site, Some(sites[3].clone()));
    assert!(harness.query_by_label("Go where Anna is").is_none(), "the menu is closed");

    // Bo is at no site; then at one that this session does not have.
    for site in [None, Some(SiteId::new("nowhere"))] {
        script.borrow_mut().people.as_mut().unwrap()[1].at.site = site.clone();
        harness.run_steps(2);
        harness.get_by_label("with 2 others").click_accesskit();
        harness.run_steps(3);
        assert!(harness.query_by_label("Go where Bo is").is_some(), "{site:?}");
        let button = harness.get_by_label("Go where Bo is");
        assert!(button.accesskit_node().is_disabled());
        // It shuts as it opened.
        harness.get_by_label("with 2 others").click_accesskit();
        harness.run_steps(3);
    }
    script.borrow_mut().people.as_mut().unwrap().remove(1);
    harness.run_steps(2);
    assert!(harness.query_by_label("with Anna").is_some());
    script.borrow_mut().people.as_mut().unwrap().remove(1);
    harness.run_steps(2);
    assert!(harness.query_by_label("with Anna").is_none(), "alone");
}

#[test]
fn what_somebody_else_chose_says_so() {
    let (mut harness, script, sites) = joined();
    let column = |kernel: &KernelId| Some(Column { gemm: Gemm::Fprop, kernel: kernel.clone() });
    let kernel = harness.state().session().rows().find(|row| row.site == sites[0] && row.supported);
    let kernel = kernel.map(|row| row.kernel.clone()).unwrap();
    let mut seq = 1;
    let mut choose = |harness: &mut Window, author: Author, seconds_ago: i64, command: Command| {
        seq += 1;
        let at = Moment(now().0 - 1000 * seconds_ago);
        let by = CommandContext { at, ..CommandContext::numbered(author, seq) };
        script.borrow_mut().tell(LinkMessage::Command { by, seq, command: Box::new(command) });
        harness.run_steps(3);
    };
    let set = |reason: &str| Command::SetOverride {
        site: sites[0].clone(),
        gemm: Gemm::Fprop,
        kernel: kernel.clone(),
        reason: reason.to_owned(),
    };
    harness.state_mut().view_mut().select(sites[0].clone(), column(&kernel));
    choose(&mut harness, Author::new(2, "Bo"), 150, set("a"));
    assert!(harness.query_by_label("Bo chose this 2 min ago").is_some());
    choose(&mut harness, Author::new(2, "Bo"), 0, Command::ClearOverride { site: sites[0].clone(), gemm: Gemm::Fprop });
    assert!(harness.query_by_label("Bo let the policy choose again just now").is_some());
    // Mine, here or in another window of mine.
    for key in [1, 9] {
        choose(&mut harness, Author::new(key, "Me"), 0, set(&key.to_string()));
        assert!(harness.query_by_label("Set by hand:").is_some());
        assert!(harness.query_by_label_contains("chose this").is_none());
    }
    choose(&mut harness, Author::new(2, "Bo"), 0, set("b"));
    assert!(harness.query_by_label("Bo chose this just now").is_some());
    harness.state_mut().view_mut().select(sites[1].clone(), None);
    harness.run_steps(2);
    assert!(harness.query_by_label_contains("chose this").is_none(), "at its site alone");
}

#[test]
fn the_served_folder_is_there_to_choose_from() {
    let mut link = ScriptedLink::new(Script { me: me(), people: Some(Vec::new()), ..Script::default() });
    link.files = (0..20).map(|week| format!("runs/week-{week}.trace.safetensors")).collect();
    link.files.extend(["ranks", "a.results.parquet", "a.plan.json"].map(str::to_owned));
    let mut harness = window(LokaApp::new(Box::new(link)), [1280.0, 1000.0]);
    harness.run_steps(3);
    assert!(harness.query_by_label("21 traces in the served folder").is_some());
    assert!(harness.query_by_label("runs/week-7.trace.safetensors").is_some());
    assert!(harness.query_by_label("ranks").is_some(), "the shards of a run");
    assert!(harness.query_by_label("a.plan.json").is_none(), "nothing to begin with");
    harness.get_by_label("Find a trace").focus();
    harness.run_steps(2);
    harness.event(egui::Event::Text("WEEK 17".to_owned()));
    harness.run_steps(3);
    assert!(harness.query_by_label("runs/week-17.trace.safetensors").is_some());
    assert!(harness.query_by_label("runs/week-7.trace.safetensors").is_none());
}
