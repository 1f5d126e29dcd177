//! `loka watch`: snapshots of a model in training against the plan that it runs.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use loka_core::{
    dispatch::judge,
    engine::{self, Control, Engine},
    model::{FileMagic, Gemm, Kernel, KernelId, ResultRow, Results, Safety, SiteId, catalogue},
    plan::Plan,
    probe::{AtRows, ProbeConfig, ProbeEvent, probe},
    tables::write_results,
    trace::Trace,
    watch::{DriftEvidence, Observed, SnapshotFigures, WatchState, canary_check, error_evidence, range_evidence},
};
use serde_json::{Value, json};

use crate::{
    beside::beside,
    files::{self, WATCHED_ROWS},
    probing,
    provenance::results_meta,
};

use super::{
    draws,
    output::{self, Outcome},
};

#[derive(clap::Args, Debug)]
pub struct WatchArgs {
    /// The folder that snapshots come into: traces, or folders of shards.
    traces: PathBuf,
    /// The plan that the model runs.
    #[arg(long)]
    plan: PathBuf,
    /// The trace that the plan was made from, to hold ranges against; by default it is looked for among the snapshots.
    #[arg(long, value_name = "TRACE")]
    reference: Option<PathBuf>,
    /// Look at what is there, and end: exit 1 where an alarm stands.
    #[arg(long)]
    once: bool,
    /// Seconds between two looks at the folder.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..))]
    every: u64,
    /// What is remembered from one look to the next; by default beside the plan.
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// Figures for Prometheus' node exporter, written anew after each snapshot and where an alarm of --health-log
    /// begins or ends.
    #[arg(long, value_name = "FILE")]
    prometheus: Option<PathBuf>,
    /// A log that training's canary appends to (`loka.apply(..., health_log=FILE)`); may be given again, one a rank.
    #[arg(long, value_name = "FILE")]
    health_log: Vec<PathBuf>,
    /// A command of the shell for when alarms begin or end: it gets the line that --json prints on its standard input.
    #[arg(long, value_name = "COMMAND")]
    on_alarm: Option<String>,
    /// Leave the rows of each snapshot beside it, as NAME.watched.results.parquet: the workbench shows the run's checkpoints by them.
    #[arg(long)]
    keep_rows: bool,
    /// An amax that moved by less than this, up or down, is no drift.
    #[arg(long, default_value_t = 1.5)]
    factor: f64,
    /// Of all alarms at a snapshot, the share that may be false.
    #[arg(long, default_value_t = 0.005)]
    false_alarms: f64,
    /// Who runs the draws; auto: CUDA where it works, else the CPU.
    #[arg(long, default_value = "auto", value_parser = ["auto", "cpu", "cuda"])]
    engine: String,
    /// Draws of each GEMM at most.
    #[arg(long, value_parser = clap::value_parser!(u64).range(2..=100_000))]
    max_draws: Option<u64>,
    /// Threads; 0: one a core.
    #[arg(long, default_value_t = 0)]
    threads: usize,
}

type Rows = BTreeMap<(SiteId, Gemm, KernelId), ResultRow>;

/// How far an amax moves from step to step where a trace has too few to say, in octaves: a fifth.
const USUAL_OCTAVES: f64 = 0.25;

/// What a trace is called.
const ENDING: &str = ".trace.safetensors";

