//! `loka bench --part`: one part of a bench that machines with one type of GPU share, written once under a name that says
//! what it is.

use std::{cell::RefCell, ops::Range, time::Instant};

use loka_core::{
    bench::{BenchEvent, Measurement, measure, with_baseline},
    engine::{Control, Engine},
    model::{GemmShape, KernelRecord},
    parts::{BenchKey, BenchPart, PartKey, PartOf, bench_cost, shapes_digest, split},
    tables::{read_bench_part, write_bench_part},
};
use serde_json::json;

use crate::store::{Fetched, PartStore};

use super::super::output::{self, Outcome};

/// What one part is of, and where it goes.
pub struct PartWork<'a> {
    /// All shapes.
    pub what: Measurement<'a>,
    pub part: PartOf,
    pub place: &'a PartStore,
    /// Progress as JSON, whoever reads it.
    pub tells: bool,
}

pub fn run(work: &PartWork<'_>, engine: &dyn Engine, json: bool) -> anyhow::Result<Outcome> {
    let (what, started) = (&work.what, Instant::now());
    let range = range_of(what.shapes, work.part);
    let shapes = what.shapes.get(range.clone()).unwrap_or_default();
    let key = PartKey::new(bench_key(work, engine), work.part, range);
    let name = key.file_name();
    if let Some(found) = work.place.fetch(&name)? {
        return tell(work, &opened(&found, &key)?, &name, None, json);
    }
    let records = RefCell::new(Vec::new());
    let ended = measure(engine, &Measurement { shapes, ..what.clone() }, &Control::new(), &|event| {
        take(event, &records, started, work.tells);
    });
    output::progress_done();
    if let Err(error) = ended {
        // Not bad input: on another device it may go well.
        let shown = work.place.shown(&name);
        output::complain(&anyhow::anyhow!("{error}; the part is not written: {shown}"));
        return Ok(Outcome::Failed);
    }
    let part = BenchPart { key, records: records.into_inner() };
    if work.place.create(&name, |path| Ok(write_bench_part(path, &part)?))? {
        return tell(work, &part, &name, Some(started), json);
    }
    // Another machine was first. Times are never the same to the digit: its own count.
    let found = work.place.fetch_known(&name)?;
    tell(work, &opened(&found, &part.key)?, &name, None, json)
}

/// Those of all shapes that a part is of, kernels or whole sites.
pub fn range_of(shapes: &[GemmShape], part: PartOf) -> Range<usize> {
    let costs: Vec<u128> = shapes.iter().map(|shape| bench_cost(*shape)).collect();
    split(&costs, part.of).swap_remove(part.part - 1)
}

fn take(event: BenchEvent, records: &RefCell<Vec<KernelRecord>>, started: Instant, tells: bool) {
    match event {
        BenchEvent::Records(new) => records.borrow_mut().extend(new),
        BenchEvent::Progress { done, of } => {
            let (share, seconds) = (done as f64 / of.max(1) as f64, started.elapsed().as_secs_f64());
            if tells {
                output::note(&json!({"progress": share, "seconds": seconds}).to_string());
            } else {
                output::progress(&format!("timing {done} of {of}"));
            }
        }
        BenchEvent::Problem { gemm, shape, reason } => {
            output::note(&format!("warning: {gemm} {} x {} x {} was not timed: {reason}", shape.m, shape.k, shape.n));
        }
    }
}

fn opened(found: &Fetched, key: &PartKey<BenchKey>) -> anyhow::Result<BenchPart> {
    found.part(|path| read_bench_part(path).map_err(|error| error.cause), |part| part.check_name(&key.file_name()))
}

fn bench_key(work: &PartWork<'_>, engine: &dyn Engine) -> BenchKey {
    let (what, info) = (&work.what, engine.describe());
    BenchKey {
        shapes: shapes_digest(what.shapes),
        kernels: with_baseline(what.kernels).iter().map(|kernel| kernel.name.to_owned()).collect(),
        gemms: what.gemms.to_vec(),
        samples: what.options.samples as u64,
        engine: info.name.to_owned(),
        device: info.device,
        driver: info.driver,
        versions: info.versions,
        of: work.part.of,
    }
}

