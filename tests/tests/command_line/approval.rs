//! Keys, approvals and the trail, by the real binary: a plan goes from a draft to approved, and every forged, moved or
//! late signature, every loose key and every journal that somebody wrote in is refused with its reason.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::LazyLock,
};

use loka_core::{
    journal::Journal,
    model::{Gemm, KernelId, Moment, SiteId, canonical_json, sha256_of},
    plan::Plan,
    review::{Approval, Role, SecretKey, Statement},
    runtime::Journaling as _,
    session::{
        self,
        shared::{Author, CommandContext},
    },
};
use loka_tests::{
    ProgramRun, loka, run_in,
    serving::{Server, Window},
    tiny,
};
use serde_json::Value;
use tempfile::TempDir;

const TRACE: &str = "tiny.trace.safetensors";
const RULE: &str = "2 approvals by an approver or an owner, not by an author";

/// Results, a policy that asks for two approvals, keys of three people, and the team's list of them.
static MADE: LazyLock<TempDir> = LazyLock::new(|| {
    let made = TempDir::new().unwrap();
    tiny::put(&made.path().join(TRACE), 2);
    let run = |args: &[&str]| run_in(made.path(), args).done();
    run(&["probe", TRACE, "--out", "r.results.parquet", "--min-draws", "2", "--max-draws", "2"]);
    let policy = r#"{"name": "two", "metric": "rel_l2", "max_error": 0.05, "approval": {"approvers": 2}}"#;
    fs::write(made.path().join("two.policy.json"), policy).unwrap();
    for (name, role) in [("Anna", "approver"), ("Bo", "owner"), ("Olga", "owner")] {
        let file = format!("{name}.key.json");
        let made = run(&["key", "new", "--name", name, "--out", &file, "--json"]);
        let public = made.objects()[0]["public"]["key"].as_str().unwrap().to_owned();
        run(&["key", "add", "team.keys.json", "--name", name, "--key", &public, "--role", role]);
    }
    run(&["key", "new", "--name", "Eve", "--out", "Eve.key.json"]);
    made
});

/// A copy to work in.
struct ApprovalDesk(TempDir);

impl ApprovalDesk {
    fn new() -> Self {
        let work = TempDir::new().unwrap();
        for entry in fs::read_dir(MADE.path()).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), work.path().join(entry.file_name())).unwrap();
        }
        Self(work)
    }

    /// With a plan that is submitted for approval.
    fn put_up() -> Self {
        let work = Self::new();
        work.plan(&["--release", "2", "--author", "Olga"]);
        work
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn run(&self, args: &[&str]) -> ProgramRun {
        run_in(self.0.path(), args)
    }

    fn plan(&self, more: &[&str]) {
        let args = ["plan", "r.results.parquet", "--out", "p.plan.json", "--policy", "two.policy.json"];
        self.run(&[&args, more].concat()).done();
    }

    fn approve(&self, who: &str, more: &[&str]) -> ProgramRun {
        let key = format!("{who}.key.json");
        self.run(&[&["approve", "p.plan.json", "--key", &key], more].concat())
    }

    fn verify(&self, more: &[&str]) -> ProgramRun {
        self.run(&[&["verify", "p.plan.json"], more].concat())
    }

    fn with_team(&self) -> ProgramRun {
        self.verify(&["--keys", "team.keys.json"])
    }

    fn json(&self) -> Value {
        serde_json::from_str(&fs::read_to_string(self.path("p.plan.json")).unwrap()).unwrap()
    }

    /// The plan with something else in it; `anew`: and a digest that is right.
    fn edit(&self, anew: bool, edit: impl FnOnce(&mut Value)) {
        let mut plan = self.json();
        edit(&mut plan);
        if anew {
            let mut content = plan.clone();
            for key in loka_core::plan::BESIDE {
                content.as_object_mut().unwrap().remove(key);
            }
            plan["digest"] = sha256_of(canonical_json(&content).as_bytes()).into();
        }
        fs::write(self.path("p.plan.json"), plan.to_string()).unwrap();
    }

    /// Signed by somebody whose clock, role or plan is another than `loka approve` would take.
    fn sign(&self, who: &str, role: Role, change: impl FnOnce(&mut Statement)) {
        let key = SecretKey::from_json(&fs::read_to_string(self.path(&format!("{who}.key.json"))).unwrap()).unwrap();
        let mut plan = Plan::from_json(&self.json().to_string()).unwrap();
        let (digest, review_digest, name) = (plan.digest.clone(), plan.review_digest(), who.to_owned());
        let at = Moment::parse(&plan.created_at).unwrap();
        let mut statement = Statement { digest, review_digest, name, role, at, note: String::new() };
        change(&mut statement);
        plan.approvals.push(Approval::sign(statement, &key));
        fs::write(self.path("p.plan.json"), plan.to_json()).unwrap();
    }
}

