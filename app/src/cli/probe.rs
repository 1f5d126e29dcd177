//! `loka probe`: a trace in, a results file out.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use loka_core::{
    bench::{BenchEvent, KernelDb, Latencies, MIN_SITE_SAMPLES, Measurement, devices, measure, of_device, shapes_of},
    dispatch::{Policy, judge},
    engine::{self, Control, DeviceMemory, Engine, TimeOptions},
    model::{
        Gemm, Kernel, KernelId, KernelRecord, ModSet, ResultRow, Results, ResultsMeta, Runtime, Safety, Site, SiteId,
        SiteMods, SiteTimes, catalogue,
    },
    mods,
    parts::PartOf,
    probe::{AtRows, LatencyOf, ProbeConfig, ProbeEvent, SiteSource, probe},
    stats::SamplerKind,
    tables::{read_kernels, write_results},
    trace::Trace,
};
use serde::Serialize;
use serde_json::json;

use crate::{
    cluster::digest_of_mods,
    files, probing,
    store::{self, PartStore},
};

mod on_cluster;
mod part;

use super::{
    draws,
    output::{self, Outcome, TextTable, short},
    patterns::{self, globs, matches},
    sites,
};

#[derive(clap::Args, Debug)]
pub struct ProbeArgs {
    /// A trace file or a folder of shards; a URL of one where this build knows stores.
    trace: PathBuf,
    /// The results to write, *.results.parquet; with --part the folder of the parts, or its URL.
    #[arg(long)]
    out: PathBuf,
    /// One part of a probe that is split, such as 3/40: it is written into the folder --out under a name of its own,
    /// unless it is there already. `loka merge` joins all of them.
    #[arg(long, value_name = "PART/PARTS", conflicts_with = "measure")]
    part: Option<PartOf>,
    /// Refuse to run on another device than one whose name has this in it, such as H200.
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// Who runs the draws; auto: CUDA where it works, else the CPU, which emulates; cluster: the nodes of a Ray cluster,
    /// which RAY_ADDRESS names or `ray start` began here. Parts are kept beside the trace, in NAME.parts.
    #[arg(long, default_value = "auto", value_parser = ["auto", "cpu", "cuda", "cluster"])]
    engine: String,
    /// A kernel database of `loka bench` to take latencies from before the built-in ones; may be given again.
    #[arg(long = "latencies", value_name = "FILE")]
    latencies: Vec<PathBuf>,
    /// Time every GEMM on this machine's GPU first, and compare with that (CUDA only); and whole sites, by a Python with
    /// PyTorch.
    #[arg(long)]
    measure: bool,
    /// Run the kernels of PyTorch, TorchAO, DeepGEMM, FBGEMM and Transformer Engine by these libraries, as far as
    /// the Python has them, instead of their numerics by cuBLASLt (CUDA only).
    #[arg(long)]
    libraries: bool,
    /// The Python whose libraries those are, and that trains; with --engine cluster the one that has Ray.
    #[arg(long, default_value = "python3")]
    python: PathBuf,
    /// As if a step had so many rows: sites with several rows an example keep as many each. Statistics do not depend on
    /// it; scales of whole tensors, MERE and latencies do.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rows: Option<u32>,
    /// Where --measure times whole sites: launched and graph, which one measurement gives, or inference; may be given again.
    #[arg(long = "runtime", requires = "measure", default_value = "launched")]
    runtimes: Vec<Runtime>,
    /// Of timing whole sites, at most: the largest come first, and what is left the plan models.
    #[arg(long, value_name = "N", requires = "measure", value_parser = minutes)]
    minutes: Option<Duration>,
    /// A table of `loka bench --sites` to plan by; may be given again.
    #[arg(long = "sites-times", value_name = "FILE")]
    sites_times: Vec<PathBuf>,
    /// Only sites that match; may be given again.
    #[arg(long = "sites", value_name = "GLOB")]
    sites: Vec<String>,
    /// Only kernels that match, e.g. 'cublaslt/*'; may be given again.
    #[arg(long = "kernels", value_name = "GLOB")]
    kernels: Vec<String>,
    /// Probe the model as it is and with these mods: no_bias,block_norm,hard_swish.
    #[arg(long, default_value = "")]
    mods: ModSet,
    /// Probe the model with the mods of this file alone, which may differ between sites.
    #[arg(long, value_name = "FILE", hide = true, requires = "part", conflicts_with = "mods")]
    site_mods: Option<PathBuf>,
    /// Draws of each GEMM before an interval may end it: 16, or fewer where --max-draws says so.
    #[arg(long, value_parser = clap::value_parser!(u64).range(2..=100_000))]
    min_draws: Option<u64>,
    /// Draws of each GEMM at most: 64, or more where --min-draws says so.
    #[arg(long, value_parser = clap::value_parser!(u64).range(2..=100_000))]
    max_draws: Option<u64>,
    #[arg(long, default_value_t = 0.95)]
    confidence: f64,
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// How inputs are drawn: copula (through recorded quantiles) or gaussian.
    #[arg(long, default_value = "copula")]
    sampler: SamplerKind,
    /// Threads; 0: one a core. The results do not depend on it.
    #[arg(long, default_value_t = 0)]
    threads: usize,
    /// Tell progress on stderr, a line of JSON each, for the program that started this one.
    #[arg(long)]
    progress: bool,
}