pub fn run(args: &WatchArgs, json: bool) -> anyhow::Result<Outcome> {
    anyhow::ensure!(args.factor > 1.0, "--factor must be above 1, not {}", args.factor);
    let share = args.false_alarms;
    anyhow::ensure!(share > 0.0 && share < 1.0, "--false-alarms must lie between 0 and 1, not {share}");
    let text = files::read_document(&args.plan, "a plan", FileMagic::Plan)?;
    let plan = Plan::from_json(&text).map_err(|error| anyhow::anyhow!("{error}: {}", args.plan.display()))?;
    let chosen: Vec<Chosen> = chosen_of(&plan);
    anyhow::ensure!(!chosen.is_empty(), "nothing to watch: the plan has BF16 everywhere: {}", args.plan.display());
    anyhow::ensure!(args.traces.is_dir(), "no such folder: {}", args.traces.display());
    let state = args.state.clone().unwrap_or_else(|| beside_plan(&args.plan));
    let (draws_at_least, draws_at_most) = draws::bounds(None, args.max_draws)?;
    let mut watch = match std::fs::read_to_string(&state) {
        Ok(text) => WatchState::from_json(&text, &plan.digest)
            .map_err(|problem| anyhow::anyhow!("{problem}: {}", state.display()))?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => WatchState::new(&plan.digest),
        Err(error) => anyhow::bail!("{}: {}", files::reason(&error), state.display()),
    };
    files::check_writable(&state)?;
    if let Some(path) = &args.prometheus {
        files::check_writable(path)?;
    }
    let engine = engine::open(&args.engine)?;
    if args.engine == "auto" {
        output::note(&probing::engine_line(engine.as_ref()));
    }
    let config = ProbeConfig {
        kernels: kernels_of(chosen.iter().map(|chosen| &chosen.kernel)),
        mods: plan.site_mods(),
        min_draws: draws_at_least,
        max_draws: draws_at_most,
        threads: args.threads,
        ..ProbeConfig::default()
    };
    let reference = args.reference.as_ref().map(|path| Trace::open(path)).transpose()?;
    let mut looking = Looking {
        args,
        plan: &plan,
        chosen: &chosen,
        engine: engine.as_ref(),
        config,
        reference,
        refused: BTreeSet::new(),
        json,
    };
    loop {
        let seen = watch.seen.len();
        looking.look(&mut watch, &state)?;
        looking.read_logs(&mut watch, &state)?;
        if args.once {
            if watch.seen.len() == seen && !json {
                let folder = args.traces.display();
                output::line(&format!("no new snapshot, {seen} looked at before, {}: {folder}", standing(&watch)));
            }
            let is_well = watch.alarms.is_empty() && looking.refused.is_empty();
            return Ok(if is_well { Outcome::Done } else { Outcome::Failed });
        }
        std::thread::sleep(Duration::from_secs(args.every));
    }
}

/// A GEMM whose plan is below BF16.
struct Chosen {
    site: SiteId,
    gemm: Gemm,
    kernel: KernelId,
    runners_up: Vec<KernelId>,
}

fn chosen_of(plan: &Plan) -> Vec<Chosen> {
    plan.choices()
        .filter(|(_, _, choice)| choice.kernel.is_low_precision())
        .map(|(site, gemm, choice)| Chosen {
            site: site.clone(),
            gemm,
            kernel: choice.kernel.clone(),
            runners_up: choice.runners_up.clone(),
        })
        .collect()
}

/// Those and BF16, beyond whose loss cost others are charged.
fn kernels_of<'a>(names: impl Iterator<Item = &'a KernelId>) -> Vec<&'static Kernel> {
    let names: BTreeSet<&str> = names.map(KernelId::as_str).chain(["cublaslt/bf16"]).collect();
    catalogue().iter().filter(|kernel| names.contains(kernel.name)).collect()
}

/// `P.watch.json` beside `P.plan.json`.
fn beside_plan(plan: &Path) -> PathBuf {
    let name = plan.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let stem = name.strip_suffix(".plan.json").or_else(|| name.strip_suffix(".json")).unwrap_or(&name).to_owned();
    plan.with_file_name(format!("{stem}.watch.json"))
}

struct Looking<'a> {
    args: &'a WatchArgs,
    plan: &'a Plan,
    chosen: &'a [Chosen],
    engine: &'a dyn Engine,
    config: ProbeConfig,
    /// The run that was planned, or the first that was seen.
    reference: Option<Trace>,
    /// Files that are no snapshots of this plan's model, as they were: one that is copied here may be whole later.
    refused: BTreeSet<(PathBuf, Option<SystemTime>)>,
    json: bool,
}