#[track_caller]
fn failed(run: ProgramRun) -> String {
    assert_eq!(run.code, Some(1), "{run:?}");
    assert_eq!(run.stderr, "", "{run:?}");
    run.stdout
}

#[track_caller]
fn last(text: &str) -> &str {
    text.lines().last().unwrap()
}

#[test]
fn a_plan_goes_from_a_draft_to_approved() {
    let work = ApprovalDesk::new();
    work.plan(&[]);
    assert_eq!(work.json()["draft"], "not submitted for approval");
    let line = work.approve("Anna", &[]).refused();
    assert!(line.contains("it must be submitted for approval first (not submitted for approval)"), "{line}");
    work.plan(&["--release", "2", "--author", "Olga", "--author", "Olga"]);
    let plan = work.json();
    assert_eq!((&plan["release"], &plan["authors"]), (&2.into(), &vec!["Olga"].into()));
    assert_eq!(plan["draft"], format!("0 of {RULE}"));
    let none = failed(work.with_team());
    assert_eq!(none, format!("nobody signed it\nnot approved: 0 of {RULE}: p.plan.json\n"));

    let done = work.approve("Anna", &["--note", "looks right"]).done();
    assert!(done.stdout.starts_with("Anna approved version 2: sha256:"), "{done:?}");
    assert_eq!(work.json()["draft"], format!("1 of {RULE}"));
    let one = failed(work.with_team());
    assert!(one.contains("Anna: looks right") && last(&one).starts_with("not approved: 1 of 2"), "{one}");

    work.approve("Bo", &["--role", "owner", "--out", "a.plan.json"]).done();
    assert_eq!(work.json()["approvals"].as_array().unwrap().len(), 1, "the plan itself is as it was");
    fs::rename(work.path("a.plan.json"), work.path("p.plan.json")).unwrap();
    let plan = work.json();
    assert!(plan.get("draft").is_none() && Plan::from_json(&plan.to_string()).is_ok());
    let both = work.with_team().done().stdout;
    assert_eq!(last(&both), format!("approved: 2 of {RULE}: p.plan.json"));
    let lines: Vec<Vec<&str>> = both.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!((lines[0][0], &lines[1][..2], lines[1][3]), ("who", &["Anna", "approver"][..], "yes"), "{both}");
    assert_eq!((&lines[2][..2], lines[2][3]), (&["Bo", "owner"][..], "yes"), "{both}");
    let objects = work.verify(&["--keys", "team.keys.json", "--json"]).done().objects();
    assert_eq!((objects.len(), &objects[0]["problem"], &objects[2]["passed"]), (3, &Value::Null, &true.into()));
    assert_eq!(objects[0]["approval"]["note"], "looks right");
}

