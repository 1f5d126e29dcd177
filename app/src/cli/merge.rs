//! `loka merge`: shards of one run into one trace.

use std::path::PathBuf;

use loka_core::trace::{self, Trace};
use serde_json::json;

use crate::files;

use super::output::{self, Outcome};

#[derive(clap::Args, Debug)]
pub struct MergeArgs {
    /// Trace files of one run, one a rank.
    #[arg(required = true)]
    shards: Vec<PathBuf>,
    /// The trace to write, *.trace.safetensors.
    #[arg(long)]
    out: PathBuf,
}

pub fn run(args: &MergeArgs, json: bool) -> anyhow::Result<Outcome> {
    let shards = args.shards.iter().map(|path| Trace::open(path)).collect::<Result<Vec<_>, _>>()?;
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
