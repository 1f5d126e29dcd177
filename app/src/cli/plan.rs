//! `loka plan`: results in, a plan out.

use std::path::{Path, PathBuf};

use loka_core::{
    bench::{DeviceError, KernelDb, Latencies, devices, of_device},
    dispatch::{Policy, Totals, WantedOverride, overrides_of},
    model::{FileMagic, Gemm, ModSet, Results, Runtime, padded_in_bf16},
    plan::{Built, CarriedNoise, Plan, PlanSite, build_for, most_noise, retime, standing},
    probe::batch_of,
    tables::{read_kernels, read_results, write_results},
};
use serde_json::json;

use crate::{files, keys, probing};

use super::output::{self, Outcome, TextTable, short};

#[derive(clap::Args, Debug)]
pub struct PlanArgs {
    /// The results of `loka probe`.
    results: PathBuf,
    /// The plan to write, *.plan.json.
    #[arg(long)]
    out: PathBuf,
    /// balanced, paper, rel-l2, loss-budget, or a JSON file.
    #[arg(long, default_value = Policy::DEFAULT)]
    policy: String,
    /// Where it will run: launched (a compiled training step), graph (the same as a CUDA graph) or inference.
    #[arg(long, default_value = "launched")]
    runtime: Runtime,
    /// Plan for this type of GPU by what is known of it, whatever the results were timed on: all of its name or a part of it,
    /// such as H200.
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// A kernel database with that device's times, which come before the built-in ones; may be given again.
    #[arg(long = "latencies", value_name = "FILE")]
    latencies: Vec<PathBuf>,
    /// Also write the results with those times: what loka check, loka report and the workbench hold the plan against.
    #[arg(long, value_name = "R.results.parquet")]
    results_out: Option<PathBuf>,
    /// Plan the model with these mods; the results must have rows with them.
    #[arg(long, default_value = "")]
    mods: ModSet,
    /// Choose a kernel by hand: SITE:GEMM=KERNEL, where SITE may have wildcards ('top.*:fprop=…') and GEMM may be *; may
    /// be given again, and the last that matches counts.
    #[arg(long = "override", value_name = "SITE:GEMM=KERNEL")]
    overrides: Vec<WantedOverride>,
    /// Rows of a step that the plan is for: refused where the results are of another number, since errors and latencies
    /// are.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rows: Option<u32>,
    /// The plan's name; the model's when left out.
    #[arg(long)]
    name: Option<String>,
    /// Put it up for approval as this version; without it a plan that has to be approved is a draft.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    release: Option<u32>,
    /// Who decided something in it: they do not sign it themselves. May be given again; the user of this machine when
    /// left out.
    #[arg(long = "author", value_name = "NAME")]
    authors: Vec<String>,
}

/// A built-in policy, or one from a file.
pub fn policy(name: &str) -> anyhow::Result<Policy> {
    match Policy::builtin(name) {
        Ok(policy) => Ok(policy),
        Err(unknown) if !name.contains(['.', '/']) => Err(unknown.into()),
        Err(_) => {
            let text = files::read_document(name.as_ref(), "a policy", FileMagic::Json)?;
            Policy::from_json(&text).map_err(|error| anyhow::anyhow!("{error}: {name}"))
        }
    }
}

pub fn run(args: &PlanArgs, json: bool) -> anyhow::Result<Outcome> {
    let policy = policy(&args.policy)?;
    let mut results = read_results(&args.results)?;
    of_that_batch(args, &results)?;
    let device = timed_on(args, &mut results)?;
    let overrides = overrides_of(&args.overrides, &results.meta.manifest.sites, "given on the command line")
        .map_err(|error| anyhow::anyhow!("{error}: {}", args.results.display()))?;
    let name = args.name.clone().unwrap_or_else(|| results.meta.manifest.model.name.clone());
    let now = probing::now_rfc3339();
    let mods = args.mods.clone().into();
    let mut built = build_for(args.runtime, &results, &policy, &mods, &overrides, (&name, &now))
        .map_err(|error| anyhow::anyhow!("{error}: {}", args.results.display()))?;
    if device.is_some() {
        built.plan.device = device;
        built.plan.stamp(now);
    }
    put_up(&mut built.plan, args);
    if let Some(path) = &args.results_out {
        write_results(path, &results)?;
    }
    files::write_atomically(&args.out, built.plan.to_json().as_bytes())?;
    for warning in &built.warnings {
        output::note(&format!("warning: {warning}"));
    }
    let noise = most_noise(&built.plan, &results.meta.manifest.sites);
    if json {
        print_json(args, &built, noise.as_ref())?;
    } else {
        print_table(args, &built, noise.as_ref());
    }
    Ok(Outcome::Done)
}

