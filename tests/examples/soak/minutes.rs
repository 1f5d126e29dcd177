//! What people count while they work, and a line of it each minute with what the server has of the machine.

use std::{
    path::PathBuf,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use loka_tests::serving::{ProcessUsage, Server};

const MINUTE: Duration = Duration::from_secs(60);

/// Of all people together.
#[derive(Default)]
pub struct Tally {
    pub commands: AtomicUsize,
    pub refused_viewer: AtomicUsize,
    /// What somebody else changed in the meantime, and an undo with nothing to undo.
    pub conflicts: AtomicUsize,
    pub joins: AtomicUsize,
    pub reconnects: AtomicUsize,
    /// Windows that came back and were given what they had missed.
    pub resumed: AtomicUsize,
    pub questions: AtomicUsize,
    pub windows: AtomicUsize,
    /// From a command to its echo, of this minute.
    pub echoes_ms: Mutex<Vec<f64>>,
    pub surprises: Mutex<Vec<String>>,
}

impl Tally {
    pub fn surprise(&self, line: String) {
        println!("surprise: {line}");
        self.surprises.lock().unwrap().push(line);
    }

    pub fn problems(&self) -> Vec<String> {
        self.surprises.lock().unwrap().clone()
    }

    pub fn line(&self) -> String {
        let of = |count: &AtomicUsize| count.load(Relaxed);
        format!(
            "{} commands, of which a viewer's {} refused and {} in conflict; {} questions; {} joins, {} reconnects, \
             of which {} went on where they were",
            of(&self.commands),
            of(&self.refused_viewer),
            of(&self.conflicts),
            of(&self.questions),
            of(&self.joins),
            of(&self.reconnects),
            of(&self.resumed),
        )
    }
}

pub struct Minutes<'a> {
    server: &'a Server,
    journal: PathBuf,
    tally: &'a Tally,
    next: Instant,
    num: usize,
    megabytes: Vec<f64>,
}

impl<'a> Minutes<'a> {
    pub fn new(server: &'a Server, journal: PathBuf, tally: &'a Tally) -> Self {
        println!(
            "| minute | server MB | descriptors | CPU s | commands | echo p50 ms | p95 ms | journal MB | windows |"
        );
        println!("|--:|--:|--:|--:|--:|--:|--:|--:|--:|");
        let minutes = Self { server, journal, tally, next: Instant::now() + MINUTE, num: 0, megabytes: Vec::new() };
        minutes.line();
        minutes
    }

    /// Until the next minute, or something is so; tells the minute.
    pub fn wait(&mut self, so: impl Fn() -> bool) {
        while Instant::now() < self.next {
            if so() {
                std::thread::sleep(Duration::from_millis(200));
                return;
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        self.next += MINUTE;
        self.num += 1;
        let megabytes = self.line();
        self.megabytes.push(megabytes);
    }

    fn line(&self) -> f64 {
        let usage = ProcessUsage::of(self.server);
        let mut ms = std::mem::take(&mut *self.tally.echoes_ms.lock().unwrap());
        ms.sort_by(f64::total_cmp);
        let at = |share: f64| ms.get((share * ms.len().saturating_sub(1) as f64).round() as usize).copied();
        let shown = |ms: Option<f64>| ms.map_or_else(String::new, |ms| format!("{ms:.1}"));
        let files = ["", "-wal"].map(|end| format!("{}{end}", self.journal.display()));
        let bytes: u64 = files.iter().filter_map(|path| std::fs::metadata(path).ok()).map(|about| about.len()).sum();
        println!(
            "| {} | {:.1} | {} | {:.1} | {} | {} | {} | {:.1} | {} |",
            self.num,
            usage.megabytes,
            usage.descriptors,
            usage.cpu_seconds,
            self.tally.commands.load(Relaxed),
            shown(at(0.5)),
            shown(at(0.95)),
            bytes as f64 / 1e6,
            self.tally.windows.load(Relaxed),
        );
        usage.megabytes
    }

    /// The least and the most of the server's memory in megabytes.
    pub fn second_and_last_quarter(self) -> [(f64, f64); 2] {
        let num = self.megabytes.len();
        [num / 4..num / 2, 3 * num / 4..num].map(|part| {
            let part = &self.megabytes[part];
            (part.iter().copied().fold(f64::NAN, f64::min), part.iter().copied().fold(f64::NAN, f64::max))
        })
    }
}
