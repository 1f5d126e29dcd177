//! Timing against an engine that has a clock of its own.

use std::{
    cell::RefCell,
    sync::atomic::{AtomicUsize, Ordering},
};

use super::*;
use crate::{
    bench::Latencies,
    engine::{SiteEngine, SiteJob},
    model::{KernelId, LatencySource, catalogue},
};

/// Samples made up from the shape; fails in a chosen way at a chosen call.
struct FakeClock {
    calls: AtomicUsize,
    fail_at: usize,
    error: EngineError,
}

impl FakeClock {
    fn failing(fail_at: usize, error: EngineError) -> Self {
        Self { calls: AtomicUsize::new(0), fail_at, error }
    }

    fn good() -> Self {
        Self::failing(usize::MAX, EngineError::NoGradients)
    }
}

impl Engine for FakeClock {
    fn describe(&self) -> EngineInfo {
        EngineInfo { name: "cuda", device: "Clock".to_owned(), driver: "1".to_owned(), versions: "2".to_owned() }
    }

    fn supports(&self, kernel: &Kernel, gemm: Gemm, shape: GemmShape) -> Result<(), String> {
        kernel.refuses(gemm, shape).map_or(Ok(()), Err)
    }

    fn site(&self, _: SiteJob) -> Result<Box<dyn SiteEngine>, EngineError> {
        Err(EngineError::Unavailable("a clock has no numerics".to_owned()))
    }

    fn time(
        &self,
        kernels: &[&'static Kernel],
        _: Gemm,
        shape: GemmShape,
        options: &TimeOptions,
    ) -> Result<Vec<KernelTiming>, EngineError> {
        if self.calls.fetch_add(1, Ordering::Relaxed) == self.fail_at {
            return Err(self.error.clone());
        }
        let timing = |kernel: &Kernel| {
            let gemm = shape.flop() / 1e6 * if kernel.high_precision() { 2.0 } else { 1.0 };
            let cast = if kernel.high_precision() { -0.5 } else { 3.0 };
            let series = |us: f64| (0..options.samples).map(|i| us + i as f64).collect::<Vec<_>>();
            Timing {
                gemm_us: series(gemm),
                latency_us: series(gemm + cast),
                cached_us: series(gemm + cast / 2.0),
                tail_us: Vec::new(),
                note: "algorithm 7".to_owned(),
            }
        };
        let fails = |kernel: &Kernel| kernel.name == "cublaslt/tf32";
        let one = |kernel: &&'static Kernel| {
            let outcome = if fails(kernel) { Err("no algorithm".to_owned()) } else { Ok(timing(kernel)) };
            (kernel.id(), outcome)
        };
        Ok(kernels.iter().map(one).rev().collect())
    }
}

fn run(engine: &FakeClock, names: &[&str], shapes: &[GemmShape]) -> (Result<(), EngineError>, Vec<BenchEvent>) {
    let kernels: Vec<&'static Kernel> = catalogue().iter().filter(|kernel| names.contains(&kernel.name)).collect();
    let options = TimeOptions { samples: 11, ..TimeOptions::default() };
    let what =
        Measurement { shapes, gemms: &[Gemm::Fprop, Gemm::Wgrad], kernels: &kernels, options, recorded_at: "now" };
    let events = RefCell::new(Vec::new());
    let outcome = measure(engine, &what, &Control::new(), &|event| events.borrow_mut().push(event));
    (outcome, events.into_inner())
}

fn records(events: &[BenchEvent]) -> Vec<KernelRecord> {
    let of = |event: &BenchEvent| match event {
        BenchEvent::Records(records) => records.clone(),
        _ => Vec::new(),
    };
    events.iter().flat_map(of).collect()
}

const SHAPES: [GemmShape; 2] = [GemmShape { m: 64, k: 128, n: 256 }, GemmShape { m: 64, k: 128, n: 1 }];
const FAST: &str = "cublaslt/fp8-rowwise+fast";

#[test]
fn samples_become_records_with_the_baseline_beside_them() {
    let (outcome, events) = run(&FakeClock::good(), &[FAST], &SHAPES);
    assert_eq!(outcome, Ok(()));
    assert_eq!(events.last(), Some(&BenchEvent::Progress { done: 4, of: 4 }));
    let records = records(&events);
    assert_eq!(records.len(), 2 * 2 * 2);
    assert_eq!((records[0].kernel.as_str(), records[1].kernel.as_str()), ("cublaslt/bf16", FAST));
    let gemm = SHAPES[0].flop() / 1e6;
    let fast = &records[1];
    assert_eq!(fast.latency_us, Some(gemm + 3.0 + 5.0));
    assert_eq!((fast.latency_p10_us, fast.latency_p90_us), (Some(gemm + 4.0), Some(gemm + 12.0)));
    assert!((fast.cast_us.unwrap() - 3.0).abs() < 1e-9);
    assert_eq!(records[0].cast_us, Some(0.0), "clamped");
    assert_eq!((fast.samples, fast.cached_samples_us.len(), fast.note.as_str()), (11, 11, "algorithm 7"));
    assert_eq!((fast.device.as_str(), fast.recorded_at.as_str()), ("Clock", "now"));
    let head = records.iter().find(|record| record.kernel.as_str() == FAST && record.shape == SHAPES[1]).unwrap();
    assert_eq!((head.supported, head.reason.as_deref()), (false, Some("n = 1 is less than 16")));

    let latencies = Latencies::builtin().with_measured(&records);
    let latency = latencies.latency(&KernelId::new(FAST), Gemm::Fprop, SHAPES[0]);
    assert_eq!((latency.source, latency.baseline_us), (LatencySource::Measured, records[0].latency_us));
}

#[test]
fn a_kernel_that_fails_alone_is_unsupported_alone() {
    let (_, events) = run(&FakeClock::good(), &["cublaslt/tf32", "cublaslt/bf16"], &SHAPES[..1]);
    let records = records(&events);
    assert_eq!(records.len(), 4);
    assert_eq!(records[0].reason.as_deref(), Some("no algorithm"));
    assert!(records[1].supported);
}

#[test]
fn a_lost_engine_ends_the_run_and_a_failure_does_not() {
    let (outcome, events) = run(&FakeClock::failing(1, EngineError::Lost("gone".to_owned())), &[FAST], &SHAPES);
    assert_eq!(outcome, Err(EngineError::Lost("gone".to_owned())));
    assert_eq!(records(&events).len(), 2, "what was finished stays");
    let (outcome, events) = run(&FakeClock::failing(1, EngineError::Failed("hiccup".to_owned())), &[FAST], &SHAPES);
    assert_eq!(outcome, Ok(()));
    let problem = BenchEvent::Problem { gemm: Gemm::Wgrad, shape: SHAPES[0], reason: "hiccup".to_owned() };
    assert!(events.contains(&problem) && records(&events).len() == 6);
}

#[test]
fn the_cpu_cannot_time() {
    let what = Measurement {
        shapes: &SHAPES,
        gemms: &Gemm::ALL,
        kernels: &[],
        options: TimeOptions::default(),
        recorded_at: "now",
    };
    let outcome = measure(&crate::engine::CpuEngine, &what, &Control::new(), &|_| {});
    assert!(matches!(outcome, Err(EngineError::Unavailable(_))), "{outcome:?}");
}
