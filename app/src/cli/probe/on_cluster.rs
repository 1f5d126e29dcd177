//! `loka probe --engine cluster`: the parts of a probe by a Ray cluster, joined to the results that one machine writes.

use std::time::Instant;

use loka_core::{
    engine::{Control, cluster::Cluster},
    model::{Site, SiteId},
    parts::merge,
    tables::write_results,
    trace::Trace,
};

use crate::cluster::{self, ClusterJob};

use super::{
    super::output::{self, Outcome},
    ProbeArgs, print_json, print_summary, sets_of,
};

/// Before anything is read or written.
pub fn check(args: &ProbeArgs) -> anyhow::Result<()> {
    let asked = [("--part", args.part.is_some()), ("--measure", args.measure), ("--libraries", args.libraries)];
    let other = asked.iter().find(|(_, asked)| *asked);
    other.map_or(Ok(()), |(name, _)| Err(anyhow::anyhow!("--engine cluster does not go with {name}")))
}

pub fn run(args: &ProbeArgs, trace: &Trace, sites: &[Site], chosen: &[SiteId], json: bool) -> anyhow::Result<Outcome> {
    let (started, control) = (Instant::now(), Control::new());
    output::progress("joining the Ray cluster");
    let config = cluster::config(&args.python).with_accelerator(args.device.clone());
    let joined = Cluster::connect(&config, &control);
    output::progress_done();
    let mut cluster = joined?;
    output::note(&format!("Engine: {}, on {}.", cluster.info().device, cluster.info().size()));
    if let Some(note) = &cluster.info().note {
        output::note(&format!("warning: not used: {note}"));
    }
    let options = options(args)?;
    let job = ClusterJob { trace, path: &args.trace, sites, probed: chosen, wanted: chosen, mods: None, options };
    let mut parts = Vec::new();
    let probed = cluster::probe(&mut cluster, &job, &control, &mut |part, done| {
        parts.push((part.key.file_name(), part));
        let seconds = started.elapsed().as_secs_f64();
        if args.progress {
            output::note(&serde_json::json!({"progress": done, "seconds": seconds}).to_string());
        } else {
            let left = seconds * (1.0 - done) / done.max(1e-3);
            output::progress(&format!("probing {:.0} % · {left:.0} s left", 100.0 * done));
        }
    });
    output::progress_done();
    // Its tasks end before anything is said of the end.
    drop(cluster);
    probed?;
    let results = merge(parts)?;
    for (site, reason) in &results.meta.problems {
        output::note(&format!("warning: {site} cannot be used: {reason}"));
    }
    write_results(&args.out, &results)?;
    if json {
        print_json(&results, None)?;
    } else {
        print_summary(&results, &sets_of(args), started, args);
    }
    Ok(Outcome::Done)
}

/// What each node is asked, but for the part.
fn options(args: &ProbeArgs) -> anyhow::Result<Vec<String>> {
    let mut options = vec![
        format!("--confidence={}", args.confidence),
        format!("--seed={}", args.seed),
        format!("--sampler={}", args.sampler.as_str()),
    ];
    let numbers = [("rows", args.rows.map(u64::from)), ("min-draws", args.min_draws), ("max-draws", args.max_draws)];
    options.extend(numbers.iter().filter_map(|(name, value)| Some(format!("--{name}={}", (*value)?))));
    options.extend(args.sites.iter().map(|glob| format!("--sites={glob}")));
    options.extend(args.kernels.iter().map(|glob| format!("--kernels={glob}")));
    if !args.mods.is_empty() {
        options.push(format!("--mods={}", args.mods));
    }
    for (name, files) in [("latencies", &args.latencies), ("sites-times", &args.sites_times)] {
        for file in files {
            options.push(format!("--{name}={}", std::path::absolute(file)?.display()));
        }
    }
    Ok(options)
}
