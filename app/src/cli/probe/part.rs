//! `loka probe --part`: one part of a probe that many machines share, written once under a name that says what it is.

use std::{collections::HashSet, path::PathBuf, time::Instant};

use loka_core::{
    engine::Engine,
    model::{Results, SiteId, SiteTimes, sha256_of},
    parts::{PartKey, PartOf, ProbePart, RunKey, split_sites},
    plan::results_digest,
    probe::{AtRows, NUMERICS_VERSION, ProbeConfig, SiteSource},
    tables::{read_part, write_part},
    trace::Trace,
};
use serde_json::json;

use crate::{
    probing,
    store::{Fetched, PartStore},
};

use super::{
    super::output::{self, Outcome},
    Passes, ProbeArgs, probed,
};

/// What one part is of, and where it goes.
pub struct PartWork<'a> {
    pub trace: &'a Trace,
    pub source: &'a AtRows<'a>,
    pub chosen: &'a [SiteId],
    pub part: PartOf,
    pub place: PartStore,
    pub times: Option<SiteTimes>,
    pub passes: &'a Passes,
}

pub fn run(
    args: &ProbeArgs,
    work: &PartWork<'_>,
    engine: &dyn Engine,
    config: &ProbeConfig,
    json: bool,
) -> anyhow::Result<Outcome> {
    let (sites, started) = (work.source.sites(), Instant::now());
    let chosen: HashSet<&SiteId> = work.chosen.iter().collect();
    let range = split_sites(&sites, |site| chosen.contains(&site.id), work.part.of).swap_remove(work.part.part - 1);
    let key = PartKey::new(run_key(args, work, engine, config)?, work.part, range.clone());
    let name = key.file_name();
    if let Some(found) = work.place.fetch(&name)? {
        let part = opened(&found, &key)?;
        return tell(work, &part.results, &name, None, json);
    }
    let sites = sites.get(range).unwrap_or_default().to_vec();
    let own: HashSet<&SiteId> = sites.iter().map(|site| &site.id).collect();
    let chosen: Vec<SiteId> = work.chosen.iter().filter(|id| own.contains(id)).cloned().collect();
    let mut meta = probing::results_meta(work.trace, work.trace.digest(), engine, config);
    meta.problems.retain(|(site, _)| own.contains(site));
    meta.manifest.sites.clone_from(&sites);
    meta.site_times.clone_from(&work.times);
    let (results, lost) = probed(args, meta, work.source, &chosen, engine, config, &work.passes.mods);
    if let Some(reason) = lost {
        // Not bad input: on another device it may go well.
        output::complain(&anyhow::anyhow!(
            "the engine stopped working, and the part is not written: {reason}: {}",
            work.place.shown(&name)
        ));
        return Ok(Outcome::Failed);
    }
    let part = ProbePart { key, results };
    if !work.place.create(&name, |path| Ok(write_part(path, &part)?))? {
        agrees_with(work, &part, &name)?;
    }
    tell(work, &part.results, &name, Some(started), json)
}

/// Another worker was first. Rows are named by seed, site, GEMM and draw: whoever made them, they are the same.
fn agrees_with(work: &PartWork<'_>, part: &ProbePart, name: &str) -> anyhow::Result<()> {
    let shown = work.place.shown(name);
    let first = opened(&work.place.fetch_known(name)?, &part.key)?;
    let is_same = results_digest(&first.results.rows) == results_digest(&part.results.rows);
    anyhow::ensure!(
        is_same,
        "another worker wrote other rows for the same part: one of the two machines is at fault: {shown}"
    );
    Ok(())
}

fn opened(found: &Fetched, key: &PartKey) -> anyhow::Result<ProbePart> {
    found.part(|path| read_part(path).map_err(|error| error.cause), |part| part.check_name(&key.file_name()))
}

fn run_key(args: &ProbeArgs, work: &PartWork<'_>, engine: &dyn Engine, config: &ProbeConfig) -> anyhow::Result<RunKey> {
    let info = engine.describe();
    let digest = |path: &PathBuf| Ok(sha256_of(&std::fs::read(path)?));
    let files = args.latencies.iter().chain(&args.sites_times);
    Ok(RunKey {
        trace: work.trace.digest(),
        kernels: config.kernels.iter().map(|kernel| kernel.name.to_owned()).collect(),
        mods: work.passes.names.clone(),
        sites: args.sites.clone(),
        rows: args.rows.map(u64::from),
        numerics: NUMERICS_VERSION,
        seed: config.seed,
        min_draws: config.min_draws,
        max_draws: config.max_draws,
        confidence: config.confidence,
        sampler: config.sampler.as_str().to_owned(),
        latencies: files.map(digest).collect::<anyhow::Result<_>>()?,
        engine: info.name.to_owned(),
        device: info.device,
        versions: info.versions,
        of: work.part.of,
    })
}

/// `made`: when it was begun; `None` where it was there.
fn tell(
    work: &PartWork<'_>,
    results: &Results,
    name: &str,
    made: Option<Instant>,
    json: bool,
) -> anyhow::Result<Outcome> {
    let (part, file, rows) = (work.part, work.place.shown(name), results.rows.len());
    let sites = &results.meta.manifest.sites;
    let seconds = made.map(|started| started.elapsed().as_secs_f64());
    if json {
        output::json(&json!({
            "part": part.to_string(), "file": file, "made": made.is_some(), "num_sites": sites.len(), "num_rows": rows,
            "problems": results.meta.problems, "seconds": seconds, "device": results.meta.device,
        }))?;
        return Ok(Outcome::Done);
    }
    let range = match (sites.first(), sites.last()) {
        (Some(first), Some(last)) if sites.len() > 1 => format!("{} sites, {} to {}", sites.len(), first.id, last.id),
        (Some(only), _) => format!("1 site, {}", only.id),
        _ => "no sites are left for it".to_owned(),
    };
    let how = output::how_made(seconds);
    output::line(&format!("part {part}: {range}; {rows} rows, {how}: {file}"));
    Ok(Outcome::Done)
}
