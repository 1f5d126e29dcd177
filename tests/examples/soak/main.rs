//! A team at one server for hours: takes how many people, minutes and rows; says each minute what the server has of the
//! machine and how long a command takes, and at the end whether it held.
//!
//!     cargo run --package loka_tests --example soak -- [--people 20] [--minutes 120] [--rows 100000] [--pace 6] [--seed 1]
//!
//! The server is the real binary beside this program, on a made-up trace of small layers that it probes first. People do
//! at random, some `--pace` seconds apart, what people do (`person`); four times all meet, and everybody has to have the
//! same session. It held when
//!
//! - at every meeting all windows had the same session, and one that joined last had it too;
//! - whoever may not was refused, and nobody else but for what somebody changed in the meantime;
//! - no connection ended but those that people ended;
//! - `loka log` finds the chain whole, and a server that comes after has what was said and decided;
//! - the server wrote nothing on stderr but that it serves;
//! - its memory is level: the least of the last quarter's minutes is at most 5 % above the least of the second's, and the
//!   most above the most. The least is what stays when nobody is just joining, the most has the session coded for somebody
//!   who is; how often a minute falls into either is chance, so no means. Rows are all there from the beginning, the first
//!   quarter warms up, and what a quarter's comments, looks and undo points take is some megabytes; a leak of a
//!   connection or a frame is more.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "it stops at the first surprise")]

mod meeting;
mod minutes;
mod person;

use std::{
    sync::atomic::Ordering::Relaxed,
    time::{Duration, Instant},
};

use loka_core::{review::Role, session::shared::Author, trace::write};
use loka_tests::{
    run_in,
    serving::{Server, Window, add_user},
    tiny,
};

use meeting::Meetings;
use minutes::{Minutes, Tally};
use person::{Person, Seat, follow};

const TRACE: &str = "soak.trace.safetensors";
const JOURNAL: &str = "soak.journal.sqlite";
/// Of a small layer on the CPU engine.
const ROWS_OF_SITE: usize = 78;
const WIDTH: usize = 16;
/// All meet at the end of each.
const QUARTERS: usize = 4;
/// What the memory of the last quarter may be of that of the second.
const LEVEL: f64 = 1.05;
/// However long this machine takes for the first probe.
const PROBE: Duration = Duration::from_secs(3600);

struct Args {
    people: usize,
    minutes: f64,
    rows: usize,
    pace: f64,
    seed: u64,
}

fn args() -> Args {
    let mut args = Args { people: 20, minutes: 120.0, rows: 100_000, pace: 6.0, seed: 1 };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().unwrap_or_else(|| panic!("{word} needs a value"));
        match word.as_str() {
            "--people" => args.people = value.parse().unwrap(),
            "--minutes" => args.minutes = value.parse().unwrap(),
            "--rows" => args.rows = value.parse().unwrap(),
            "--pace" => args.pace = value.parse().unwrap(),
            "--seed" => args.seed = value.parse().unwrap(),
            other => panic!("unknown argument {other}"),
        }
    }
    args
}

/// One in four decides, the last one looks on.
fn role(at: usize, people: usize) -> Role {
    match at {
        at if at + 1 == people => Role::Viewer,
        at if at.is_multiple_of(4) => Role::Owner,
        _ => Role::Reviewer,
    }
}

