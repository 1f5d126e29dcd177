//! One person at a window: takes a role, does at random what that role does, counts it.

use std::{
    collections::VecDeque,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::{Duration, Instant},
};

use loka_core::{
    dispatch::Policy,
    model::{Gemm, KernelId, SiteId},
    review::{ReviewState, Role},
    session::{
        Command,
        shared::{Author, ClientQuery},
    },
};
use loka_tests::{
    dice::Dice,
    serving::{Server, Window},
};

use crate::{TRACE, meeting::Meetings, minutes::Tally};

/// For an answer, on a machine that others use too.
const ANSWER: Duration = Duration::from_secs(120);
const SESSION: Duration = Duration::from_secs(600);
/// One act in so many.
const LEAVES: usize = 40;
const RECONNECTS: usize = 30;
const ASKS: usize = 25;
/// Seconds that somebody is away.
const AWAY: f64 = 20.0;
/// Of a slider that is dragged, and between two of its steps.
const DRAG: usize = 10;
const DRAG_EVERY: Duration = Duration::from_millis(30);
/// What owners choose between.
const KERNELS: [&str; 2] = ["cublaslt/bf16", "cublaslt/tf32"];
const STATES: [ReviewState; 3] = [ReviewState::Open, ReviewState::Agreed, ReviewState::NeedsWork];
/// How a session says that somebody else was first, or that there is nothing (left) to undo.
const CONFLICTS: [&str; 2] = ["in the meantime", "nothing to"];

/// Who it is, and where.
pub struct Seat<'a> {
    pub at: usize,
    pub role: Role,
    pub cookie: &'a str,
    pub server: &'a Server,
    pub tally: &'a Tally,
    /// Seconds between two acts.
    pub pace: f64,
}

pub struct Person<'a> {
    seat: Seat<'a>,
    dice: Dice,
    window: Window,
    /// Windows of this person before this one.
    num_windows: u64,
    /// When what waits was sent; `None`: the connection was lost meanwhile, and its time says nothing.
    sent: VecDeque<Option<Instant>>,
    sites: Vec<SiteId>,
    num_gestures: u64,
}

/// Until something is so, for longer than a test would.
#[track_caller]
pub fn follow(window: &mut Window, what: &str, within: Duration, so: impl Fn(&Window) -> bool) {
    let start = Instant::now();
    while !so(window) {
        assert!(start.elapsed() < within, "it never happens that {what}");
        assert!(window.pump(Duration::from_millis(50)), "{what}: {:?}", window.sync.closed);
    }
}

impl<'a> Person<'a> {
    pub fn new(seat: Seat<'a>, seed: u64) -> Self {
        let window = joined(&seat, 0);
        let sites = window.session.sites().iter().map(|site| site.id.clone()).collect();
        let dice = Dice::new(seed.wrapping_mul(0x9e37_79b9).wrapping_add(seat.at as u64));
        Self { seat, dice, window, num_windows: 0, sent: VecDeque::new(), sites, num_gestures: 0 }
    }

    /// Until the last meeting.
    pub fn work(mut self, meetings: &Meetings) {
        for next in 1..=meetings.num() {
            let until = meetings.time_of(next);
            loop {
                let pause = Duration::from_secs_f64(self.seat.pace * (0.25 + 1.5 * self.dice.unit()));
                let due = (Instant::now() + pause).min(until);
                self.listen(due);
                if Instant::now() >= until {
                    break;
                }
                self.act();
            }
            self.answered();
            meetings.meet(&mut self.window);
        }
    }

    /// Takes what comes.
    fn listen(&mut self, until: Instant) {
        while Instant::now() < until {
            let left = until.saturating_duration_since(Instant::now()).min(Duration::from_millis(200));
            if !self.window.pump(left) {
                self.seat
                    .tally
                    .surprise(format!("Person {}: the connection ended: {:?}", self.seat.at, self.window.sync.closed));
                self.come_back();
            }
            self.note();
        }
    }

    /// Until all that was asked for is answered.
    fn answered(&mut self) {
        let start = Instant::now();
        while self.window.sync.num_waiting() > 0 {
            assert!(start.elapsed() < ANSWER, "Person {}: a command is not answered", self.seat.at);
            self.listen(Instant::now() + Duration::from_millis(20));
        }
        self.note();
    }

    fn note(&mut self) {
        while self.sent.len() > self.window.sync.num_waiting() {
            if let Some(Some(of)) = self.sent.pop_front() {
                self.seat.tally.echoes_ms.lock().unwrap().push(1000.0 * of.elapsed().as_secs_f64());
            }
        }
        self.window.answers.clear();
        for line in std::mem::take(&mut self.window.refused) {
            if self.seat.role == Role::Viewer && line.contains("viewer") {
                add(&self.seat.tally.refused_viewer);
            } else if CONFLICTS.iter().any(|part| line.contains(part)) {
                add(&self.seat.tally.conflicts);
            } else {
                self.seat.tally.surprise(format!("Person {}: {line}", self.seat.at));
            }
        }
    }

