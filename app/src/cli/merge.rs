//! `loka merge`: shards of one run into one trace, the parts of a split probe into one file of results, parts of
//! benches and kernel databases of several devices into one, or parts of a bench of sites into one table. The files say
//! which is meant.

use std::{
    io::Read as _,
    path::{Path, PathBuf},
};

use loka_core::{
    bench::is_device,
    model::{FileMagic, HEAD_BYTES},
    parts::{self, PartKey, ProbePart, RunKey},
    tables::{read_part, write_results},
    trace::{self, Trace},
};
use serde_json::json;

use crate::{
    files,
    store::{self, Fetched, PartStore, is_url},
};

use super::output::{self, Outcome};

mod kernels;
mod sites;

#[derive(clap::Args, Debug)]
pub struct MergeArgs {
    /// Trace files of one run, one a rank; or parts of a probe or a bench (--part), or the folder or URL that has them; or
    /// kernel databases.
    #[arg(required = true, value_name = "SHARD|PART|FOLDER|DATABASE")]
    shards: Vec<PathBuf>,
    /// The trace to write, *.trace.safetensors; of a probe's parts the results, *.results.parquet; of kernel databases one,
    /// *.kernels.parquet; of parts of a bench --sites the table, *.sites.json.
    #[arg(long)]
    out: PathBuf,
    /// Refuse rows of another device than one whose name has this in it, such as H200.
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
}

pub fn run(args: &MergeArgs, json: bool) -> anyhow::Result<Outcome> {
    if std::iter::once(&args.out).chain(&args.shards).any(|path| kernels::is_database(path)) {
        return kernels::run(args, json);
    }
    if std::iter::once(&args.out).chain(&args.shards).any(|path| sites::is_table(path)) {
        return sites::run(args, json);
    }
    if args.shards.iter().any(|path| has_parts(path)) { merge_parts(args, json) } else { merge_traces(args, json) }
}

/// A Parquet file, or a folder with parts in it. Traces are merged from files alone, so that a URL has parts.
fn has_parts(path: &Path) -> bool {
    if is_url(path) {
        return true;
    }
    if path.is_dir() {
        let names = PartStore::of(path).and_then(|place| place.names()).unwrap_or_default();
        return names.iter().any(|name| PartKey::<RunKey>::is_file_name(name));
    }
    let mut head = Vec::with_capacity(HEAD_BYTES);
    let read = std::fs::File::open(path).and_then(|file| file.take(HEAD_BYTES as u64).read_to_end(&mut head));
    read.is_ok() && FileMagic::of(&head) == Some(FileMagic::Parquet)
}

fn merge_parts(args: &MergeArgs, json: bool) -> anyhow::Result<Outcome> {
    let is_trace = args.out.to_string_lossy().ends_with(".trace.safetensors");
    if !is_url(&args.out) && !is_trace {
        files::check_writable(&args.out)?;
    }
    let mut parts = Vec::new();
    for path in &args.shards {
        let is_file = path.to_string_lossy().ends_with(".parquet") || path.is_file();
        if is_file {
            parts.push(opened(&store::fetch_file(path)?)?);
            continue;
        }
        let place = PartStore::of(path)?;
        for name in place.names_of_parts::<RunKey>(path)? {
            let (shown, part) = opened(&place.fetch_known(&name)?)?;
            part.check_name(&name).map_err(|fault| anyhow::anyhow!("{fault}: {shown}"))?;
            parts.push((shown, part));
        }
    }
    // After the files: one that is no part is named before the name of the result is.
    anyhow::ensure!(!is_trace, "parts of a probe make results, *.results.parquet: {}", args.out.display());
    let num_parts = parts.len();
    let results = parts::merge(parts)?;
    if let Some(wanted) = &args.device {
        let device = &results.meta.device;
        anyhow::ensure!(
            is_device(device, wanted),
            "the parts were made on {device}, --device asks for {wanted}: {}",
            args.shards.first().map(|path| path.display().to_string()).unwrap_or_default()
        );
    }
    if let (true, Some((site, reason))) = (results.rows.is_empty(), results.meta.problems.first()) {
        anyhow::bail!("no site could be probed: {site}: {reason}");
    }
    if results.meta.driver.contains("; ") {
        output::note(&format!("warning: parts ran with several drivers: {}", results.meta.driver));
    }
    store::write_to(&args.out, |path| Ok(write_results(path, &results)?))?;
    let (sites, rows) = (results.meta.manifest.sites.len(), results.rows.len());
    if json {
        let out = args.out.display().to_string();
        output::json(&json!({"written": out, "num_parts": num_parts, "num_sites": sites, "num_rows": rows}))?;
    } else {
        let out = args.out.display();
        output::line(&format!("{num_parts} parts, {sites} sites, {rows} rows merged: {out}"));
        output::line(&format!("next: loka plan {out} --out P.plan.json"));
    }
    Ok(Outcome::Done)
}

fn opened(found: &Fetched) -> anyhow::Result<(String, ProbePart)> {
    let part = read_part(&found.path).map_err(|error| anyhow::anyhow!("{}: {}", error.cause, found.shown))?;
    Ok((found.shown.clone(), part))
}

fn merge_traces(args: &MergeArgs, json: bool) -> anyhow::Result<Outcome> {
    anyhow::ensure!(args.device.is_none(), "--device is for parts and kernel databases, these are traces");
    let shards = args.shards.iter().map(|path| Trace::open_shard(path)).collect::<Result<Vec<_>, _>>()?;
    files::check_writable(&args.out)?;
    let merged = trace::merge(&shards)?;
    let named = || args.shards.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
    anyhow::ensure!(!merged.sites.is_empty(), "no site could be merged: {}", named());
    trace::write(&args.out, &merged)?;
    for site in &merged.manifest.sites {
        if let Some(reason) = site.extra.get("unusable").and_then(serde_json::Value::as_str) {
            output::note(&format!("warning: {} cannot be used: {reason}", site.id));
        }
    }
    let (sites, out) = (merged.sites.len(), args.out.display().to_string());
    if json {
        output::json(&json!({"written": out, "num_shards": shards.len(), "num_sites": sites}))?;
    } else {
        output::line(&format!("{} shards, {sites} sites merged: {out}", shards.len()));
    }
    Ok(Outcome::Done)
}
