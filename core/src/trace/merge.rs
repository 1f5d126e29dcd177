//! Takes the shards of one run, one per rank; gives one trace, site by site (docs/reference/trace.md, "Merging").
//!
//! Which sites can be merged follows from structure alone, so that a folder opens as fast as its files;
//! the statistics themselves are pooled when a site is asked for.

use std::{collections::BTreeMap, path::Path};

use serde_json::Value;

use super::{
    Distribution, Series, SiteStats, TraceData,
    coverage::{CovarianceKind, Coverage},
    error::{Fault, TraceCause, TraceError},
    extremes::Extremes,
    manifest::{WEIGHTS_IN, mark_unusable},
    pool,
    trace::{SiteEntry, Trace},
};
use crate::model::{Loss, Manifest, Matrix, Site};

/// Manifest keys of a merged trace: the ranks in it, and that its quantiles are averages.
const MERGED_RANKS: &str = "merged_ranks";
const QUANTILES_APPROXIMATE: &str = "quantiles_approximate";
/// Site key: optional parts that some shard lacks, and that are therefore left out.
const LEFT_OUT: &str = "left_out";

/// Key of a site whose rows differ from step to step, such as a routed expert's: ranks then differ in m, and the largest
/// one counts.
const VARYING_ROWS: &str = "rows";

/// What a trace knows of its sites without their data.
pub(super) struct Joined {
    pub manifest: Manifest,
    pub sites: Vec<SiteEntry>,
    pub faults: Vec<Option<TraceError>>,
}

/// All shards' statistics as one trace. A site that cannot be merged stays in the manifest with the
/// reason; shards of different runs, steps or sites are refused.
pub fn merge(shards: &[Trace]) -> Result<TraceData, TraceError> {
    let trace = match shards {
        [one] => one.clone().with_weights()?,
        _ => Trace::from_shards("merged", "merged", shards.to_vec())?,
    };
    let mut data = TraceData { manifest: trace.manifest().clone(), sites: Vec::new() };
    for site in &mut data.manifest.sites {
        match trace.site_stats(&site.id) {
            Ok(stats) => data.sites.push(stats),
            Err(error) => mark_unusable(site, &trace.problem_text(&error)),
        }
    }
    Ok(data)
}

/// The lowest rank first: weights come from the first that has them, and held-out rows keep this order.
pub(super) fn in_rank_order(mut shards: Vec<Trace>) -> Vec<Trace> {
    shards.sort_by_cached_key(|shard| (ranks(shard.manifest()).first().copied(), shard.file().to_owned()));
    shards
}

/// The cause with the shard's file name: of several files, which one.
pub(super) fn problem_in_shard(error: &TraceError) -> String {
    format!("{} ({})", error.cause(), file_name(error.file()))
}

fn file_name(file: &str) -> &str {
    Path::new(file).file_name().and_then(|name| name.to_str()).unwrap_or(file)
}

/// Shards in rank order, at least one.
pub(super) fn join(shards: &[Trace]) -> Result<Joined, TraceError> {
    let Some((first, others)) = shards.split_first() else {
        return Err(Fault::from(TraceCause::NothingToMerge).in_file("no shards"));
    };
    for other in others {
        check_same_run(first, other).map_err(|fault| fault.in_file(other.file()))?;
    }
    check_ranks(shards)?;
    if let (None, Some(error)) = (first_with_weights(shards), first.weights_elsewhere()) {
        return Err(error);
    }
    let mut manifest = joined_manifest(shards, first.manifest());
    let mut faults = Vec::new();
    let mut sites = Vec::new();
    for (i, site) in manifest.sites.iter_mut().enumerate() {
        let entries: Vec<&SiteEntry> = shards.iter().map(|shard| &shard.sites()[i]).collect();
        let fault = shards.iter().find_map(|shard| shard.site_fault(i)).or_else(|| mixed(shards, &entries));
        site.m = entries.iter().map(|entry| entry.site.m).max().unwrap_or(site.m);
        let coverage = joined_coverage(&entries);
        note_left_out(site, &entries, &coverage);
        let problem = fault.as_ref().map(problem_in_shard);
        sites.push(SiteEntry { site: site.clone(), problem, coverage });
        faults.push(fault);
    }
    if sites.iter().any(|entry| entry.coverage.quantiles || entry.coverage.grad_quantiles) {
        manifest.extra.insert(QUANTILES_APPROXIMATE.to_owned(), Value::from(true));
    }
    Ok(Joined { manifest, sites, faults })
}

