//! Sessions of `loka serve` as several windows see them: the same at every one of them, whatever happens to its
//! connection, and whatever another one does.

use std::time::{Duration, Instant};

use loka_core::{
    dispatch::Policy,
    model::{Gemm, KernelId, ModKind, SiteId},
    session::{
        Command, Event,
        shared::{ClientQuery, SILENCE, ToClient, ToServer, encode},
    },
};
use loka_tests::{
    serving::{PATIENCE, ProcessUsage, Server, Window, are_same, open},
    tiny,
};
use tempfile::TempDir;
use tungstenite::Message;

const TRACE: &str = "tiny.trace.safetensors";

fn folder(num_sites: usize) -> TempDir {
    let folder = TempDir::new().unwrap();
    tiny::put(&folder.path().join(TRACE), num_sites);
    folder
}

fn serve(num_sites: usize, args: &[&str]) -> (TempDir, Server) {
    let folder = folder(num_sites);
    let server = Server::start(folder.path(), args);
    (folder, server)
}

fn pull(value: f64) -> Command {
    Command::SetMaxError { value, gesture: None }
}

fn site(at: usize) -> SiteId {
    SiteId::new(&format!("layers.{at}"))
}

#[test]
fn two_windows_and_one_that_comes_late_see_the_same() {
    let (_folder, server) = serve(6, &[]);
    let (mut anna, mut bo) = (Window::join(&server, 1, None), Window::join(&server, 2, Some(TRACE)));
    anna.until_probed();
    assert_eq!(anna.session.trace.as_ref().unwrap().path, TRACE, "a name in the folder, no path of the machine");
    anna.submit(pull(0.3));
    bo.submit(Command::SetPolicy { policy: Policy::rel_l2() });
    let kernel = KernelId::new("cublaslt/tf32");
    let reason = "it must stay".to_owned();
    bo.submit(Command::SetOverride { site: site(0), gemm: Gemm::Fprop, kernel, reason });
    // Under a mod that came in between, that kernel has no row yet, and the override would be refused.
    bo.until("the override is there", |window| window.sync.num_waiting() == 0);
    anna.submit(Command::ToggleMod { kind: ModKind::NoBias });
    anna.submit(Command::Undo);
    for window in [&mut anna, &mut bo] {
        window.until("everything was answered", |window| window.sync.num_waiting() == 0);
        window.until_probed();
    }
    are_same(&mut [&mut anna, &mut bo]);
    let mut cleo = Window::join(&server, 3, None);
    are_same(&mut [&mut anna, &mut bo, &mut cleo]);
    assert_eq!((anna.num_states, cleo.num_states), (1, 1));
    assert!(anna.refused.is_empty() && bo.refused.is_empty(), "{:?} {:?}", anna.refused, bo.refused);
    assert!(anna.session.rows().count() > 0);
    anna.until("everyone is seen", |window| window.sync.people.len() == 3);
    assert_eq!(anna.sync.people[2].name, "Window 3");
    drop(cleo);
    anna.until("who left is not", |window| window.sync.people.len() == 2);
}

/// What another one is known by is told to all, and nobody else's to use.
#[test]
fn nobody_speaks_as_another_window() {
    let (_folder, server) = serve(2, &[]);
    let mut anna = Window::join(&server, 1, None);
    anna.until_probed();
    let hers = anna.sync.author().key;
    assert_ne!(hers, 1, "the number that she says is her secret");
    let mut eve = Window::join(&server, hers, None);
    assert!(![1, hers].contains(&eve.sync.author().key));
    let command = Box::new(pull(0.2));
    eve.send(&ToServer::Command { number: (1 << 63) - 1, seen: 0, command });
    eve.settle();
    anna.submit(pull(0.3));
    anna.until("it is answered", |window| window.sync.num_waiting() == 0);
    are_same(&mut [&mut anna, &mut eve]);
    assert_eq!(anna.session.document.policy.max_error, 0.3);
}

/// A page sees no ping of the protocol.
#[test]
fn a_server_says_that_it_is_there() {
    let (_folder, server) = serve(1, &[]);
    let mut anna = Window::join(&server, 1, None);
    anna.until_probed();
    anna.settle();
    let start = Instant::now();
    anna.until("it says so", |window| window.num_alive > 0);
    assert!(start.elapsed().as_secs_f64() < SILENCE / 2.0);
}

