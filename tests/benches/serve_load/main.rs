//! Many windows on one probing session: what they cost the engine, how long an event takes to all of them, and that
//! none is lost or comes out of order.
//!
//!     cargo bench --workspace --bench serve_load [--profile dev] -- [--clients 0,1,50,200] [--seconds 20] [--rounds 3]
//!         [--sites 2000 [--width 16]] [--apart]
//!
//! The server is the real binary beside this program, probing the bundled sample again and again on the CPU engine (or,
//! by `--sites`, a made-up trace of so many small layers, whose rows come by the thousand); the windows are threads of
//! this process, so that both share the machine's cores. `--apart` gives the server one core and the windows another:
//! what windows cost the engine is then the server's own work for them. One window follows the session as a
//! browser does, and must end equal to one that joins last. The others take frames and note what came when: all must
//! have the same frames in the same order. A marked command a few times a second is timed from its author to each.
//!
//!     cargo bench --workspace --bench serve_load -- --reviewers 20 [--rate 10] [--seconds 300] [--sites 2000 [--width 16]]
//!
//! is another load: so many people of a list, each with a window that says and decides so much a second.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a benchmark stops at the first surprise")]

mod report;
mod reviewers;
mod watcher;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use loka_core::{
    session::{Command, Run},
    trace::write,
};
use loka_tests::{
    sample,
    serving::{ProcessUsage, Server, Window},
    tiny,
};

use report::Report;
use watcher::Watcher;

/// Between two marked commands.
const MARK_EVERY: Duration = Duration::from_millis(200);

/// The server's memory is noted so often.
const QUARTERS: f64 = 4.0;

struct Args {
    clients: Vec<usize>,
    seconds: f64,
    rounds: usize,
    reviewers: Option<usize>,
    rate: f64,
    /// Of a made-up trace; the sample without.
    sites: Option<usize>,
    /// Features of its layers.
    width: usize,
    apart: bool,
}

fn args() -> Args {
    let mut args = Args {
        clients: vec![0, 1, 50, 200],
        seconds: 20.0,
        rounds: 1,
        reviewers: None,
        rate: 10.0,
        sites: None,
        width: 16,
        apart: false,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().unwrap_or_else(|| panic!("{word} needs a value"));
        match word.as_str() {
            "--clients" => args.clients = value().split(',').map(|count| count.parse().unwrap()).collect(),
            "--seconds" => args.seconds = value().parse().unwrap(),
            "--reviewers" => args.reviewers = Some(value().parse().unwrap()),
            "--rate" => args.rate = value().parse().unwrap(),
            "--sites" => args.sites = Some(value().parse().unwrap()),
            "--width" => args.width = value().parse().unwrap(),
            "--apart" => args.apart = true,
            "--rounds" => args.rounds = value().parse().unwrap(),
            // Cargo's own.
            "--bench" => {}
            other => panic!("unknown argument {other}"),
        }
    }
    args
}

fn main() {
    let args = args();
    if let Some(people) = args.reviewers {
        let sites = args.sites.map(|sites| (sites, args.width));
        return reviewers::run(people, args.rate, args.seconds, sites);
    }
    println!("{}", Report::HEAD);
    // One after the other in each round: a machine that slows down slows all of them.
    for round in 0..args.rounds {
        for clients in &args.clients {
            println!("{}", run(*clients, &args).line(round));
        }
    }
}