#[test]
fn signatures_alone_are_not_enough_unless_one_says_so() {
    let work = ApprovalDesk::put_up();
    work.approve("Eve", &[]).done();
    work.approve("Bo", &["--role", "owner"]).done();
    assert!(work.json().get("draft").is_none(), "there was no list of keys");
    let alone = failed(work.verify(&[]));
    assert!(alone.contains("only the signatures were checked"), "{alone}");
    assert!(last(&alone).contains("by keys that nobody vouches for"), "{alone}");
    work.verify(&["--allow-unknown-keys"]).done();
    let listed = failed(work.with_team());
    assert!(listed.contains("no: the key is not in the list of keys"), "{listed}");
    assert_eq!(last(&listed), format!("not approved: 1 of {RULE}: p.plan.json"));
}

#[test]
fn who_may_not_sign_is_told_why_and_nothing_is_written() {
    let work = ApprovalDesk::put_up();
    work.approve("Anna", &[]).done();
    let before = fs::read(work.path("p.plan.json")).unwrap();
    run_in(work.0.path(), ["key", "new", "--name", "Anna", "--out", "other.key.json"]).done();
    for (who, more, cause) in [
        ("Anna", &[][..], "it was signed with this key already"),
        ("other", &[], "there is one of 'Anna' by ed25519:"),
        ("Olga", &["--role", "owner"], "they decided something in the plan, and the policy wants others to sign"),
        ("Bo", &["--role", "reviewer"], "a reviewer may not sign (the policy asks for an approver or an owner)"),
    ] {
        let line = work.approve(who, more).refused();
        assert!(line.starts_with(&format!("loka: the approval would not count: {cause}")), "{line}");
        assert!(line.ends_with(": p.plan.json"), "{line}");
    }
    assert_eq!(fs::read(work.path("p.plan.json")).unwrap(), before);
    let long = "x".repeat(10_001);
    assert!(work.approve("Bo", &["--note", &long]).refused().contains("at most 10000 characters"));
}

#[test]
fn a_forged_stripped_or_moved_signature_does_not_count() {
    let forge = |edit: &dyn Fn(&mut Value)| {
        let work = ApprovalDesk::put_up();
        work.approve("Anna", &[]).done();
        work.approve("Bo", &["--role", "owner"]).done();
        work.edit(false, |plan| edit(&mut plan["approvals"]));
        let found = failed(work.with_team());
        assert_eq!(last(&found), format!("not approved: 1 of {RULE}: p.plan.json"));
        found
    };
    let signature = "no: the signature is not of this key, or something was changed after it was signed";
    type Edit = Box<dyn Fn(&mut Value)>;
    let forged: [Edit; 6] = [
        Box::new(|of| of[0]["note"] = "never said".into()),
        Box::new(|of| of[0]["at"] = "2026-01-01T00:00:00Z".into()),
        Box::new(|of| of[0]["role"] = "owner".into()),
        Box::new(|of| of[0]["signature"] = "".into()),
        Box::new(|of| of[0]["signature"] = of[1]["signature"].clone()),
        Box::new(|of| of[0]["key"] = of[1]["key"].clone()),
    ];
    for edit in &forged {
        let found = forge(edit);
        assert!(found.contains(signature) && !found.contains("never said"), "{found}");
    }
    assert!(forge(&|of| of[1] = of[0].clone()).contains("no: they signed already"));
    let gone = forge(&|of| drop(of.as_array_mut().unwrap().remove(0)));
    assert!(!gone.contains("Anna") && gone.contains("Bo"), "{gone}");
}

#[test]
fn an_approval_is_of_one_plan() {
    let work = ApprovalDesk::put_up();
    work.approve("Anna", &[]).done();
    work.approve("Bo", &["--role", "owner"]).done();
    let approvals = work.json()["approvals"].clone();
    work.edit(false, |plan| plan["sites"][0]["fprop"]["kernel"] = "cublaslt/tf32".into());
    for line in [work.with_team().refused(), work.approve("Eve", &[]).refused()] {
        assert!(line.starts_with("loka: the plan was changed after it was made"), "{line}");
    }
    work.edit(true, |_| ());
    let found = failed(work.with_team());
    assert_eq!(found.matches("no: it is of another plan or version: sha256:").count(), 2, "{found}");
    work.plan(&["--release", "3", "--author", "Olga"]);
    work.edit(false, |plan| plan["approvals"] = approvals);
    let found = failed(work.with_team());
    assert_eq!(found.matches("no: it is of another plan or version").count(), 2, "moved to the next version: {found}");
}