#[test]
fn a_window_that_was_away_goes_on_where_it_was() {
    let (_folder, server) = serve(150, &[]);
    let (mut anna, mut bo) = (Window::join(&server, 1, None), Window::join(&server, 2, None));
    anna.until("rows come", |window| window.session.has_rows());
    assert!(anna.session.is_running(), "the probe is over before the test began");
    let before = anna.sync.at().unwrap();
    anna.drop_connection();
    bo.until("the session went on", |window| window.sync.at().unwrap().1 > before.1 + 3);
    anna.reconnect(&server);
    anna.until("it goes on", |window| window.sync.at().unwrap().1 > before.1);
    assert_eq!((anna.num_states, anna.sync.at().unwrap().0), (1, before.0), "no need for the whole session");
    anna.until_probed();
    bo.until_probed();
    are_same(&mut [&mut anna, &mut bo]);
}

/// It grew by 15 kB a command once, which is 12 MB here. The soak (`examples/soak`) has hours of it.
#[test]
#[cfg(target_os = "linux")]
fn what_many_commands_take_of_memory_is_given_back() {
    let (_folder, server) = serve(6, &["--max-messages", "100000"]);
    let mut windows: Vec<Window> = (1..=2).map(|key| Window::join(&server, key, None)).collect();
    windows[0].until_probed();
    let ask = |windows: &mut [Window]| {
        for at in 0..200 {
            windows.iter_mut().for_each(|window| window.submit(pull(0.1 + 1e-4 * f64::from(at))));
        }
        windows.iter_mut().for_each(|window| window.until("all is answered", |window| window.sync.num_waiting() == 0));
        ProcessUsage::of(&server).megabytes
    };
    let before = ask(&mut windows);
    let after = (0..2).fold(0.0, |_, _| ask(&mut windows));
    assert!(after - before < 5.0, "{before:.1} MB, {after:.1} MB 800 commands later");
}

#[test]
fn a_command_that_is_sent_again_is_done_once() {
    let (_folder, server) = serve(1, &[]);
    let mut anna = Window::join(&server, 1, None);
    anna.until_probed();
    for value in [0.3, 0.4] {
        anna.submit(pull(value));
    }
    anna.until("both are done", |window| window.sync.num_waiting() == 0);
    let undo = anna.sync.submit(Command::Undo);
    anna.send(&undo);
    anna.drop_connection();
    anna.reconnect(&server);
    // As often as it likes.
    anna.send(&undo);
    anna.send(&undo);
    anna.until("it is answered", |window| window.sync.num_waiting() == 0);
    anna.settle();
    assert_eq!(anna.session.document.policy.max_error, 0.3);
    assert!(anna.session.can_undo() && anna.session.can_redo());
}

#[test]
fn a_refusal_is_told_to_who_asked() {
    let (folder, server) = serve(1, &[]);
    let (mut anna, mut bo) = (Window::join(&server, 1, None), Window::join(&server, 2, None));
    anna.until_probed();
    are_same(&mut [&mut anna, &mut bo]);
    let before = bo.sync.at();
    let (kernel, reason) = (KernelId::new("te/current"), String::new());
    for (command, part) in [
        (Command::SetOverride { site: site(9), gemm: Gemm::Fprop, kernel, reason }, "layers.9"),
        (Command::OpenTrace { path: TRACE.to_owned() }, "join"),
        (Command::ExportPlan { path: "p.plan.json".to_owned() }, "for itself"),
        (Command::SaveResults { path: "/tmp/r.results.parquet".to_owned() }, "for itself"),
        (Command::OpenResults { path: "../r.results.parquet".to_owned() }, "outside of the served folder"),
        (Command::OpenResults { path: "/etc/passwd".to_owned() }, "outside of the served folder"),
        (Command::OpenPlan { path: "nowhere.plan.json".to_owned() }, "no such file or folder: nowhere.plan.json"),
        (Command::ProbeMore { site: site(0), max_draws: u64::MAX }, "draws"),
        (pull(f64::NAN), "policy"),
    ] {
        let told = anna.refused.len();
        anna.submit(command);
        anna.until("it is refused", |window| window.refused.len() > told);
        let line = anna.refused.last().unwrap();
        assert!(line.contains(part), "{line}");
        assert!(!line.contains(&*folder.path().to_string_lossy()), "{line} tells a path of the machine");
    }
    bo.settle();
    assert_eq!((bo.sync.at(), bo.refused.len()), (before, 0));
    assert_eq!(
        std::fs::read_dir(folder.path())
            .unwrap()
            .filter(|entry| { entry.as_ref().unwrap().file_name().to_string_lossy().ends_with(".plan.json") })
            .count(),
        0
    );
}

