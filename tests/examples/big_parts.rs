//! Takes a number of sites, one of parts and a folder, writes the made-up results of `loka_tests::big` there as the parts of
//! a probe that was split: what `loka merge` and `loka plan` are measured with (docs/engineering/performance.md).
//!
//! `cargo run --package loka_tests --example big_parts -- 100000 500 parts/`

#![allow(clippy::panic, clippy::unwrap_used, reason = "nobody but a benchmark runs it")]

use std::{collections::HashMap, path::PathBuf};

use loka_core::{
    model::{ResultRow, Results, SiteId},
    parts::{PartKey, PartOf, ProbePart, RunKey, split},
    probe::NUMERICS_VERSION,
    tables::write_part,
};
use loka_tests::big;

/// Rows differ from seed to seed; the figures do not.
const SEED: u64 = 1;

fn main() {
    let mut args = std::env::args().skip(1);
    let (Some(sites), Some(parts), Some(folder), None) = (args.next(), args.next(), args.next(), args.next()) else {
        panic!("three arguments are wanted: how many sites, how many parts, and a folder");
    };
    let number = |text: &str| text.parse::<usize>().unwrap_or_else(|_| panic!("not a number: {text}"));
    let (sites, of, folder) = (number(&sites), number(&parts), PathBuf::from(folder));
    std::fs::create_dir_all(&folder).unwrap();
    let Results { meta, rows } = big::results(sites, SEED);
    let mut kernels: Vec<String> = rows.iter().take(24).map(|row| row.kernel.to_string()).collect();
    kernels.sort();
    kernels.dedup();
    let run = RunKey {
        trace: meta.trace_digest.clone(),
        kernels,
        mods: vec![String::new()],
        sites: Vec::new(),
        rows: None,
        numerics: NUMERICS_VERSION,
        seed: meta.seed,
        min_draws: 16,
        max_draws: 64,
        confidence: meta.confidence,
        sampler: "copula".to_owned(),
        latencies: Vec::new(),
        engine: meta.engine.clone(),
        device: meta.device.clone(),
        versions: meta.versions.clone(),
        of,
    };
    let mut by_site: HashMap<SiteId, Vec<ResultRow>> = HashMap::new();
    rows.into_iter().for_each(|row| by_site.entry(row.site.clone()).or_default().push(row));
    for (at, range) in split(&vec![1; sites], of).into_iter().enumerate() {
        let mut meta = meta.clone();
        meta.manifest.sites = meta.manifest.sites[range.clone()].to_vec();
        meta.problems.retain(|(site, _)| meta.manifest.sites.iter().any(|own| own.id == *site));
        let rows = meta.manifest.sites.iter().filter_map(|site| by_site.remove(&site.id)).flatten().collect();
        let key = PartKey::new(run.clone(), PartOf { part: at + 1, of }, range);
        let mut part = ProbePart { key, results: Results { meta, rows } };
        part.results.in_order();
        write_part(&folder.join(part.key.file_name()), &part).unwrap();
    }
}
