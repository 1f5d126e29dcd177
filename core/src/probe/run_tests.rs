//! A probe of the sample trace on engines that go away, and on one that wants no first look.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::{
    path::Path,
    sync::atomic::{AtomicUsize, Ordering},
    thread::sleep,
    time::Duration,
};

use super::*;
use crate::{
    engine::{Backend, CpuEngine, Drawn, EngineInfo, KernelTiming, SiteEngine, TimeOptions},
    model::{Gemm, GemmShape, Kernel, kernel},
    trace::Trace,
};

/// The CPU engine behind the manners of a GPU; gone after so many draws.
struct Fragile {
    draws_left: Arc<AtomicUsize>,
    lost_said: Arc<AtomicUsize>,
    calls_after: Arc<AtomicUsize>,
    first_look: bool,
}

struct FragileSite {
    inner: Box<dyn SiteEngine>,
    draws_left: Arc<AtomicUsize>,
    lost_said: Arc<AtomicUsize>,
}

impl Fragile {
    fn new(draws: usize, first_look: bool) -> Self {
        Self {
            draws_left: Arc::new(AtomicUsize::new(draws)),
            lost_said: Arc::default(),
            calls_after: Arc::default(),
            first_look,
        }
    }
}

/// One fewer left; false: none was left.
fn take(left: &AtomicUsize) -> bool {
    left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
}

impl Engine for Fragile {
    fn describe(&self) -> EngineInfo {
        CpuEngine.describe()
    }

    fn supports(&self, kernel: &Kernel, gemm: Gemm, shape: GemmShape) -> Result<(), String> {
        CpuEngine.supports(kernel, gemm, shape)
    }

    fn site(&self, job: SiteJob) -> Result<Box<dyn SiteEngine>, EngineError> {
        self.calls_after.fetch_add(self.lost_said.load(Ordering::SeqCst), Ordering::SeqCst);
        let (draws_left, lost_said) = (self.draws_left.clone(), self.lost_said.clone());
        Ok(Box::new(FragileSite { inner: CpuEngine.site(job)?, draws_left, lost_said }))
    }

    fn time(
        &self,
        kernels: &[&'static Kernel],
        gemm: Gemm,
        shape: GemmShape,
        options: &TimeOptions,
    ) -> Result<Vec<KernelTiming>, EngineError> {
        CpuEngine.time(kernels, gemm, shape, options)
    }

    fn parallel_sites(&self) -> usize {
        1
    }

    fn wants_first_look(&self) -> bool {
        self.first_look
    }
}

impl SiteEngine for FragileSite {
    fn draw(&mut self, gemm: Gemm, ways: &[Backend], draw: u64) -> Result<Vec<Drawn>, EngineError> {
        if !take(&self.draws_left) {
            self.lost_said.fetch_add(1, Ordering::SeqCst);
            return Err(EngineError::Lost("the GPU fell off the bus".to_owned()));
        }
        self.inner.draw(gemm, ways, draw)
    }

    fn heldout(&mut self, gemm: Gemm, ways: &[Backend]) -> Option<(u64, Vec<Drawn>)> {
        self.inner.heldout(gemm, ways)
    }