fn check_same_run(first: &Trace, other: &Trace) -> Result<(), Fault> {
    let differs = |what: &str, found: String, expected: String| TraceCause::Differs {
        what: what.to_owned(),
        found,
        expected,
        other: first.file().to_owned(),
    };
    let (a, b) = (first.manifest(), other.manifest());
    let fields = [
        ("run id", b.run.id.clone(), a.run.id.clone()),
        ("step", b.run.step.to_string(), a.run.step.to_string()),
        ("loss", b.loss.name.clone(), a.loss.name.clone()),
        ("quantile_probs", format!("{:?}", b.quantile_probs), format!("{:?}", a.quantile_probs)),
        ("the number of sites", b.sites.len().to_string(), a.sites.len().to_string()),
    ];
    for (what, found, expected) in fields {
        if found != expected {
            return Err(differs(what, found, expected).into());
        }
    }
    let pairs = || first.sites().iter().zip(other.sites());
    for (i, (mine, theirs)) in pairs().enumerate() {
        if mine.site.id != theirs.site.id {
            return Err(differs(&format!("site {i}"), theirs.site.id.to_string(), mine.site.id.to_string()).into());
        }
    }
    // What a site that did not parse says of itself means nothing; the site is lost, not the run.
    for (mine, theirs) in pairs().filter(|(mine, theirs)| mine.problem.is_none() && theirs.problem.is_none()) {
        let varies = [&mine.site, &theirs.site].iter().all(|site| site.extra.contains_key(VARYING_ROWS));
        for ((what, found), (_, expected)) in site_fields(&theirs.site).into_iter().zip(site_fields(&mine.site)) {
            if found != expected && !(varies && what == "m") {
                return Err(Fault::at_site(differs(what, found, expected), &mine.site.id));
            }
        }
    }
    Ok(())
}

