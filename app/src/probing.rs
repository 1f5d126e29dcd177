//! What every probe needs around the engine, for the command line and the workbench alike: latencies
//! of kernels, the circumstances of the results, the time.

use std::{
    path::Path,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU64, Ordering},
    },
    time::SystemTime,
};

use loka_core::{
    bench::{self, BenchEvent, Latencies, Measurement, shapes_of, tail_us},
    engine::{self, Control, Engine, EngineError, TimeOptions, worker::WorkerConfig},
    model::{Gemm, GemmShape, Kernel, KernelRecord, Latency, ModSet, ResultsMeta, Site, catalogue},
    mods::modified_ops,
    probe::{LatencyOf, ProbeConfig},
    session::MeasuredLatency,
    trace::Trace,
};

static LATENCIES: LazyLock<Latencies> = LazyLock::new(Latencies::builtin);

/// Latencies from the recorded databases that ship with LoKA, with the modelled cost of the tail
/// beside fprop.
pub fn recorded_latencies() -> LatencyOf {
    Arc::new(|kernel, gemm, site, mods| at_site(&LATENCIES, kernel, gemm, site, mods))
}

/// The same from latencies of one's own: other databases, or measured on this machine.
pub fn latencies_of(latencies: Latencies) -> LatencyOf {
    Arc::new(move |kernel, gemm, site, mods| at_site(&latencies, kernel, gemm, site, mods))
}

fn at_site(latencies: &Latencies, kernel: &Kernel, gemm: Gemm, site: &Site, mods: &ModSet) -> Latency {
    let shape = GemmShape { m: site.m, k: site.k, n: site.n };
    let (ops, bias) = modified_ops(site, mods);
    let tail = (gemm == Gemm::Fprop).then(|| tail_us(&ops, bias, site.m, site.n));
    Latency { tail_us: tail, ..latencies.latency(&kernel.id(), gemm, shape) }
}

/// Which engine works, for a person, and when it is not CUDA, why not.
pub fn engine_line(engine: &dyn Engine) -> String {
    let info = engine.describe();
    if info.name != "cpu" {
        return format!("Engine: {} on {}.", info.name.to_uppercase(), info.device);
    }
    let reason = why_no_cuda().map_or(String::new(), |reason| format!(" No CUDA engine: {reason}."));
    format!("Engine: CPU, emulating formats, scales and accumulation; speeds are recorded on an H200.{reason}")
}

/// Starts the worker that runs the user's own libraries, for the CUDA engine.
pub fn load_libraries(python: &Path) -> Result<(), EngineError> {
    let engine = engine::cuda::shared().map_err(|error| EngineError::Unavailable(error.to_string()))?;
    engine.load_libraries(WorkerConfig::new(python))
}

/// Why CUDA cannot be used here; `None` where it can.
pub fn why_no_cuda() -> Option<String> {
    let statuses = engine::statuses();
    match statuses.into_iter().find(|status| status.name == "cuda") {
        Some(status) => status.problem,
        None => Some("this build has none".to_owned()),
    }
}

/// The circumstances of results from `engine` on `trace`. `trace_digest` may be empty while it is still
/// being computed: that reads the whole file.
pub fn results_meta(trace: &Trace, trace_digest: String, engine: &dyn Engine, config: &ProbeConfig) -> ResultsMeta {
    let info = engine.describe();
    let unusable = trace.sites().iter().filter_map(|entry| Some((entry.site.id.clone(), entry.problem.clone()?)));
    ResultsMeta {
        trace_digest,
        manifest: trace.manifest().clone(),
        engine: info.name.to_owned(),
        device: info.device,
        driver: info.driver,
        versions: info.versions,
        time: now_rfc3339(),
        seed: config.seed,
        confidence: config.confidence,
        problems: unusable.collect(),
    }
}

/// Times the kernels of every usable site on `engine`, each distinct GEMM once; `report` gets the
/// latencies of one GEMM at all sites that have it, and the share done. `control` is asked between GEMMs; what
/// was reported stays when it ends early.
pub fn measure(
    engine: &dyn Engine,
    trace: &Trace,
    control: &Control,
    report: &(dyn Fn(Vec<MeasuredLatency>, f64) + Sync),
) -> Result<(), EngineError> {
    let usable = trace.sites().iter().filter(|entry| entry.problem.is_none());
    let sites: Vec<Site> = usable.map(|entry| entry.site.clone()).collect();
    let shapes = shapes_of(&sites);
    let native: Vec<&'static Kernel> = catalogue().iter().filter(|kernel| kernel.is_native()).collect();
    let recorded_at = now_rfc3339();
    let options = TimeOptions::default();
    let what = Measurement { shapes: &shapes, gemms: &Gemm::ALL, kernels: &native, options, recorded_at: &recorded_at };
    let share = AtomicU64::new(0);
    bench::measure(engine, &what, control, &|event| match event {
        BenchEvent::Records(records) => {
            let done = share.fetch_add(1, Ordering::Relaxed) + 1;
            report(at_sites(&sites, &records), done as f64 / (shapes.len() * Gemm::ALL.len()).max(1) as f64);
        }
        BenchEvent::Progress { .. } | BenchEvent::Problem { .. } => {}
    })
}

/// Records of one GEMM as latencies of every site that has it.
fn at_sites(sites: &[Site], records: &[KernelRecord]) -> Vec<MeasuredLatency> {
    let latencies = Latencies::default().with_measured(records);
    let has = |site: &Site, record: &KernelRecord| GemmShape { m: site.m, k: site.k, n: site.n } == record.shape;
    let mut found = Vec::new();
    for record in records.iter().filter(|record| record.latency_us.is_some()) {
        for site in sites.iter().filter(|site| has(site, record)) {
            let latency = latencies.latency(&record.kernel, record.gemm, record.shape);
            let (site, gemm, kernel) = (site.id.clone(), record.gemm, record.kernel.clone());
            found.push(MeasuredLatency { site, gemm, kernel, latency });
        }
    }
    found
}

/// The time of now, RFC 3339 in UTC, to the second.
pub fn now_rfc3339() -> String {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    rfc3339(since.map_or(0, |since| since.as_secs()))
}

/// Days to a civil date by Howard Hinnant's algorithm (public domain).
fn rfc3339(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 { month_index + 3 } else { month_index - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", rest / 3_600, rest / 60 % 60, rest % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_times() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00Z");
        assert_eq!(rfc3339(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(rfc3339(1_795_176_000), "2026-11-20T12:00:00Z");
    }
}
