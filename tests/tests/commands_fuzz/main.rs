//! Random commands and events, valid and not, on small made-up sessions: whatever comes in whatever order, undo
//! returns exactly, totals are the sums of the choices, what is refused changes nothing, and a snapshot is the session.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops at the first surprise")]

mod random;
mod sums;

use std::collections::BTreeSet;

use loka_core::{
    dispatch::{Document, Policy},
    model::{Gemm, Results, SiteId, SiteMods},
    plan::{self, Plan},
    session::{
        Circumstances, Command, Effect, Event, Session,
        shared::{MAX_TO_CLIENT, decode, encode},
    },
    views::Snapshot,
};
use loka_tests::{big, dice::Dice};

const NUM_SITES: usize = 9;
const STEPS: usize = 1500;
const SEEDS: u64 = 4;
/// Undo steps that a session keeps.
const DEPTH: usize = 1000;

/// Undo as it is promised: every gesture one step, an undo's way back until something else is done.
#[derive(Default)]
struct Promised {
    past: Vec<Document>,
    future: Vec<Document>,
    gesture: Option<u64>,
}

impl Promised {
    fn changed(&mut self, before: Document, gesture: Option<u64>) {
        if gesture.is_some() && gesture == self.gesture {
            return;
        }
        self.gesture = gesture;
        self.past.push(before);
        self.future.clear();
        if self.past.len() > DEPTH {
            self.past.remove(0);
        }
    }

    fn stepped(&mut self, back: bool, before: Document) -> Option<Document> {
        let (from, to) = if back { (&mut self.past, &mut self.future) } else { (&mut self.future, &mut self.past) };
        let now = from.pop()?;
        to.push(before);
        self.gesture = None;
        Some(now)
    }
}

struct Fuzz {
    dice: Dice,
    session: Session,
    results: Results,
    plan: Plan,
    promised: Promised,
    /// The probe that was last asked for.
    asked: Option<(u64, SiteMods, Vec<SiteId>, Circumstances)>,
    measuring: u64,
    seen: BTreeSet<String>,
    num_refused: usize,
}

impl Fuzz {
    fn new(seed: u64) -> Self {
        let mut results = big::results(NUM_SITES, seed);
        let broken = results.meta.manifest.sites[4].id.clone();
        results.rows.retain(|row| row.site != broken);
        results.meta.problems.push((broken, "its weight is not finite".to_owned()));
        let (policy, none) = (Policy::paper(), SiteMods::default());
        let plan = plan::build(&results, &policy, &none, &Default::default(), "other", "").unwrap().plan;
        Self {
            dice: Dice::new(seed),
            session: Session::default(),
            results,
            plan,
            promised: Promised::default(),
            asked: None,
            measuring: 0,
            seen: BTreeSet::new(),
            num_refused: 0,
        }
    }

    fn step(&mut self) {
        if self.dice.once_in(3) {
            let event = self.random_event();
            self.happen(event);
        } else {
            let command = self.random_command();
            self.command(&command);
        }
    }

    fn command(&mut self, command: &Command) {
        self.told("command", command, is_finite(command));
        let (before, seen, notices) = (self.session.document.clone(), self.fingerprint(), self.session.notices.clone());
        let (revision, gesture) = (self.session.revision(), gesture_of(command));
        match self.session.command(command.clone()) {
            Err(error) => {
                let line = error.to_string();
                assert!(!line.is_empty() && !line.contains('\n'), "{line:?}");
                assert_eq!((&self.session.document, self.session.revision()), (&before, revision), "{command:?}");
                assert_eq!((self.fingerprint(), &self.session.notices), (seen, &notices), "{command:?}");
                self.num_refused += 1;
            }
            Ok(effects) => {
                match command {
                    Command::Undo | Command::Redo => {
                        let now = self.promised.stepped(*command == Command::Undo, before);
                        assert_eq!(Some(&self.session.document), now.as_ref(), "{command:?}");
                    }
                    _ if self.session.document != before => self.promised.changed(before, gesture),
                    _ => {}
                }
                self.must_have_moved(revision, &seen, &format!("{command:?}"));
                effects.into_iter().for_each(|effect| self.carry_out(effect));
            }
        }
        assert_eq!(self.session.can_undo(), !self.promised.past.is_empty());
        assert_eq!(self.session.can_redo(), !self.promised.future.is_empty());
    }

    fn happen(&mut self, event: Event) {
        self.told("event", &event, true);
        let (revision, seen) = (self.session.revision(), self.fingerprint());
        let name = format!("{event:.80?}");
        let history = (self.session.can_undo(), self.session.can_redo());
        let had_trace = self.session.trace.is_some();
        let opens =
            matches!(event, Event::TraceOpened { .. }) || matches!(event, Event::ResultsOpened { .. } if !had_trace);
        self.session.event(event);
        self.must_have_moved(revision, &seen, &name);
        if opens {
            self.promised = Promised::default();
            self.asked = None;
        } else {
            assert_eq!((self.session.can_undo(), self.session.can_redo()), history, "{name}");
        }
    }

