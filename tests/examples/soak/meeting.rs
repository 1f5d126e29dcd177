//! Where all people meet: takes each one's window, says whether everybody has the same session.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use loka_tests::serving::Window;

use crate::person::follow;

/// For a window to hear what the others heard.
const CATCHES_UP: Duration = Duration::from_secs(300);

/// The session and the last step of it that a window has taken.
type At = Option<(u64, u64)>;

pub struct Meetings {
    start: Instant,
    length: Duration,
    num: usize,
    people: usize,
    arrived: AtomicUsize,
    at: Mutex<Vec<At>>,
    seen: Mutex<Vec<(At, String)>>,
    held: AtomicUsize,
    problems: Mutex<Vec<String>>,
    last: Mutex<Option<String>>,
}

impl Meetings {
    pub fn new(people: usize, length: Duration, num: usize) -> Self {
        Self {
            start: Instant::now(),
            length,
            num,
            people,
            arrived: AtomicUsize::new(0),
            at: Mutex::default(),
            seen: Mutex::default(),
            held: AtomicUsize::new(0),
            problems: Mutex::default(),
            last: Mutex::default(),
        }
    }

    /// When the next one is, of which the first is number 1.
    pub fn time_of(&self, next: usize) -> Instant {
        self.start + self.length * next as u32 / self.num as u32
    }

    pub fn num(&self) -> usize {
        self.num
    }

    pub fn over(&self) -> bool {
        self.held.load(Relaxed) == self.num
    }

    /// With nothing that waits for an answer. Everybody asks nothing until all have compared.
    pub fn meet(&self, window: &mut Window) {
        self.all_arrive(window);
        self.at.lock().unwrap().push(window.sync.at());
        self.all_arrive(window);
        let last = self.at.lock().unwrap().iter().max().copied().flatten();
        follow(window, "it has what the others have", CATCHES_UP, |window| window.sync.at() >= last);
        // What nobody asked for: the end of a probe.
        window.settle();
        self.seen.lock().unwrap().push((window.sync.at(), window.digest()));
        if self.all_arrive(window) {
            self.compare();
        }
        self.all_arrive(window);
    }

    /// Waits for the others, and listens: a window that does not is closed. `true`: it was the last.
    fn all_arrive(&self, window: &mut Window) -> bool {
        let before = self.arrived.fetch_add(1, Relaxed);
        let all = (before / self.people + 1) * self.people;
        while self.arrived.load(Relaxed) < all {
            assert!(window.pump(Duration::from_millis(20)), "{:?}", window.sync.closed);
        }
        before + 1 == all
    }

    fn compare(&self) {
        let mut seen = std::mem::take(&mut *self.seen.lock().unwrap());
        self.at.lock().unwrap().clear();
        let held = self.held.fetch_add(1, Relaxed) + 1;
        seen.sort();
        seen.dedup();
        *self.last.lock().unwrap() = seen.first().map(|(_, digest)| digest.clone());
        if seen.len() > 1 {
            self.problems
                .lock()
                .unwrap()
                .push(format!("meeting {held}: {} sessions that differ: {seen:?}", seen.len()));
        }
        let step = seen.first().and_then(|(at, _)| *at).map_or(0, |(_, seq)| seq);
        println!(
            "meeting {held}: all have {} at step {step}",
            if seen.len() == 1 { "the same session" } else { "OTHERS" }
        );
    }

    pub fn problems(&self) -> Vec<String> {
        self.problems.lock().unwrap().clone()
    }

    pub fn last_digest(&self) -> Option<String> {
        self.last.lock().unwrap().clone()
    }
}