#[test]
fn clocks_of_tomorrow_and_of_yesterday_do_not_count() {
    let work = ApprovalDesk::put_up();
    let day = 86_400_000;
    work.sign("Anna", Role::Approver, |statement| statement.at.0 -= day);
    work.sign("Bo", Role::Owner, |statement| statement.at.0 += day);
    let found = failed(work.with_team());
    assert!(found.contains("no: it was signed before the plan was made, by its clock ("), "{found}");
    assert!(found.contains("no: it was signed in the future, by its clock ("), "{found}");
    let work = ApprovalDesk::put_up();
    work.sign("Anna", Role::Approver, |statement| statement.at.0 -= 60_000);
    work.sign("Bo", Role::Owner, |statement| statement.at.0 += 60_000);
    work.with_team().done();
}

#[test]
fn the_list_of_keys_says_who_and_what_they_may() {
    let work = ApprovalDesk::put_up();
    work.sign("Anna", Role::Owner, |statement| statement.name = "Bo".to_owned());
    work.sign("Bo", Role::Owner, |_| ());
    assert!(failed(work.with_team()).contains("no: the key is Anna's"));
    let keys = fs::read_to_string(work.path("team.keys.json")).unwrap();
    fs::write(work.path("team.keys.json"), keys.replace("\"approver\"", "\"viewer\"")).unwrap();
    let work_two = ApprovalDesk::put_up();
    fs::copy(work.path("team.keys.json"), work_two.path("team.keys.json")).unwrap();
    work_two.approve("Anna", &[]).done();
    assert!(failed(work_two.with_team()).contains("no: a viewer may not sign"));
    for text in ["", "{}", &keys.replace("loka-keys", "keys"), &keys.replace("\"Bo\"", "\"Anna\"")] {
        fs::write(work.path("team.keys.json"), text).unwrap();
        let line = work.with_team().refused();
        assert!(line.starts_with("loka: not a list of keys: ") && line.ends_with(": team.keys.json"), "{line}");
    }
}

#[test]
fn a_review_that_went_on_is_told_and_a_draft_that_is_none() {
    let work = ApprovalDesk::put_up();
    work.approve("Anna", &[]).done();
    work.approve("Bo", &["--role", "owner"]).done();
    work.edit(false, |plan| {
        plan["review"] = serde_json::json!({"marks": [], "comments": []});
        plan["draft"] = "since \u{1b}[2J".into();
    });
    let found = work.with_team().done().stdout;
    assert!(found.contains("the review was written on after somebody signed"), "{found}");
    assert!(found.contains("the file calls itself a draft (since \\u{1b}[2J)"), "{found}");
}

#[test]
fn nobody_has_to_sign_where_no_rule_says_so() {
    let work = ApprovalDesk::new();
    let plan = ["plan", "r.results.parquet", "--out", "p.plan.json", "--policy", "paper"];
    work.run(&plan).done();
    let keys = ["authors", "release", "draft"];
    assert!(keys.iter().all(|key| work.json().get(key).is_none()), "a plan is as it always was");
    let found = work.verify(&[]).done();
    assert_eq!(last(&found.stdout), "nobody has to approve it: p.plan.json");
    work.run(&[&plan[..], &["--release", "1"]].concat()).done();
    assert!(work.json().get("draft").is_none());
    work.approve("Anna", &[]).done();
    work.with_team().done();
    assert_eq!(work.run(&[&plan[..], &["--release", "0"]].concat()).code, Some(2));
}

