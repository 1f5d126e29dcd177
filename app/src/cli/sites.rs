//! Times of whole sites for `loka bench --sites` and `loka probe`: through a Python with PyTorch and a GPU.

use std::{path::Path, time::Instant};

use loka_core::{
    bench::{MIN_SITE_SAMPLES, SiteMeasurement, measure_sites, num_site_workers, site_families, site_triples},
    engine::{
        Control, EngineStatus,
        worker::{TimeOptions, Worker, WorkerConfig},
    },
    model::{FileMagic, GemmShape, Kernel, Runtime, SiteTimes},
};

use crate::{files, probing};

use super::output;

/// Times the sites of these shapes, progress on stderr. `named`: kernels to time beside the usual ones. `ends`: what is not
/// timed by then is left out.
///
/// # Errors
/// No Python, no PyTorch, no GPU: in one line.
pub fn time(
    python: &Path,
    shapes: &[GemmShape],
    runtime: Runtime,
    named: &[&'static Kernel],
    samples: u32,
    ends: Option<Instant>,
) -> anyhow::Result<SiteTimes> {
    let mut worker = Worker::start(WorkerConfig::new(python))?;
    let hello = worker.hello().clone();
    let Some(device) = hello.device else {
        let torch = hello.torch.map_or("it has no PyTorch".to_owned(), |torch| format!("PyTorch {torch} finds no GPU"));
        anyhow::bail!("sites are timed by a Python with PyTorch and a GPU: {torch}: {}", python.display());
    };
    let cuda = hello.cuda.map_or_else(String::new, |cuda| format!(" (CUDA {cuda})"));
    let versions = format!("PyTorch {}{cuda}, loka {}", hello.torch.unwrap_or_default(), env!("CARGO_PKG_VERSION"));
    let triples = site_triples(&site_families(named), runtime);
    let options = TimeOptions { samples: samples.max(MIN_SITE_SAMPLES), target_us: 2000, ..TimeOptions::default() };
    let what = SiteMeasurement { shapes, runtime, triples: &triples, options, emulate: false };
    let (control, started) = (Control::new(), Instant::now());
    let all = shapes.len() * triples.len();
    let measured = measure_sites(&mut worker, num_site_workers(), &what, &control, &mut |_, done, of| {
        let left = time_left(started, done, of);
        output::progress(&format!("timing {done} of {of} sites and kernels ({runtime}){left}"));
        if ends.is_some_and(|ends| Instant::now() >= ends) {
            control.cancel();
        }
    });
    output::progress_done();
    let rows = measured.rows;
    if control.is_cancelled() && rows.len() < all {
        output::note(&format!(
            "time is up: {} of {all} sites and kernels were timed ({runtime}), the largest first; the plan models the others",
            rows.len()
        ));
    }
    if let Some(error) = measured.ended {
        anyhow::ensure!(!rows.is_empty(), "{error}");
        output::note(&format!("warning: {error}; {} finished sites are kept", rows.len()));
    }
    Ok(SiteTimes { device, driver: driver(), versions, recorded_at: probing::now_rfc3339(), rows })
}

/// ", about 3 min left" once a rate can be told: the first rows wait for a compiler to warm up.
fn time_left(started: Instant, done: usize, of: usize) -> String {
    const TELLS: usize = 8;
    if done < TELLS || done >= of {
        return String::new();
    }
    let seconds = started.elapsed().as_secs_f64() / done as f64 * (of - done) as f64;
    if seconds < 90.0 {
        return format!(", about {:.0} s left", (seconds / 5.0).ceil() * 5.0);
    }
    format!(", about {:.0} min left", (seconds / 60.0).ceil())
}

/// As the CUDA engine has it; empty where it does not run.
fn driver() -> String {
    let cuda = |status: &EngineStatus| status.name == "cuda" && status.problem.is_none();
    let found = loka_core::engine::statuses().into_iter().find(cuda);
    found.map_or_else(String::new, |status| status.driver)
}

/// Reads a table of `loka bench --sites`; the error ends with the file.
pub fn read(path: &Path) -> anyhow::Result<SiteTimes> {
    let text = files::read_document(path, "a table of site times", FileMagic::SiteTimes)?;
    SiteTimes::from_json(&text).map_err(|error| anyhow::anyhow!("{error}: {}", path.display()))
}

/// One table of all that there are; what comes later counts.
pub fn merged(tables: impl IntoIterator<Item = SiteTimes>) -> anyhow::Result<Option<SiteTimes>> {
    let mut whole: Option<SiteTimes> = None;
    for table in tables {
        whole = Some(match whole {
            None => table,
            Some(before) => before.merged(table)?,
        });
    }
    Ok(whole)
}

/// How many were timed, in a line.
pub fn summary(times: &SiteTimes) -> String {
    let faster = times.rows.iter().filter_map(|row| row.medians_us()).filter(|(bf16, us)| us < bf16).count();
    let (timed, all) = (times.num_timed(), times.rows.len());
    let rest = if timed < all { "; the others do not fit, or cannot pay (reasons in the table)" } else { "" };
    format!("{timed} of {all} sites and kernels timed on {}, {faster} faster than BF16{rest}", times.device)
}