#[test]
fn who_sends_nonsense_floods_or_is_too_large_is_alone_with_it() {
    let (_folder, server) = serve(1, &[]);
    let mut anna = Window::join(&server, 1, None);
    anna.until_probed();
    let join = || Window::join(&server, 9, None);
    let send = |window: &mut Window, bytes: Vec<u8>| drop(window.socket().send(Message::Binary(bytes.into())));
    let mut garbage = join();
    send(&mut garbage, vec![0xff; 100]);
    assert!(garbage.until_closed().contains("not of this protocol"));
    let mut cut = join();
    send(&mut cut, encode(&cut_short())[..3].to_vec());
    assert!(cut.until_closed().contains("not of this protocol"));
    let mut bomb = join();
    send(&mut bomb, [&[1][..], &u32::MAX.to_le_bytes(), &[0; 64]].concat());
    assert!(bomb.until_closed().contains("more than"));
    let mut text = join();
    text.socket().send(Message::Text("hello".into())).unwrap();
    assert!(text.until_closed().contains("binary"));
    let mut large = join();
    send(&mut large, vec![0; 3 << 20]);
    // What it still had on its way may reset the connection.
    let said = large.until_closed();
    assert!(said.is_empty() || said.contains("cannot be read"), "{said}");
    let mut flood = join();
    let again = ToServer::Command { number: 1, seen: 0, command: Box::new(Command::Undo) };
    for _ in 0..5000 {
        if flood.socket().write(Message::Binary(encode(&again).into())).is_err() {
            break;
        }
    }
    drop(flood.socket().flush());
    // Which of the two bounds is reached first, what it sends or what waits to be read by it, goes by who is faster.
    let said = flood.until_closed();
    assert!(
        said.is_empty() || said.contains("more than the server takes") || said.contains("does not read the answers"),
        "{said}"
    );
    let mut rude = open(&server.address, None);
    rude.send(Message::Binary(encode(&again).into())).unwrap();
    assert!(matches!(rude.read().unwrap(), Message::Binary(_)));
    assert!(matches!(rude.read().unwrap(), Message::Close(_)), "hello comes first");
    anna.submit(pull(0.5));
    anna.until("the others go on", |window| window.session.document.policy.max_error == 0.5);
}

fn cut_short() -> ToServer {
    ToServer::Join { trace: "a name of some length".to_owned() }
}

#[test]
fn another_version_is_told_so() {
    let (_folder, server) = serve(1, &[]);
    let mut window = Window::knock(&server, 1, None);
    window.drop_connection();
    let mut socket = open(&server.address, None);
    let ToServer::Hello(mut hello) = window.sync.hello() else { panic!("no hello") };
    hello.protocol += 1;
    socket.send(Message::Binary(encode(&ToServer::Hello(hello)).into())).unwrap();
    let Message::Binary(bytes) = socket.read().unwrap() else { panic!("no reason") };
    let Ok(ToClient::Closing { reason, again: false }) = loka_core::session::shared::decode(&bytes, 1 << 20) else {
        panic!("no reason")
    };
    assert!(reason.contains("load the page again"), "{reason}");
}

/// Characters that no coding makes shorter.
fn noise(seed: u64) -> String {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut character = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(b'0' + (state % 75) as u8)
    };
    (0..4000).map(|_| character()).collect()
}

#[test]
fn who_does_not_read_gets_the_session_instead_and_holds_up_nobody() {
    let (_folder, server) = serve(1, &["--max-behind", "1", "--max-messages", "10000"]);
    let mut anna = Window::join(&server, 1, None);
    anna.until_probed();
    let mut sleeper = Window::join(&server, 2, None);
    let (mut slowest, mut sent) = (Duration::ZERO, 0);
    let start = Instant::now();
    // More than the system keeps for the two of them.
    while sent < 4000 && start.elapsed() < Duration::from_secs(10) {
        for _ in 0..200 {
            let (kernel, reason) = (KernelId::new("cublaslt/tf32"), noise(sent));
            anna.submit(Command::SetOverride { site: site(0), gemm: Gemm::Fprop, kernel, reason });
            sent += 1;
        }
        let asked = Instant::now();
        anna.until("it is done", |window| window.sync.num_waiting() == 0);
        slowest = slowest.max(asked.elapsed());
    }
    assert!(slowest < Duration::from_secs(3), "{slowest:?} for 200 commands while another does not read");
    assert_eq!(anna.num_states, 1, "who reads is not behind");
    let last = anna.sync.at();
    sleeper.until("it is back", |window| window.sync.at() == last);
    assert!(sleeper.num_states > 1, "after {sent} steps it was still in the ring");
    are_same(&mut [&mut anna, &mut sleeper]);
}