    fn act(&mut self) {
        if self.dice.once_in(LEAVES) {
            self.leave();
        } else if self.dice.once_in(RECONNECTS) {
            self.reconnect();
        } else if self.dice.once_in(ASKS) {
            let site = self.dice.pick(&self.sites).clone();
            self.window.ask(ClientQuery::Inspect { site, other: None });
            add(&self.seat.tally.questions);
        } else if self.seat.role == Role::Owner && self.dice.once_in(8) {
            self.drag();
        } else {
            let command = self.command();
            self.submit(command);
        }
    }

    fn submit(&mut self, command: Command) {
        self.window.submit(command);
        self.sent.push_back(Some(Instant::now()));
        add(&self.seat.tally.commands);
    }

    fn drag(&mut self) {
        self.num_gestures += 1;
        let (from, gesture) = (0.05 + 0.2 * self.dice.unit(), Some(self.num_gestures));
        for step in 0..DRAG {
            self.submit(Command::SetMaxError { value: from + 0.002 * step as f64, gesture });
            self.listen(Instant::now() + DRAG_EVERY);
        }
    }

    /// Closes the window; another one later.
    fn leave(&mut self) {
        self.answered();
        self.window.drop_connection();
        self.seat.tally.windows.fetch_sub(1, Relaxed);
        self.is_away();
        self.num_windows += 1;
        self.window = joined(&self.seat, self.num_windows);
    }

    /// The cable is pulled, with what was just asked for or without.
    fn reconnect(&mut self) {
        if self.dice.once_in(2) {
            let command = self.command();
            self.submit(command);
        }
        self.window.drop_connection();
        self.is_away();
        self.come_back();
        add(&self.seat.tally.reconnects);
    }

    fn is_away(&mut self) {
        std::thread::sleep(Duration::from_secs_f64(AWAY * self.dice.unit().powi(2)));
    }

    fn come_back(&mut self) {
        let (welcomes, before) = (self.window.num_welcomes, self.window.num_states);
        self.window.reconnect(self.seat.server);
        follow(&mut self.window, "the server answers", ANSWER, |window| window.num_welcomes > welcomes);
        // A look of one's own, whose echo says that everything before it has come.
        let command = Command::Look { site: self.dice.pick(&self.sites).clone(), of: self.fingerprint() };
        self.submit(command);
        self.sent.iter_mut().for_each(|sent| *sent = None);
        follow(&mut self.window, "what was missed comes", SESSION, |window| window.sync.num_waiting() == 0);
        self.note();
        if self.window.num_states == before {
            add(&self.seat.tally.resumed);
        }
    }

    fn fingerprint(&mut self) -> String {
        format!("{:016x}", self.dice.below(1 << 20))
    }

    fn command(&mut self) -> Command {
        let (site, gemm) = (self.dice.pick(&self.sites).clone(), *self.dice.pick(&Gemm::ALL));
        let of = self.fingerprint();
        let kind = match self.seat.role {
            Role::Viewer => return Command::SetMaxError { value: 0.1 + 0.1 * self.dice.unit(), gesture: None },
            Role::Owner => self.dice.below(20),
            Role::Reviewer | Role::Approver => self.dice.below(10),
        };
        match kind {
            0..3 => {
                let text = format!("{of}: this one may stay as it is, but who knows for how long?");
                Command::Comment { site: Some(site), gemm: Some(gemm), reply_to: None, text }
            }
            3..6 => Command::Mark { site: Some(site), state: *self.dice.pick(&STATES), of },
            6..10 => Command::Look { site, of },
            10..12 => {
                let kernel = KernelId::new(of_these(&mut self.dice, &KERNELS));
                Command::SetOverride { site, gemm, kernel, reason: format!("because of {of}") }
            }
            12 => Command::ClearOverride { site, gemm },
            13 => Command::SetPolicy { policy: Policy::builtin(of_these(&mut self.dice, &Policy::BUILTIN)).unwrap() },
            14 => Command::SetMinSpeedup { value: 1.0 + 0.2 * self.dice.unit(), gesture: None },
            15 => Command::SetMaxError { value: 0.05 + 0.2 * self.dice.unit(), gesture: None },
            16 => Command::Redo,
            _ => Command::Undo,
        }
    }
}

fn of_these(dice: &mut Dice, words: &[&'static str]) -> &'static str {
    words[dice.below(words.len())]
}

/// A new window of that person, with the whole session.
fn joined(seat: &Seat<'_>, num: u64) -> Window {
    let author = Author::new(1 + seat.at as u64 + 1000 * num, "whoever");
    let mut window = Window::knock_as(seat.server, author, Some(TRACE), Some(seat.cookie.to_owned()));
    follow(&mut window, "the session comes", SESSION, |window| window.num_states > 0);
    add(&seat.tally.joins);
    add(&seat.tally.windows);
    window
}

fn add(count: &AtomicUsize) {
    count.fetch_add(1, Relaxed);
}
