//! People on a served session: who may do what, who they are whatever they say, what two of them do at once, and what a
//! hostile one can send.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use loka::clock::now;
use loka_core::{
    dispatch::Policy,
    model::{Gemm, KernelId, ModKind, Moment, SiteId},
    plan::standing,
    review::{Approval, ApprovalRule, ReviewState, Role, SecretKey},
    session::{
        Command,
        shared::{Author, Place, ToServer, encode},
    },
};
use loka_tests::{
    run_in,
    serving::{Server, Window, add_user, are_same},
    tiny,
};
use tempfile::TempDir;
use tungstenite::Message;

const TRACE: &str = "tiny.trace.safetensors";
const PEOPLE: [(&str, &str); 5] =
    [("Vera", "viewer"), ("Rita", "reviewer"), ("Al", "approver"), ("Olga", "owner"), ("Otto", "owner")];

/// A served folder, and beside it the list of five people.
struct PeopleDesk {
    around: TempDir,
    server: Server,
    cookies: Vec<(&'static str, String)>,
}

impl PeopleDesk {
    fn new() -> Self {
        Self::with(&[])
    }

    fn with(more: &[&str]) -> Self {
        let around = TempDir::new().unwrap();
        let served = around.path().join("served");
        std::fs::create_dir(&served).unwrap();
        tiny::put(&served.join(TRACE), 2);
        let users = around.path().join("users.json");
        let links = PEOPLE.map(|(name, role)| (name, add_user(&users, name, role)));
        let server = Server::start(&served, [&["--users", users.to_str().unwrap()], more].concat());
        let cookies = links.iter().map(|(name, link)| (*name, server.cookie(link))).collect();
        Self { around, server, cookies }
    }

    fn users(&self) -> PathBuf {
        self.around.path().join("users.json")
    }

    fn user(&self, args: &[&str]) {
        let users = self.users();
        run_in(self.around.path(), [&["user"], args, &["--users", users.to_str().unwrap()]].concat()).done();
    }

    fn cookie(&self, name: &str) -> String {
        self.cookies.iter().find(|(of, _)| *of == name).unwrap().1.clone()
    }

