//! `loka merge` of what `loka bench --sites --part` writes: the table of site times that one machine writes.

use std::{collections::BTreeMap, path::Path};

use loka_core::{
    bench::is_device,
    model::{Runtime, SiteTimes},
    parts::{SitesKey, SitesPart, merge_sites},
};
use serde_json::json;

use crate::{
    files,
    store::{self, Fetched, PartStore, is_url},
};

use super::{
    super::{
        output::{self, Outcome},
        sites,
    },
    MergeArgs,
};

const ENDING: &str = ".sites.json";

/// By its name: a table of site times, or a part of one.
pub fn is_table(path: &Path) -> bool {
    path.to_string_lossy().ends_with(ENDING)
}

/// Parts of several runtimes make one table, too: a table has rows of any. The names are what errors show.
type ByRuntime = BTreeMap<Runtime, Vec<(String, SitesPart)>>;

pub fn run(args: &MergeArgs, json: bool) -> anyhow::Result<Outcome> {
    if !is_url(&args.out) && is_table(&args.out) {
        files::check_writable(&args.out)?;
    }
    let mut parts = ByRuntime::new();
    args.shards.iter().try_for_each(|path| take(path, args.device.as_deref(), &mut parts))?;
    // After the files: one that is no part is named before the name of the result is.
    anyhow::ensure!(is_table(&args.out), "parts of a bench --sites make a table, *{ENDING}: {}", args.out.display());
    let num_parts = parts.values().map(Vec::len).sum::<usize>();
    let mut whole: Option<SiteTimes> = None;
    for (_, parts) in parts {
        let name = parts.first().map(|(name, _)| name.clone()).unwrap_or_default();
        let times = merge_sites(parts)?;
        whole = Some(match whole {
            None => times,
            Some(before) => before.merged(times).map_err(|error| anyhow::anyhow!("{error}: {name}"))?,
        });
    }
    let Some(times) = whole else { anyhow::bail!("there are no parts to merge") };
    if times.num_timed() == 0 {
        output::complain(&anyhow::anyhow!("no site could be timed: {}", shown(args)));
        return Ok(Outcome::Failed);
    }
    store::write_to(&args.out, |path| files::write_atomically(path, times.to_json().as_bytes()))?;
    let out = args.out.display();
    if json {
        output::json(&json!({
            "written": args.out, "num_parts": num_parts, "num_rows": times.rows.len(), "num_timed": times.num_timed(),
            "device": times.device,
        }))?;
        return Ok(Outcome::Done);
    }
    let parts = if num_parts == 1 { "1 part".to_owned() } else { format!("{num_parts} parts") };
    output::line(&format!("{parts}: {}: {out}", sites::summary(&times)));
    output::line(&format!("next: loka probe TRACE --sites-times {out} --out R.results.parquet"));
    Ok(Outcome::Done)
}

fn shown(args: &MergeArgs) -> String {
    args.shards.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

fn take(path: &Path, device: Option<&str>, parts: &mut ByRuntime) -> anyhow::Result<()> {
    if is_table(path) || path.is_file() {
        return take_file(&store::fetch_file(path)?, None, device, parts);
    }
    let place = PartStore::of(path)?;
    let names = place.names_of_parts::<SitesKey>(path)?;
    names.iter().try_for_each(|name| take_file(&place.fetch_known(name)?, Some(name), device, parts))
}

/// `name`: what it has to be called.
fn take_file(found: &Fetched, name: Option<&str>, device: Option<&str>, parts: &mut ByRuntime) -> anyhow::Result<()> {
    let part = sites::read_part(&found.path).map_err(|error| anyhow::anyhow!("{error}: {}", found.shown))?;
    if let Some(name) = name {
        part.check_name(name).map_err(|fault| anyhow::anyhow!("{fault}: {}", found.shown))?;
    }
    let run = &part.key.run;
    if let Some(wanted) = device {
        let (device, shown) = (&run.device, &found.shown);
        anyhow::ensure!(is_device(device, wanted), "it was timed on {device}, --device asks for {wanted}: {shown}");
    }
    parts.entry(run.runtime).or_default().push((found.shown.clone(), part));
    Ok(())
}