impl Looking<'_> {
    /// Every snapshot that was not seen, in order of its step.
    fn look(&mut self, watch: &mut WatchState, state: &Path) -> anyhow::Result<()> {
        let mut found = Vec::new();
        for path in snapshots_in(&self.args.traces)? {
            if self.refused.contains(&as_it_is(&path)) {
                continue;
            }
            match Trace::open(&path) {
                Ok(trace) if is_whole(&trace, &path) => found.push((path, trace)),
                // Its other ranks are on their way.
                Ok(_) => {}
                Err(error) if error.lacks_weights() && path.is_dir() => {}
                Err(error) => self.refuse(&path, &error.cause()),
            }
        }
        found.sort_by_key(|(path, trace)| (trace.manifest().run.step, path.clone()));
        if self.reference.is_none() {
            let planned = found.iter().find(|(_, trace)| trace.digest() == self.plan.trace_digest);
            self.reference = planned.map(|(_, trace)| trace.clone());
            if self.reference.is_none()
                && let Some((path, first)) = found.first()
            {
                output::note(&format!(
                    "warning: the trace that was planned is not here (--reference names it): ranges are held against {}",
                    path.display()
                ));
                self.reference = Some(first.clone());
            }
        }
        for (path, trace) in found {
            let digest = trace.digest();
            if watch.has_seen(&digest) || self.reference.as_ref().is_some_and(|of| of.digest() == digest) {
                continue;
            }
            match self.fits(&trace) {
                Ok(()) => self.snapshot(watch, state, &trace, &digest)?,
                Err(problem) => self.refuse(&path, &problem),
            }
        }
        Ok(())
    }

    fn refuse(&mut self, path: &Path, problem: &str) {
        output::note(&format!("warning: not looked at: {problem}: {}", path.display()));
        self.refused.insert(as_it_is(path));
    }

    fn fits(&self, trace: &Trace) -> Result<(), String> {
        for planned in &self.plan.sites {
            let Some(entry) = trace.site(&planned.site) else {
                return Err(format!("the plan's site {} is not in it", planned.site));
            };
            let (k, n) = (entry.site.k, entry.site.n);
            if planned.k.is_some_and(|of| of != k) || planned.n.is_some_and(|of| of != n) {
                return Err(format!("{} is {k} x {n} here, the plan has another shape", planned.site));
            }
        }
        Ok(())
    }

    fn snapshot(&self, watch: &mut WatchState, state: &Path, trace: &Trace, digest: &str) -> anyhow::Result<()> {
        let started = Instant::now();
        // Draws of their own: two snapshots that agree have to agree by what they recorded, not by chance.
        let seed = u64::from_str_radix(digest.trim_start_matches("sha256:").get(..16).unwrap_or("0"), 16).unwrap_or(0);
        let config = ProbeConfig { seed, ..self.config.clone() };
        let sites: BTreeSet<&SiteId> = self.chosen.iter().map(|chosen| &chosen.site).collect();
        let sites: Vec<SiteId> =
            self.plan.sites.iter().map(|site| &site.site).filter(|site| sites.contains(site)).cloned().collect();
        let rows = self.rows(trace, &sites, &config)?;
        if self.args.keep_rows {
            self.keep(trace, digest, &config, &rows);
        }
        let (loss, confidence) = (trace.manifest().loss.value, config.confidence);
        let errors = self.chosen.iter().filter_map(|chosen| {
            let row = rows.get(&(chosen.site.clone(), chosen.gemm, chosen.kernel.clone()))?;
            error_evidence(row, &self.plan.policy, loss, confidence)
        });
        let evidence: Vec<DriftEvidence> = errors.chain(self.ranges(trace)).collect();
        let observed = watch.observe(trace.name(), digest, &evidence, self.args.false_alarms);
        let instead = self.instead(trace, &observed, &config)?;
        let seconds = started.elapsed().as_secs_f64();
        let (step, num_tests) = (trace.manifest().run.step, observed.num_tests);
        watch.figures = Some(SnapshotFigures { step, num_tests, seconds });
        // Kept before it is told: whoever is told twice is told the same.
        keep_state(watch, state)?;
        self.write_figures(watch)?;
        self.tell(watch, trace, digest, &observed, &instead, seconds)
    }

    /// What training's canary has seen since the last look.
    fn read_logs(&self, watch: &mut WatchState, state: &Path) -> anyhow::Result<()> {
        for path in &self.args.health_log {
            let name = path.display().to_string();
            let from = watch.logs.get(&name).copied().unwrap_or(0);
            let (lines, to) = match files::lines_from(path, from) {
                Ok(read) => read,
                // Training may not have begun.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(error) => anyhow::bail!("{}: {name}", files::reason(&error)),
            };
            let mut checks = Vec::new();
            for line in lines.lines() {
                match canary_check(line, &self.plan.digest) {
                    Ok(check) => checks.extend(check),
                    Err(problem) => output::note(&format!("warning: {problem}: {name}")),
                }
            }
            watch.logs.insert(name.clone(), to);
            let observed = watch.check(&checks);
            if to != from {
                keep_state(watch, state)?;
            }
            if !observed.is_quiet() {
                self.write_figures(watch)?;
                let told = json!({
                    "health_log": name, "num_tests": observed.num_tests, "began": began(watch, &observed, &BTreeMap::new()),
                    "ended": observed.ended, "standing": watch.alarms.len(),
                });
                self.alarm(&told);
                if self.json {
                    output::json(&told)?;
                } else {
                    output::line(&format!("{name}: {}", standing(watch)));
                    tell_alarms(watch, &observed, &BTreeMap::new());
                }
            }
        }
        Ok(())
    }

    fn write_figures(&self, watch: &WatchState) -> anyhow::Result<()> {
        let Some(path) = &self.args.prometheus else { return Ok(()) };
        files::write_atomically(path, prometheus(watch).as_bytes())
    }

    /// Somebody's command that fails is no reason to stop watching.
    fn alarm(&self, told: &Value) {
        let Some(command) = &self.args.on_alarm else { return };
        if let Err(problem) = run_with(command, &format!("{told}\n")) {
            output::note(&format!("warning: --on-alarm: {problem}"));
        }
    }

    /// A folder that takes no rows is no reason to stop watching.
    fn keep(&self, trace: &Trace, digest: &str, config: &ProbeConfig, rows: &Rows) {
        let path = beside(trace.file(), WATCHED_ROWS);
        let meta = results_meta(trace, digest.to_owned(), self.engine, config);
        let mut results = Results { meta, rows: rows.values().cloned().collect() };
        results.in_order();
        if let Err(error) = write_results(Path::new(&path), &results) {
            output::note(&format!("warning: its rows are not kept: {error}"));
        }
    }

    fn rows(&self, trace: &Trace, sites: &[SiteId], config: &ProbeConfig) -> anyhow::Result<Rows> {
        let source = AtRows::new(trace, None)?;
        let (found, lost) = (Mutex::new(BTreeMap::new()), Mutex::new(None));
        let sink = |event| match event {
            ProbeEvent::Rows(rows) => {
                let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                found.extend(rows.into_iter().map(|row| ((row.site.clone(), row.gemm, row.kernel.clone()), row)));
            }
            ProbeEvent::Problem(site, reason) => output::note(&format!("warning: {site} cannot be used: {reason}")),
            ProbeEvent::Lost(reason) => *lost.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason),
            ProbeEvent::Progress(done) => output::progress(&format!("{}: {:.0} %", trace.name(), 100.0 * done)),
        };
        probe(&source, sites, self.engine, config, &Control::new(), &sink);
        output::progress_done();
        if let Some(reason) = lost.into_inner().unwrap_or_else(PoisonError::into_inner) {
            anyhow::bail!("the engine stopped working: {reason}: {}", trace.file());
        }
        Ok(found.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// Of operands that are cast, where both runs recorded them.
    fn ranges(&self, trace: &Trace) -> Vec<DriftEvidence> {
        let Some(reference) = &self.reference else { return Vec::new() };
        let mut cast: BTreeMap<&SiteId, BTreeSet<&'static str>> = BTreeMap::new();
        for chosen in self.chosen {
            let operands = match chosen.gemm {
                Gemm::Fprop => ["x", "w"],
                Gemm::Dgrad => ["dy", "w"],
                Gemm::Wgrad => ["dy", "x"],
            };
            cast.entry(&chosen.site).or_default().extend(operands);
        }
        let mut evidence = Vec::new();
        for (site, operands) in cast {
            let [before, now] = [reference, trace].map(|trace| amax_of(trace, site));
            for operand in operands {
                let empty = Vec::new();
                let [before, now] = [&before, &now].map(|of| of.get(operand).unwrap_or(&empty).as_slice());
                evidence.extend(range_evidence((site, operand), [before, now], self.args.factor, USUAL_OCTAVES));
            }
        }
        evidence
    }

    /// Of alarms that begin with an error: the fastest runner-up that is safe at this snapshot.
    fn instead(
        &self,
        trace: &Trace,
        observed: &Observed,
        config: &ProbeConfig,
    ) -> anyhow::Result<BTreeMap<String, String>> {
        let began = |chosen: &&Chosen| observed.began.contains(&format!("{}:{} error", chosen.site, chosen.gemm));
        let alarmed: Vec<&Chosen> = self.chosen.iter().filter(began).collect();
        if alarmed.iter().all(|chosen| chosen.runners_up.is_empty()) {
            return Ok(BTreeMap::new());
        }
        let kernels = kernels_of(alarmed.iter().flat_map(|chosen| &chosen.runners_up));
        let sites: BTreeSet<SiteId> = alarmed.iter().map(|chosen| chosen.site.clone()).collect();
        let config = ProbeConfig { kernels, ..config.clone() };
        let rows = self.rows(trace, &sites.into_iter().collect::<Vec<_>>(), &config)?;
        let loss = trace.manifest().loss.value;
        let safe = |chosen: &Chosen| {
            let is_safe = |name: &&KernelId| {
                let row = rows.get(&(chosen.site.clone(), chosen.gemm, (*name).clone()));
                row.is_some_and(|row| judge(row, &self.plan.policy, loss).0 == Safety::Safe)
            };
            let found = chosen.runners_up.iter().find(is_safe)?;
            Some((format!("{}:{} error", chosen.site, chosen.gemm), found.to_string()))
        };
        Ok(alarmed.into_iter().filter_map(safe).collect())
    }

    fn tell(
        &self,
        watch: &WatchState,
        trace: &Trace,
        digest: &str,
        observed: &Observed,
        instead: &BTreeMap<String, String>,
        seconds: f64,
    ) -> anyhow::Result<()> {
        let step = trace.manifest().run.step;
        let told = json!({
            "snapshot": trace.name(), "digest": digest, "step": step, "num_tests": observed.num_tests,
            "began": began(watch, observed, instead), "ended": observed.ended, "standing": watch.alarms.len(),
            "seconds": seconds,
        });
        if !observed.is_quiet() {
            self.alarm(&told);
        }
        if self.json {
            return output::json(&told);
        }
        output::line(&format!(
            "{}, step {step}: {} tests of {} GEMMs, {}, {seconds:.1} s",
            trace.name(),
            observed.num_tests,
            self.chosen.len(),
            standing(watch)
        ));
        tell_alarms(watch, observed, instead);
        Ok(())
    }
}