#[test]
fn questions_are_answered_to_who_asked() {
    let (folder, server) = serve(2, &[]);
    std::fs::write(folder.path().join("paper.pdf"), "%PDF-1.7").unwrap();
    let (mut anna, mut bo) = (Window::join(&server, 1, None), Window::join(&server, 2, None));
    let outside = |path: &str| ClientQuery::Identify { path: path.to_owned() };
    for question in [
        ClientQuery::Inspect { site: site(1), other: None },
        ClientQuery::Inspect { site: site(7), other: None },
        ClientQuery::Inspect { site: site(1), other: Some("../x.trace.safetensors".to_owned()) },
        ClientQuery::Series,
        outside(TRACE),
        outside("paper.pdf"),
        outside("../secret"),
    ] {
        anna.ask(question);
    }
    anna.until("all are answered", |window| window.answers.len() == 7);
    let (mut found, mut lines) = (0, Vec::new());
    for answer in &anna.answers {
        match answer {
            Event::SiteInspected { outcome: Ok(of), trace, .. } => {
                assert_eq!((of.site.id.clone(), trace.as_str()), (site(1), TRACE));
                found += 1;
            }
            Event::SeriesRead { table: Ok(_), .. } | Event::Identified { kind: Ok(_), .. } => found += 1,
            Event::SiteInspected { outcome: Err(line), .. } | Event::Identified { kind: Err(line), .. } => {
                lines.push(line.clone());
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(found, 3, "{:?}", anna.answers);
    lines.sort();
    for (line, part) in lines.iter().zip(["layers.7", "outside of", "outside of", "looks like a PDF"]) {
        let all = lines.join("\n");
        assert!(all.contains(part) && !line.contains(&*folder.path().to_string_lossy()), "{all}");
    }
    bo.settle();
    assert!(bo.answers.is_empty());
}

#[test]
fn windows_choose_among_the_traces_of_a_folder() {
    let folder = folder(1);
    tiny::put(&folder.path().join("b.trace.safetensors"), 2);
    std::fs::write(folder.path().join("broken.trace.safetensors"), "no").unwrap();
    let server = Server::start(folder.path(), ["--max-sessions", "1"]);
    let mut anna = Window::join(&server, 1, None);
    assert_eq!(anna.sync.files, ["b.trace.safetensors", "broken.trace.safetensors", TRACE]);
    assert!(anna.session.trace.is_none(), "nothing is chosen yet");
    anna.submit(Command::StartProbe);
    anna.until("there is nothing to probe", |window| !window.refused.is_empty());
    let go = |window: &mut Window, trace: &str| {
        let join = window.sync.join(trace);
        window.send(&join);
    };
    for outside in ["../secret", "nowhere", "broken.trace.safetensors"] {
        let told = anna.answers.len();
        go(&mut anna, outside);
        anna.until("it is refused", |window| window.answers.len() > told);
        let Some(Event::OpenFailed { message }) = anna.answers.last() else { panic!("{:?}", anna.answers) };
        assert!(message.contains(outside) && !message.contains(&*folder.path().to_string_lossy()), "{message}");
        anna.until("it is in no session", |window| window.sync.at() == Some((0, 0)));
    }
    go(&mut anna, "b.trace.safetensors");
    anna.until("the trace is there", |window| window.session.sites().len() == 2);
    let mut bo = Window::join(&server, 2, Some(TRACE));
    let Some(Event::OpenFailed { message }) = bo.answers.first().cloned().or_else(|| {
        bo.until("it is refused", |window| !window.answers.is_empty());
        bo.answers.first().cloned()
    }) else {
        panic!("{:?}", bo.answers)
    };
    assert!(message.contains("1 sessions"), "{message}");
    anna.until_probed();
    drop(anna);
    let start = Instant::now();
    while bo.session.sites().len() != 1 {
        assert!(start.elapsed() < PATIENCE, "the place is never free");
        go(&mut bo, TRACE);
        let quiet = Instant::now();
        while quiet.elapsed() < Duration::from_millis(700) {
            bo.pump(Duration::from_millis(50));
        }
    }
}

#[test]
fn one_window_too_many_is_told_so() {
    let (_folder, server) = serve(1, &["--max-clients", "1"]);
    let anna = Window::join(&server, 1, None);
    let mut bo = Window::knock(&server, 2, None);
    assert!(bo.until_closed().contains("1 windows"), "{:?}", bo.sync.closed);
    assert_eq!(bo.sync.closed.as_ref().map(|(_, again)| *again), Some(true));
    drop(anna);
    let start = Instant::now();
    loop {
        bo.reconnect(&server);
        bo.pump(Duration::from_secs(1));
        if bo.sync.closed.is_none() {
            break;
        }
        assert!(start.elapsed() < PATIENCE, "the place is never free");
    }
}

#[test]
fn a_server_that_ends_says_so() {
    let (_folder, mut server) = serve(150, &[]);
    let mut anna = Window::join(&server, 1, None);
    anna.until("rows come", |window| window.session.has_rows());
    server.signal("TERM");
    assert!(anna.until_closed().contains("being stopped"));
    assert_eq!(anna.sync.closed.as_ref().map(|(_, again)| *again), Some(true));
    assert_eq!(server.ended(), Some(0));
}

#[test]
fn a_server_that_was_killed_and_its_successor_are_one_to_a_window() {
    let folder = folder(200);
    let mut first = Server::start(folder.path(), [""; 0]);
    let (mut anna, mut bo) = (Window::join(&first, 1, None), Window::join(&first, 2, None));
    let known = |window: &Window| !window.session.trace.as_ref().unwrap().meta.trace_digest.is_empty();
    anna.until("rows come and are kept", |window| window.session.has_rows() && known(window));
    anna.submit(pull(0.37));
    anna.submit(pull(0.41));
    let undo = anna.sync.submit(Command::Undo);
    anna.send(&undo);
    anna.until("all was acknowledged", |window| window.sync.num_waiting() == 0);
    assert!(anna.session.is_running(), "the probe was over too soon");
    let rows = anna.session.rows().count();
    first.child.kill().unwrap();
    first.child.wait().unwrap();
    let second = Server::start(folder.path(), [""; 0]);
    anna.reconnect(&second);
    anna.until("the session is there again", |window| window.num_states > 1 && window.session.has_rows());
    assert!(anna.session.rows().count() >= rows, "{} of {rows} rows", anna.session.rows().count());
    assert_eq!(anna.session.document.policy.max_error, 0.37);
    anna.send(&undo);
    bo.reconnect(&second);
    bo.until("the session is there again", |window| window.num_states > 1);
    anna.until_probed();
    bo.until_probed();
    are_same(&mut [&mut anna, &mut bo]);
    assert_eq!(anna.session.document.policy.max_error, 0.37, "a command that was answered before is not done again");
}

#[test]
fn results_of_the_folder_are_compared_for_everybody() {
    let (folder, server) = serve(2, &[]);
    let (mut anna, mut bo) = (Window::join(&server, 1, None), Window::join(&server, 2, None));
    anna.until_probed();
    anna.submit(Command::SetPolicy { policy: Policy::paper() });
    anna.until("MERE counts", |window| window.session.document.policy == Policy::paper());
    let mut old = anna.session.results().unwrap();
    for row in old.rows.iter_mut().filter(|row| row.supported) {
        row.error.iter_mut().for_each(|error| error.mere = loka_core::model::Estimate::exact(9.0));
    }
    loka_core::tables::write_results(&folder.path().join("old.results.parquet"), &old).unwrap();
    let outside = folder.path().join("old.results.parquet").to_string_lossy().into_owned();
    anna.submit(Command::OpenPlan { path: outside });
    anna.until("a path of the machine is refused", |window| window.refused.len() == 1);
    anna.submit(Command::OpenPlan { path: "old.results.parquet".to_owned() });
    for window in [&mut anna, &mut bo] {
        window.until("they are compared", |window| window.session.other_results.is_some());
        assert!(!window.session.other_results.as_ref().unwrap().flips.is_empty());
    }
    let mut cleo = Window::join(&server, 3, None);
    are_same(&mut [&mut anna, &mut bo, &mut cleo]);
    assert_eq!(cleo.session.other_results, anna.session.other_results);
    assert_eq!(cleo.session.other_plan.as_ref().unwrap().0, "old.results.parquet", "no path of the machine");
}
