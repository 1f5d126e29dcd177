//! `loka bench --sites --part`: one part of a bench of whole sites that machines with one type of GPU share, written
//! once under a name that says what it is.

use std::time::Instant;

use loka_core::{
    model::{GemmShape, SiteTime},
    parts::{PartKey, PartOf, SitesKey, SitesPart, shapes_digest},
};
use serde_json::json;

use crate::{
    files,
    store::{Fetched, PartStore},
};

use super::super::{
    output::{self, Outcome},
    sites::{self, SiteBench},
};

/// What one part is of, and where it goes.
pub struct SitesWork<'a> {
    /// All shapes.
    pub shapes: &'a [GemmShape],
    pub bench: &'a SiteBench,
    pub part: PartOf,
    pub place: &'a PartStore,
}

/// `time` gives a row of every shape and kernels, and why it ended early, if it did.
pub fn run(
    work: &SitesWork<'_>,
    time: impl FnOnce(&[GemmShape]) -> (Vec<SiteTime>, Option<String>),
    json: bool,
) -> anyhow::Result<Outcome> {
    let started = Instant::now();
    let range = super::part::range_of(work.shapes, work.part);
    let shapes = work.shapes.get(range.clone()).unwrap_or_default();
    let key = PartKey::new(sites_key(work), work.part, range);
    let name = key.file_name();
    if let Some(found) = work.place.fetch(&name)? {
        return tell(work, &opened(&found, &key)?, &name, None, json);
    }
    let (rows, ended) = if shapes.is_empty() { (Vec::new(), None) } else { time(shapes) };
    if let Some(reason) = ended {
        // Not bad input: on another device it may go well.
        let shown = work.place.shown(&name);
        output::complain(&anyhow::anyhow!("{reason}; the part is not written: {shown}"));
        return Ok(Outcome::Failed);
    }
    let part = SitesPart { key, times: work.bench.table(rows) };
    let text = part.to_json();
    if work.place.create(&name, |path| files::write_atomically(path, text.as_bytes()))? {
        return tell(work, &part, &name, Some(started), json);
    }
    // Another machine was first. Times are never the same to the digit: its own count.
    let found = work.place.fetch_known(&name)?;
    tell(work, &opened(&found, &part.key)?, &name, None, json)
}

fn opened(found: &Fetched, key: &PartKey<SitesKey>) -> anyhow::Result<SitesPart> {
    found.part(sites::read_part, |part| part.check_name(&key.file_name()))
}

fn sites_key(work: &SitesWork<'_>) -> SitesKey {
    let bench = work.bench;
    SitesKey {
        shapes: shapes_digest(work.shapes),
        runtime: bench.runtime,
        kernels: bench.triples.clone(),
        samples: u64::from(bench.samples),
        device: bench.device.clone(),
        driver: bench.driver.clone(),
        versions: bench.versions.clone(),
        of: work.part.of,
    }
}

