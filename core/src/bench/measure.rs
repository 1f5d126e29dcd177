//! Takes an engine, shapes and kernels; gives records of what was timed, one GEMM at a time.

use crate::{
    engine::{Control, Engine, EngineError, EngineInfo, KernelTiming, TimeOptions, Timing},
    model::{Gemm, GemmShape, Kernel, KernelRecord, baseline_kernel, kernel},
};

use super::quantile::quantile_of;

/// What to time.
#[derive(Clone, Debug)]
pub struct Measurement<'a> {
    pub shapes: &'a [GemmShape],
    pub gemms: &'a [Gemm],
    pub kernels: &'a [&'static Kernel],
    pub options: TimeOptions,
    /// RFC 3339, UTC; stamped on every record, and what tells runs apart.
    pub recorded_at: &'a str,
}

/// What timing says as it goes.
#[derive(Clone, Debug, PartialEq)]
pub enum BenchEvent {
    /// Kernels at one GEMM, supported or not: the native ones together, each of a library by itself.
    Records(Vec<KernelRecord>),
    /// Timings done, of all: one is what one [`Self::Records`] has.
    Progress { done: usize, of: usize },
    /// A GEMM that could not be timed at all, and why.
    Problem { gemm: Gemm, shape: GemmShape, reason: String },
}

/// Times every kernel at every GEMM until `control` is cancelled, BF16 always among them: a speed-up needs the baseline of its own run.
/// An error that only one timing has is a `Problem` and the run goes on; one that takes the engine with it,
/// or says that the engine cannot time at all, ends the run, and what was reported stays good.
pub fn measure(
    engine: &dyn Engine,
    what: &Measurement<'_>,
    control: &Control,
    sink: &dyn Fn(BenchEvent),
) -> Result<(), EngineError> {
    let groups = groups(with_baseline(what.kernels));
    let of = what.shapes.len() * what.gemms.len() * groups.len();
    let mut done = 0;
    for shape in what.shapes {
        for gemm in what.gemms {
            for kernels in &groups {
                if !control.goes_on() {
                    return Ok(());
                }
                match measure_gemm(engine, what, kernels, (*gemm, *shape)) {
                    Ok(records) => sink(BenchEvent::Records(records)),
                    Err(error @ (EngineError::Lost(_) | EngineError::Unavailable(_))) => return Err(error),
                    Err(error) => sink(BenchEvent::Problem { gemm: *gemm, shape: *shape, reason: error.to_string() }),
                }
                done += 1;
                sink(BenchEvent::Progress { done, of });
            }
        }
    }
    Ok(())
}

/// What is timed interleaved, BF16 among it; and each library's kernel, which may take its compiler's time and has its
/// own BF16 beside it.
fn groups(kernels: Vec<&'static Kernel>) -> Vec<Vec<&'static Kernel>> {
    let (native, others): (Vec<_>, Vec<_>) = kernels.into_iter().partition(|kernel| kernel.is_native());
    std::iter::once(native).chain(others.into_iter().map(|kernel| vec![kernel])).collect()
}

/// What is timed: BF16 first where it was not asked for.
pub fn with_baseline(kernels: &[&'static Kernel]) -> Vec<&'static Kernel> {
    let id = baseline_kernel();
    let missing = !kernels.iter().any(|known| known.name == id.as_str());
    let baseline = kernel(id.as_str()).filter(|_| missing);
    baseline.into_iter().chain(kernels.iter().copied()).collect()
}

fn measure_gemm(
    engine: &dyn Engine,
    what: &Measurement<'_>,
    kernels: &[&'static Kernel],
    (gemm, shape): (Gemm, GemmShape),
) -> Result<Vec<KernelRecord>, EngineError> {
    let supports: Vec<Result<(), String>> = kernels.iter().map(|kernel| engine.supports(kernel, gemm, shape)).collect();
    let runnable: Vec<&'static Kernel> =
        kernels.iter().zip(&supports).filter(|(_, support)| support.is_ok()).map(|(kernel, _)| *kernel).collect();
    let mut timings: Vec<KernelTiming> = engine.time(&runnable, gemm, shape, &what.options)?;
    let info = engine.describe();
    let record = |(kernel, support): (&&'static Kernel, Result<(), String>)| {
        let id = kernel.id();
        let timing = support.and_then(|()| match timings.iter().position(|(timed, _)| *timed == id) {
            Some(at) => timings.swap_remove(at).1,
            None => Err("the engine gave no samples".to_owned()),
        });
        let blank = blank(kernel, (gemm, shape), &info, what.recorded_at);
        match timing {
            Ok(timing) => timed(blank, timing),
            Err(reason) => KernelRecord { supported: false, reason: Some(reason), ..blank },
        }
    };
    Ok(kernels.iter().zip(supports).map(record).collect())
}

fn blank(kernel: &Kernel, (gemm, shape): (Gemm, GemmShape), info: &EngineInfo, recorded_at: &str) -> KernelRecord {
    KernelRecord {
        device: info.device.clone(),
        driver: info.driver.clone(),
        versions: info.versions.clone(),
        recorded_at: recorded_at.to_owned(),
        ..KernelRecord::blank(kernel.id(), gemm, shape)
    }
}

/// Medians, not means: the first samples may still pay for clock ramp-up.
fn timed(blank: KernelRecord, timing: Timing) -> KernelRecord {
    let Timing { gemm_us, latency_us, cached_us, tail_us, note } = timing;
    if latency_us.is_empty() && gemm_us.is_empty() {
        return KernelRecord { supported: false, reason: Some("no sample was taken".to_owned()), ..blank };
    }
    // Of samples taken one after the other; the casts overlap the GEMM's launch, so it may fall below zero.
    let casts: Vec<f64> = latency_us.iter().zip(&gemm_us).map(|(latency, gemm)| latency - gemm).collect();
    KernelRecord {
        gemm_us: quantile_of(&gemm_us, 0.5),
        cast_us: quantile_of(&casts, 0.5).map(|us| us.max(0.0)),
        latency_us: quantile_of(&latency_us, 0.5),
        latency_p10_us: quantile_of(&latency_us, 0.1),
        latency_p90_us: quantile_of(&latency_us, 0.9),
        latency_cached_us: quantile_of(&cached_us, 0.5),
        latency_cached_p10_us: quantile_of(&cached_us, 0.1),
        latency_cached_p90_us: quantile_of(&cached_us, 0.9),
        tail_us: quantile_of(&tail_us, 0.5),
        samples: latency_us.len().max(gemm_us.len()) as i64,
        gemm_samples_us: gemm_us,
        latency_samples_us: latency_us,
        cached_samples_us: cached_us,
        note,
        ..blank
    }
}

#[cfg(test)]
#[path = "measure_tests.rs"]
mod tests;