fn keep_state(watch: &WatchState, state: &Path) -> anyhow::Result<()> {
    files::write_atomically(state, (serde_json::to_string_pretty(watch)? + "\n").as_bytes())
}

fn standing(watch: &WatchState) -> String {
    match watch.alarms.len() {
        0 => "no alarm".to_owned(),
        1 => "1 alarm stands".to_owned(),
        many => format!("{many} alarms stand"),
    }
}

/// The alarms that began, as JSON has them. `instead`: the kernel that is safe, by alarm.
fn began(watch: &WatchState, observed: &Observed, instead: &BTreeMap<String, String>) -> Vec<Value> {
    let alarm = |test: &String| json!({"test": test, "alarm": watch.alarms.get(test), "instead": instead.get(test)});
    observed.began.iter().map(alarm).collect()
}

fn tell_alarms(watch: &WatchState, observed: &Observed, instead: &BTreeMap<String, String>) {
    for test in &observed.began {
        if let Some(alarm) = watch.alarms.get(test) {
            let rather = instead.get(test).map_or(String::new(), |kernel| format!("; safe instead: {kernel}"));
            output::line(&format!(
                "  ALARM {test}: {} {}, at most {} expected{rather}",
                alarm.what,
                output::short(alarm.found),
                output::short(alarm.limit)
            ));
        }
    }
    observed.ended.iter().for_each(|test| output::line(&format!("  ended {test}")));
}

