//! A review from open to approved, by several people in one window's session: the queue by keys, marks, threads, a
//! version submitted, signed, voided by a change, and exported.

use std::{cell::RefCell, rc::Rc};

use egui::{Key, Modifiers};
use egui_kittest::kittest::Queryable as _;
use loka::{LokaApp, layout::Pane};
use loka_core::{
    model::{Gemm, KernelId, Moment, SiteId},
    plan::{Plan, standing},
    review::{Approval, ApprovalRule, ReviewState, Role, SecretKey},
    session::{
        Command, Effect, Event,
        shared::{Author, CommandContext, LinkMessage},
    },
};
use loka_tests::{
    big,
    scripted::{self, Script, ScriptedLink, window},
};

/// Whoever is asked signs.
fn signed(effect: &Effect) -> Option<Event> {
    let Effect::Sign { statement, .. } = effect else { return None };
    let approval = Ok(Box::new(Approval::sign(statement.clone(), &key_of(&statement.name))));
    Some(Event::Signed { approval })
}

fn key_of(name: &str) -> SecretKey {
    SecretKey::new(name, &[name.len() as u8; 32]).unwrap()
}

struct ReviewWindow {
    harness: scripted::Window,
    script: Rc<RefCell<Script>>,
}

fn person(name: &str, role: Role) -> Author {
    Author { role, ..Author::new(name.len() as u64, name) }
}

impl ReviewWindow {
    fn new(me: Author, size: [f32; 2]) -> Self {
        let link = ScriptedLink::new(Script { me, answer: signed, ..Script::default() });
        let script = link.script.clone();
        let results = Box::new(big::results(24, 3).into());
        let opened = Event::ResultsOpened { path: "made.results.parquet".to_owned(), results };
        script.borrow_mut().tell(opened);
        let harness = window(LokaApp::new(Box::new(link)), size);
        let mut window = Self { harness, script };
        window.harness.run_steps(6);
        window
    }

    fn key(&mut self, key: Key) {
        self.harness.key_press(key);
        self.harness.run_steps(3);
    }

    fn click(&mut self, label: &str) {
        self.harness.get_by_label(label).click();
        self.harness.run_steps(4);
    }

    fn sees(&self, text: &str) -> bool {
        self.harness.query_all_by_label_contains(text).next().is_some()
    }

    fn site(&self) -> SiteId {
        self.harness.state().view().site.clone().unwrap()
    }

    /// Somebody else's command, as a server would send it on.
    fn other(&mut self, who: &Author, command: Command) {
        let by = CommandContext { at: Moment::of_seconds(1_795_176_000), ..CommandContext::numbered(who.clone(), 1) };
        let news = LinkMessage::Command { by, seq: 1, command: Box::new(command) };
        self.script.borrow_mut().tell(news);
        self.harness.run_steps(4);
    }

    fn is(&mut self, who: Author) {
        self.script.borrow_mut().me = who;
        self.harness.run_steps(3);
    }

    fn state_of(&self, site: &SiteId) -> ReviewState {
        let app = self.harness.state();
        let at = app.session().index().at(site).unwrap();
        app.view().review.standing(at).unwrap().state
    }

    /// What an export writes.
    fn exported(&mut self) -> Plan {
        self.harness.state_mut().command(Command::ExportPlan { path: "p.plan.json".to_owned() });
        self.harness.run_steps(2);
        let asked = self.script.borrow().asked.last().cloned();
        let Some(Effect::WritePlan { plan, .. }) = asked else { panic!("{asked:?}") };
        *plan
    }
}

#[test]
fn a_review_by_keys_alone() {
    let mut window = ReviewWindow::new(person("Rita", Role::Reviewer), [1280.0, 800.0]);
    window.key(Key::V);
    assert_eq!(window.harness.state().view().layout.active(), Pane::Review);
    assert!(window.sees("nobody has to sign it"));
    window.key(Key::N);
    let first = window.site();
    assert_eq!(window.state_of(&first), ReviewState::Open);
    window.key(Key::A);
    assert_eq!(window.state_of(&first), ReviewState::Agreed);
    let second = window.site();
    assert_ne!(first, second, "what was agreed to is left");
    window.key(Key::W);
    assert_eq!(window.state_of(&second), ReviewState::NeedsWork);
    window.key(Key::C);
    window.harness.event(egui::Event::Text("Why not rowwise?\n<b>x</b>".to_owned()));
    window.harness.run_steps(2);
    window.harness.key_press_modifiers(Modifiers::COMMAND, Key::Enter);
    window.harness.run_steps(4);
    let review = &window.harness.state().session().reviewing.review;
    assert_eq!(review.comments.len(), 1);
    assert_eq!((review.comments[0].by.as_str(), review.comments[0].site.as_ref()), ("Rita", Some(&second)));
    assert!(window.sees("<b>x</b>"), "as it was written");
    window.key(Key::N);
    assert_ne!(window.site(), second);
    let looked = window.harness.state().session().reviewing.looked_at_last("Rita", &second).is_some();
    assert!(looked, "what is left was seen");
    window.harness.key_press_modifiers(Modifiers::SHIFT, Key::N);
    window.harness.run_steps(3);
    assert_eq!(window.site(), second);
    window.click("Reply to Rita");
    window.harness.event(egui::Event::Text("It shares no cast".to_owned()));
    window.harness.run_steps(2);
    window.click("Send answer");
    window.click("Close thread of Rita");
    let review = &window.harness.state().session().reviewing.review;
    assert_eq!((review.replies_to(1).count(), review.comment(1).unwrap().resolved_by.as_deref()), (1, Some("Rita")));
    assert!(window.sees("Closed by Rita"));
}

