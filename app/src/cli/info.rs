//! `loka info`: what a trace holds.

use std::path::PathBuf;

use loka_core::{
    model::{Forward, Gemm, Manifest, Site},
    trace::{RankApart, RanksApart, STANDS_OUT, SiteEntry, Trace},
};
use serde_json::json;

use crate::store;

use super::output::{self, Outcome, TextTable};

#[derive(clap::Args, Debug)]
pub struct InfoArgs {
    /// A trace file or a folder of shards; a URL of one where this build knows stores.
    trace: PathBuf,
    /// Read and check every tensor, not only the structure.
    #[arg(long)]
    deep: bool,
}

pub fn run(args: &InfoArgs, json: bool) -> anyhow::Result<Outcome> {
    let opened = store::open_trace(&args.trace)?;
    let trace = &opened.trace;
    let mut problems: Vec<(String, String)> =
        trace.sites().iter().filter_map(|entry| Some((entry.site.id.to_string(), entry.problem.clone()?))).collect();
    if args.deep {
        problems = trace.check_all().into_iter().map(|(site, problem)| (site.to_string(), problem)).collect();
    }
    if json {
        print_json(trace, &problems)?;
    } else {
        print_table(trace, &problems, args.deep);
    }
    Ok(Outcome::Done)
}

fn print_json(trace: &Trace, problems: &[(String, String)]) -> anyhow::Result<()> {
    let (manifest, ranks) = (trace.manifest(), RanksApart::of(trace));
    output::json(&json!({
        "trace": trace.file(), "model": manifest.model, "run": manifest.run, "loss": manifest.loss,
        "num_sites": manifest.sites.len(), "num_unusable": problems.len(),
        "flop_coverage": manifest.flop_coverage().ok(),
        "num_ranks": (ranks.num_ranks > 0).then_some(ranks.num_ranks),
        "ranks_apart": ranks.apart.iter().map(apart_json).collect::<Vec<_>>(),
    }))?;
    for entry in trace.sites() {
        let problem = problems.iter().find(|(site, _)| *site == *entry.site.id.as_str()).map(|(_, problem)| problem);
        let coverage = &entry.coverage;
        output::json(&json!({
            "site": entry.site, "problem": problem,
            "coverage": {
                "covariance": coverage.covariance.map(|kind| kind.to_string()),
                "weight": coverage.weight.map(|kind| kind.to_string()),
                "quantiles": coverage.quantiles, "grad_output": coverage.grad_output,
                "cross_cov": coverage.cross_cov, "heldout_rows": coverage.heldout_rows, "series": coverage.series,
            },
        }))?;
    }
    Ok(())
}

fn print_table(trace: &Trace, problems: &[(String, String)], deep: bool) {
    let manifest = trace.manifest();
    output::line(&format!("{}: {} at step {}", trace.file(), manifest.model.name, manifest.run.step));
    output::line(&format!(
        "{} sites · {} parameters · {} {}{} · recorded every {} steps on {}",
        manifest.sites.len(),
        manifest.model.parameters,
        manifest.loss.name,
        output::short(manifest.loss.value),
        manifest.loss.weight.map_or_else(String::new, |times| format!(" ({} times a log loss)", output::short(times))),
        manifest.run.every,
        manifest.run.device,
    ));
    output::line("");
    let mut table = TextTable::new(&["site", ">m", ">k", ">n", "tail", "feeds", "statistics", "state"]);
    for entry in trace.sites() {
        let problem = problems.iter().find(|(site, _)| *site == *entry.site.id.as_str());
        let state = problem.map_or_else(|| standing(&entry.site), |(_, problem)| format!("unusable: {problem}"));
        let site = &entry.site;
        table.row([
            site.id.to_string(),
            site.m.to_string(),
            site.k.to_string(),
            site.n.to_string(),
            tail(entry),
            site.feeds.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
            statistics(entry),
            state,
        ]);
    }
    table.print();
    output::line("");
    let checked = if deep { "every tensor checked" } else { "structure checked; --deep checks every tensor" };
    output::line(&format!(
        "{} of {} sites usable ({checked})",
        trace.sites().len() - problems.len(),
        trace.sites().len()
    ));
    print_flops(manifest);
    print_ranks(&RanksApart::of(trace));
}