    /// A window of that person, which says that it is somebody else's.
    fn window(&self, name: &str, key: u64) -> Window {
        let says = Author::new(key, "Olga");
        let mut window = Window::knock_as(&self.server, says, Some(TRACE), Some(self.cookie(name)));
        window.until_probed();
        window
    }
}

fn site(at: usize) -> SiteId {
    SiteId::new(&format!("layers.{at}"))
}

fn choose(at: usize, kernel: &str) -> Command {
    let (kernel, reason) = (KernelId::new(kernel), "it must stay".to_owned());
    Command::SetOverride { site: site(at), gemm: Gemm::Fprop, kernel, reason }
}

fn comment(text: &str) -> Command {
    Command::Comment { site: Some(site(0)), gemm: None, reply_to: None, text: text.to_owned() }
}

fn mark() -> Command {
    Command::Mark { site: Some(site(0)), state: ReviewState::Agreed, of: "f".to_owned() }
}

fn look() -> Command {
    Command::Look { site: site(1), of: "f".to_owned() }
}

#[track_caller]
fn refused(window: &mut Window, command: Command) -> String {
    let told = window.refused.len();
    window.submit(command);
    window.until("it is refused", |window| window.refused.len() > told);
    window.refused.last().unwrap().clone()
}

#[track_caller]
fn done(window: &mut Window, command: Command) {
    let told = window.refused.len();
    window.submit(command);
    window.until("it is done", |window| window.sync.num_waiting() == 0);
    assert_eq!(window.refused.len(), told, "{:?}", window.refused.last());
}

#[test]
fn who_may_not_is_told_so_and_changes_nothing() {
    let desk = PeopleDesk::new();
    let [mut vera, mut rita, mut al, mut olga] = ["Vera", "Rita", "Al", "Olga"].map(|name| desk.window(name, 1));
    are_same(&mut [&mut vera, &mut rita, &mut al, &mut olga]);
    let before = olga.sync.at();
    let approval = || {
        let key = SecretKey::new("Vera", &[7; 32]).unwrap();
        let at = Moment::of_seconds(0);
        let (digest, note) = ("sha256:aa".to_owned(), String::new());
        let statement = loka_core::review::Statement {
            digest: digest.clone(),
            review_digest: digest,
            name: "Vera".to_owned(),
            role: Role::Owner,
            at,
            note,
        };
        Command::Approve { approval: Box::new(Approval::sign(statement, &key)) }
    };
    let decisions = || {
        [
            choose(0, "cublaslt/tf32"),
            Command::ClearOverride { site: site(0), gemm: Gemm::Fprop },
            Command::SetMaxError { value: 9.0, gesture: None },
            Command::SetPolicy { policy: Policy::rel_l2() },
            Command::StartProbe,
            Command::CancelProbe,
            Command::OpenResults { path: "nowhere.parquet".to_owned() },
            Command::RequestApproval { note: String::new() },
            Command::WithdrawRequest,
            Command::Undo,
            Command::Redo,
        ]
    };
    for command in [comment("x"), mark(), Command::Resolve { comment: 1, resolved: true }] {
        assert_eq!(refused(&mut vera, command), "Vera is a viewer here: that takes a reviewer");
    }
    assert_eq!(refused(&mut vera, approval()), "Vera is a viewer here: that takes an approver");
    assert_eq!(refused(&mut rita, approval()), "Rita is a reviewer here: that takes an approver");
    for (window, who) in
        [(&mut vera, "Vera is a viewer"), (&mut rita, "Rita is a reviewer"), (&mut al, "Al is an approver")]
    {
        for command in decisions() {
            assert_eq!(refused(window, command), format!("{who} here: that takes an owner"));
        }
    }
    are_same(&mut [&mut vera, &mut rita, &mut al, &mut olga]);
    assert_eq!(olga.sync.at(), before);
    done(&mut vera, look());
    done(&mut rita, comment("this one?"));
    done(&mut al, mark());
    done(&mut olga, choose(0, "cublaslt/tf32"));
    are_same(&mut [&mut vera, &mut rita, &mut al, &mut olga]);
    let review = &vera.session.reviewing.review;
    assert_eq!((review.comments[0].by.as_str(), review.marks().next().unwrap().by.as_str()), ("Rita", "Al"));
    assert!(review.comments[0].at.seconds_since(now()).abs() < 60, "by the server's clock");
}

#[test]
fn a_window_is_of_its_person_whatever_it_says() {
    let desk = PeopleDesk::new();
    let mut olga = desk.window("Olga", 1);
    let me = olga.sync.author().clone();
    assert_eq!((me.name.as_str(), me.role), ("Olga", Role::Owner));
    // Another's name, another's key: as the window drew it, and as everybody sees it.
    for key in [1, me.key] {
        let mut vera = desk.window("Vera", key);
        let she = vera.sync.author().clone();
        assert_eq!((she.name.as_str(), she.role), ("Vera", Role::Viewer));
        assert_ne!(she.key, me.key);
        assert!(refused(&mut vera, choose(0, "cublaslt/tf32")).starts_with("Vera is a viewer here"));
        for number in 0..5 {
            done(&mut vera, Command::Look { site: site(0), of: number.to_string() });
        }
    }
    // Had the numbers been hers, this one would count as done.
    done(&mut olga, choose(0, "cublaslt/tf32"));
    olga.until("it is there", |window| window.session.document.overrides.len() == 1);
    let mut second = desk.window("Olga", 2);
    assert_ne!(second.sync.author().key, me.key, "two windows of one person");
    // By name, not by number: a busy server may see that Vera's last window is gone after it sees this one come.
    olga.until("both of Olga's windows are there, and no other", |window| {
        let people: Vec<(&str, Role)> = window.sync.people.iter().map(|of| (of.name.as_str(), of.role)).collect();
        people == [("Olga", Role::Owner), ("Olga", Role::Owner)]
    });
    second.settle();
    done(&mut second, choose(0, "cublaslt/bf16"));
}

#[test]
fn a_command_that_comes_again_is_done_once() {
    let desk = PeopleDesk::new();
    let (mut rita, mut twin) = (desk.window("Rita", 1), desk.window("Rita", 1));
    let once = rita.sync.submit(comment("once"));
    for _ in 0..3 {
        rita.send(&once);
    }
    rita.until("it is said", |window| window.session.reviewing.review.comments.len() == 1);
    // The same window on another connection, as after a cable was pulled.
    twin.send(&once);
    rita.drop_connection();
    rita.reconnect(&desk.server);
    rita.send(&once);
    done(&mut rita, comment("twice"));
    let mut olga = desk.window("Olga", 1);
    // Of another person the same number and key are another command.
    let own = olga.sync.submit(comment("mine"));
    olga.send(&own);
    olga.until("it is said", |window| window.session.reviewing.review.comments.len() == 3);
    are_same(&mut [&mut rita, &mut twin, &mut olga]);
    let said: Vec<&str> = olga.session.reviewing.review.comments.iter().map(|of| of.text.as_str()).collect();
    assert_eq!(said, ["once", "twice", "mine"]);
}

#[test]
fn of_two_who_choose_at_once_the_second_sees_what_the_first_chose() {
    let desk = PeopleDesk::new();
    let (mut olga, mut otto) = (desk.window("Olga", 1), desk.window("Otto", 2));
    are_same(&mut [&mut olga, &mut otto]);
    olga.submit(choose(0, "cublaslt/tf32"));
    otto.submit(choose(0, "cublaslt/bf16"));
    for window in [&mut olga, &mut otto] {
        window.until("both are answered", |window| window.sync.num_waiting() == 0);
    }
    are_same(&mut [&mut olga, &mut otto]);
    let (first, second) = if olga.refused.is_empty() { (&olga, &otto) } else { (&otto, &olga) };
    let name = first.sync.author().name.clone();
    assert!(first.refused.is_empty());
    let line = format!("{name} changed layers.0 fprop in the meantime: look at it, then choose again");
    assert_eq!(second.refused, [line]);
    let touch = &second.session.reviewing.touched[&(site(0), Gemm::Fprop)];
    assert_eq!((touch.by.as_str(), touch.key), (name.as_str(), first.sync.author().key));
    let second = if olga.refused.is_empty() { &mut otto } else { &mut olga };
    // Whichever it was, this is another choice than the first's.
    let reason = "having looked at it".to_owned();
    let (kernel, gemm) = (KernelId::new("cublaslt/bf16"), Gemm::Fprop);
    done(second, Command::SetOverride { site: site(0), gemm, kernel, reason });
    // Who says to have seen nothing, or what is to come, overwrites nothing unseen with the first.
    let sent = ToServer::Command { number: 99, seen: 0, command: Box::new(choose(0, "cublaslt/tf32")) };
    let first = if olga.refused.is_empty() { &mut olga } else { &mut otto };
    first.send(&sent);
    first.until("it is refused", |window| !window.refused.is_empty());
    assert!(first.refused[0].contains("in the meantime"), "{:?}", first.refused);
}

#[test]
fn a_token_that_is_wrong_or_no_longer_right_opens_nothing() {
    let desk = PeopleDesk::new();
    let server = &desk.server;
    assert!(!server.link.contains("token"), "{}", server.link);
    let stranger = server.get("/", &[]);
    assert_eq!(stranger.status, 401);
    assert!(stranger.text().contains("asks who you are"), "{stranger:?}");
    assert_eq!(server.upgrade(&[&server.origin()]).status, 401);
    let wrong = server.get("/?token=0123456789abcdef0123456789abcdef", &[]);
    assert_eq!(wrong.status, 401);
    assert!(wrong.text().contains("not (or no longer) that of anybody"), "{wrong:?}");
    let stored: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(desk.users()).unwrap()).unwrap();
    let stored = stored["people"][0]["token"].as_str().unwrap().trim_start_matches("sha256:").to_owned();
    assert_eq!(server.get(&format!("/?token={stored}"), &[]).status, 401, "what the file holds is no token");

