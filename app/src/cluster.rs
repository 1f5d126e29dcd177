//! A probe by a Ray cluster, for the command line and the workbench alike. Takes a trace and what is asked of its sites; has
//! parts made (`loka probe --part`, on the cluster's nodes), reads each by the reader that `loka merge` has, gives it once it
//! is found to be of this very probe. Parts stay beside the trace: what was made is not made again.

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use loka_core::{
    engine::{
        Control,
        cluster::{Cluster, ClusterConfig, ClusterInfo, ClusterPart, ClusterRequest},
    },
    model::{Site, SiteId, SiteMods, canonical_json, sha256_of},
    parts::{PartOf, ProbePart, cost, split_sites},
    probe::NUMERICS_VERSION,
    tables::read_part,
    trace::Trace,
};

use crate::{
    beside::beside,
    files,
    store::{Fetched, PartStore},
};

/// Some 25 seconds of an engine: longer than a task's own cost, shorter than one minds losing. As loka.ray has them.
const SITES_A_PART: [(&str, usize); 2] = [("cuda", 200), ("cpu", 8)];

/// A small model is split further: rows come while one looks, and more than one node has something to do.
const FEWEST_PARTS: usize = 32;

const MOST_PARTS: usize = 5000;

/// What another node wrote may take this long to be seen in a shared folder.
const SEEN_WITHIN: Duration = Duration::from_secs(5);

/// What is asked of a cluster.
pub struct ClusterJob<'a> {
    pub trace: &'a Trace,
    /// Where the trace lies, for every node.
    pub path: &'a Path,
    /// All of the trace's, in forward order.
    pub sites: &'a [Site],
    /// What a run by these options probes.
    pub probed: &'a [SiteId],
    /// Parts without any of these are not made.
    pub wanted: &'a [SiteId],
    /// One pass by these; `None`: as `options` say.
    pub mods: Option<&'a SiteMods>,
    /// Of `loka probe`.
    pub options: Vec<String>,
}

/// This program's cluster, by that Python.
pub fn config(python: &Path) -> ClusterConfig {
    // A program that does not know its own place: nodes have theirs.
    ClusterConfig::new(python, std::env::current_exe().unwrap_or_else(|_| PathBuf::from("loka")))
}

/// How a part's key names mods that may differ between sites.
pub fn digest_of_mods(mods: &SiteMods) -> String {
    sha256_of(canonical_json(&serde_json::to_value(mods).unwrap_or_default()).as_bytes())
}

/// The trace's alone, so that a probe that is started again, on another cluster, finds its parts.
fn num_parts(num_sites: usize, engine: &str) -> usize {
    let sites = SITES_A_PART.iter().find(|(name, _)| *name == engine).map_or(1, |(_, sites)| *sites);
    num_sites.div_ceil(sites).max(FEWEST_PARTS).min(num_sites).clamp(1, MOST_PARTS)
}

/// Beside the trace.
pub fn folder_of(trace: &Path) -> PathBuf {
    PathBuf::from(beside(&trace.to_string_lossy(), "parts"))
}

/// Probes until every wanted site's part is there, or `control` is cancelled. `sink` gets each part, in the order in which
/// they come, and the share that is done then.
///
/// # Errors
/// The folder cannot be written, the cluster fails, `loka` refuses, or a part is none of this probe. What `sink` got stays
/// good.
pub fn probe(
    cluster: &mut Cluster,
    job: &ClusterJob<'_>,
    control: &Control,
    sink: &mut dyn FnMut(ProbePart, f64),
) -> anyhow::Result<()> {
    let info = cluster.info().clone();
    let path = if crate::store::is_url(job.path) { job.path.to_owned() } else { std::path::absolute(job.path)? };
    let folder = folder_of(&path);
    let place = PartStore::of(&folder)?;
    place.check_writable()?;
    let probed: HashSet<&SiteId> = job.probed.iter().collect();
    let wanted: HashSet<&SiteId> = job.wanted.iter().collect();
    let of = num_parts(probed.len(), &info.engine);
    let ranges = split_sites(job.sites, |site| probed.contains(&site.id), of);
    let costs: Vec<f64> =
        ranges.iter().map(|range| job.sites[range.clone()].iter().map(|site| cost(site) as f64).sum()).collect();
    let is_wanted = |part: &usize| job.sites[ranges[part - 1].clone()].iter().any(|site| wanted.contains(&site.id));
    let parts: Vec<usize> = (1..=of).filter(|part| wanted.len() == probed.len() || is_wanted(part)).collect();
    let mut arguments = vec!["probe".to_owned(), path.display().to_string(), format!("--engine={}", info.engine)];
    if info.engine == "cpu" {
        // A task has one.
        arguments.push("--threads=1".to_owned());
    }
    arguments.extend(job.options.iter().cloned());
    if let Some(mods) = job.mods {
        arguments.push(format!("--site-mods={}", mods_file(&folder, mods)?.display()));
    }
    let all: f64 = parts.iter().map(|part| costs[part - 1]).sum();
    let check = PartCheck { digest: job.trace.digest(), info: &info, mods: job.mods, of };
    let (mut done, mut fault) = (0.0, None);
    let request = ClusterRequest { arguments, out: folder.display().to_string(), parts, of };
    cluster.probe(&request, control, &mut |made| match check.read(&place, &made) {
        Ok(part) => {
            done += costs.get(made.part - 1).copied().unwrap_or(0.0);
            sink(part, if all > 0.0 { done / all } else { 1.0 });
        }
        // The other parts are good all the same.
        Err(error) => drop(fault.get_or_insert(error)),
    })?;
    fault.map_or(Ok(()), Err)
}