/// `made`: when it was begun; `None` where it was there.
fn tell(
    work: &PartWork<'_>,
    part: &BenchPart,
    name: &str,
    made: Option<Instant>,
    json: bool,
) -> anyhow::Result<Outcome> {
    let (file, rows, shapes) = (work.place.shown(name), part.records.len(), part.key.end - part.key.first);
    let seconds = made.map(|started| started.elapsed().as_secs_f64());
    if json {
        output::json(&json!({
            "part": work.part.to_string(), "file": file, "made": made.is_some(), "num_shapes": shapes, "num_rows": rows,
            "seconds": seconds, "device": part.key.run.device,
        }))?;
        return Ok(Outcome::Done);
    }
    let how = output::how_made(seconds);
    let shapes = match shapes {
        0 => "no shapes are left for it".to_owned(),
        1 => "1 shape".to_owned(),
        shapes => format!("{shapes} shapes"),
    };
    output::line(&format!("part {}: {shapes} on {}; {rows} rows, {how}: {file}", work.part, part.key.run.device));
    Ok(Outcome::Done)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use loka_core::{
        bench::KernelDb,
        engine::{EngineError, EngineInfo, KernelTiming, SiteEngine, SiteJob, TimeOptions, Timing},
        model::{Gemm, GemmShape, Kernel, catalogue},
        parts::merge_bench,
        tables::{read_kernels, write_kernels},
    };

    use super::*;

    /// A GPU whose times are known. `breaks`: the shape at which it goes away.
    struct Clock {
        device: &'static str,
        breaks: Option<GemmShape>,
    }

    impl Engine for Clock {
        fn describe(&self) -> EngineInfo {
            let [device, driver, versions] = [self.device, "1", "2"].map(str::to_owned);
            EngineInfo { name: "cuda", device, driver, versions }
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
            if self.breaks == Some(shape) {
                return Err(EngineError::Lost("the device fell off the bus".to_owned()));
            }
            let us = vec![shape.flop() / 1e6; options.samples];
            let timing = || Timing { gemm_us: us.clone(), latency_us: us.clone(), ..Timing::default() };
            Ok(kernels.iter().map(|kernel| (kernel.id(), Ok(timing()))).collect())
        }
    }

    fn shapes() -> Vec<GemmShape> {
        (1..=7).map(|at| GemmShape { m: 64 * at, k: 128, n: 256 }).collect()
    }

    fn kernels() -> Vec<&'static Kernel> {
        catalogue().iter().filter(|kernel| kernel.name == "cublaslt/fp8-rowwise").collect()
    }

    fn measurement<'a>(shapes: &'a [GemmShape], kernels: &'a [&'static Kernel], now: &'a str) -> Measurement<'a> {
        let options = TimeOptions { samples: 5, ..TimeOptions::default() };
        Measurement { shapes, gemms: &[Gemm::Fprop, Gemm::Wgrad], kernels, options, recorded_at: now }
    }

    fn made(place: &PartStore, part: PartOf, clock: &Clock, now: &str) -> Outcome {
        let (shapes, kernels) = (shapes(), kernels());
        let what = measurement(&shapes, &kernels, now);
        run(&PartWork { what, part, place, tells: false }, clock, true).unwrap()
    }

    #[test]
    fn parts_are_what_one_machine_times_and_are_made_once() {
        let scratch = tempfile::tempdir().unwrap();
        let place = PartStore::of(&scratch.path().join("parts")).unwrap();
        place.check_writable().unwrap();
        let clock = Clock { device: "NVIDIA H200", breaks: None };
        for part in 1..=3 {
            assert_eq!(made(&place, PartOf { part, of: 3 }, &clock, "now"), Outcome::Done);
        }
        // Again, later: what is there stays as it is.
        assert_eq!(made(&place, PartOf { part: 2, of: 3 }, &clock, "later"), Outcome::Done);
        let names = place.names().unwrap();
        assert_eq!(names.len(), 3);
        let read = |name: &String| (name.clone(), read_bench_part(&place.fetch(name).unwrap().unwrap().path).unwrap());
        let merged = merge_bench(names.iter().rev().map(read).collect()).unwrap();
        let (shapes, kernels) = (shapes(), kernels());
        let one = RefCell::new(Vec::new());
        let sink = |event| {
            if let BenchEvent::Records(new) = event {
                one.borrow_mut().extend(new);
            }
        };
        measure(&clock, &measurement(&shapes, &kernels, "now"), &Control::new(), &sink).unwrap();
        let one = one.into_inner();
        assert_eq!((one.len(), &merged), (7 * 2 * 2, &one), "BF16 beside the one kernel, two GEMMs");
        // The same file, too.
        let written = |records| {
            let path = scratch.path().join("k.kernels.parquet");
            write_kernels(&path, &KernelDb { name: String::new(), records }).unwrap();
            (std::fs::read(&path).unwrap(), read_kernels(&path).unwrap().records.len())
        };
        assert!(written(merged) == written(one));
    }

    #[test]
    fn another_device_is_another_run_and_a_lost_one_writes_nothing() {
        let scratch = tempfile::tempdir().unwrap();
        let place = PartStore::of(scratch.path()).unwrap();
        let whole = PartOf { part: 1, of: 1 };
        made(&place, whole, &Clock { device: "NVIDIA H200", breaks: None }, "now");
        made(&place, whole, &Clock { device: "NVIDIA H100", breaks: None }, "now");
        assert_eq!(place.names().unwrap().len(), 2);
        let lost = Clock { device: "NVIDIA B200", breaks: Some(shapes()[4]) };
        assert_eq!(made(&place, whole, &lost, "now"), Outcome::Failed);
        assert_eq!(place.names().unwrap().len(), 2);
        // A damaged part is not taken for one, nor made again in silence.
        let name = place.names().unwrap().remove(0);
        let path = place.fetch(&name).unwrap().unwrap().path;
        std::fs::write(&path, b"PAR1").unwrap();
        let (shapes, kernels) = (shapes(), kernels());
        let refused = ["NVIDIA H200", "NVIDIA H100"].map(|device| {
            let what = measurement(&shapes, &kernels, "now");
            let work = PartWork { what, part: whole, place: &place, tells: false };
            run(&work, &Clock { device, breaks: None }, true).err().map(|error| error.to_string())
        });
        let lines: Vec<String> = refused.into_iter().flatten().collect();
        assert_eq!(lines.len(), 1);
        assert!(lines[0].contains("; remove it to have it made again: ") && lines[0].ends_with(&name), "{lines:?}");
    }
}
