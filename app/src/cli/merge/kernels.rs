//! `loka merge` of what `loka bench` writes: parts into what one machine writes, databases of several devices into one whose
//! rows carry theirs.

use std::{collections::BTreeMap, path::Path};

use loka_core::{
    bench::{KernelDb, devices, fleet},
    parts::{BenchKey, BenchPart, merge_bench},
    tables::{Cause, read_bench_part, read_kernels, write_kernels},
};
use serde_json::json;

use crate::{
    files,
    store::{self, Fetched, PartStore, is_url},
};

use super::{
    super::output::{self, Outcome},
    MergeArgs,
};

const ENDING: &str = ".kernels.parquet";

/// By its name: a kernel database, or a part of one.
pub fn is_database(path: &Path) -> bool {
    path.to_string_lossy().ends_with(ENDING)
}

/// What the files hold. The names are what errors show.
#[derive(Default)]
struct Gathered {
    /// Of each device.
    parts: BTreeMap<String, Vec<(String, BenchPart)>>,
    databases: Vec<(String, KernelDb)>,
}

pub fn run(args: &MergeArgs, json: bool) -> anyhow::Result<Outcome> {
    if !is_url(&args.out) && is_database(&args.out) {
        files::check_writable(&args.out)?;
    }
    let mut found = Gathered::default();
    args.shards.iter().try_for_each(|path| found.take(path))?;
    // After the files: one that is neither is named before the name of the result is.
    anyhow::ensure!(is_database(&args.out), "kernel databases make one, *{ENDING}: {}", args.out.display());
    let num_parts = found.parts.values().map(Vec::len).sum::<usize>();
    let num_databases = found.databases.len();
    let database = fleet(&found.whole()?, args.device.as_deref())?;
    store::write_to(&args.out, |path| Ok(write_kernels(path, &database)?))?;
    let devices = devices(std::slice::from_ref(&database));
    let (rows, out) = (database.records.len(), args.out.display());
    if json {
        output::json(&json!({
            "written": args.out, "num_parts": num_parts, "num_databases": num_databases, "num_rows": rows,
            "devices": devices,
        }))?;
        return Ok(Outcome::Done);
    }
    let of = [(num_parts, "part"), (num_databases, "database")].into_iter().filter(|(count, _)| *count > 0);
    let of: Vec<String> =
        of.map(|(count, what)| format!("{count} {what}{}", if count == 1 { "" } else { "s" })).collect();
    output::line(&format!("{}: {rows} rows of {} merged: {out}", of.join(" and "), devices.join(", ")));
    if let Some(device) = devices.first() {
        output::line(&format!(
            "next: loka plan R.results.parquet --device '{device}' --latencies {out} --out P.plan.json"
        ));
    }
    Ok(Outcome::Done)
}

impl Gathered {
    fn take(&mut self, path: &Path) -> anyhow::Result<()> {
        if is_database(path) || path.is_file() {
            return self.take_file(&store::fetch_file(path)?).map(drop);
        }
        let place = PartStore::of(path)?;
        for name in place.names_of_parts::<BenchKey>(path)? {
            let found = place.fetch_known(&name)?;
            if let Some(part) = self.take_file(&found)? {
                part.check_name(&name).map_err(|fault| anyhow::anyhow!("{fault}: {}", found.shown))?;
            }
        }
        Ok(())
    }

    /// A part, which it gives, or a database.
    fn take_file(&mut self, found: &Fetched) -> anyhow::Result<Option<&BenchPart>> {
        let at = |cause: &Cause| anyhow::anyhow!("{cause}: {}", found.shown);
        match read_bench_part(&found.path) {
            Ok(part) => {
                let of_device = self.parts.entry(part.key.run.device.clone()).or_default();
                of_device.push((found.shown.clone(), part));
                Ok(of_device.last().map(|(_, part)| part))
            }
            Err(error) if matches!(error.cause, Cause::NoPart(..)) => {
                let database = read_kernels(&found.path).map_err(|error| at(&error.cause))?;
                self.databases.push((found.shown.clone(), database));
                Ok(None)
            }
            Err(error) => Err(at(&error.cause)),
        }
    }

    /// One database of each device's parts, beside those that were whole.
    fn whole(self) -> anyhow::Result<Vec<(String, KernelDb)>> {
        let (mut all, num_devices) = (Vec::new(), self.parts.len());
        for (device, parts) in self.parts {
            let name = parts.first().map(|(name, _)| name.clone()).unwrap_or_default();
            let records = merge_bench(parts).map_err(|error| {
                if num_devices > 1 { anyhow::anyhow!("on {device}: {error}") } else { error.into() }
            })?;
            all.push((name, KernelDb { name: String::new(), records }));
        }
        all.extend(self.databases);
        Ok(all)
    }
}