/// A file that all nodes read: a command line has no room for the names of all sites.
fn mods_file(folder: &Path, mods: &SiteMods) -> anyhow::Result<PathBuf> {
    let digest = digest_of_mods(mods);
    let short: String = digest.trim_start_matches("sha256:").chars().take(32).collect();
    let path = folder.join(format!("mods-{short}.json"));
    if !path.exists() {
        files::write_atomically(&path, &serde_json::to_vec(mods)?)?;
    }
    Ok(path)
}

/// What a part has to be of.
struct PartCheck<'a> {
    digest: String,
    info: &'a ClusterInfo,
    mods: Option<&'a SiteMods>,
    of: usize,
}

impl PartCheck<'_> {
    fn read(&self, place: &PartStore, made: &ClusterPart) -> anyhow::Result<ProbePart> {
        let name = made.file.rsplit(['/', '\\']).next().unwrap_or(&made.file);
        let found = seen(place, name)?.ok_or_else(|| {
            anyhow::anyhow!(
                "part {} was made on {} and is not here: traces have to lie where every node reaches them: {}",
                made.part,
                made.node,
                place.shown(name)
            )
        })?;
        let part = found.part(|path| read_part(path).map_err(|error| error.cause), |part| part.check_name(name))?;
        let (run, expected) = (&part.key.run, PartOf { part: made.part, of: self.of });
        let pairs = [
            ("trace", run.trace.clone(), self.digest.clone()),
            ("numerics version", run.numerics.to_string(), NUMERICS_VERSION.to_string()),
            ("engine", run.engine.clone(), self.info.engine.clone()),
            ("device", run.device.clone(), self.info.device.clone()),
            ("number", part.key.place().to_string(), expected.to_string()),
        ];
        if let Some((what, found, expected)) = pairs.into_iter().find(|(_, found, expected)| found != expected) {
            anyhow::bail!(
                "a part of another probe, by {}: its {what} is {found}, not {expected}: {}",
                made.node,
                place.shown(name)
            );
        }
        if let Some(mods) = self.mods {
            let other = part.results.rows.iter().find(|row| row.mods != *mods.of(&row.site));
            if let Some(row) = other {
                anyhow::bail!("a row of {} has other mods than it was asked for: {}", row.site, place.shown(name));
            }
        }
        Ok(part)
    }
}

fn seen(place: &PartStore, name: &str) -> anyhow::Result<Option<Fetched>> {
    let until = Instant::now() + SEEN_WITHIN;
    loop {
        let found = place.fetch(name)?;
        if found.is_some() || Instant::now() >= until {
            return Ok(found);
        }
        thread::sleep(Duration::from_millis(200));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_depend_on_the_trace_alone() {
        assert_eq!(
            [0, 1, 14, 32, 100, 1000, 100_000].map(|sites| num_parts(sites, "cpu")),
            [1, 1, 14, 32, 32, 125, 5000]
        );
        assert_eq!([14, 1000, 100_000].map(|sites| num_parts(sites, "cuda")), [14, 32, 500]);
        assert_eq!(folder_of(Path::new("/a/ranker.trace.safetensors")), Path::new("/a/ranker.parts"));
        assert_eq!(folder_of(Path::new("/a/shards/")), Path::new("/a/shards.parts"));
    }
}