    let (mut vera, mut rita, mut olga) = (desk.window("Vera", 1), desk.window("Rita", 1), desk.window("Olga", 1));
    desk.user(&["role", "Vera", "owner"]);
    vera.until("she is told", |window| window.sync.author().role == Role::Owner);
    done(&mut vera, choose(0, "cublaslt/tf32"));
    desk.user(&["role", "Vera", "viewer"]);
    vera.until("she is told", |window| window.sync.author().role == Role::Viewer);
    assert!(refused(&mut vera, Command::Undo).starts_with("Vera is a viewer here"));
    olga.until("others see it", |window| {
        window.sync.people.iter().any(|person| person.name == "Vera" && person.role == Role::Viewer)
    });

    let broken = std::fs::read(desk.users()).unwrap();
    std::fs::write(desk.users(), "{").unwrap();
    std::thread::sleep(Duration::from_millis(1200));
    done(&mut vera, look());
    std::fs::write(desk.users(), broken).unwrap();

    desk.user(&["remove", "Rita"]);
    assert!(rita.until_closed().contains("took you off its list"), "{:?}", rita.sync.closed);
    assert_eq!(rita.sync.closed.as_ref().map(|(_, again)| *again), Some(false));
    let cookie = format!("Cookie: {}", desk.cookie("Rita"));
    assert_eq!(server.upgrade(&[&server.origin(), &cookie]).status, 401);
    assert_eq!(server.get("/", &[&cookie]).status, 401);
    let again = add_user(&desk.users(), "Rita", "reviewer");
    assert_eq!(server.upgrade(&[&server.origin(), &cookie]).status, 401, "the old token is not hers again");
    let start = Instant::now();
    while server.get(&format!("/{again}"), &[]).status != 303 {
        assert!(start.elapsed() < Duration::from_secs(10), "the new one is never taken up");
        std::thread::sleep(Duration::from_millis(100));
    }
    done(&mut olga, comment("the others go on"));
}

