//! Times of whole sites for `loka bench --sites` and `loka probe`: through a Python with PyTorch and a GPU.

use std::{path::Path, time::Instant};

use loka_core::{
    bench::{
        MIN_SITE_SAMPLES, MeasuredSites, SiteMeasurement, measure_sites, num_site_workers, site_families, site_triples,
    },
    engine::{
        Control, EngineStatus,
        worker::{TimeOptions, Worker, WorkerConfig},
    },
    model::{FileMagic, GemmShape, Kernel, KernelId, Runtime, SiteTime, SiteTimes},
    parts::SitesPart,
};
use serde_json::json;

use crate::{files, probing};

use super::output;

/// What a bench of sites depends on beside its shapes, once a worker has said where it runs.
pub struct SiteBench {
    pub runtime: Runtime,
    /// What every shape is timed by.
    pub triples: Vec<[KernelId; 3]>,
    pub samples: u32,
    pub device: String,
    pub driver: String,
    pub versions: String,
    /// RFC 3339, UTC.
    pub recorded_at: String,
}

impl SiteBench {
    /// `named`: kernels to time beside the usual ones.
    ///
    /// # Errors
    /// No Python, no PyTorch, no GPU: in one line.
    pub fn start(
        python: &Path,
        runtime: Runtime,
        named: &[&'static Kernel],
        samples: u32,
    ) -> anyhow::Result<(Worker, Self)> {
        let worker = Worker::start(WorkerConfig::new(python))?;
        let hello = worker.hello().clone();
        let Some(device) = hello.device else {
            let torch =
                hello.torch.map_or("it has no PyTorch".to_owned(), |torch| format!("PyTorch {torch} finds no GPU"));
            anyhow::bail!("sites are timed by a Python with PyTorch and a GPU: {torch}: {}", python.display());
        };
        let cuda = hello.cuda.map_or_else(String::new, |cuda| format!(" (CUDA {cuda})"));
        let versions = format!("PyTorch {}{cuda}, loka {}", hello.torch.unwrap_or_default(), env!("CARGO_PKG_VERSION"));
        // Parts of one run have one key.
        let runtime = runtime.timed_as();
        let (triples, samples) = (site_triples(&site_families(named, runtime), runtime), samples.max(MIN_SITE_SAMPLES));
        let recorded_at = probing::now_rfc3339();
        Ok((worker, Self { runtime, triples, samples, device, driver: driver(), versions, recorded_at }))
    }

    /// Those rows, with where they are from.
    pub fn table(&self, rows: Vec<SiteTime>) -> SiteTimes {
        let [device, driver, versions, recorded_at] =
            [&self.device, &self.driver, &self.versions, &self.recorded_at].map(Clone::clone);
        SiteTimes { device, driver, versions, recorded_at, rows }
    }

    /// Times the sites of these shapes, progress on stderr. `ends`: what is not timed by then is left out.
    ///
    /// # Errors
    /// The worker is given up before it timed anything.
    pub fn time(&self, worker: &mut Worker, shapes: &[GemmShape], ends: Option<Instant>) -> anyhow::Result<SiteTimes> {
        let (control, all) = (Control::new(), shapes.len() * self.triples.len());
        let started = Instant::now();
        let mut timed = 0;
        let MeasuredSites { rows, ended } = self.measure(worker, shapes, &control, &mut |done, of| {
            timed = done;
            self.tell_progress(started, done, of);
            if ends.is_some_and(|ends| Instant::now() >= ends) {
                control.cancel();
            }
        });
        if control.is_cancelled() && timed < all {
            output::note(&format!(
                "time is up: {timed} of {all} sites and kernels were timed ({}), the largest first; the plan models the others",
                self.runtimes()
            ));
        }
        if let Some(error) = ended {
            anyhow::ensure!(!rows.is_empty(), "{error}");
            output::note(&format!("warning: {error}; {timed} finished sites are kept"));
        }
        Ok(self.table(rows))
    }

    /// The rows of these shapes, and why it ended before there were no more. `tells`: progress as JSON.
    pub fn part(&self, worker: &mut Worker, shapes: &[GemmShape], tells: bool) -> (Vec<SiteTime>, Option<String>) {
        let started = Instant::now();
        let MeasuredSites { rows, ended } = self.measure(worker, shapes, &Control::new(), &mut |done, of| {
            if tells {
                let (share, seconds) = (done as f64 / of.max(1) as f64, started.elapsed().as_secs_f64());
                output::note(&json!({"progress": share, "seconds": seconds}).to_string());
            } else {
                self.tell_progress(started, done, of);
            }
        });
        (rows, ended.map(|error| error.to_string()))
    }

    fn measure(
        &self,
        worker: &mut Worker,
        shapes: &[GemmShape],
        control: &Control,
        report: &mut dyn FnMut(usize, usize),
    ) -> MeasuredSites {
        let options = TimeOptions { samples: self.samples, target_us: 2000, ..TimeOptions::default() };
        let (runtime, triples) = (self.runtime, &self.triples);
        let what = SiteMeasurement { shapes, runtime, triples, options, emulate: false };
        let measured = measure_sites(worker, num_site_workers(), &what, control, report);
        output::progress_done();
        measured
    }

    fn tell_progress(&self, started: Instant, done: usize, of: usize) {
        let (runtimes, left) = (self.runtimes(), time_left(started, done, of));
        output::progress(&format!("timing {done} of {of} sites and kernels ({runtimes}){left}"));
    }

    /// What its rows are of, in words.
    fn runtimes(&self) -> String {
        let names: Vec<&str> = self.runtime.timed_together().iter().map(|runtime| runtime.as_str()).collect();
        names.join(" and ")
    }
}

/// Times the sites of these shapes by the usual kernels, progress on stderr. `ends`: what is not timed by then is left
/// out.
///
/// # Errors
/// As of [`SiteBench`].
pub fn time(
    python: &Path,
    (shapes, named): (&[GemmShape], &[&'static Kernel]),
    runtime: Runtime,
    samples: u32,
    ends: Option<Instant>,
) -> anyhow::Result<SiteTimes> {
    let (mut worker, bench) = SiteBench::start(python, runtime, named, samples)?;
    bench.time(&mut worker, shapes, ends)
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

/// Reads a part of `loka bench --sites --part`; the error names no file.
pub fn read_part(path: &Path) -> Result<SitesPart, String> {
    let text = files::read_text(path).map_err(|error| {
        let (text, shown) = (error.to_string(), format!(": {}", path.display()));
        text.strip_suffix(&shown).unwrap_or(&text).to_owned()
    })?;
    SitesPart::from_json(&text).map_err(|error| error.to_string())
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

/// How many were timed, in a line. A training step's are of two runtimes, by one measurement.
pub fn summary(times: &SiteTimes) -> String {
    let measurements = || times.rows.iter().filter(|row| row.runtime == row.runtime.timed_as());
    let (timed, all) = (measurements().filter(|row| row.medians_us().is_some()).count(), measurements().count());
    let faster = |runtime: Runtime| {
        let mut rows = times.rows.iter().filter(|row| row.runtime == runtime).peekable();
        rows.peek()?;
        let count = rows.filter_map(SiteTime::medians_us).filter(|(bf16, us)| us < bf16).count();
        Some(format!("{count} {runtime}"))
    };
    let faster = Runtime::ALL.into_iter().filter_map(faster).collect::<Vec<_>>().join(", ");
    let rest = if timed < all { "; the others do not fit, or cannot pay (reasons in the table)" } else { "" };
    format!("{timed} of {all} sites and kernels timed on {}; faster than BF16: {faster}{rest}", times.device)
}

#[cfg(test)]
mod tests {
    use loka_core::model::Spread;

    use super::*;

    #[test]
    fn one_measurement_of_two_runtimes_is_counted_once() {
        let spread = |us: f64| Some(Spread { us, p10_us: us, p90_us: us });
        let row = |m, runtime, site, bf16| SiteTime {
            shape: GemmShape { m, k: 16, n: 16 },
            runtime,
            kernels: ["cublaslt/fp8-rowwise+fast", "cublaslt/bf16", "cublaslt/bf16"].map(KernelId::new),
            site,
            bf16,
            codes: None,
            samples: 15,
            reason: None,
        };
        let rows = vec![
            row(16, Runtime::Launched, spread(9.0), spread(8.0)),
            row(16, Runtime::Graph, spread(3.0), spread(4.0)),
            row(32, Runtime::Launched, None, None),
            row(32, Runtime::Graph, None, None),
        ];
        let times = SiteTimes { device: "GPU".to_owned(), rows, ..SiteTimes::default() };
        let rest = "; the others do not fit, or cannot pay (reasons in the table)";
        let expected = format!("1 of 2 sites and kernels timed on GPU; faster than BF16: 0 launched, 1 graph{rest}");
        assert_eq!(summary(&times), expected);
    }
}