type RowKey = (SiteId, Gemm, KernelId, ModSet);

pub fn run(args: &ProbeArgs, json: bool) -> anyhow::Result<Outcome> {
    let is_on_cluster = args.engine == engine::cluster::NAME;
    if is_on_cluster {
        on_cluster::check(args)?;
    }
    let mut config = config(args)?;
    let databases = args.latencies.iter().map(|path| read_kernels(path)).collect::<Result<Vec<_>, _>>()?;
    let given = args.sites_times.iter().map(|path| sites::read(path)).collect::<anyhow::Result<Vec<_>>>()?;
    let opened = store::open_trace(&args.trace)?;
    let trace = &opened.trace;
    let chosen = chosen_sites(args, trace)?;
    let source = AtRows::new(trace, args.rows.map(|rows| rows as usize))
        .map_err(|error| anyhow::anyhow!("{error}: {}", args.trace.display()))?;
    let place = args.part.map(|_| PartStore::of(&args.out)).transpose()?;
    match &place {
        Some(place) => place.check_writable()?,
        None => files::check_writable(&args.out)?,
    }
    if args.part.is_none() {
        tell_fixed(&source.sites(), &chosen);
    }
    if is_on_cluster {
        return on_cluster::run(args, trace, &source.sites(), &chosen, json);
    }
    let passes = Passes::of(args)?;
    let engine = open_engine(args)?;
    // Not before the input was found good: an error is one line.
    if args.engine == "auto" {
        output::note(&probing::engine_line(engine.as_ref()));
    }
    if let (Some(part), Some(place)) = (args.part, place) {
        config.latency = latencies(args, databases, engine.as_ref(), &source, &chosen)?;
        let times = sites::merged(given)?;
        return part::run(
            args,
            &part::PartWork { trace, source: &source, chosen: &chosen, part, place, times, passes: &passes },
            engine.as_ref(),
            &config,
            json,
        );
    }
    config.latency = latencies(args, databases, engine.as_ref(), &source, &chosen)?;
    let mut meta = probing::results_meta(trace, trace.digest(), engine.as_ref(), &config);
    meta.manifest.sites = source.sites();
    let timed = if args.measure { measured_sites(args, &source, &chosen)? } else { Vec::new() };
    meta.site_times = sites::merged(given.into_iter().chain(timed))?;
    let started = Instant::now();
    let (results, lost) = probed(args, meta, &source, &chosen, engine.as_ref(), &config, &passes.mods);
    if let (true, Some((_, reason))) = (results.rows.is_empty(), results.meta.problems.first()) {
        anyhow::bail!("no site could be probed: {}", lost.as_ref().unwrap_or(reason));
    }
    write_results(&args.out, &results)?;
    if json {
        print_json(&results, engine.memory())?;
    } else {
        print_summary(&results, &sets_of(args), started, args);
        if let Some(memory) = engine.memory() {
            let mb = |bytes: u64| bytes / 1_000_000;
            output::line(&format!("GPU memory: {} MB at most, of {} MB", mb(memory.peak), mb(memory.total)));
        }
    }
    Ok(Outcome::Done)
}