#[test]
fn keys_are_made_shown_listed_and_never_overwritten() {
    let work = ApprovalDesk::new();
    let shown = work.run(&["key", "show", "Anna.key.json"]).done().stdout;
    let public = shown.trim().strip_prefix("Anna  ").unwrap();
    let list = work.run(&["key", "list", "team.keys.json"]).done().stdout;
    assert!(list.contains(public) && list.lines().count() == 4, "{list}");
    let line = work.run(&["key", "new", "--name", "Anna", "--out", "Anna.key.json"]).refused();
    assert_eq!(line, "loka: there is a file already, it stays: Anna.key.json");
    assert_eq!(work.run(&["key", "show", "Anna.key.json"]).done().stdout, shown);
    for (name, key, cause) in [
        ("Ann", public, "'Ann' is in it twice"),
        ("a\nb", "ed25519:AAAA", ""),
        ("x", "", ""),
        ("", public, "is no name"),
    ] {
        let run = work.run(&["key", "add", "team.keys.json", "--name", name, "--key", key]);
        assert_eq!(run.code, Some(2), "{run:?}");
        assert!(run.stderr.contains(cause), "{run:?}");
    }
    assert_eq!(work.run(&["key", "list", "team.keys.json"]).done().stdout, list);
    let own = |args: &[&str]| {
        let home = work.path("home");
        let mut command = Command::new(loka());
        command.args(args).current_dir(work.0.path()).env("HOME", &home).env("XDG_CONFIG_HOME", home.join("config"));
        ProgramRun::from(command.output().unwrap())
    };
    own(&["key", "new", "--name", "Cleo"]).done();
    assert!(own(&["key", "show"]).done().stdout.starts_with("Cleo  ed25519:"));
    assert!(own(&["key", "new", "--name", "Cleo"]).refused().contains("there is a file already"));
}