/// Ranks that are listed; of more, a count.
const RANKS: usize = 8;

/// Which ranks reach beyond the others: merged they are one maximum.
fn print_ranks(ranks: &RanksApart) {
    if ranks.num_ranks < 2 {
        return;
    }
    if ranks.apart.is_empty() {
        output::line(&format!(
            "no rank of {} reaches beyond {STANDS_OUT} times the median rank's amax",
            ranks.num_ranks
        ));
        return;
    }
    for rank in ranks.apart.iter().take(RANKS) {
        let (operand, sites) = (operand(rank), if rank.num_sites == 1 { "site" } else { "sites" });
        let beyond = rank.most.beyond.map_or(String::new(), |share| {
            format!("; {} of its values are beyond that of the median rank", percent(share))
        });
        output::line(&format!(
            "rank {} stands out at {} {sites}: at {} its {operand} reaches {} times the median rank's amax{beyond}",
            rank.rank,
            rank.num_sites,
            rank.site,
            output::short(rank.most.ratio),
        ));
    }
    let more = ranks.apart.len().saturating_sub(RANKS);
    if more > 0 {
        output::line(&format!("and {more} more ranks"));
    }
}

fn operand(rank: &RankApart) -> &'static str {
    if rank.of_gradient { "dy" } else { "x" }
}

fn percent(share: f64) -> String {
    format!("{} %", output::short(100.0 * share))
}

fn apart_json(rank: &RankApart) -> serde_json::Value {
    json!({
        "rank": rank.rank, "num_sites": rank.num_sites, "site": rank.site, "operand": operand(rank),
        "ratio": rank.most.ratio, "beyond": rank.most.beyond,
    })
}

/// Places that are listed; of more, a count. `--json` has all.
const PLACES: usize = 20;

/// What of the model the sites are, and what they are not.
fn print_flops(manifest: &Manifest) {
    let coverage = match manifest.flop_coverage() {
        Ok(coverage) => coverage,
        Err(why) => return output::line(&format!("the sites' share of the model's matmul FLOPs: {why}")),
    };
    let rest = if coverage.unseen.is_empty() { "" } else { "; the rest, which no plan changes:" };
    output::line(&format!("{}{rest}", coverage.sentence()));
    coverage.missing().take(PLACES).for_each(|line| output::line(&format!("  {line}")));
    let more = coverage.unseen.len().saturating_sub(PLACES);
    if more > 0 {
        output::line(&format!("  and {more} more"));
    }
}

/// What is out of the ordinary at a site that can be used.
fn standing(site: &Site) -> String {
    let calls = (site.calls != 1).then(|| format!("{} calls a step", site.calls));
    let never: Vec<&str> = Gemm::ALL.into_iter().filter(|gemm| !site.runs(*gemm)).map(Gemm::as_str).collect();
    let never = (!never.is_empty()).then(|| format!("no {}", never.join(", no ")));
    let fixed = site.fixed().map(|fixed| format!("stays in high precision: {fixed}"));
    let is_read = site.forward.as_ref().is_some_and(Forward::is_ours_alone);
    let read = is_read.then(|| "a parameter that a function reads".to_owned());
    ["ok".to_owned()].into_iter().chain(calls).chain(never).chain(read).chain(fixed).collect::<Vec<_>>().join("; ")
}

fn tail(entry: &SiteEntry) -> String {
    let bias = entry.site.bias.then_some("bias");
    let head = entry.site.head.then_some("head");
    let ops = entry.site.tail.iter().map(|op| op.op.as_str());
    bias.into_iter().chain(ops).chain(head).collect::<Vec<_>>().join(" · ")
}

fn statistics(entry: &SiteEntry) -> String {
    let coverage = &entry.coverage;
    let mut parts = Vec::new();
    parts.extend(coverage.covariance.map(|kind| format!("covariance {kind}")));
    parts.extend(coverage.weight.map(|kind| format!("weight {kind}")));
    parts.extend(coverage.quantiles.then(|| "quantiles".to_owned()));
    parts.extend(coverage.grad_output.then(|| "gradients".to_owned()));
    parts.extend(coverage.cross_cov.then(|| "cross".to_owned()));
    parts.extend((coverage.heldout_rows > 0).then(|| format!("{} held-out rows", coverage.heldout_rows)));
    parts.join(", ")
}