/// The mods of each pass over the sites, and how a part's key names them.
struct Passes {
    mods: Vec<SiteMods>,
    names: Vec<String>,
}

impl Passes {
    /// The model as it is, and with the mods that were asked for; or with those of a file alone.
    fn of(args: &ProbeArgs) -> anyhow::Result<Self> {
        if let Some(path) = &args.site_mods {
            let text = std::fs::read(path)
                .map_err(|error| anyhow::anyhow!("{}: {}", files::reason(&error), path.display()))?;
            let mods: SiteMods = serde_json::from_slice(&text)
                .map_err(|error| anyhow::anyhow!("no mods of sites ({error}): {}", path.display()))?;
            return Ok(Self { names: vec![digest_of_mods(&mods)], mods: vec![mods] });
        }
        let sets = sets_of(args);
        Ok(Self {
            names: sets.iter().map(ToString::to_string).collect(),
            mods: sets.into_iter().map(Into::into).collect(),
        })
    }
}

fn sets_of(args: &ProbeArgs) -> Vec<ModSet> {
    if args.mods.is_empty() { vec![ModSet::none()] } else { vec![ModSet::none(), args.mods.clone()] }
}

/// The rows of `chosen` sites, with what could not be probed; and why the engine went, where it did. `meta` says what it
/// is of.
fn probed(
    args: &ProbeArgs,
    meta: ResultsMeta,
    source: &AtRows<'_>,
    chosen: &[SiteId],
    engine: &dyn Engine,
    config: &ProbeConfig,
    passes: &[SiteMods],
) -> (Results, Option<String>) {
    let (started, found) = (Instant::now(), Mutex::new(Found::default()));
    for (index, mods) in passes.iter().enumerate() {
        let config = ProbeConfig { mods: mods.clone(), ..config.clone() };
        let sink = |event| take(event, &found, started, (index, passes.len()), args.progress);
        probe(source, chosen, engine, &config, &Control::new(), &sink);
    }
    output::progress_done();
    let found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    let mut results = Results { meta, rows: found.rows.into_values().collect() };
    for (site, reason) in found.problems {
        output::note(&format!("warning: {site} cannot be used: {reason}"));
        if !results.meta.problems.iter().any(|(known, _)| *known == site) {
            results.meta.problems.push((site, reason));
        }
    }
    results.in_order();
    (results, found.lost)
}

/// Sites of a note that are named.
const TOLD: usize = 3;

/// Errors of these are worth knowing, and no plan will use them.
fn tell_fixed(sites: &[Site], chosen: &[SiteId]) {
    let fixed: Vec<String> = sites
        .iter()
        .filter(|site| chosen.contains(&site.id))
        .filter_map(|site| {
            Some(format!("{} is probed, and stays in high precision in a plan: {}", site.id, site.fixed()?))
        })
        .collect();
    fixed.iter().take(TOLD).for_each(|line| output::note(&format!("note: {line}")));
    if fixed.len() > TOLD {
        output::note(&format!("note: the same of {} more sites", fixed.len() - TOLD));
    }
}

#[derive(Default)]
struct Found {
    rows: BTreeMap<RowKey, ResultRow>,
    problems: BTreeMap<SiteId, String>,
    /// Why the engine is gone.
    lost: Option<String>,
}

