//! How long it takes, off the frame, to decide and derive everything anew under another policy, and its parts.

use std::{sync::Arc, time::Instant};

use loka_core::{
    dispatch::{Overrides, Policy, dispatch, frontier},
    model::{Gemm, Metric},
    session::Session,
    views::{PlanView, Snapshot, ViewQuery, Views},
};

use crate::{clock, report::Figure};

const RUNS: usize = 15;

/// On the wall, and CPU time of all threads of this process: nothing else runs in it now.
fn timed<T>(what: &str, bar: Option<f64>, figures: &mut Vec<Figure>, work: impl Fn() -> T) -> T {
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
    let question = ViewQuery { metric: Metric::Mere, gemm: None, relative: false };
    for name in Policy::BUILTIN {
        let mut snapshot = Snapshot::clone(&before);
        snapshot.document.policy = Policy::builtin(name).unwrap();
        snapshot.revision += 1;
        let snapshot = Arc::new(snapshot);
        timed(&format!("decide anew under {name}"), bar, figures, || Views::of(&snapshot, question, &Views::default()));
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
}
