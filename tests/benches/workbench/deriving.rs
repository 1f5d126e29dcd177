//! How long it takes, off the frame, to decide and derive everything anew: when a threshold is moved, a kernel set by hand,
//! another policy taken, and from nothing; and its parts.

use std::{sync::Arc, time::Instant};

use loka_core::{
    dispatch::{Document, Override, Overrides, Policy, dispatch, frontier},
    model::{Gemm, Metric},
    session::{BaselineOf, Command, Event, Session},
    views::{PlanView, Snapshot, ViewQuery, Views},
};

use crate::{clock, report::Figure};

const RUNS: usize = 11;

/// On the wall, and CPU time of all threads of this process: nothing else runs in it now.
fn timed<T>(what: &str, bar: Option<f64>, figures: &mut Vec<Figure>, mut work: impl FnMut() -> T) -> T {
    let (mut wall, mut cpu) = (Vec::new(), Vec::new());
    let mut last = None;
    for _ in 0..RUNS {
        drop(last.take());
        let (start, used) = (Instant::now(), clock::of_process());
        last = Some(work());
        wall.push(1e3 * start.elapsed().as_secs_f64());
        cpu.push(1e3 * clock::of_process().saturating_sub(used).as_secs_f64());
    }
    figures.push(Figure::of(&format!("{what}, on the wall"), "ms", wall, bar));
    figures.push(Figure::of(&format!("{what}, CPU of all threads"), "ms", cpu, None));
    last.unwrap()
}

pub fn decide_anew(session: &Session, figures: &mut Vec<Figure>) {
    let before = session.snapshot().unwrap();
    let bar = (before.sites().len() <= 10_000).then_some(100.0);
    let question = ViewQuery { metric: Metric::Mere, gemm: None, relative: false, versus: false };
    let now = Views::of(&before, question, &Views::default());
    let revised = |of: &Snapshot, revise: &dyn Fn(&mut Document)| {
        let mut snapshot = Snapshot::clone(of);
        (snapshot.revision, snapshot.decided_revision) = (of.revision + 1, of.decided_revision + 1);
        revise(&mut snapshot.document);
        Arc::new(snapshot)
    };
    let place = (before.sites()[before.sites().len() / 2].id.clone(), Gemm::Fprop);
    for name in Policy::BUILTIN {
        let taken = revised(&before, &|of| of.policy = Policy::builtin(name).unwrap());
        let last = Views::of(&taken, question, &now);
        let moved = revised(&taken, &|of| of.policy.max_error *= 1.01);
        timed(&format!("a threshold moved under {name}"), bar, figures, || Views::of(&moved, question, &last));
        let by_hand = revised(&taken, &|of| {
            let wanted = Override { kernel: of.policy.baseline.clone(), reason: String::new() };
            of.overrides.insert(place.clone(), wanted);
        });
        timed(&format!("a kernel set by hand under {name}"), bar, figures, || Views::of(&by_hand, question, &last));
        if *taken.document.policy.name != *before.document.policy.name {
            timed(&format!("from {} to {name}", before.document.policy.name), bar, figures, || {
                Views::of(&taken, question, &now)
            });
        }
        timed(&format!("decide under {name} from nothing"), None, figures, || {
            Views::of(&taken, question, &Views::default())
        });
    }
    timed("a snapshot, in the frame", None, figures, || session.snapshot());
    let policy = &before.document.policy;
    let candidates = timed("candidates", None, figures, || before.candidates());
    timed("dispatch", None, figures, || dispatch(&candidates, policy, &Overrides::new(), before.loss()).is_ok());
    timed("frontier", None, figures, || frontier(&candidates, policy, before.loss()));
    timed("plan view (these three)", None, figures, || PlanView::of(&before));
    let views = Views::of(&before, question, &Views::default());
    let other = ViewQuery { metric: Metric::RelL2, ..question };
    timed("another metric (grid)", None, figures, || Views::of(&before, other, &views));
    let one = ViewQuery { gemm: Some(Gemm::Fprop), ..question };
    timed("one GEMM (grid and quadrant)", None, figures, || Views::of(&before, one, &views));
    switch_baseline(session, bar, figures);
}

/// From a press to the views, on the session's own way: a plan of another policy, the plan of now, and back to none.
fn switch_baseline(session: &Session, bar: Option<f64>, figures: &mut Vec<Figure>) {
    let question = ViewQuery { metric: Metric::Mere, gemm: None, relative: false, versus: true };
    let mut session = Session::restored(session.save());
    let mut other = Session::restored(session.save());
    other.command(Command::SetPolicy { policy: Policy::rel_l2() }).unwrap();
    let plan = other.plan_now().unwrap();
    let mut opened: Vec<Event> = (0..RUNS)
        .map(|_| Event::PlanOpened { path: "other.plan.json".to_owned(), plan: Box::new(plan.clone()) })
        .collect();
    let plain = Views::of(&session.snapshot().unwrap(), question, &Views::default());
    let against = timed("switch to another plan as the baseline", bar, figures, || {
        session.event(opened.pop().unwrap());
        Views::of(&session.snapshot().unwrap(), question, &plain)
    });
    assert!(against.versus.as_ref().is_some_and(|versus| versus.num_moved > 0 && versus.num_missing == 0));
    timed("switch to the plan of now as the baseline", bar, figures, || {
        session.command(Command::SetBaseline { of: BaselineOf::Now }).unwrap();
        Views::of(&session.snapshot().unwrap(), question, &against)
    });
    let last = Views::of(&session.snapshot().unwrap(), question, &against);
    timed("leave the baseline", bar, figures, || {
        Views::of(&session.snapshot().unwrap(), ViewQuery { versus: false, ..question }, &last)
    });
}