    fn sampler(&self) -> String {
        self.inner.sampler()
    }
}

#[derive(Default)]
struct Collected {
    rows: Vec<(usize, Vec<ResultRow>)>,
    problems: Vec<(SiteId, String)>,
}

fn run(engine: &dyn Engine, max_draws: u64) -> Collected {
    controlled(engine, max_draws, &Control::new())
}

fn controlled(engine: &dyn Engine, max_draws: u64, control: &Control) -> Collected {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sample-traces/wukong-clicks.trace.safetensors");
    let trace = Trace::open(&path).unwrap();
    let sites: Vec<SiteId> = trace.sites().iter().rev().take(3).map(|entry| entry.site.id.clone()).collect();
    let config = ProbeConfig {
        kernels: vec![kernel("cublaslt/fp8-rowwise").unwrap()],
        min_draws: 2,
        max_draws,
        // Never settled, so that every look is taken: nothing is above or below what is no number.
        thresholds: vec![super::super::Threshold { metric: crate::model::Metric::RelL2, bound: f64::NAN }],
        ..ProbeConfig::default()
    };
    let seen = Mutex::new((0, Collected::default()));
    probe(&trace, &sites, engine, &config, control, &|event| {
        let mut seen = lock(&seen);
        seen.0 += 1;
        let at = seen.0;
        match event {
            ProbeEvent::Rows(rows) => seen.1.rows.push((at, rows)),
            ProbeEvent::Problem(site, reason) => seen.1.problems.push((site, reason)),
            ProbeEvent::Progress(_) | ProbeEvent::Lost(_) => {}
        }
    });
    seen.into_inner().unwrap().1
}

#[test]
fn a_lost_engine_is_asked_once_and_every_site_told_once() {
    for first_look in [true, false] {
        // The head takes 4 draws (wgrad alone runs in FP8), the next site 12.
        let engine = Fragile::new(if first_look { 18 } else { 14 }, first_look);
        let seen = run(&engine, 4);
        assert!(!seen.rows.is_empty(), "finished rows stay");
        let told: Vec<&SiteId> = seen.problems.iter().map(|(site, _)| site).collect();
        let each: std::collections::BTreeSet<_> = told.iter().collect();
        assert_eq!(told.len(), each.len(), "once each: {told:?}");
        assert!(seen.problems.iter().all(|(_, reason)| reason == "the GPU fell off the bus"), "{:?}", seen.problems);
        assert!(told.len() >= 2, "{told:?}");
        let count = |of: &AtomicUsize| of.load(Ordering::SeqCst);
        assert_eq!((count(&engine.lost_said), count(&engine.calls_after)), (1, 0), "asked once, then left alone");
    }
}

#[test]
fn without_a_first_look_rows_come_at_every_look_and_are_the_same() {
    let last = |seen: Collected| {
        let keyed = seen.rows.into_iter().flat_map(|(_, rows)| rows).map(|row| ((row.site.clone(), row.gemm), row));
        keyed.collect::<std::collections::BTreeMap<_, _>>()
    };
    let (with, without) = (run(&CpuEngine, 10), run(&Fragile::new(usize::MAX, false), 10));
    assert!(without.problems.is_empty());
    let reports = without.rows.iter().filter(|(_, rows)| rows[0].gemm == Gemm::Fprop).count();
    // The head's n = 1 has no FP8; two sites report after 2 draws, after 10 and at the end.
    assert_eq!(reports, 2 * 3 + 1);
    assert_eq!(last(with), last(without));
}

/// Steers the probe of `engine` from another thread, once a few draws are done; what came of the probe.
fn steered(engine: &Fragile, control: &Control, steer: impl FnOnce() + Send) -> Collected {
    let drawn = || usize::MAX - engine.draws_left.load(Ordering::SeqCst);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while drawn() < 5 {
                sleep(Duration::from_millis(1));
            }
            steer();
        });
        controlled(engine, 10, control)
    })
}

/// True when no draw ends any more: at once, or after the one that was under way.
fn stands_still(engine: &Fragile) -> bool {
    let left = || engine.draws_left.load(Ordering::SeqCst);
    let mut before = left();
    for _ in 0..3 {
        sleep(Duration::from_millis(300));
        let now = left();
        if now == before {
            return true;
        }
        before = now;
    }
    false
}

#[test]
fn a_paused_probe_draws_nothing_and_goes_on_as_if_nothing_was() {
    let (engine, control) = (Fragile::new(usize::MAX, true), Control::new());
    let seen = steered(&engine, &control, || {
        control.pause();
        assert!(stands_still(&engine), "draws while paused");
        control.resume();
    });
    let rows = |seen: Collected| seen.rows.into_iter().map(|(_, rows)| rows).collect::<Vec<_>>();
    assert_eq!(rows(seen), rows(run(&Fragile::new(usize::MAX, true), 10)));
}

#[test]
fn a_paused_probe_can_be_cancelled() {
    let (engine, control) = (Fragile::new(usize::MAX, true), Control::new());
    let seen = steered(&engine, &control, || {
        control.pause();
        assert!(stands_still(&engine), "draws while paused");
        control.cancel();
    });
    assert!(control.is_cancelled() && seen.problems.is_empty());
    let (some, all) = (seen.rows.len(), run(&Fragile::new(usize::MAX, true), 10).rows.len());
    assert!(0 < some && some < all, "{some} of {all}");
}
