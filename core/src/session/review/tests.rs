//! Who may do what, what is signed, and what voids it.

use super::*;
use crate::{
    dispatch::{
        Policy,
        testing::{results, row},
    },
    model::KernelId,
    plan::Plan,
    review::{ApprovalRule, Role, SecretKey},
    session::{Event, SavedSession, Session, shared::SequencedSession},
};

const TENSORWISE: &str = "cublaslt/fp8-tensorwise";
const ROWWISE: &str = "cublaslt/fp8-rowwise";

struct Desk {
    ordered: SequencedSession,
    numbers: BTreeMap<u64, u64>,
}

fn person(name: &str, role: Role) -> Author {
    let key = name.bytes().fold(1, |key, character| 31 * key + u64::from(character));
    Author { role, ..Author::new(key, name) }
}

fn at(minute: i64) -> Moment {
    Moment::of_seconds(1_795_176_000 + 60 * minute)
}

impl Desk {
    fn new(rule: Option<ApprovalRule>) -> Self {
        let kernel = |kernel| row("a", Gemm::Fprop, kernel, 0.1, Some(1.2), 0.0);
        let rows = vec![kernel(TENSORWISE), kernel(ROWWISE), row("b", Gemm::Fprop, ROWWISE, 0.1, Some(1.1), 0.0)];
        let mut ordered = SequencedSession::default();
        let results = Box::new(results(&["a", "b"], rows).into());
        ordered.event(Event::ResultsOpened { path: "r.parquet".to_owned(), results });
        let mut desk = Self { ordered, numbers: BTreeMap::new() };
        let policy = Policy { approval: rule, ..Policy::paper() };
        desk.ask(&person("Olga", Role::Owner), Command::SetPolicy { policy }).unwrap();
        desk
    }

    fn session(&self) -> &Session {
        &self.ordered.session
    }

    fn ask(&mut self, who: &Author, command: Command) -> Result<(), CommandError> {
        self.ask_having_seen(who, self.ordered.seq(), command)
    }

    fn ask_having_seen(&mut self, who: &Author, seen: u64, command: Command) -> Result<(), CommandError> {
        let number = self.numbers.entry(who.key).or_default();
        *number += 1;
        let by = CommandContext { seen, at: at(1), ..CommandContext::numbered(who.clone(), *number) };
        self.ordered.command(by, command).map(drop)
    }

    fn sign(&self, who: &Author) -> Approval {
        let key = SecretKey::new(&who.name, &[who.key as u8; 32]).unwrap();
        Approval::sign(self.session().reviewing.statement(who, at(2), String::new()).unwrap(), &key)
    }

    fn approve(&mut self, who: &Author) -> Result<(), CommandError> {
        let approval = Box::new(self.sign(who));
        self.ask(who, Command::Approve { approval })
    }

    fn plan(&self) -> Plan {
        self.session().plan_for_file().unwrap()
    }
}

fn choose(site: &str, kernel: &str) -> Command {
    let (site, kernel) = (SiteId::new(site), KernelId::new(kernel));
    Command::SetOverride { site, gemm: Gemm::Fprop, kernel, reason: "why not".to_owned() }
}

fn request() -> Command {
    Command::RequestApproval { note: String::new() }
}

#[test]
fn a_role_that_tries_more_than_it_may_changes_nothing() {
    let mut desk = Desk::new(None);
    let before = desk.session().save().digest();
    let comment = || Command::Comment { site: None, gemm: None, reply_to: None, text: "x".to_owned() };
    for (role, command, needs) in [
        (Role::Viewer, comment(), "a reviewer"),
        (Role::Viewer, Command::Mark { site: None, state: ReviewState::Agreed, of: String::new() }, "a reviewer"),
        (Role::Reviewer, choose("a", ROWWISE), "an owner"),
        (Role::Approver, Command::SetMaxError { value: 9.0, gesture: None }, "an owner"),
        (Role::Approver, request(), "an owner"),
        (Role::Approver, Command::Undo, "an owner"),
        (Role::Approver, Command::StartProbe, "an owner"),
    ] {
        let line = desk.ask(&person("Vera", role), command).unwrap_err().to_string();
        assert_eq!(line, format!("Vera is {} here: that takes {needs}", role.one()));
    }
    assert_eq!(desk.session().save().digest(), before);
    desk.ask(&person("Rita", Role::Reviewer), comment()).unwrap();
}