#[test]
fn what_is_too_large_or_odd_is_refused_or_ends_the_talk() {
    let desk = PeopleDesk::new();
    let (mut olga, mut rita) = (desk.window("Olga", 1), desk.window("Rita", 1));
    assert!(refused(&mut rita, comment(&"x".repeat(1 << 20))).contains("at most 10000 characters"));
    assert!(refused(&mut rita, comment("\u{1b}]0;x\u{7}")).contains("control characters"));
    assert!(refused(&mut rita, comment(" \n\t ")).contains("needs a text"));
    done(&mut rita, comment("<script>alert(1)</script>\n\tas text"));
    // Ten megabytes that are few on the wire, and ten that are not.
    rita.submit(comment(&"x".repeat(10 << 20)));
    assert!(rita.until_closed().contains("more than"), "{:?}", rita.sync.closed);
    let mut rita = desk.window("Rita", 2);
    let message = rita.sync.submit(comment(&noise(10 << 20)));
    let bytes = encode(&message);
    assert!(bytes.len() > 8 << 20, "{} bytes are few", bytes.len());
    drop(rita.socket().send(Message::Binary(bytes.into())));
    let said = rita.until_closed();
    assert!(said.is_empty() || said.contains("cannot be read"), "{said}");
    let mut rita = desk.window("Rita", 3);
    rita.send(&ToServer::At(Place { site: Some(SiteId::new("nowhere")), view: "V\n".repeat(1000) }));
    olga.until("her place is told", |window| window.sync.people.iter().any(|of| !of.at.view.is_empty()));
    let at = olga.sync.people.iter().find(|of| of.name == "Rita").unwrap().at.clone();
    assert_eq!((at.site, at.view.chars().count()), (None, 32));
    rita.send(&ToServer::At(Place { site: Some(site(1)), view: "Plan".to_owned() }));
    olga.until("her place is told", |window| window.sync.people.iter().any(|of| of.at.site == Some(site(1))));
    for at in 0..5000 {
        let place = ToServer::At(Place { site: Some(site(at % 2)), view: "Plan".to_owned() });
        if rita.socket().write(Message::Binary(encode(&place).into())).is_err() {
            break;
        }
    }
    drop(rita.socket().flush());
    let said = rita.until_closed();
    assert!(said.is_empty() || said.contains("more than the server takes"), "{said}");
    done(&mut olga, choose(0, "cublaslt/tf32"));
    assert_eq!(olga.session.reviewing.review.comments.len(), 1);
}

/// Characters that no coding makes shorter.
fn noise(characters: usize) -> String {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut character = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(b'0' + (state % 75) as u8)
    };
    (0..characters).map(|_| character()).collect()
}