/// `tells`: as JSON, whoever reads it.
fn take(event: ProbeEvent, found: &Mutex<Found>, started: Instant, (pass, passes): (usize, usize), tells: bool) {
    match event {
        ProbeEvent::Rows(rows) => {
            let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
            for row in rows {
                found.rows.insert((row.site.clone(), row.gemm, row.kernel.clone(), row.mods.clone()), row);
            }
        }
        ProbeEvent::Problem(site, reason) => {
            found.lock().unwrap_or_else(PoisonError::into_inner).problems.insert(site, reason);
        }
        ProbeEvent::Lost(reason) => {
            output::note(&format!("warning: the engine stopped working: {reason}"));
            found.lock().unwrap_or_else(PoisonError::into_inner).lost = Some(reason);
        }
        ProbeEvent::Progress(done) => {
            let done = (pass as f64 + done) / passes as f64;
            let seconds = started.elapsed().as_secs_f64();
            if tells {
                output::note(&json!({"progress": done, "seconds": seconds}).to_string());
                return;
            }
            let left =
                if done > 0.02 { format!(" · {:.0} s left", seconds * (1.0 - done) / done) } else { String::new() };
            output::progress(&format!("probing {:.0} %{left}", 100.0 * done));
        }
    }
}

fn open_engine(args: &ProbeArgs) -> anyhow::Result<Arc<dyn Engine>> {
    let engine = engine::open(&args.engine)
        .map_err(|error| anyhow::anyhow!("{error}; --engine cpu emulates every kernel instead"))?;
    if args.measure && engine.describe().name != "cuda" {
        let reason = probing::why_no_cuda().unwrap_or_else(|| "--engine cpu was asked for".to_owned());
        anyhow::bail!("--measure needs the CUDA engine: {reason}");
    }
    if let Some(wanted) = &args.device {
        probing::check_device(&engine.describe().device, wanted)?;
    }
    if args.libraries {
        probing::load_libraries(&args.python)?;
    }
    Ok(engine)
}

/// What the rows say of speed: measured here, then the given databases, then the built-in ones.
fn latencies(
    args: &ProbeArgs,
    databases: Vec<KernelDb>,
    engine: &dyn Engine,
    source: &AtRows<'_>,
    chosen: &[SiteId],
) -> anyhow::Result<LatencyOf> {
    if databases.is_empty() && !args.measure {
        return Ok(probing::recorded_latencies());
    }
    let databases = of_here(args, databases, engine)?;
    let all: Vec<KernelDb> = databases.into_iter().chain(KernelDb::builtin()).collect();
    let known = Latencies::new(&all);
    if !args.measure {
        return Ok(probing::latencies_of(known));
    }
    let sites: Vec<Site> = source.sites().into_iter().filter(|site| chosen.contains(&site.id)).collect();
    let records = measured(engine, &sites, &patterns::kernels(&args.kernels)?, args.libraries)?;
    Ok(probing::latencies_of(known.with_measured(&records)))
}

/// Of a fleet's database the times of the device here: those of two devices are not one.
fn of_here(args: &ProbeArgs, databases: Vec<KernelDb>, engine: &dyn Engine) -> anyhow::Result<Vec<KernelDb>> {
    let is_fleet = |database: &KernelDb| devices(std::slice::from_ref(database)).len() > 1;
    let Some(at) = databases.iter().position(is_fleet) else { return Ok(databases) };
    let file = args.latencies.get(at).map(|path| path.display().to_string()).unwrap_or_default();
    let info = engine.describe();
    anyhow::ensure!(
        info.name == "cuda",
        "there are times of {}: probe without it, and choose by loka plan --device NAME --latencies FILE: {file}",
        devices(&databases).join(", ")
    );
    let (_, own) = of_device(databases, &info.device).map_err(|error| anyhow::anyhow!("{error}: {file}"))?;
    Ok(own)
}

/// Of a number above 0, such as .5.
pub fn minutes(text: &str) -> Result<Duration, String> {
    let minutes = text.parse::<f64>().ok().filter(|minutes| *minutes > 0.0);
    let duration = minutes.and_then(|minutes| Duration::try_from_secs_f64(60.0 * minutes).ok());
    duration.ok_or_else(|| "a number of minutes above 0".to_owned())
}

