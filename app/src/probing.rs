//! What every probe needs around the engine, for the command line and the workbench alike: latencies
//! of kernels, the circumstances of the results, the time.

use std::{
    path::Path,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU64, Ordering},
    },
};

use loka_core::{
    bench::{self, BenchEvent, Latencies, Measurement, shapes_of, tail_us},
    engine::{self, Control, Engine, EngineError, TimeOptions, worker::WorkerConfig},
    model::{Gemm, GemmShape, Kernel, KernelRecord, Latency, ModSet, Site, catalogue},
    mods::{fits, modified_ops},
    probe::LatencyOf,
    session::MeasuredLatency,
    trace::Trace,
};

pub use crate::{
    clock::now_rfc3339,
    provenance::{results_meta, results_meta_by},
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
    if let Err(reason) = fits(kernel, gemm, site, mods) {
        return Latency::unknown(&format!("does not run there: {reason}"));
    }
    let (ops, bias) = modified_ops(site, mods);
    let tail = (gemm == Gemm::Fprop).then(|| tail_us(&ops, bias, site.m, site.n));
    let latency = latencies.latency(&kernel.id(), gemm, shape);
    // Of a kernel with the tail inside the tail was timed beside it.
    Latency { tail_us: latency.tail_us.or(tail), ..latency }
}

/// Refuses another device than the one that --device asks for.
pub fn check_device(device: &str, wanted: &str) -> anyhow::Result<()> {
    anyhow::ensure!(bench::is_device(device, wanted), "the device here is {device}, --device asks for {wanted}");
    Ok(())
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

/// Of the libraries that are missing or do not load, how each is had; none before [`load_libraries`].
pub fn library_remedies() -> Vec<(String, String)> {
    engine::cuda::shared().map(|engine| engine.remedies()).unwrap_or_default()
}

/// Why CUDA cannot be used here; `None` where it can.
pub fn why_no_cuda() -> Option<String> {
    let statuses = engine::statuses();
    match statuses.into_iter().find(|status| status.name == "cuda") {
        Some(status) => status.problem,
        None => Some("this build has none".to_owned()),
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