#[test]
fn from_put_up_to_approved_and_back() {
    let (olga, al) = (person("Olga", Role::Owner), person("Al", Role::Approver));
    let mut window = ReviewWindow::new(olga.clone(), [1600.0, 1000.0]);
    let mut policy = window.harness.state().session().document.policy.clone();
    policy.approval = Some(ApprovalRule::of(1));
    window.harness.state_mut().command(Command::SetPolicy { policy });
    window.key(Key::V);
    assert!(window.sees("not submitted for approval yet"));
    window.click("Request approval");
    assert!(window.sees("waits for approval") && window.sees("0 of 1 approval"));
    assert!(window.exported().draft.unwrap().starts_with("0 of 1"));

    window.is(al);
    window.click("Approve…");
    window.harness.event(egui::Event::Text("al.key.json".to_owned()));
    window.harness.run_steps(2);
    window.click("Sign");
    assert!(window.sees("approved") && window.sees("Al (approver)"), "{:?}", window.harness.state().session().notices);
    let approved = window.exported();
    assert_eq!((approved.draft.clone(), approved.release), (None, Some(1)));
    assert!(standing(&approved, None, None).is_approved());
    assert_eq!(Plan::from_json(&approved.to_json()).unwrap(), approved);

    let results = big::results(24, 3);
    let site = results.meta.manifest.sites[2].id.clone();
    let kernel = KernelId::new("cublaslt/bf16");
    window.other(&olga, Command::SetOverride { site, gemm: Gemm::Wgrad, kernel, reason: "safer".to_owned() });
    assert!(window.sees("what is on screen is not version 1"));
    assert!(window.exported().draft.unwrap().starts_with("changed after version 1"));
    window.other(&olga, Command::Undo);
    assert!(!window.sees("what is on screen is not version 1"));
    assert_eq!(window.exported(), approved, "what was signed is what is written");
}

#[test]
fn a_viewer_looks_and_is_told_why_no_more() {
    let mut window = ReviewWindow::new(person("Vera", Role::Viewer), [1280.0, 800.0]);
    window.key(Key::V);
    window.key(Key::N);
    window.key(Key::A);
    window.key(Key::O);
    let app = window.harness.state();
    assert!(app.session().reviewing.review.is_empty() && app.view().overriding.is_none());
    assert!(window.sees("A viewer looks"));
    let before = window.site();
    window.key(Key::N);
    assert_ne!(window.site(), before, "looking on is for everybody");
}

#[test]
fn what_changed_since_somebody_looked_is_said() {
    let (rita, olga) = (person("Rita", Role::Reviewer), person("Olga", Role::Owner));
    let mut window = ReviewWindow::new(rita, [1280.0, 800.0]);
    window.key(Key::V);
    window.key(Key::N);
    let site = window.site();
    window.key(Key::N);
    let session = window.harness.state().session();
    let plan = session.plan_now().unwrap();
    let planned = plan.sites.iter().find(|of| of.site == site).unwrap();
    let other = |gemm: Gemm| {
        let chosen = planned.choice(gemm).kernel.clone();
        let rows = session.site_rows(&site)?.of(gemm);
        let row = rows.iter().find(|row| row.supported && row.kernel != chosen)?;
        Some((gemm, chosen, row.kernel.clone()))
    };
    let (gemm, chosen, kernel) = Gemm::ALL.into_iter().find_map(other).unwrap();
    let to = kernel.to_string();
    window.other(&olga, Command::SetOverride { site: site.clone(), gemm, kernel, reason: "r".to_owned() });
    window.harness.state_mut().view_mut().select(site, None);
    window.harness.run_steps(4);
    assert!(window.sees(&format!("Since you looked: {gemm} {chosen} → {to}, set by hand")));
    assert!(window.sees("Changed 1") || window.harness.query_by_label("Review: changed").is_some());
}