/// What must be the same for two ranks to have recorded the same site.
fn site_fields(site: &Site) -> [(&'static str, String); 8] {
    let json = |value: Result<String, serde_json::Error>| value.unwrap_or_default();
    [
        ("m", site.m.to_string()),
        ("k", site.k.to_string()),
        ("n", site.n.to_string()),
        ("dtype", site.dtype.clone()),
        ("bias", site.bias.to_string()),
        ("head", site.head.to_string()),
        ("tail", json(serde_json::to_string(&site.tail))),
        ("feeds", json(serde_json::to_string(&site.feeds))),
    ]
}

/// The lowest rank that has weights; `None`: no shard has.
fn first_with_weights(shards: &[Trace]) -> Option<usize> {
    shards.iter().position(|shard| shard.weights_elsewhere().is_none())
}

/// A rank that is there twice would count its rows twice.
fn check_ranks(shards: &[Trace]) -> Result<(), TraceError> {
    let mut seen: BTreeMap<u64, &str> = BTreeMap::new();
    for shard in shards {
        for rank in ranks(shard.manifest()) {
            if let Some(other) = seen.insert(rank, shard.file()) {
                return Err(Fault::from(TraceCause::RankTwice { rank, other: other.to_owned() }).in_file(shard.file()));
            }
        }
    }
    Ok(())
}

/// Whether ranks were merged into that trace.
pub(super) fn is_merged(manifest: &Manifest) -> bool {
    manifest.extra.contains_key(MERGED_RANKS)
}

/// A rank's file of an earlier save, say: it is left out, and said so.
pub(super) fn note_other_extremes(manifest: &mut Manifest, others: &[Extremes]) {
    let line = |of: &Extremes| {
        let (file, run) = (file_name(&of.file), &of.run);
        format!("extremes of rank {} are of step {} of run {}, and are left out ({file})", run.rank, run.step, run.id)
    };
    let lines: Vec<Value> = others.iter().map(|of| Value::from(line(of))).collect();
    if lines.is_empty() {
        return;
    }
    match manifest.extra.entry("notes").or_insert_with(|| Value::Array(Vec::new())) {
        Value::Array(notes) => notes.extend(lines),
        other => *other = Value::Array(lines),
    }
}

/// The ranks in a trace, ascending: its own, or those that were merged into it.
fn ranks(manifest: &Manifest) -> Vec<u64> {
    let merged = manifest.extra.get(MERGED_RANKS).and_then(Value::as_array);
    let merged = merged.and_then(|ranks| ranks.iter().map(Value::as_u64).collect::<Option<Vec<u64>>>());
    let mut ranks = merged.unwrap_or_else(|| vec![manifest.run.rank]);
    ranks.sort_unstable();
    ranks
}

/// The lowest rank's, with every shard's unknown keys, the mean of the losses, and how many times a log loss they are from the first that
/// knows it: a rank tells it only where its last recorded step had logits enough to tell by.
fn joined_manifest(shards: &[Trace], first: &Manifest) -> Manifest {
    let mut manifest = first.clone();
    for shard in shards {
        for (key, value) in &shard.manifest().extra {
            manifest.extra.entry(key.clone()).or_insert_with(|| value.clone());
        }
    }
    manifest.run.extra.remove(WEIGHTS_IN);
    let weight = shards.iter().find_map(|shard| shard.manifest().loss.weight);
    manifest.loss = Loss { value: mean_loss(shards), weight, ..first.loss.clone() };
    if shards.len() > 1 {
        let mut all: Vec<u64> = shards.iter().flat_map(|shard| ranks(shard.manifest())).collect();
        all.sort_unstable();
        manifest.extra.insert(MERGED_RANKS.to_owned(), Value::from(all));
    }
    manifest
}

/// Each shard by the ranks in it, so that merging in steps gives the same. Around the first value:
/// ranks that all recorded the reduced loss get it back to the bit.
fn mean_loss(shards: &[Trace]) -> f64 {
    let weight = |shard: &Trace| ranks(shard.manifest()).len() as f64;
    let first = shards.first().map_or(0.0, |shard| shard.manifest().loss.value);
    let total: f64 = shards.iter().map(weight).sum();
    first + shards.iter().map(|shard| (shard.manifest().loss.value - first) * weight(shard) / total).sum::<f64>()
}

/// The reason when shards keep the same statistic in different forms.
fn mixed(shards: &[Trace], entries: &[&SiteEntry]) -> Option<TraceError> {
    let form = |kind: CovarianceKind| match kind {
        CovarianceKind::Full => "full".to_owned(),
        CovarianceKind::Factor { .. } => "factored".to_owned(),
    };
    let forms = |of: &dyn Fn(&Coverage) -> Option<String>| -> Vec<(usize, String)> {
        let present = |(i, entry): (usize, &&SiteEntry)| of(&entry.coverage).map(|form| (i, form));
        entries.iter().enumerate().filter_map(present).collect()
    };
    let all = [
        ("input.cov", forms(&|coverage| coverage.covariance.map(form))),
        ("grad_output.cov", forms(&|coverage| coverage.grad_covariance.map(form))),
        ("weight", forms(&|coverage| coverage.weight.map(|kind| kind.to_string()))),
    ];
    for (what, forms) in all {
        let Some((first, (other, differs))) = forms.first().zip(forms.iter().find(|form| form.1 != forms[0].1)) else {
            continue;
        };
        let other_file = shards[first.0].file().to_owned();
        let cause = TraceCause::Differs {
            what: what.to_owned(),
            found: differs.clone(),
            expected: first.1.clone(),
            other: other_file,
        };
        return Some(Fault::at_tensor(cause, &entries[0].site.id, what).in_file(shards[*other].file()));
    }
    None
}

/// Part by part what [`merge_site`] gives: what every shard has.
fn joined_coverage(entries: &[&SiteEntry]) -> Coverage {
    let all = |has: fn(&Coverage) -> bool| entries.iter().all(|entry| has(&entry.coverage));
    let rank = |of: fn(&Coverage) -> Option<CovarianceKind>| {
        entries.iter().filter_map(|entry| of(&entry.coverage)).max_by_key(rank_of)
    };
    let grad_output = all(|coverage| coverage.grad_output);
    let heldout_rows = entries.iter().map(|entry| entry.coverage.heldout_rows).sum();
    let paired = all(|coverage| coverage.heldout_rows == coverage.heldout_grad_rows);
    let first = entries.first().map(|entry| entry.coverage.clone()).unwrap_or_default();
    Coverage {
        covariance: rank(|coverage| coverage.covariance),
        grad_covariance: rank(|coverage| coverage.grad_covariance).filter(|_| grad_output),
        quantiles: all(|coverage| coverage.quantiles),
        grad_quantiles: grad_output && all(|coverage| coverage.grad_quantiles),
        grad_output,
        cross_cov: grad_output && all(|coverage| coverage.cross_cov),
        heldout_rows,
        heldout_grad_rows: if paired { heldout_rows } else { 0 },
        weight: entries.iter().find_map(|entry| entry.coverage.weight),
        series: first.series,
    }
}

fn rank_of(kind: &CovarianceKind) -> usize {
    match kind {
        CovarianceKind::Full => usize::MAX,
        CovarianceKind::Factor { rank } => *rank,
    }
}

/// A statistic over some of the ranks would pass for the whole run's: it is left out, and said so.
fn note_left_out(site: &mut Site, entries: &[&SiteEntry], joined: &Coverage) {
    type Part = (&'static str, fn(&Coverage) -> bool);
    let parts: [Part; 5] = [
        ("grad_output", |coverage| coverage.grad_output),
        ("cross_cov", |coverage| coverage.cross_cov),
        ("input.quantiles", |coverage| coverage.quantiles),
        ("grad_output.quantiles", |coverage| coverage.grad_quantiles),
        ("sample.grad_output", |coverage| coverage.heldout_grad_rows > 0),
    ];
    let lost = |(_, has): &&Part| !has(joined) && entries.iter().any(|entry| has(&entry.coverage));
    let lost: Vec<&str> = parts.iter().filter(lost).map(|(name, _)| *name).collect();
    if !lost.is_empty() {
        site.extra.insert(LEFT_OUT.to_owned(), Value::from(lost));
    }
}

/// One site of all shards, which have passed [`join`] and are in rank order.
pub(super) fn merge_site(shards: &[Trace], site: &Site, file: &str) -> Result<SiteStats, TraceError> {
    let has_weights: Vec<bool> = shards.iter().map(|shard| shard.weights_elsewhere().is_none()).collect();
    let read = |(shard, has_weights): (&Trace, &bool)| match has_weights {
        true => shard.site_stats(&site.id),
        false => shard.stats_without_weight(&site.id),
    };
    let all = shards.iter().zip(&has_weights).map(read).collect::<Result<Vec<SiteStats>, _>>()?;
    pool_site(all, &has_weights, site).map_err(|cause| Fault::at_site(cause, &site.id).in_file(file))
}

/// `has_weights`: which of them do, one at least.
fn pool_site(mut all: Vec<SiteStats>, has_weights: &[bool], site: &Site) -> Result<SiteStats, TraceCause> {
    let input = pool::distribution(&all.iter().map(|stats| &stats.input).collect::<Vec<_>>())?;
    let grads: Option<Vec<_>> = all.iter().map(|stats| stats.grad_output.as_ref()).collect();
    let grad_output = grads.map(|grads| pool::distribution(&grads)).transpose()?;
    let crosses: Option<Vec<_>> = all.iter().map(cross_of).collect();
    let cross_cov = crosses.map(|crosses| pool::cross_cov(&crosses));
    let noise = pool::noise(all.iter().map(|stats| stats.noise.clone()))?.filter(|_| grad_output.is_some());
    let weighed = || all.iter().zip(has_weights).filter(|(_, has)| **has).map(|(stats, _)| stats);
    let weight_hist = pool::hist(weighed().map(|stats| stats.weight_hist.as_deref()))?;
    let weight_amax = pool::amax(weighed().map(|stats| stats.weight_amax));
    let (heldout_input, heldout_grad_output) = concatenated_rows(&all);
    let series = joined_series(&all.iter().map(|stats| stats.series.clone()).collect::<Vec<_>>());
    let first = all.swap_remove(has_weights.iter().position(|has| *has).unwrap_or(0));
    let site = site.clone();
    Ok(SiteStats {
        site,
        input,
        grad_output,
        cross_cov,
        noise,
        weight_hist,
        weight_amax,
        heldout_input,
        heldout_grad_output,
        series,
        ..first
    })
}

type Cross<'a> = (&'a [f32], &'a Distribution, &'a Distribution);

fn cross_of(stats: &SiteStats) -> Option<Cross<'_>> {
    Some((stats.cross_cov.as_deref()?, stats.grad_output.as_ref()?, &stats.input))
}