/// Four million names without a character, 16 KB packed, that are 200 MB when they are made.
fn hostile(number: u64) -> Vec<u8> {
    let names = 4_190_000;
    let message = ToServer::Command {
        number,
        seen: 1,
        command: Box::new(Command::SetMod { kind: ModKind::NoBias, on: true, sites: vec![SiteId::new(""); names] }),
    };
    encode(&message)
}

#[test]
fn hostile_frames_hold_up_nobody_and_leave_nothing() {
    let desk = PeopleDesk::new();
    let mut olga = desk.window("Olga", 1);
    let frame = hostile(1);
    assert!(frame.len() < 20_000, "{} bytes", frame.len());
    let cookie = format!("Cookie: {}", desk.cookie("Olga"));
    assert_eq!(desk.server.get("/", &[&cookie]).status, 200);
    let before = memory_kb(desk.server.child.id());
    for who in ["Vera", "Otto"] {
        let mut crowd: Vec<Window> = (0..24)
            .map(|key| Window::knock_as(&desk.server, Author::new(key + 2, "x"), Some(TRACE), Some(desk.cookie(who))))
            .collect();
        for window in &mut crowd {
            drop(window.socket().send(Message::Binary(frame.clone().into())));
        }
        let start = Instant::now();
        let mut slowest = Duration::ZERO;
        while start.elapsed() < Duration::from_secs(2) {
            let asked = Instant::now();
            assert_eq!(desk.server.get("/", &[&cookie]).status, 200);
            slowest = slowest.max(asked.elapsed());
        }
        // Half a minute before; some 10 ms now, a few hundred where all cores are taken.
        assert!(slowest < Duration::from_secs(2), "a page took {slowest:?}");
        let mut last = crowd.pop().unwrap();
        if who == "Vera" {
            last.until("she is told", |window| !window.refused.is_empty());
            assert!(last.refused[0].contains("Vera is a viewer here"), "{:?}", last.refused);
        } else {
            assert!(last.until_closed().contains("not of this protocol"), "{:?}", last.sync.closed);
        }
    }
    let kept = memory_kb(desk.server.child.id()).saturating_sub(before);
    assert!(kept < 64 << 10, "{kept} kB are kept");
    done(&mut olga, choose(0, "cublaslt/tf32"));
}

/// Of a process, as Linux counts what is in memory; 0 where nothing says so.
fn memory_kb(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or_default()
}

#[test]
fn a_viewer_begins_no_session() {
    let desk = PeopleDesk::new();
    let other = "other.trace.safetensors";
    tiny::put(&desk.around.path().join("served").join(other), 1);
    let knock =
        |name: &str, key| Window::knock_as(&desk.server, Author::new(key, name), Some(other), Some(desk.cookie(name)));
    let mut vera = knock("Vera", 1);
    vera.until("she is told", |window| !window.answers.is_empty());
    let told = format!("{:?}", vera.answers[0]);
    assert!(told.contains("a viewer begins no session") && told.contains(other), "{told}");
    knock("Rita", 1).until_probed();
    let mut vera = knock("Vera", 2);
    vera.until_probed();
}