/// A server of its own, so that no run has the memory of the one before.
fn run(num_clients: usize, args: &Args) -> Report {
    let seconds = args.seconds;
    let folder = tempfile::TempDir::new().unwrap();
    let trace = folder.path().join("sample.trace.safetensors");
    match args.sites {
        Some(sites) => write(&trace, &tiny::trace_of(sites, args.width)).unwrap(),
        None => drop(std::fs::copy(sample(), &trace).unwrap()),
    }
    let clients = (num_clients + 8).to_string();
    let server = Server::start(folder.path(), ["--max-clients", clients.as_str()]);
    if args.apart {
        keep_on(server.child.id(), 0);
        keep_on(std::process::id(), 1);
    }
    let name = Some("sample.trace.safetensors");
    let mut author = Window::join(&server, 1, name);
    // However long this machine takes for it.
    while author.session.is_running() || author.session.lacks_rows() {
        assert!(author.pump(Duration::from_millis(50)), "{:?}", author.sync.closed);
    }
    author.settle();

    let stop = Arc::new(AtomicBool::new(false));
    let watchers: Vec<Watcher> =
        (0..num_clients).map(|at| Watcher::start(&server, 100 + at as u64, name, &stop)).collect();
    let joining = joined(&watchers);
    let before = ProcessUsage::of(&server);
    let (start, mut marks, mut next_mark) = (Instant::now(), Vec::new(), Instant::now());
    let rows_before = author.num_rows;
    let mut memory = vec![before];
    // The one before is over.
    let mut engine = Engine { probes: 0.0, done: 1.0 };
    while start.elapsed().as_secs_f64() < seconds {
        author.pump(Duration::from_millis(5));
        engine.note(author.session.run.as_ref());
        if start.elapsed().as_secs_f64() > seconds / QUARTERS * memory.len() as f64 {
            memory.push(ProcessUsage::of(&server));
        }
        if !author.session.is_running() {
            // Every site has rows: all are probed again.
            author.submit(Command::StartProbe);
            author.until("the probe runs", |window| window.session.is_running());
            engine.began();
        }
        if Instant::now() >= next_mark {
            next_mark = Instant::now() + MARK_EVERY;
            let value = 0.1 + 1e-6 * marks.len() as f64;
            author.submit(Command::SetMaxError { value, gesture: Some(1) });
            marks.push((value.to_le_bytes(), Instant::now()));
        }
    }
    let rows_per_second = (author.num_rows - rows_before) as f64 / start.elapsed().as_secs_f64();
    memory.push(ProcessUsage::of(&server));
    author.submit(Command::CancelProbe);
    author.until("the probe ended", |window| !window.session.is_running());
    author.settle();
    let mut last = Window::join(&server, 2, name);
    last.settle();
    author.settle();
    let same = author.digest() == last.digest() && author.num_states == 1;
    stop.store(true, Ordering::Relaxed);
    let seen = watchers.into_iter().zip(joining).map(|(watcher, joining)| watcher.seen(joining, &marks)).collect();
    Report::of(num_clients, engine.probes, rows_per_second, seen, same, memory)
}

/// Waits until each has the whole session, which comes in many frames; gives their numbers.
fn joined(watchers: &[Watcher]) -> Vec<usize> {
    let counts = || watchers.iter().map(Watcher::num_frames).collect::<Vec<_>>();
    let mut before = Vec::new();
    loop {
        let now = counts();
        if now == before && !now.contains(&0) {
            return now;
        }
        before = now;
        std::thread::sleep(Duration::from_millis(800));
    }
}

/// Every thread of a process on one core, and those that it starts later.
fn keep_on(process: u32, core: usize) {
    let words = ["-a", "-c", "-p", &core.to_string(), &process.to_string()].map(str::to_owned);
    let done = std::process::Command::new("taskset").args(words).output().unwrap();
    assert!(done.status.success(), "taskset: {}", String::from_utf8_lossy(&done.stderr));
}

/// How far the probes came, as the session tells it: a run of some seconds has no whole one.
struct Engine {
    probes: f64,
    /// Of the one that runs.
    done: f64,
}

impl Engine {
    fn began(&mut self) {
        self.done = 0.0;
    }

    fn note(&mut self, run: Option<&Run>) {
        let Some(run) = run.filter(|run| !run.cancelled) else { return };
        let done = if run.running { run.done } else { 1.0 };
        self.probes += (done - self.done).max(0.0);
        self.done = self.done.max(done);
    }
}
