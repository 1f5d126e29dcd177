//! People at work on one session: takes how many, how much each asks for a second and how long; says whether every
//! command was answered, whether all windows have the server's session, whether its journal gives the same again and its
//! chain holds, and how much memory the server took on the way.

use std::{
    collections::VecDeque,
    sync::{Arc, Barrier},
    time::{Duration, Instant},
};

use loka_core::{
    dispatch::Document,
    journal::Trail,
    model::{Gemm, KernelId, SiteId},
    review::{Review, ReviewState, Role},
    session::{Command, Session, shared::Author},
    trace::write,
};
use loka_tests::{
    dice::Dice,
    sample,
    serving::{ProcessUsage, Server, Window, add_user},
    tiny,
};

const TRACE: &str = "sample.trace.safetensors";
/// Memory is noted so often.
const PARTS: usize = 8;
/// What owners choose between.
const KERNELS: [&str; 2] = ["cublaslt/bf16", "cublaslt/tf32"];

/// What one window knows at the end.
struct ReviewerSeen {
    asked: usize,
    refused: Vec<String>,
    /// Milliseconds from a command to its answer.
    answered_ms: Vec<f64>,
    digest: String,
    at: Option<(u64, u64)>,
    num_states: usize,
}

/// `sites`: of a made-up trace with layers of so many features; the sample without.
pub fn run(people: usize, rate: f64, seconds: f64, sites: Option<(usize, usize)>) {
    let folder = tempfile::TempDir::new().unwrap();
    match sites {
        Some((sites, width)) => write(&folder.path().join(TRACE), &tiny::trace_of(sites, width)).unwrap(),
        None => drop(std::fs::copy(sample(), folder.path().join(TRACE)).unwrap()),
    }
    let users = folder.path().join("users.json");
    // One in four decides.
    let role = |at: usize| if at.is_multiple_of(4) { Role::Owner } else { Role::Reviewer };
    let links: Vec<String> =
        (0..people).map(|at| add_user(&users, &format!("Person {at}"), role(at).as_str())).collect();
    let args = ["--users", users.to_str().unwrap(), "--max-clients", "1000"];
    let server = Server::start(folder.path(), args);
    let join = |at: usize| {
        let author = Author::new(1 + at as u64, "whoever");
        let mut window = Window::knock_as(&server, author, Some(TRACE), Some(server.cookie(&links[at])));
        // However long this machine takes for the probe.
        while window.session.is_running() || window.session.trace.is_none() || window.session.lacks_rows() {
            assert!(window.pump(Duration::from_millis(50)), "{:?}", window.sync.closed);
        }
        window
    };
    // The first waits for the probe; a window that does not read for so long is closed.
    let windows: Vec<Window> = (0..people).map(join).collect();
    let num_rows = windows[0].session.rows().count();
    let all_done = Arc::new(Barrier::new(people));
    let start = Instant::now();
    let mut memory = vec![ProcessUsage::of(&server).megabytes];
    let threads: Vec<_> = windows
        .into_iter()
        .enumerate()
        .map(|(at, window)| {
            let (all_done, decides) = (all_done.clone(), role(at) == Role::Owner);
            std::thread::spawn(move || work(window, at, decides, rate, seconds, &all_done))
        })
        .collect();
    for part in 1..=PARTS {
        let until = start + Duration::from_secs_f64(seconds * part as f64 / PARTS as f64);
        std::thread::sleep(until.saturating_duration_since(Instant::now()));
        memory.push(ProcessUsage::of(&server).megabytes);
    }
    let seen: Vec<ReviewerSeen> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    let took = start.elapsed().as_secs_f64();
    let (last, kept) = ends(&server, folder.path(), &users, &links[0]);
    let trail = Trail::read(&folder.path().join("sample.journal.sqlite")).unwrap();
    println!("{num_rows} rows; {} entries in the trail, and its chain holds", trail.unwrap().entries.len());
    let memory: Vec<String> = memory.iter().map(|megabytes| format!("{megabytes:.0}")).collect();
    println!("server's memory, at the start and after each eighth: {} MB", memory.join(", "));
    report(&seen, &last, kept, took);
}

/// The session as the server gives it at last, and whether a server that comes after it has what people said and
/// decided.
fn ends(server: &Server, folder: &std::path::Path, users: &std::path::Path, link: &str) -> (String, bool) {
    let late = |server: &Server| {
        let author = Author::new(u64::MAX, "late");
        let mut window = Window::knock_as(server, author, Some(TRACE), Some(server.cookie(link)));
        window.until("the session comes", |window| window.session.trace.is_some());
        window.settle();
        window
    };
    let last = late(server);
    let (digest, before) = (last.digest(), said(&last.session));
    drop(last);
    server.signal("KILL");
    let next = Server::start(folder, ["--users", users.to_str().unwrap()]);
    let mut again = late(&next);
    again.until("what was left is there", |window| window.session.has_rows());
    (digest, said(&again.session) == before)
}