    /// What a view could show is another only with another revision.
    fn must_have_moved(&self, revision: u64, seen: &Shown, what: &str) {
        assert!(self.session.revision() >= revision, "{what}");
        if self.session.revision() == revision {
            assert!(self.fingerprint() == *seen, "{what}: a view would not have noticed");
        }
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Probe { run, mods, sites, engine, .. } => {
                let by = self.by(&engine);
                self.asked = Some((run, mods, sites, by));
            }
            Effect::Measure { run, .. } => self.measuring = run,
            _ => {}
        }
    }

    fn by(&self, engine: &str) -> Circumstances {
        let device = if engine == "cpu" { big::DEVICE } else { "NVIDIA H200" };
        let (engine, device) = (engine.to_owned(), device.to_owned());
        Circumstances { engine, device, ..Circumstances::from(&self.results.meta) }
    }

    /// Commands and events go over wires and into journals as they are.
    fn told<T>(&mut self, tag: &str, what: &T, comparable: bool)
    where
        T: serde::Serialize + serde::de::DeserializeOwned + PartialEq + std::fmt::Debug,
    {
        let json = serde_json::to_value(what).unwrap();
        let kind = json.as_str().or_else(|| json.as_object()?.keys().next().map(String::as_str));
        self.seen.insert(format!("{tag} {}", kind.expect("its kind")));
        if comparable {
            let text = serde_json::to_string(what).unwrap();
            assert!(serde_json::from_str::<T>(&text).unwrap() == *what, "{text:.400}");
            assert!(decode::<T>(&encode(what), MAX_TO_CLIENT).unwrap() == *what, "{text:.400}");
        }
    }

    fn fingerprint(&self) -> Shown {
        let problems = self.session.trace.as_ref().map_or(0, |trace| trace.meta.problems.len());
        let other = self.session.other_plan.is_some();
        let rows = self.session.sites().iter().filter_map(|site| self.session.site_rows(&site.id).cloned());
        Shown { document: self.session.document.clone(), rows: rows.collect(), problems, other }
    }
}

/// What views derive from.
#[derive(PartialEq, Debug)]
struct Shown {
    document: Document,
    rows: Vec<std::sync::Arc<loka_core::model::SiteRows>>,
    problems: usize,
    other: bool,
}

/// JSON has no NaN and no infinity.
fn is_finite(command: &Command) -> bool {
    match command {
        Command::SetMaxError { value, .. } | Command::SetMinSpeedup { value, .. } => value.is_finite(),
        _ => true,
    }
}

fn gesture_of(command: &Command) -> Option<u64> {
    match command {
        Command::SetMaxError { gesture, .. } | Command::SetMinSpeedup { gesture, .. } => *gesture,
        _ => None,
    }
}

fn is_the_session(snapshot: &Snapshot, session: &Session) {
    assert_eq!((snapshot.revision, &snapshot.document), (session.revision(), &session.document));
    for (at, site) in session.sites().iter().enumerate() {
        let mut num = 0;
        for gemm in Gemm::ALL {
            let rows = snapshot.rows_of(at, gemm);
            assert!(rows.is_sorted_by(|a, b| a.kernel < b.kernel), "{} {gemm}", site.id);
            for row in rows {
                assert_eq!((&row.site, row.gemm, &row.mods), (&site.id, gemm, snapshot.mods_of(at)));
                assert_eq!(session.row(&site.id, gemm, &row.kernel), Some(row));
            }
            num += rows.len();
        }
        assert_eq!(session.site_rows(&site.id).map_or(0, |rows| rows.all().len()), num);
    }
}

/// As long as the document has a past, back and forth again.
fn back_and_forth(fuzz: &mut Fuzz) {
    let (document, far) = (fuzz.session.document.clone(), fuzz.dice.below(12));
    let steps = far.min(fuzz.promised.past.len());
    let earlier = fuzz.promised.past.iter().rev().take(steps).next_back().unwrap_or(&document).clone();
    (0..steps).for_each(|_| fuzz.command(&Command::Undo));
    assert_eq!(fuzz.session.document, earlier, "{steps} steps back");
    (0..steps).for_each(|_| fuzz.command(&Command::Redo));
    assert_eq!(fuzz.session.document, document, "{steps} steps forth");
}

#[test]
fn nothing_breaks_whatever_comes() {
    let (mut seen, mut num_refused, mut num_summed) = (BTreeSet::new(), 0, 0);
    for seed in 1..=SEEDS {
        let mut fuzz = Fuzz::new(seed);
        for step in 0..STEPS {
            fuzz.step();
            if step % 10 == 0
                && let Some(snapshot) = fuzz.session.snapshot()
            {
                is_the_session(&snapshot, &fuzz.session);
                num_summed += usize::from(sums::are_of_the_choices(&snapshot));
            }
            if step % 50 == 0 {
                back_and_forth(&mut fuzz);
            }
        }
        (num_refused, seen) = (num_refused + fuzz.num_refused, seen.into_iter().chain(fuzz.seen).collect());
    }
    assert!(num_refused > 300 && num_summed > 200, "{num_refused} refused, {num_summed} summed");
    let kinds = |tag| seen.iter().filter(|kind: &&String| kind.starts_with(tag)).count();
    // Every kind that there was when this was written.
    assert!(kinds("command") >= 24 && kinds("event") >= 17, "{seen:?}");
}