/// `made`: when it was begun; `None` where it was there.
fn tell(
    work: &SitesWork<'_>,
    part: &SitesPart,
    name: &str,
    made: Option<Instant>,
    json: bool,
) -> anyhow::Result<Outcome> {
    let (file, times, shapes) = (work.place.shown(name), &part.times, part.key.end - part.key.first);
    let seconds = made.map(|started| started.elapsed().as_secs_f64());
    if json {
        output::json(&json!({
            "part": work.part.to_string(), "file": file, "made": made.is_some(), "num_shapes": shapes,
            "num_rows": times.rows.len(), "num_timed": times.num_timed(), "seconds": seconds, "device": times.device,
        }))?;
        return Ok(Outcome::Done);
    }
    let how = output::how_made(seconds);
    let told = if shapes == 0 { "no shapes are left for it".to_owned() } else { sites::summary(times) };
    output::line(&format!("part {}: {told}; {how}: {file}", work.part));
    Ok(Outcome::Done)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use loka_core::{
        bench::{site_families, site_triples},
        model::{Runtime, Spread},
        parts::merge_sites,
    };

    use super::*;

    fn shapes() -> Vec<GemmShape> {
        (1..=7).map(|at| GemmShape { m: 64 * at, k: 128, n: 256 }).collect()
    }

    fn bench(device: &str, recorded_at: &str) -> SiteBench {
        let [driver, versions] = ["1", "2"].map(str::to_owned);
        let triples = site_triples(&site_families(&[], Runtime::Launched), Runtime::Launched);
        let (device, recorded_at) = (device.to_owned(), recorded_at.to_owned());
        SiteBench { runtime: Runtime::Launched, triples, samples: 15, device, driver, versions, recorded_at }
    }

    /// A GPU whose times are known.
    fn timed(bench: &SiteBench, shapes: &[GemmShape]) -> Vec<SiteTime> {
        let row = |shape: &GemmShape, kernels: &[_; 3], runtime| {
            let us = shape.flop() / 1e6;
            let spread = Some(Spread { us, p10_us: us, p90_us: us });
            let (shape, kernels) = (*shape, kernels.clone());
            SiteTime { shape, runtime, kernels, site: spread, bf16: spread, codes: None, samples: 15, reason: None }
        };
        let both = bench.runtime.timed_together();
        let by = |shape, kernels| both.iter().map(move |runtime| row(shape, kernels, *runtime));
        shapes.iter().flat_map(|shape| bench.triples.iter().flat_map(move |kernels| by(shape, kernels))).collect()
    }

    fn made(place: &PartStore, part: PartOf, bench: &SiteBench) -> Outcome {
        let work = SitesWork { shapes: &shapes(), bench, part, place };
        run(&work, |shapes| (timed(bench, shapes), None), true).unwrap()
    }

    #[test]
    fn parts_are_what_one_machine_times_and_are_made_once() {
        let scratch = tempfile::tempdir().unwrap();
        let place = PartStore::of(&scratch.path().join("parts")).unwrap();
        place.check_writable().unwrap();
        let now = bench("NVIDIA H200", "2026-11-26T00:00:00Z");
        for part in 1..=3 {
            assert_eq!(made(&place, PartOf { part, of: 3 }, &now), Outcome::Done);
        }
        // Again, later: what is there stays as it is, and nothing is timed.
        let later = bench("NVIDIA H200", "2026-11-27T00:00:00Z");
        let work = SitesWork { shapes: &shapes(), bench: &later, part: PartOf { part: 2, of: 3 }, place: &place };
        assert_eq!(run(&work, |_| panic!("it is there"), false).unwrap(), Outcome::Done);
        let names = place.names().unwrap();
        assert_eq!(names.len(), 3);
        let read = |name: &String| (name.clone(), sites::read_part(&place.fetch(name).unwrap().unwrap().path).unwrap());
        let merged = merge_sites(names.iter().rev().map(read).collect()).unwrap();
        assert_eq!(merged, now.table(timed(&now, &shapes())), "in order, whoever was first");
        assert!(merged.to_json() == now.table(timed(&now, &shapes())).to_json());
    }

    #[test]
    fn another_device_is_another_run_and_a_lost_one_writes_nothing() {
        let scratch = tempfile::tempdir().unwrap();
        let place = PartStore::of(scratch.path()).unwrap();
        let whole = PartOf { part: 1, of: 1 };
        made(&place, whole, &bench("NVIDIA H200", "now"));
        made(&place, whole, &bench("NVIDIA H100", "now"));
        assert_eq!(place.names().unwrap().len(), 2);
        let lost = bench("NVIDIA B200", "now");
        let work = SitesWork { shapes: &shapes(), bench: &lost, part: whole, place: &place };
        let ended = |shapes: &[GemmShape]| (timed(&lost, &shapes[..1]), Some("the worker is gone".to_owned()));
        assert_eq!(run(&work, ended, true).unwrap(), Outcome::Failed);
        assert_eq!(place.names().unwrap().len(), 2);
        // A damaged part is not taken for one, nor made again in silence.
        let name = place.names().unwrap().remove(0);
        std::fs::write(place.fetch(&name).unwrap().unwrap().path, b"{").unwrap();
        let refused = ["NVIDIA H200", "NVIDIA H100"].map(|device| {
            let bench = bench(device, "now");
            let work = SitesWork { shapes: &shapes(), bench: &bench, part: whole, place: &place };
            run(&work, |_| (Vec::new(), None), true).err().map(|error| error.to_string())
        });
        let lines: Vec<String> = refused.into_iter().flatten().collect();
        assert_eq!(lines.len(), 1);
        assert!(lines[0].contains("; remove it to have it made again: ") && lines[0].ends_with(&name), "{lines:?}");
    }

    #[test]
    fn more_parts_than_shapes_leave_some_empty() {
        let scratch = tempfile::tempdir().unwrap();
        let place = PartStore::of(scratch.path()).unwrap();
        let bench = bench("NVIDIA H200", "now");
        let work = SitesWork { shapes: &shapes(), bench: &bench, part: PartOf { part: 9, of: 9 }, place: &place };
        assert_eq!(run(&work, |_| panic!("nothing to time"), true).unwrap(), Outcome::Done);
    }
}