#[test]
fn two_sign_and_any_change_voids_it() {
    let mut desk = Desk::new(Some(ApprovalRule::of(2)));
    let [olga, al, bo] =
        [("Olga", Role::Owner), ("Al", Role::Approver), ("Bo", Role::Approver)].map(|(n, r)| person(n, r));
    assert_eq!(desk.plan().draft.as_deref(), Some("not submitted for approval"));
    desk.ask(&olga, request()).unwrap();
    let refused = desk.approve(&olga).unwrap_err().to_string();
    assert!(refused.contains("wants others to sign"), "{refused}");
    desk.approve(&al).unwrap();
    assert!(desk.approve(&al).unwrap_err().to_string().ends_with("they signed already"));
    assert!(desk.plan().draft.unwrap().starts_with("1 of 2 approvals"));
    desk.approve(&bo).unwrap();
    let approved = desk.plan();
    assert_eq!((approved.draft.clone(), approved.release, approved.approvals.len()), (None, Some(1), 2));
    assert_eq!(Plan::from_json(&approved.to_json()).unwrap(), approved);
    assert!(standing(&approved, None, None).is_approved());

    desk.ask(&olga, choose("a", ROWWISE)).unwrap();
    assert_eq!(desk.plan().draft.as_deref(), Some("changed after version 1 was submitted for approval"));
    assert_eq!(desk.session().reviewing.release.as_ref().unwrap().changed.as_ref().unwrap().0, "Olga");
    assert!(desk.approve(&person("Cy", Role::Approver)).unwrap_err().to_string().contains("undo the change"));
    let told = desk.session().log().entries().back().unwrap().text.clone();
    assert_eq!(told, "Olga changed the plan after version 1: its approvals no longer hold");
    desk.ask(&olga, Command::Undo).unwrap();
    assert_eq!(desk.plan(), approved, "what was signed is there again");
    desk.ask(&olga, choose("a", ROWWISE)).unwrap();
    desk.ask(&olga, request()).unwrap();
    let second = desk.plan();
    assert_eq!((second.release, second.approvals.len()), (Some(2), 0), "a new version has no approvals");
    assert_ne!(second.digest, approved.digest);
}

#[test]
fn an_approval_of_something_else_is_refused() {
    let mut desk = Desk::new(Some(ApprovalRule::of(1)));
    let [olga, al] = [("Olga", Role::Owner), ("Al", Role::Approver)].map(|(name, role)| person(name, role));
    desk.ask(&olga, request()).unwrap();
    let of_first = Box::new(desk.sign(&al));
    desk.ask(&olga, choose("a", ROWWISE)).unwrap();
    desk.ask(&olga, request()).unwrap();
    let line = desk.ask(&al, Command::Approve { approval: of_first }).unwrap_err().to_string();
    assert!(line.contains("it is of another plan or version"), "{line}");
    let bos = Box::new(desk.sign(&person("Bo", Role::Approver)));
    let line = desk.ask(&al, Command::Approve { approval: bos }).unwrap_err().to_string();
    assert_eq!(line, "the approval is Bo's, and Al sent it");
    let mut forged = desk.sign(&al);
    forged.note = "changed".to_owned();
    let line = desk.ask(&al, Command::Approve { approval: Box::new(forged) }).unwrap_err().to_string();
    assert!(line.contains("changed after it was signed"), "{line}");
    let as_owner = Author { role: Role::Owner, ..al.clone() };
    let approval = Box::new(desk.sign(&as_owner));
    assert!(desk.ask(&al, Command::Approve { approval }).is_err(), "a role of one's own making");
    desk.approve(&al).unwrap();
    desk.ask(&al, Command::Mark { site: None, state: ReviewState::NeedsWork, of: String::new() }).unwrap();
    assert!(desk.plan().draft.unwrap().starts_with("0 of 1"), "who doubts takes it back");
    desk.ask(&olga, Command::WithdrawRequest).unwrap();
    assert_eq!(desk.ask(&olga, Command::WithdrawRequest), Err(CommandError::NotRequested));
}

#[test]
fn drags_of_two_windows_are_two_steps() {
    let mut desk = Desk::new(None);
    let (anna, olga) = (person("Anna", Role::Owner), person("Olga", Role::Owner));
    let first = desk.session().document.policy.max_error;
    let mut drag = |who: &Author, value| desk.ask(who, Command::SetMaxError { value, gesture: Some(1) }).unwrap();
    drag(&anna, 0.3);
    drag(&anna, 0.31);
    // Her window counts from 1, too.
    drag(&olga, 0.4);
    desk.ask(&anna, Command::Undo).unwrap();
    assert_eq!(desk.session().document.policy.max_error, 0.31);
    desk.ask(&anna, Command::Undo).unwrap();
    assert_eq!(desk.session().document.policy.max_error, first);
}