/// Puts the times of the device that was asked for into the results; its whole name.
fn timed_on(args: &PlanArgs, results: &mut Results) -> anyhow::Result<Option<String>> {
    if args.device.is_none() && args.latencies.is_empty() {
        anyhow::ensure!(
            args.results_out.is_none(),
            "--results-out is for results with other times: --device, --latencies"
        );
        return Ok(None);
    }
    if let Some(path) = &args.results_out {
        anyhow::ensure!(
            !is_same_file(path, &args.results),
            "--results-out would overwrite the results: {}",
            path.display()
        );
        files::check_writable(path)?;
    }
    let given = args.latencies.iter().map(|path| read_kernels(path)).collect::<Result<Vec<_>, _>>()?;
    let wanted = match &args.device {
        Some(wanted) => wanted.clone(),
        None => only_device(&given, &args.latencies)?,
    };
    let all = given.into_iter().chain(KernelDb::builtin()).collect();
    let last = args.latencies.last().unwrap_or(&args.results);
    let (device, databases) =
        of_device(all, &wanted).map_err(|error: DeviceError| anyhow::anyhow!("{error}: {}", last.display()))?;
    let said = retime(results, &device, &probing::latencies_of(Latencies::new(&databases)));
    output::note(&format!("Times of {device}."));
    if let Some(other) = said.dropped_sites {
        output::note(&format!("warning: times of whole sites are left out: they are of {other}"));
    }
    Ok(Some(device))
}

/// Nobody said which: of several devices none is taken in silence.
fn only_device(given: &[KernelDb], files: &[PathBuf]) -> anyhow::Result<String> {
    let named = || files.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
    match devices(given).as_slice() {
        [one] => Ok(one.clone()),
        [] => anyhow::bail!("no times are in it: {}", named()),
        several => anyhow::bail!("there are times of {}: choose one by --device: {}", several.join(", "), named()),
    }
}

fn is_same_file(a: &Path, b: &Path) -> bool {
    a == b || a.canonicalize().is_ok_and(|a| b.canonicalize().is_ok_and(|b| a == b))
}

/// Refuses results of another batch: only a probe finds what changes with it.
fn of_that_batch(args: &PlanArgs, results: &Results) -> anyhow::Result<()> {
    let (Some(wanted), Some(found)) = (args.rows, batch_of(&results.meta.manifest.sites)) else { return Ok(()) };
    anyhow::ensure!(
        wanted as usize == found,
        "the results are of {found} rows a step: probe the trace again with --rows {wanted}: {}",
        args.results.display()
    );
    Ok(())
}

/// As a version to be approved, or as a draft of one.
fn put_up(plan: &mut Plan, args: &PlanArgs) {
    let asks = plan.policy.approval.is_some() || args.release.is_some();
    let mut authors = args.authors.clone();
    if authors.is_empty() && asks {
        authors.extend(keys::user_name());
    }
    if authors.is_empty() && !asks {
        return;
    }
    authors.sort();
    authors.dedup();
    (plan.authors, plan.release) = (authors, args.release);
    plan.stamp(plan.created_at.clone());
    plan.draft = match args.release {
        Some(_) => standing(plan, None, None).missing(),
        None => plan.policy.approval.as_ref().map(|_| "not submitted for approval".to_owned()),
    };
}

fn print_json(args: &PlanArgs, built: &Built, noise: Option<&CarriedNoise>) -> anyhow::Result<()> {
    for (site, gemm, choice) in built.plan.choices() {
        output::json(&json!({"site": site, "gemm": gemm, "choice": choice}))?;
    }
    let Plan { totals, digest, policy, draft, runtime, device, .. } = &built.plan;
    output::json(&json!({
        "written": args.out, "policy": policy, "totals": totals, "warnings": built.warnings, "digest": digest,
        "draft": draft, "runtime": runtime, "device": device, "most_noise": noise,
    }))
}

fn print_table(args: &PlanArgs, built: &Built, noise: Option<&CarriedNoise>) {
    let plan = &built.plan;
    let heads = ["site", "fprop", ">x BF16", "dgrad", ">x BF16", "wgrad", ">x BF16", ">together"];
    let mut table = TextTable::new(&heads);
    let times = |speedup: Option<f64>| speedup.map_or("-".to_owned(), |speedup| format!("{speedup:.2}"));
    for (site, together) in plan.sites.iter().zip(&built.together) {
        let cells = Gemm::ALL.into_iter().flat_map(|gemm| {
            let choice = site.choice(gemm);
            let mark = if choice.source == loka_core::dispatch::ChoiceSource::Override { " (override)" } else { "" };
            [format!("{}{mark}", choice.kernel), times(choice.speedup)]
        });
        table.row(std::iter::once(site.site.to_string()).chain(cells).chain([times(*together)]));
    }
    table.print();
    output::line("");
    output::line(&summary(plan));
    if let Some(promise) = promise(built) {
        output::line(&promise);
    }
    if let Some(slower) = slower_alone(plan, &built.together) {
        output::line(&slower);
    }
    if let Some(noise) = noise {
        output::line(&noise_words(noise));
    }
    if let Some(padded) = padded(plan) {
        output::line(&padded);
    }
    if let Some(draft) = &plan.draft {
        output::line(&format!("a draft: {draft}"));
    }
    output::line(&format!("plan written: {}", args.out.display()));
}

