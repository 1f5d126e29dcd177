//! `loka diff`: what changed between two plans, two sets of results, or two traces.

mod results;
mod traces;

use std::{
    io::Read,
    path::{Path, PathBuf},
};

use loka_core::{
    dispatch::Chain,
    model::ModSet,
    plan::{ChoiceChange, PlanDiff, diff},
    session::{FileKind, HEAD_BYTES},
};

use super::{
    check::read_plan,
    output::{self, Outcome, TextTable},
};

#[derive(clap::Args, Debug)]
pub struct DiffArgs {
    /// A plan, the results of a probe, or a trace.
    before: PathBuf,
    /// Another of the same kind.
    after: PathBuf,
    /// What results are judged and planned by: balanced, paper, rel-l2, loss-budget, or a JSON file.
    #[arg(long)]
    policy: Option<String>,
    /// Plan the model with these mods where results are compared.
    #[arg(long)]
    mods: Option<ModSet>,
    /// Of traces: the kernel whose noise shares and loss costs are compared; cublaslt/fp8-tensorwise where it is left out.
    #[arg(long)]
    kernel: Option<String>,
}

/// By its name, else by its first bytes; a folder is of a trace's shards. What cannot be read is said by whoever reads it.
fn kind(path: &Path) -> Option<FileKind> {
    if path.is_dir() {
        return Some(FileKind::Trace);
    }
    let content = || {
        let mut head = Vec::with_capacity(HEAD_BYTES);
        std::fs::File::open(path).ok()?.take(HEAD_BYTES as u64).read_to_end(&mut head).ok()?;
        FileKind::of_content(&head).ok()
    };
    FileKind::of_name(&path.to_string_lossy()).or_else(content)
}

pub fn run(args: &DiffArgs, json: bool) -> anyhow::Result<Outcome> {
    let (before, after) = (kind(&args.before), kind(&args.after));
    let traces = [before, after].map(|kind| kind == Some(FileKind::Trace));
    if traces == [true, true] {
        return traces::run(args, json);
    }
    if let Some(at) = traces.iter().position(|is_trace| *is_trace) {
        let (trace, other) = if at == 0 { (&args.before, &args.after) } else { (&args.after, &args.before) };
        anyhow::bail!("a trace is compared with a trace, not with {}: {}", other.display(), trace.display());
    }
    anyhow::ensure!(args.kernel.is_none(), "--kernel is for traces: {}", args.before.display());
    match (before == Some(FileKind::Results), after == Some(FileKind::Results)) {
        (true, true) => results::run(args, json),
        (false, false) => plans(args, json),
        (true, false) => {
            read_plan(&args.after)?;
            anyhow::bail!("results are compared with results, not with a plan: {}", args.after.display())
        }
        (false, true) => {
            read_plan(&args.before)?;
            anyhow::bail!("a plan is compared with a plan, not with results: {}", args.after.display())
        }
    }
}

fn plans(args: &DiffArgs, json: bool) -> anyhow::Result<Outcome> {
    if args.policy.is_some() || args.mods.is_some() {
        anyhow::bail!(
            "a plan has its own policy and mods, --policy and --mods are for results: {}",
            args.before.display()
        );
    }
    let changed = diff(&read_plan(&args.before)?, &read_plan(&args.after)?);
    if json {
        for change in &changed.changes {
            output::json(change)?;
        }
        let PlanDiff { whole, mods, chains, added, removed, unchanged, before, after, .. } = &changed;
        output::json(&serde_json::json!({
            "whole": whole, "mods": mods, "chains": chains, "added": added, "removed": removed, "num_changed": changed.changes.len(),
            "num_unchanged": unchanged, "before": before, "after": after,
        }))?;
    } else {
        print(&changed);
    }
    Ok(Outcome::Done)
}

fn print(changed: &PlanDiff) {
    if changed.is_empty() {
        output::line("the plans decide the same");
        return;
    }
    changed.whole.iter().for_each(|sentence| output::line(sentence));
    for (site, (before, after)) in &changed.mods {
        output::line(&format!("{site}: mods '{before}' became '{after}'"));
    }
    for (site, (before, after)) in &changed.chains {
        let told = |chain: &Option<Chain>| chain.as_ref().map_or("nothing in codes".to_owned(), Chain::summary);
        output::line(&format!("{site}: {} became {}", told(before), told(after)));
    }
    changed.added.iter().for_each(|site| output::line(&format!("{site}: added")));
    changed.removed.iter().for_each(|site| output::line(&format!("{site}: removed")));
    if !changed.changes.is_empty() {
        print_choices(&changed.changes);
    }
    output::line(&format!(
        "{} choices changed, {} stay · speed-up {} before, {} after",
        changed.changes.len(),
        changed.unchanged,
        total(changed.before.speedup),
        total(changed.after.speedup)
    ));
}

fn total(speedup: Option<f64>) -> String {
    speedup.map_or("unknown".to_owned(), |speedup| format!("{speedup:.3}x"))
}

fn print_choices(changes: &[ChoiceChange]) {
    let mut table = TextTable::new(&["site", "gemm", "before", ">x", "after", ">x", "cause", "why"]);
    let times = |speedup: Option<f64>| speedup.map_or("-".to_owned(), |speedup| format!("{speedup:.2}"));
    for change in changes {
        let near = if change.near_tie { " (near tie)" } else { "" };
        table.row([
            change.site.to_string(),
            change.gemm.to_string(),
            change.before.to_string(),
            times(change.before_speedup),
            change.after.to_string(),
            times(change.after_speedup),
            format!("{}{near}", change.cause.as_str()),
            change.reason.clone(),
        ]);
    }
    table.print();
}