/// By the usual kernels: each that is named more takes a minute or so a shape (`loka bench --sites --kernels`). A Python
/// that cannot time sites is no reason not to probe.
fn measured_sites(args: &ProbeArgs, source: &AtRows<'_>, chosen: &[SiteId]) -> anyhow::Result<Vec<SiteTimes>> {
    let of_trace: Vec<Site> = source.sites().into_iter().filter(|site| chosen.contains(&site.id)).collect();
    let mut tables = Vec::new();
    let ends = args.minutes.and_then(|limit| Instant::now().checked_add(limit));
    let mut asked: Vec<Runtime> = Vec::new();
    for runtime in &args.runtimes {
        if asked.contains(&runtime.timed_as()) {
            continue;
        }
        asked.push(runtime.timed_as());
        let named = fused_where_served(*runtime, &of_trace, &sets_of(args));
        match sites::time(&args.python, (&shapes_of(&of_trace), &named), *runtime, MIN_SITE_SAMPLES, ends) {
            Ok(times) => {
                output::note(&sites::summary(&times));
                tables.push(times);
            }
            Err(error) => output::note(&format!("sites were not timed {runtime}: {error}")),
        }
    }
    Ok(tables)
}

/// Kernels with a tail inside, where some site has that tail. In training their times are not taken yet.
fn fused_where_served(runtime: Runtime, sites: &[Site], sets: &[ModSet]) -> Vec<&'static Kernel> {
    let fits = |kernel: &Kernel| {
        sites.iter().any(|site| sets.iter().any(|mods| mods::fits(kernel, Gemm::Fprop, site, mods).is_ok()))
    };
    let fused = catalogue().iter().filter(|kernel| runtime == Runtime::Inference && kernel.has_tail());
    fused.filter(|kernel| fits(kernel)).collect()
}

fn measured(
    engine: &dyn Engine,
    sites: &[Site],
    kernels: &[&'static Kernel],
    libraries: bool,
) -> anyhow::Result<Vec<KernelRecord>> {
    let native: Vec<&'static Kernel> =
        kernels.iter().copied().filter(|kernel| libraries || kernel.is_native()).collect();
    let (shapes, now) = (shapes_of(sites), probing::now_rfc3339());
    let what = Measurement {
        shapes: &shapes,
        gemms: &Gemm::ALL,
        kernels: &native,
        options: TimeOptions::default(),
        recorded_at: &now,
    };
    let records = RefCell::new(Vec::new());
    let sink = |event| match event {
        BenchEvent::Records(new) => records.borrow_mut().extend(new),
        BenchEvent::Progress { done, of } => output::progress(&format!("timing {done} of {of}")),
        BenchEvent::Problem { gemm, shape, reason } => {
            output::note(&format!("warning: {gemm} {} x {} x {} was not timed: {reason}", shape.m, shape.k, shape.n));
        }
    };
    measure(engine, &what, &Control::new(), &sink)?;
    output::progress_done();
    Ok(records.into_inner())
}

fn config(args: &ProbeArgs) -> anyhow::Result<ProbeConfig> {
    anyhow::ensure!(
        args.confidence > 0.0 && args.confidence < 1.0,
        "the confidence must lie between 0 and 1, not {}",
        args.confidence
    );
    let (min_draws, max_draws) = draws::bounds(args.min_draws, args.max_draws)?;
    Ok(ProbeConfig {
        kernels: patterns::kernels(&args.kernels)?,
        min_draws,
        max_draws,
        confidence: args.confidence,
        seed: args.seed,
        sampler: args.sampler,
        threads: args.threads,
        ..ProbeConfig::default()
    })
}

fn chosen_sites(args: &ProbeArgs, trace: &Trace) -> anyhow::Result<Vec<SiteId>> {
    let wanted = globs(&args.sites)?;
    let ids = trace.sites().iter().map(|entry| entry.site.id.clone());
    let chosen: Vec<SiteId> = ids.filter(|id| matches(&wanted, id.as_str())).collect();
    anyhow::ensure!(!chosen.is_empty(), "no site matches {}: {}", args.sites.join(", "), args.trace.display());
    Ok(chosen)
}

/// A row as it is printed: with what the file has of it beside.
#[derive(Serialize)]
struct JsonRow<'a> {
    #[serde(flatten)]
    row: &'a ResultRow,
    /// As the column of that name; false: the loss cost means nothing.
    loss_cost_in_range: bool,
}