fn main() {
    let args = args();
    let folder = tempfile::TempDir::new().unwrap();
    write(&folder.path().join(TRACE), &tiny::trace_of(args.rows.div_ceil(ROWS_OF_SITE), WIDTH)).unwrap();
    let users = folder.path().join("users.json");
    let links: Vec<String> =
        (0..args.people).map(|at| add_user(&users, &format!("Person {at}"), role(at, args.people).as_str())).collect();
    let words = ["--users", users.to_str().unwrap()];
    let stderr = folder.path().join("stderr");
    let mut server = Server::logged(folder.path(), words, &stderr);
    let cookies: Vec<String> = links.iter().map(|link| server.cookie(link)).collect();

    let start = Instant::now();
    let mut first = Window::knock_as(&server, Author::new(1, ""), Some(TRACE), Some(cookies[0].clone()));
    follow(&mut first, "every site is probed", PROBE, |window| {
        let session = &window.session;
        session.trace.is_some() && !session.is_running() && !session.lacks_rows()
    });
    let num_rows = first.session.rows().count();
    println!("{num_rows} rows of {} sites in {:.0} s", first.session.sites().len(), start.elapsed().as_secs_f64());
    drop(first);

    let length = Duration::from_secs_f64(60.0 * args.minutes);
    let (tally, meetings) = (Tally::default(), Meetings::new(args.people, length, QUARTERS));
    let [second, last] = std::thread::scope(|scope| {
        let people: Vec<_> = cookies
            .iter()
            .enumerate()
            .map(|(at, cookie)| {
                let (server, tally, meetings) = (&server, &tally, &meetings);
                let seat = Seat { at, role: role(at, args.people), cookie, server, tally, pace: args.pace };
                scope.spawn(move || Person::new(seat, args.seed).work(meetings))
            })
            .collect();
        let mut minutes = Minutes::new(&server, folder.path().join(JOURNAL), &tally);
        while !people.iter().all(|person| person.is_finished()) {
            minutes.wait(|| people.iter().any(|person| person.is_finished()));
            if !meetings.over() && people.iter().any(|person| person.is_finished()) {
                // The others would wait for them for ever.
                println!("somebody stopped early: see above");
                server.signal("KILL");
                std::process::exit(1);
            }
        }
        minutes.second_and_last_quarter()
    });

    let mut problems = meetings.problems();
    let mut late = Window::knock_as(&server, Author::new(u64::MAX, ""), Some(TRACE), Some(cookies[0].clone()));
    follow(&mut late, "the session comes", PROBE, |window| window.num_states > 0);
    late.settle();
    if Some(late.digest()) != meetings.last_digest() {
        problems.push("who joins last has another session".to_owned());
    }
    let before = (late.session.reviewing.review.clone(), late.session.document.clone());
    drop(late);
    server.signal("TERM");
    if server.ended() != Some(0) {
        problems.push("the server did not end well".to_owned());
    }
    let log = run_in(folder.path(), ["log", JOURNAL]);
    let chain = log.stdout.lines().last().unwrap_or_default().to_owned();
    println!("loka log: {chain}");
    if log.code != Some(0) {
        problems.push(format!("loka log: {}", log.stderr));
    }
    let said = std::fs::read_to_string(&stderr).unwrap();
    problems
        .extend(said.lines().filter(|line| !line.contains("is served until")).map(|line| format!("stderr: {line}")));

    let next = Server::start(folder.path(), words);
    let mut again = Window::knock_as(&next, Author::new(1, ""), Some(TRACE), Some(next.cookie(&links[0])));
    follow(&mut again, "what was left is there", PROBE, |window| window.session.has_rows());
    if (&again.session.reviewing.review, &again.session.document) != (&before.0, &before.1) {
        problems.push("the server after it has not what was said and decided".to_owned());
    }

    for (which, second, last) in [("least", second.0, last.0), ("most", second.1, last.1)] {
        let grown = 100.0 * (last / second - 1.0);
        println!(
            "memory: {second:.1} MB at the {which} in the second quarter, {last:.1} MB in the last ({grown:+.1} %)"
        );
        if last > LEVEL * second {
            problems.push(format!("memory grew by more than {:.0} %", 100.0 * (LEVEL - 1.0)));
        }
    }
    problems.extend(tally.problems());
    println!("{}", tally.line());
    if tally.refused_viewer.load(Relaxed) == 0 {
        problems.push("no viewer was refused anything".to_owned());
    }
    problems.iter().for_each(|line| println!("FAILED: {line}"));
    if !problems.is_empty() {
        drop(again);
        drop(next);
        std::process::exit(1);
    }
    println!("it held");
}
