//! The full probe of a trace on this machine: seconds, probed output elements a second, peak memory, and
//! the FP32 rate that a register-only loop reaches here (the machine's practical peak).
//!
//! `cargo bench -p loka_core --bench probe_throughput -- TRACE [DRAWS]` prints one JSON line. With DRAWS every
//! GEMM takes exactly so many draws, as benches/numpy_probe.py does; without, the default rule decides.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use loka_core::{
    engine::{
        Backend, CpuEngine, Drawn, Engine, EngineError, EngineInfo, KernelTiming, SiteEngine, SiteJob, TimeOptions,
    },
    model::{Gemm, GemmShape, Kernel, SiteId},
    probe::{Control, ProbeConfig, probe},
    trace::Trace,
};
use pulp::{Arch, Simd, WithSimd};

/// Measured outputs and thread-seconds of each direction.
#[derive(Default)]
struct Counts {
    elements: [AtomicU64; 3],
    nanoseconds: [AtomicU64; 3],
}

/// The CPU engine, counted.
struct Counting<'a>(&'a Counts);

struct CountingSite {
    inner: Box<dyn SiteEngine>,
    counts: &'static Counts,
}

impl Engine for Counting<'static> {
    fn describe(&self) -> EngineInfo {
        CpuEngine.describe()
    }

    fn supports(&self, kernel: &Kernel, gemm: Gemm, shape: GemmShape) -> Result<(), String> {
        CpuEngine.supports(kernel, gemm, shape)
    }

    fn site(&self, job: SiteJob) -> Result<Box<dyn SiteEngine>, EngineError> {
        Ok(Box::new(CountingSite { inner: CpuEngine.site(job)?, counts: self.0 }))
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
}

impl SiteEngine for CountingSite {
    fn draw(&mut self, gemm: Gemm, ways: &[Backend], draw: u64) -> Result<Vec<Drawn>, EngineError> {
        let started = Instant::now();
        let sums = self.inner.draw(gemm, ways, draw)?;
        let elements: u64 = sums.iter().flatten().map(|sums| sums.elements + sums.zeros).sum();
        self.counts.elements[gemm as usize].fetch_add(elements, Ordering::Relaxed);
        self.counts.nanoseconds[gemm as usize].fetch_add(started.elapsed().as_nanos() as u64, Ordering::Relaxed);
        Ok(sums)
    }

    fn heldout(&mut self, gemm: Gemm, ways: &[Backend]) -> Option<(u64, Vec<Drawn>)> {
        self.inner.heldout(gemm, ways)
    }

    fn sampler(&self) -> String {
        self.inner.sampler()
    }
}

/// Independent FMAs on registers: what no GEMM can beat.
struct Peak;

impl WithSimd for Peak {
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> f64 {
        let mut sums = [simd.splat_f32s(1.0); 12];
        let (a, b) = (simd.splat_f32s(std::hint::black_box(0.999)), simd.splat_f32s(std::hint::black_box(0.001)));
        let rounds = 20_000_000u64;
        let started = Instant::now();
        for _ in 0..rounds {
            for sum in &mut sums {
                *sum = simd.mul_add_f32s(*sum, a, b);
            }
        }
        std::hint::black_box(sums);
        rounds as f64 * 12.0 * 2.0 * S::F32_LANES as f64 / started.elapsed().as_secs_f64() / 1e9
    }
}

/// Largest resident size so far, MB (Linux).
fn peak_memory_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kb| kb.parse::<f64>().ok()).map_or(f64::NAN, |kb| kb / 1024.0)
}

static COUNTS: Counts =
    Counts { elements: [const { AtomicU64::new(0) }; 3], nanoseconds: [const { AtomicU64::new(0) }; 3] };

#[expect(clippy::expect_used, clippy::print_stdout, reason = "a benchmark's command line")]
fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| !argument.starts_with("--"));
    let Some(path) = arguments.next() else {
        println!("usage: probe_throughput TRACE [DRAWS]");
        return;
    };
    let draws: Option<u64> = arguments.next().map(|draws| draws.parse().expect("DRAWS is a number"));
    let trace = Trace::open(path.as_ref()).expect("a trace");
    let mut config = ProbeConfig::default();
    if let Some(draws) = draws {
        (config.min_draws, config.max_draws) = (draws, draws);
    }
    let sites: Vec<SiteId> = trace.manifest().sites.iter().map(|site| site.id.clone()).collect();
    let first = Mutex::new(None);
    let started = Instant::now();
    probe(&trace, &sites, &Counting(&COUNTS), &config, &Control::new(), &|_| {
        first.lock().expect("no panic").get_or_insert(started.elapsed().as_secs_f64());
    });
    let seconds = started.elapsed().as_secs_f64();
    let elements = COUNTS.elements.each_ref().map(|count| count.load(Ordering::Relaxed) as f64);
    let thread_seconds = COUNTS.nanoseconds.each_ref().map(|count| count.load(Ordering::Relaxed) as f64 / 1e9);
    let by_gemm: BTreeMap<&str, serde_json::Value> = Gemm::ALL
        .into_iter()
        .map(|gemm| {
            let (elements, seconds) = (elements[gemm as usize], thread_seconds[gemm as usize]);
            let rate = elements / seconds;
            (gemm.as_str(), serde_json::json!({"elements": elements, "thread_seconds": seconds, "elements_per_thread_second": rate}))
        })
        .collect();
    println!(
        "{}",
        serde_json::json!({
            "seconds": seconds, "first_rows_seconds": first.into_inner().expect("no panic"),
            "elements": elements.iter().sum::<f64>(), "elements_per_second": elements.iter().sum::<f64>() / seconds,
            "by_gemm": by_gemm, "peak_memory_mb": peak_memory_mb(),
            "fp32_peak_gflops_one_thread": Arch::new().dispatch(Peak),
        })
    );
}