/// Inputs of all shards, and the gradients only where every row has one: they are the same rows.
fn concatenated_rows(all: &[SiteStats]) -> (Option<Matrix>, Option<Matrix>) {
    let rows = |matrix: &Option<Matrix>| matrix.as_ref().map_or(0, |matrix| matrix.rows);
    let paired = all.iter().all(|stats| rows(&stats.heldout_input) == rows(&stats.heldout_grad_output));
    let inputs = concatenated(all.iter().filter_map(|stats| stats.heldout_input.as_ref()));
    let grads = concatenated(all.iter().filter_map(|stats| stats.heldout_grad_output.as_ref()));
    (inputs, grads.filter(|_| paired))
}

fn concatenated<'a>(parts: impl Iterator<Item = &'a Matrix>) -> Option<Matrix> {
    parts.fold(None, |out: Option<Matrix>, part| {
        let mut out = out.unwrap_or_else(|| Matrix::zeros(0, part.cols));
        out.rows += part.rows;
        out.data.extend_from_slice(&part.data);
        Some(out)
    })
}

/// The lowest rank's series; of an `_amax` the maximum with the other shards' at the same steps.
pub(super) fn joined_series(all: &[Vec<Series>]) -> Vec<Series> {
    let mut series = all.first().cloned().unwrap_or_default();
    for mine in series.iter_mut().filter(|series| series.name.ends_with("_amax")) {
        let theirs = all.iter().skip(1).flatten();
        for theirs in theirs.filter(|theirs| theirs.name == mine.name && theirs.steps == mine.steps) {
            for (mine, theirs) in mine.values.iter_mut().zip(&theirs.values) {
                // NaN stays: it is the overflow that one looks for.
                if *theirs > *mine || theirs.is_nan() {
                    *mine = *theirs;
                }
            }
        }
    }
    series
}