#[cfg(unix)]
#[test]
fn a_key_that_others_can_read_signs_nothing() {
    use std::os::unix::fs::PermissionsExt as _;
    let work = ApprovalDesk::put_up();
    let mode = fs::metadata(MADE.path().join("Anna.key.json")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    fs::set_permissions(work.path("Anna.key.json"), fs::Permissions::from_mode(0o640)).unwrap();
    let expected = "loka: others can get at this secret key (its mode is 640): chmod 600 Anna.key.json";
    assert_eq!(work.approve("Anna", &[]).refused(), expected);
    assert_eq!(work.run(&["key", "show", "Anna.key.json"]).refused(), expected);
}

/// A journal beside a trace, as a window of two people keeps it.
fn journal(folder: &Path) -> PathBuf {
    let path = folder.join("tiny.journal.sqlite");
    let (mut journal, _, told) = Journal::open(&path, ("stamp", "00ff"), std::sync::Arc::new(|| {})).unwrap();
    assert_eq!(told, None);
    let by = |name: &str, number: u64| CommandContext {
        author: Author::new(7, name),
        number,
        seen: 0,
        at: Moment::of_seconds(1_795_176_000 + number.cast_signed()),
    };
    let (site, kernel) = (SiteId::new("net.top.2"), KernelId::new("cublaslt/bf16"));
    let reason = "it diverged".to_owned();
    journal.command(&by("Anna", 1), &session::Command::SetMaxError { value: 0.25, gesture: None });
    journal.command(&by("Bo\u{1b}[2J", 2), &session::Command::SetOverride { site, gemm: Gemm::Fprop, kernel, reason });
    journal.command(&by("Anna", 3), &session::Command::Undo);
    path
}

#[test]
fn the_trail_is_told_in_words_and_as_json_lines() {
    let work = ApprovalDesk::new();
    let path = journal(work.0.path());
    let plain = work.run(&["log", TRACE]).done().stdout;
    let lines: Vec<&str> = plain.lines().collect();
    assert_eq!(lines.len(), 5, "{plain}");
    let first: Vec<&str> = lines[1].split("  ").filter(|cell| !cell.is_empty()).map(str::trim).collect();
    assert_eq!(first, ["1", "2026-11-20T12:00:01Z", "Anna (owner)", "set max error to .25"], "{plain}");
    assert!(
        lines[2].contains("Bo\\u{1b}[2J (owner)  override net.top.2 fprop: cublaslt/bf16 (it diverged)"),
        "{plain}"
    );
    let head = lines[4].strip_prefix("the chain holds: 3 entries, head ").unwrap();
    let objects = work.run(&["log", path.to_str().unwrap(), "--json", "--since", "3"]).done().objects();
    assert_eq!((objects.len(), &objects[0]["said"]), (2, &"undid the last decision".into()));
    assert_eq!((&objects[1]["head"], &objects[1]["num_entries"]), (&head.into(), &3.into()));
    let first = objects[1]["first"].as_str().unwrap();
    for known in [head, first, objects[0]["hash"].as_str().unwrap()] {
        work.run(&["log", TRACE, "--head", known]).done();
    }
    let other = format!("sha256:{}", "0".repeat(64));
    let found = failed(work.run(&["log", TRACE, "--head", &other]));
    assert!(found.starts_with(&format!("{other} is not in it: what was there was rewritten")), "{found}");
    assert_eq!(work.run(&["log", TRACE, "--head", "abc"]).code, Some(2));
}

#[test]
fn a_trail_that_was_written_in_is_refused() {
    let work = ApprovalDesk::new();
    let path = journal(work.0.path());
    let mut bytes = fs::read(&path).unwrap();
    let at = bytes.windows(11).position(|of| of == b"it diverged").unwrap();
    bytes[at..at + 11].copy_from_slice(b"it was fine");
    fs::write(&path, bytes).unwrap();
    let found = failed(work.run(&["log", TRACE]));
    assert!(found.starts_with("the chain is broken: entry 2 was changed"), "{found}");
    let found = work.run(&["log", TRACE, "--json"]);
    assert_eq!((found.code, &found.objects()[0]["holds"]), (Some(1), &false.into()));
    let (_, restored, told) = Journal::open(&path, ("stamp", "00ff"), std::sync::Arc::new(|| {})).unwrap();
    assert!(restored.is_none() && told.unwrap().contains("its trail is broken (entry 2 was changed"));
}

#[test]
fn what_has_no_trail_is_one_line() {
    let work = ApprovalDesk::new();
    for (file, cause) in [
        ("nothing.trace.safetensors", "loka: no such file or folder: "),
        (TRACE, "loka: no journal is kept of it, there is no tiny.journal.sqlite: "),
    ] {
        let line = work.run(&["log", file]).refused();
        assert!(line.starts_with(cause) && line.ends_with(file), "{line}");
    }
    fs::write(work.path("x.journal.sqlite"), "no database").unwrap();
    let line = work.run(&["log", "x.journal.sqlite"]).refused();
    assert_eq!(line, "loka: it is no journal, or a broken one: x.journal.sqlite");
}

#[test]
fn the_trail_of_a_running_server_is_read() {
    let folder = TempDir::new().unwrap();
    tiny::put(&folder.path().join(TRACE), 2);
    let server = Server::start(folder.path(), [] as [&str; 0]);
    let mut anna = Window::join(&server, 1, Some(TRACE));
    anna.until_probed();
    anna.submit(session::Command::SetMaxError { value: 0.3, gesture: None });
    anna.until("it was answered", |window| window.sync.num_waiting() == 0);
    let run = run_in(folder.path(), ["log", TRACE]).done();
    assert!(run.stdout.contains("set max error to .3"), "{run:?}");
    assert!(run.stdout.contains("the chain holds: "), "{run:?}");
    anna.submit(session::Command::Undo);
    anna.until("the server goes on", |window| window.sync.num_waiting() == 0);
    let run = run_in(folder.path(), ["log", TRACE]).done();
    assert!(run.stdout.contains("undid the last decision"), "{run:?}");
}