#[test]
fn an_approval_is_its_persons_and_of_its_time() {
    let desk = PeopleDesk::new();
    let (mut olga, mut al) = (desk.window("Olga", 1), desk.window("Al", 1));
    done(&mut olga, Command::SetPolicy { policy: Policy { approval: Some(ApprovalRule::of(1)), ..Policy::paper() } });
    let known = |window: &Window| !window.session.trace.as_ref().unwrap().meta.trace_digest.is_empty();
    olga.until("the trace's digest is known", known);
    done(&mut olga, Command::RequestApproval { note: "please".to_owned() });
    al.until("there is something to sign", |window| window.session.reviewing.release.is_some());
    let [mine, bos] = [("Al", 1), ("Bo", 2)].map(|(name, seed)| SecretKey::new(name, &[seed; 32]).unwrap());
    let me = al.sync.author().clone();
    let sign = |window: &Window, who: &Author, key: &SecretKey, seconds: i64| {
        let at = Moment(now().0 + 1000 * seconds);
        Approval::sign(window.session.reviewing.statement(who, at, String::new()).unwrap(), key)
    };
    let plain = sign(&al, &me, &mine, 0);
    let bo = Author { name: "Bo".to_owned(), ..me.clone() };
    let owner = Author { role: Role::Owner, ..me.clone() };
    for (approval, part) in [
        (sign(&al, &bo, &bos, 0), "the approval is Bo's, and Al sent it"),
        (Approval { name: "Al".to_owned(), ..sign(&al, &bo, &bos, 0) }, "the signature is not of this key"),
        (Approval { key: bos.public(), ..plain.clone() }, "the signature is not of this key"),
        (Approval { note: "and more".to_owned(), ..plain.clone() }, "the signature is not of this key"),
        (Approval { digest: "sha256:00".to_owned(), ..plain.clone() }, "the approval does not count"),
        (sign(&al, &owner, &mine, 0), "may not sign"),
        (sign(&al, &me, &mine, 3600), "in the future"),
        (sign(&al, &me, &mine, -3600), "before the plan was made"),
    ] {
        let line = refused(&mut al, Command::Approve { approval: Box::new(approval) });
        assert!(line.contains(part), "{line}");
    }
    are_same(&mut [&mut olga, &mut al]);
    assert!(olga.session.reviewing.release.as_ref().unwrap().approvals.is_empty());
    // A clock that is a little off is a clock.
    let approval = Box::new(sign(&al, &me, &mine, 60));
    done(&mut al, Command::Approve { approval });
    are_same(&mut [&mut olga, &mut al]);
    assert_eq!(olga.session.reviewing.release.as_ref().unwrap().approvals[0].name, "Al");
}

/// Whose keys they are is a list's to say, not a role's.
#[test]
fn signatures_count_by_the_servers_list_of_keys() {
    let [listed, other] = [1, 2].map(|seed| SecretKey::new("Al", &[seed; 32]).unwrap());
    let around = TempDir::new().unwrap();
    let keys = around.path().join("keys.json");
    let (path, public) = (keys.to_str().unwrap(), listed.public().to_string());
    run_in(around.path(), ["key", "add", path, "--name", "Al", "--key", &public, "--role", "approver"]).done();
    let desk = PeopleDesk::with(&["--keys", path]);
    let (mut olga, mut al) = (desk.window("Olga", 1), desk.window("Al", 1));
    done(&mut olga, Command::SetPolicy { policy: Policy { approval: Some(ApprovalRule::of(1)), ..Policy::paper() } });
    olga.until("the trace's digest is known", |window| {
        !window.session.trace.as_ref().unwrap().meta.trace_digest.is_empty()
    });
    done(&mut olga, Command::RequestApproval { note: String::new() });
    al.until("there is something to sign", |window| window.session.reviewing.release.is_some());
    let me = al.sync.author().clone();
    for (key, counts) in [(&other, 0), (&listed, 1)] {
        if counts == 1 {
            // One signature a person: the wrong one is taken back with the version.
            done(&mut olga, Command::WithdrawRequest);
            done(&mut olga, Command::RequestApproval { note: String::new() });
            al.until("the next version is there", |window| {
                window.session.reviewing.release.as_ref().is_some_and(|release| release.number == 2)
            });
        }
        let statement = al.session.reviewing.statement(&me, now(), String::new()).unwrap();
        done(&mut al, Command::Approve { approval: Box::new(Approval::sign(statement, key)) });
        let mut late = desk.window("Rita", 10 + counts);
        late.until("the signature is there", |window| {
            let release = window.session.reviewing.release.as_ref();
            release.is_some_and(|release| u64::from(release.number) == 1 + counts && !release.approvals.is_empty())
        });
        let release = late.session.reviewing.release.clone().unwrap();
        let plan = late.session.reviewing.with_what_was_said(&release);
        assert!(late.session.keys.is_some(), "who joins knows the list");
        let stands = standing(&plan, late.session.keys.as_deref(), None);
        assert_eq!((stands.num_valid as u64, stands.is_approved()), (counts, counts == 1), "{stands:?}");
    }
    are_same(&mut [&mut olga, &mut al]);
}