/// Totals in a line.
pub fn summary(plan: &Plan) -> String {
    let totals = &plan.totals;
    let speedup = totals.speedup.map_or("speed-up unknown".to_owned(), |speedup| {
        format!("{speedup:.3}x BF16 ({} of {} us)", short(totals.planned_us), short(totals.baseline_us))
    });
    let loss = match (totals.loss_cost, totals.loss_cost_hi) {
        (Some(cost), Some(hi)) => format!(" · loss cost {} (at most {})", short(cost), short(hi)),
        _ => String::new(),
    };
    let out_of_range = match totals.num_cost_out_of_range {
        0 => String::new(),
        count => format!(" (without {count} outside its range)"),
    };
    let loss = format!("{loss}{out_of_range}");
    let handed_on = match totals.handed_on_us {
        0.0 => String::new(),
        us => {
            let how = if totals.measured_sites == 0 { " (modelled)" } else { "" };
            format!(" · codes handed on save {} us{how}", short(us))
        }
    };
    let unknown = match totals.num_without_latency {
        0 => String::new(),
        count => format!(" · {count} of {} GEMMs without a latency, in neither sum", totals.num_gemms),
    };
    let low = plan.choices().filter(|(.., choice)| choice.kernel.is_low_precision()).count();
    format!(
        "policy {}: {low} of {} GEMMs in FP8 · {speedup}{handed_on}{loss}{unknown}",
        plan.policy.name, totals.num_gemms
    )
}

fn noise_words(noise: &CarriedNoise) -> String {
    let dgrads = match noise.dgrads {
        0 => "alone".to_owned(),
        1 => "and one dgrad behind it".to_owned(),
        several => format!("and {several} dgrads behind it"),
    };
    let (most, wgrad) = (short(noise.share), short(noise.wgrad));
    format!("adds at most {most} to the noise of a weight's gradient ({}: wgrad {wgrad} {dgrads})", noise.site)
}

/// Who reads the table asks why an FP8 GEMM is chosen that is slower than BF16's. `together`: of each site.
fn slower_alone(plan: &Plan, together: &[Option<f64>]) -> Option<String> {
    let faster = plan.sites.iter().zip(together).filter(|(_, together)| together.is_some_and(|times| times > 1.0));
    let gemms = faster.flat_map(|(site, _)| Gemm::ALL.into_iter().map(move |gemm| (site, gemm, site.choice(gemm))));
    // Told apart by two digits, as they are printed.
    let is_slower = |times: f64| times < 0.995;
    let mut slower =
        gemms.filter(|(.., choice)| choice.kernel.is_low_precision() && choice.speedup.is_some_and(is_slower));
    let (site, gemm, _) = slower.next()?;
    let (others, own, sites) = match slower.count() {
        0 => (" is".to_owned(), "its", "its site, as it runs, is"),
        others => (format!(" and {others} more are"), "their", "their sites, as they run, are"),
    };
    Some(format!(
        "{} {gemm}{others} slower than BF16 alone, {own} own casts included; {sites} faster (together): casts are shared or fused",
        site.site
    ))
}

/// Of linears whose widths BF16 is slow at: the plan's BF16 is faster there than a model's may be.
fn padded(plan: &Plan) -> Option<String> {
    let sizes = |site: &PlanSite| padded_in_bf16(site.k?, site.n?).map(|_| (site.site.to_string(), site.k, site.n));
    let found: Vec<_> = plan.sites.iter().filter_map(sizes).collect();
    let Some((site, Some(k), Some(n))) = found.first() else { return None };
    let others = match found.len() - 1 {
        0 => " has".to_owned(),
        others => format!(" and {others} more have"),
    };
    Some(format!(
        "{site} ({k} x {n}){others} widths that are no multiples of 8: loka.apply pads them, and BF16 is counted padded; what PyTorch leaves as it lies takes longer, which is saved besides"
    ))
}

/// What a step gains, in milliseconds, and what that rests on. `None`: no time is known.
fn promise(built: &Built) -> Option<String> {
    let plan = &built.plan;
    let Totals { baseline_us, saved_us, measured_sites, modelled_sites, .. } = plan.totals;
    if baseline_us <= 0.0 {
        return None;
    }
    let all = measured_sites + modelled_sites;
    let ms = |us: f64| format!("{:.2} ms", us / 1000.0);
    let source = match (plan.runtime, measured_sites) {
        (Runtime::Launched, 0) => {
            "modelled from CUDA-graph latencies: run loka probe --measure where you train".to_owned()
        }
        (_, 0) => "modelled from latencies of single GEMMs".to_owned(),
        (_, measured) => format!("measured at {measured} of {all} sites"),
    };
    let (saved, whole, runtime) = (ms(saved_us), ms(baseline_us), plan.runtime);
    let replayed = match runtime {
        Runtime::Inference => "; the GPU's time: replay the model as a CUDA graph where its host is slower",
        // The warning stands above a table that may be long.
        Runtime::Launched if built.is_slow_host => "; launched, the host may not keep up with that: see the warning",
        Runtime::Launched | Runtime::Graph => "",
    };
    Some(format!("saves {saved} of {whole} a step in linears ({runtime}, {source}){replayed}"))
}