fn said(session: &Session) -> (Review, Document) {
    (session.reviewing.review.clone(), session.document.clone())
}

fn work(mut window: Window, at: usize, decides: bool, rate: f64, seconds: f64, all_done: &Barrier) -> ReviewerSeen {
    let sites: Vec<SiteId> = window.session.sites().iter().map(|site| site.id.clone()).collect();
    let (start, mut sent) = (Instant::now(), VecDeque::new());
    let (mut asked, mut answered_ms, mut dice) = (0, Vec::new(), Dice::new(1 + at as u64));
    // Not all in the same moment.
    let due = |asked: usize| Duration::from_secs_f64((asked as f64 + dice_of(at)) / rate);
    let note = |window: &Window, sent: &mut VecDeque<Instant>, answered_ms: &mut Vec<f64>| {
        while sent.len() > window.sync.num_waiting() {
            let of = sent.pop_front().unwrap();
            answered_ms.push(1000.0 * of.elapsed().as_secs_f64());
        }
    };
    while start.elapsed().as_secs_f64() < seconds {
        if start.elapsed() >= due(asked) {
            window.submit(command(&mut dice, &sites, decides, asked));
            sent.push_back(Instant::now());
            asked += 1;
        }
        let left = due(asked).saturating_sub(start.elapsed()).min(Duration::from_millis(20));
        assert!(window.pump(left), "{:?}", window.sync.closed);
        note(&window, &mut sent, &mut answered_ms);
    }
    window.until("everything is answered", |window| window.sync.num_waiting() == 0);
    note(&window, &mut sent, &mut answered_ms);
    all_done.wait();
    window.settle();
    let (digest, at) = (window.digest(), window.sync.at());
    let (refused, num_states) = (std::mem::take(&mut window.refused), window.num_states);
    ReviewerSeen { asked, refused, answered_ms, digest, at, num_states }
}

/// A share of the time between two commands.
fn dice_of(at: usize) -> f64 {
    (at as f64 * 0.618).fract()
}

fn command(dice: &mut Dice, sites: &[SiteId], decides: bool, asked: usize) -> Command {
    let site = sites[dice.below(sites.len())].clone();
    let gemm = Gemm::ALL[dice.below(3)];
    let of = format!("{:016x}", dice.below(1 << 20));
    match dice.below(if decides { 14 } else { 10 }) {
        0..3 => {
            let text = format!("Number {asked}: this one may stay as it is, but who knows for how long?");
            Command::Comment { site: Some(site), gemm: Some(gemm), reply_to: None, text }
        }
        3..6 => Command::Mark { site: Some(site), state: ReviewState::Agreed, of },
        6..10 => Command::Look { site, of },
        10..12 => {
            let kernel = KernelId::new(KERNELS[dice.below(KERNELS.len())]);
            Command::SetOverride { site, gemm, kernel, reason: format!("number {asked}") }
        }
        12 => Command::ClearOverride { site, gemm },
        _ => Command::Undo,
    }
}

fn report(seen: &[ReviewerSeen], last: &str, kept: bool, took: f64) {
    let asked: usize = seen.iter().map(|seen| seen.asked).sum();
    let mut ms: Vec<f64> = seen.iter().flat_map(|seen| seen.answered_ms.iter().copied()).collect();
    ms.sort_by(f64::total_cmp);
    let at = |share: f64| ms.get((share * ms.len().saturating_sub(1) as f64).round() as usize).copied().unwrap_or(0.0);
    let conflicts = |line: &&String| line.contains("in the meantime");
    let refused: Vec<&String> = seen.iter().flat_map(|seen| &seen.refused).collect();
    let num_conflicts = refused.iter().filter(|line| conflicts(line)).count();
    let same = seen.iter().all(|seen| seen.digest == last);
    let again: usize = seen.iter().map(|seen| seen.num_states - 1).sum();
    let steps = seen.iter().filter_map(|seen| seen.at).map(|(_, seq)| seq).max().unwrap_or_default();
    let yes = |yes: bool| if yes { "yes" } else { "NO" };
    println!(
        "| people | seconds | commands | answered | refused (conflicts) | steps | whole sessions sent again | p50 ms | p99 ms | max ms | same session at all | same after a kill |"
    );
    println!("|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|---|");
    println!(
        "| {} | {took:.0} | {asked} | {} | {} ({num_conflicts}) | {steps} | {again} | {:.1} | {:.1} | {:.1} | {} | {} |",
        seen.len(),
        ms.len(),
        refused.len(),
        at(0.5),
        at(0.99),
        at(1.0),
        yes(same),
        yes(kept),
    );
    let mut others: Vec<&String> = refused.into_iter().filter(|line| !conflicts(line)).collect();
    others.sort();
    others.dedup();
    others.iter().take(5).for_each(|line| println!("refused: {line}"));
    assert!(same && kept && ms.len() == asked, "something was lost");
}