/// Runs a line of the shell with a text on its standard input, and waits for its end. `Err`: how it failed.
fn run_with(command: &str, text: &str) -> Result<(), String> {
    let mut shell = if cfg!(windows) { Command::new("cmd") } else { Command::new("sh") };
    shell.args([if cfg!(windows) { "/C" } else { "-c" }, command]).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut child = shell.spawn().map_err(|error| files::reason(&error))?;
    if let Some(mut input) = child.stdin.take() {
        // It may have ended without reading.
        drop(input.write_all(text.as_bytes()));
    }
    let ended = child.wait().map_err(|error| files::reason(&error))?;
    if ended.success() { Ok(()) } else { Err(format!("{ended}: {command}")) }
}

/// A file by its path and when it was changed.
fn as_it_is(path: &Path) -> (PathBuf, Option<SystemTime>) {
    (path.to_owned(), std::fs::metadata(path).and_then(|metadata| metadata.modified()).ok())
}

/// Traces, and folders of shards.
fn snapshots_in(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let failed = |error: std::io::Error| anyhow::anyhow!("{}: {}", files::reason(&error), folder.display());
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let has_shards = || {
            let entries = std::fs::read_dir(&path).into_iter().flatten().flatten();
            path.is_dir() && entries.map(|entry| entry.file_name()).any(|name| name.to_string_lossy().ends_with(ENDING))
        };
        if path.to_string_lossy().ends_with(ENDING) && path.is_file() || has_shards() {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

/// A folder has as many shards as the run had ranks that recorded, or says of no number.
fn is_whole(trace: &Trace, path: &Path) -> bool {
    if !path.is_dir() {
        return true;
    }
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let shards = entries.filter(|entry| entry.file_name().to_string_lossy().ends_with(ENDING)).count() as u64;
    shards >= trace.manifest().run.num_shards()
}

/// By recorded step where the trace has that, else of the whole run.
fn amax_of(trace: &Trace, site: &SiteId) -> BTreeMap<&'static str, Vec<f32>> {
    const SERIES: [(&str, &str); 3] = [("x", "input_amax"), ("w", "weight_amax"), ("dy", "grad_amax")];
    let series = trace.site_series(site).unwrap_or_default();
    let by_step = SERIES.into_iter().filter_map(|(operand, name)| {
        let found = series.iter().find(|series| series.name == name && !series.values.is_empty())?;
        Some((operand, found.values.clone()))
    });
    let mut amax: BTreeMap<&'static str, Vec<f32>> = by_step.collect();
    if amax.len() < SERIES.len()
        && let Ok(stats) = trace.site_stats(site)
    {
        let grads = stats.grad_output.as_ref().and_then(|grads| grads.amax);
        for (operand, value) in [("x", stats.input.amax), ("w", stats.weight_amax), ("dy", grads)] {
            if let Some(value) = value {
                amax.entry(operand).or_insert_with(|| vec![value as f32]);
            }
        }
    }
    amax
}

/// The text format of Prometheus, for a textfile collector. Before the first snapshot there is nothing of a last one.
fn prometheus(watch: &WatchState) -> String {
    let mut text = String::new();
    let mut gauge = |name: &str, help: &str, value: f64| {
        let _ = writeln!(
            text,
            "# HELP loka_watch_{name} {help}\n# TYPE loka_watch_{name} gauge\nloka_watch_{name} {value}"
        );
    };
    gauge("alarms", "Alarms that stand.", watch.alarms.len() as f64);
    gauge("snapshots", "Snapshots that were looked at.", watch.seen.len() as f64);
    if let Some(figures) = &watch.figures {
        gauge("last_step", "Training step of the last snapshot.", figures.step as f64);
        gauge("tests", "Tests at the last snapshot.", figures.num_tests as f64);
        gauge("last_seconds", "Seconds that the last snapshot took.", figures.seconds);
    }
    text.push_str("# HELP loka_watch_alarm An alarm that stands.\n# TYPE loka_watch_alarm gauge\n");
    let escaped = |value: &str| value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    for (test, alarm) in &watch.alarms {
        let _ = writeln!(text, "loka_watch_alarm{{test=\"{}\",since=\"{}\"}} 1", escaped(test), escaped(&alarm.since));
    }
    text
}