fn print_json(results: &Results, memory: Option<DeviceMemory>) -> anyhow::Result<()> {
    let loss = results.meta.manifest.loss.value;
    for row in &results.rows {
        output::json(&JsonRow { row, loss_cost_in_range: !row.is_loss_cost_out_of_range(loss) })?;
    }
    output::json(&json!({"num_rows": results.rows.len(), "problems": results.meta.problems, "gpu_memory": memory}))
}

fn print_summary(results: &Results, passes: &[ModSet], started: Instant, args: &ProbeArgs) {
    let (policy, loss) = (Policy::default(), results.meta.manifest.loss.value);
    output::line(&format!("Verdicts by the policy {}, the default of loka plan:", policy.name));
    for mods in passes {
        if !mods.is_empty() {
            output::line("");
            output::line(&format!("with {mods}. {}", loka_core::mods::MUST_BE_TRAINED));
        }
        let mut table = TextTable::new(&[
            "kernel",
            ">safe",
            ">uncertain",
            ">unsafe",
            ">unsupported",
            ">median MERE",
            ">median rel L2",
            "worst GEMM",
        ]);
        for kernel in catalogue() {
            let rows: Vec<&ResultRow> =
                results.rows.iter().filter(|row| row.mods == *mods && row.kernel == kernel.id()).collect();
            if rows.is_empty() {
                continue;
            }
            let count =
                |safety| rows.iter().filter(|row| row.error.is_some() && judge(row, &policy, loss).0 == safety).count();
            let mut errors: Vec<(&ResultRow, f64)> =
                rows.iter().filter_map(|row| Some((*row, row.error.as_ref()?.mere.value))).collect();
            errors.sort_by(|a, b| a.1.total_cmp(&b.1));
            let median = |values: Vec<f64>| values.get(values.len() / 2).map_or("-".to_owned(), |value| short(*value));
            let mut l2: Vec<f64> = rows.iter().filter_map(|row| Some(row.error.as_ref()?.rel_l2.value)).collect();
            l2.sort_by(f64::total_cmp);
            table.row([
                kernel.name.to_owned(),
                count(Safety::Safe).to_string(),
                count(Safety::Uncertain).to_string(),
                count(Safety::Unsafe).to_string(),
                rows.iter().filter(|row| !row.supported).count().to_string(),
                median(errors.iter().map(|(_, error)| *error).collect()),
                median(l2),
                errors
                    .last()
                    .map_or(String::new(), |(row, error)| format!("{} {} {}", row.site, row.gemm, short(*error))),
            ]);
        }
        table.print();
    }
    output::line("");
    print_fidelity(results);
    let draws: u64 = results.rows.iter().filter_map(|row| row.error.as_ref()).map(|error| error.draws).sum();
    output::line(&format!(
        "{} rows, {draws} draws of kernels, {:.1} s: {}",
        results.rows.len(),
        started.elapsed().as_secs_f64(),
        args.out.display()
    ));
    output::line(&format!("next: loka plan {0} --out P.plan.json, or look at it: loka open {0}", args.out.display()));
}

/// How far errors on sampled rows are from those on the trace's held-out rows.
fn print_fidelity(results: &Results) {
    let ratio = |row: &ResultRow| {
        let low = !loka_core::model::kernel(row.kernel.as_str())?.high_precision();
        let (error, fidelity) = (row.error.as_ref()?, row.fidelity?);
        (low && fidelity.heldout_rel_l2 > 0.0).then(|| (error.rel_l2.value / fidelity.heldout_rel_l2).ln().abs())
    };
    let mut ratios: Vec<f64> = results.rows.iter().filter_map(ratio).collect();
    ratios.sort_by(f64::total_cmp);
    match (ratios.get(ratios.len() / 2), ratios.last()) {
        (Some(median), Some(worst)) => output::line(&format!(
            "sampled against held-out rows: rel L2 differs by {:.1} % (median), {:.0} % (worst), over {} rows",
            100.0 * (median.exp() - 1.0),
            100.0 * (worst.exp() - 1.0),
            ratios.len()
        )),
        _ => output::line("the trace has no held-out rows: how faithful the sampler is cannot be said"),
    }
}