#[test]
fn nobody_overwrites_what_they_have_not_seen() {
    let mut desk = Desk::new(None);
    let [olga, otto] = [("Olga", Role::Owner), ("Otto", Role::Owner)].map(|(name, role)| person(name, role));
    let seen = desk.ordered.seq();
    desk.ask_having_seen(&olga, seen, choose("a", ROWWISE)).unwrap();
    let line = desk.ask_having_seen(&otto, seen, choose("a", TENSORWISE)).unwrap_err().to_string();
    assert_eq!(line, "Olga changed a fprop in the meantime: look at it, then choose again");
    desk.ask_having_seen(&otto, seen, choose("b", ROWWISE)).unwrap();
    desk.ask_having_seen(&olga, seen, choose("a", TENSORWISE)).unwrap();
    desk.ask(&otto, choose("a", ROWWISE)).unwrap();
    let touch = &desk.session().reviewing.touched[&(SiteId::new("a"), Gemm::Fprop)];
    assert_eq!((touch.by.as_str(), touch.seq), ("Otto", desk.ordered.seq()));
    let before = desk.ordered.seq();
    desk.ask(&olga, Command::Undo).unwrap();
    assert!(desk.ask_having_seen(&otto, before, choose("a", TENSORWISE)).is_err(), "an undo moved it");
}

#[test]
fn threads_are_answered_and_closed() {
    let mut desk = Desk::new(None);
    let rita = person("Rita", Role::Reviewer);
    let site = || Some(SiteId::new("a"));
    let say = |reply_to, text: &str| Command::Comment {
        site: site(),
        gemm: Some(Gemm::Fprop),
        reply_to,
        text: text.to_owned(),
    };
    desk.ask(&rita, say(None, "<script>alert(1)</script>")).unwrap();
    desk.ask(&rita, say(Some(1), "no")).unwrap();
    assert_eq!(desk.ask(&rita, say(Some(2), "to a reply")), Err(CommandError::UnknownComment(2)));
    assert_eq!(desk.ask(&rita, say(None, " \n")), Err(CommandError::EmptyComment));
    let long = "x".repeat(10 << 20);
    assert!(matches!(desk.ask(&rita, say(None, &long)), Err(CommandError::LongComment { .. })));
    let nowhere = Command::Comment { site: Some(SiteId::new("z")), gemm: None, reply_to: None, text: "x".to_owned() };
    assert!(matches!(desk.ask(&rita, nowhere), Err(CommandError::UnknownSite(_))));
    desk.ask(&rita, Command::Resolve { comment: 1, resolved: true }).unwrap();
    let review = &desk.session().reviewing.review;
    assert_eq!(review.comment(1).unwrap().resolved_by.as_deref(), Some("Rita"));
    assert_eq!((review.threads_of(site().as_ref()).count(), review.replies_to(1).count()), (1, 1));
    assert_eq!(desk.plan().review.as_ref(), Some(review), "comments are in the file");
}

#[test]
fn what_somebody_looked_at_is_known_until_it_changes() {
    let mut desk = Desk::new(None);
    let vera = person("Vera", Role::Viewer);
    desk.ask(&vera, Command::Look { site: SiteId::new("a"), of: "1".to_owned() }).unwrap();
    let session = desk.session();
    assert_eq!(session.reviewing.looked_at_last("Vera", &SiteId::new("a")), Some("1"));
    assert_eq!(session.reviewing.looked_at_last("Olga", &SiteId::new("a")), None);
}

#[test]
fn a_review_is_saved_with_its_session() {
    let mut desk = Desk::new(Some(ApprovalRule::of(1)));
    desk.ask(&person("Olga", Role::Owner), choose("a", ROWWISE)).unwrap();
    desk.ask(&person("Olga", Role::Owner), request()).unwrap();
    desk.approve(&person("Al", Role::Approver)).unwrap();
    let saved = desk.session().save();
    let bytes = postcard::to_allocvec(&saved).unwrap();
    let again: SavedSession = postcard::from_bytes(&bytes).unwrap();
    let restored = Session::restored(again);
    assert_eq!(restored.reviewing, desk.session().reviewing);
    assert_eq!(restored.plan_for_file().unwrap(), desk.plan());
}