#[test]
fn programs_that_change_a_list_at_once_take_turns() {
    let folder = TempDir::new().unwrap();
    let key = |seed: u8| SecretKey::new("x", &[seed; 32]).unwrap().public().to_string();
    let run = |args: &[&str]| run_in(folder.path(), args).done().stdout;
    let tokens: Vec<String> = std::thread::scope(|scope| {
        let add = |at: u8| {
            let (name, key) = (format!("U{at}"), key(at));
            run(&["key", "add", "k.json", "--name", &name, "--key", &key]);
            run(&["user", "add", &name, "--role", "viewer", "--users", "u.json"])
        };
        let threads: Vec<_> = (0..20).map(|at| scope.spawn(move || add(at))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let listed = |args: &[&str]| run(args).lines().count();
    assert_eq!(listed(&["--json", "user", "list", "--users", "u.json"]), 20);
    assert_eq!(listed(&["--json", "key", "list", "k.json"]), 20);
    let mut left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["k.json", "u.json"], "no lock stays");
    let served = TempDir::new().unwrap();
    tiny::put(&served.path().join(TRACE), 1);
    let server = Server::start(served.path(), ["--users", folder.path().join("u.json").to_str().unwrap()]);
    for token in tokens {
        assert_eq!(server.get(&format!("/{}", token.trim_end()), &[]).status, 303);
    }
}

#[test]
fn the_list_of_people_is_made_and_changed_by_hand() {
    let folder = TempDir::new().unwrap();
    let user = |args: &[&str]| run_in(folder.path(), [&["user"], args, &["--users", "u.json"]].concat());
    let added = user(&["add", "Anna Ek", "--role", "reviewer"]).done();
    assert!(added.stdout.starts_with("?token=") && added.stdout.trim_end().len() == 7 + 43, "{added:?}");
    let json = run_in(folder.path(), ["--json", "user", "add", "Bo", "--role", "owner", "--users", "u.json"]).done();
    let object = &json.objects()[0];
    assert_eq!((&object["name"], &object["role"]), (&"Bo".into(), &"owner".into()));
    assert_eq!(object["query"], format!("?token={}", object["token"].as_str().unwrap()));
    let text = std::fs::read_to_string(folder.path().join("u.json")).unwrap();
    assert!(!text.contains(object["token"].as_str().unwrap()) && !text.contains(added.stdout[7..].trim_end()));
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = |path: &str| std::fs::metadata(folder.path().join(path)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode("u.json"), 0o600);
        std::fs::write(folder.path().join("open.json"), &text).unwrap();
        let open = std::fs::Permissions::from_mode(0o644);
        std::fs::set_permissions(folder.path().join("open.json"), open).unwrap();
        let line = run_in(folder.path(), ["user", "list", "--users", "open.json"]).refused();
        assert!(line.contains("others can read or write") && line.ends_with("open.json"), "{line}");
        let line = run_in(folder.path(), ["serve", ".", "--page", ".", "--users", "open.json"]).refused();
        assert!(line.contains("others can read or write") || line.contains("no index.html"), "{line}");
    }
    user(&["role", "Anna Ek", "approver"]).done();
    let listed = user(&["list"]).done();
    let lines: Vec<Vec<&str>> = listed.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines, [vec!["name", "role"], vec!["Anna", "Ek", "approver"], vec!["Bo", "owner"]]);
    for (args, part) in [
        (vec!["add", "Bo", "--role", "viewer"], "Bo is in it twice: u.json"),
        (vec!["add", "a\nb", "--role", "viewer"], "is no name"),
        (vec!["remove", "Cy"], "nobody in it is called 'Cy': u.json"),
        (vec!["role", "Cy", "viewer"], "nobody in it is called 'Cy': u.json"),
    ] {
        let line = user(&args).refused();
        assert!(line.contains(part), "{line}");
    }
    user(&["remove", "Bo"]).done();
    std::fs::write(folder.path().join("u.json"), "[]").unwrap();
    assert!(
        user(&["add", "Cy", "--role", "viewer"]).refused().contains("not a list of people"),
        "nothing is written over"
    );
    assert!(run_in(folder.path(), ["user", "list", "--users", "none.json"]).refused().contains("no such file"));
}
