//! Takes two results files and a policy, says what moved between them.

use std::path::Path;

use loka_core::{
    dispatch::Policy,
    model::{GemmShape, Safety, SiteMods},
    plan::{Moved, ResultsDiff, RowChange, diff_results},
    tables::read_results,
};
use serde_json::{Value, json};

use super::{
    super::{
        output::{self, Outcome, TextTable},
        plan::policy,
    },
    DiffArgs, print_choices, total,
};

pub fn run(args: &DiffArgs, json: bool) -> anyhow::Result<Outcome> {
    let policy = policy(args.policy.as_deref().unwrap_or(Policy::DEFAULT))?;
    let mods: SiteMods = args.mods.clone().unwrap_or_default().into();
    let (before, after) = (read_results(&args.before)?, read_results(&args.after)?);
    let changed = diff_results(&before, &after, &policy, &mods)
        .map_err(|error| anyhow::anyhow!("{error}: {}", culprit(args, &before.rows, &mods).display()))?;
    if json {
        print_json(&changed)?;
    } else {
        print(&changed, &policy.name);
    }
    Ok(Outcome::Done)
}

/// The file that lacks rows with the mods asked for.
fn culprit<'a>(args: &'a DiffArgs, before: &[loka_core::model::ResultRow], mods: &SiteMods) -> &'a Path {
    let has = before.iter().any(|row| row.mods == *mods.of(&row.site));
    if has { &args.after } else { &args.before }
}

fn counts(changed: &ResultsDiff) -> [usize; 4] {
    [
        changed.count(|moved| matches!(moved, Moved::Verdict { .. })),
        changed.count(|moved| matches!(moved, Moved::Error { .. })),
        changed.count(|moved| matches!(moved, Moved::Latency { .. })),
        changed.count(|moved| matches!(moved, Moved::Kernel { .. })),
    ]
}

fn print_json(changed: &ResultsDiff) -> anyhow::Result<()> {
    for change in &changed.rows {
        output::json(change)?;
    }
    for change in &changed.choices.changes {
        let mut line = serde_json::to_value(change)?;
        line["what"] = Value::from("choice");
        output::json(&line)?;
    }
    let [verdicts, errors, latencies, kernels] = counts(changed);
    let shapes = changed.shapes.iter().map(|(site, (was, is))| json!({"site": site, "before": was, "after": is}));
    output::json(&json!({
        "whole": changed.whole, "added": changed.added, "removed": changed.removed,
        "shapes": shapes.collect::<Vec<Value>>(), "num_verdicts": verdicts, "num_errors": errors,
        "num_latencies": latencies, "num_kernels": kernels, "num_rows_unchanged": changed.num_unchanged,
        "num_changed": changed.choices.changes.len(), "num_unchanged": changed.choices.unchanged,
        "num_near_ties": changed.num_near_ties(), "before": changed.before, "after": changed.after,
    }))
}

fn print(changed: &ResultsDiff, policy: &str) {
    if changed.is_empty() {
        output::line("the results say the same");
        return;
    }
    changed.whole.iter().for_each(|sentence| output::line(sentence));
    let shape = |shape: GemmShape| format!("{} x {} x {}", shape.m, shape.k, shape.n);
    for (site, (was, is)) in &changed.shapes {
        output::line(&format!("{site}: {} instead of {}", shape(*is), shape(*was)));
    }
    changed.added.iter().for_each(|site| output::line(&format!("{site}: added")));
    changed.removed.iter().for_each(|site| output::line(&format!("{site}: removed")));
    if !changed.rows.is_empty() {
        print_rows(&changed.rows);
    }
    if !changed.choices.changes.is_empty() {
        output::line(&format!("under policy {policy}:"));
        print_choices(&changed.choices.changes);
    }
    let [verdicts, errors, latencies, kernels] = counts(changed);
    output::line(&format!(
        "{verdicts} verdicts flipped, {errors} errors and {latencies} latencies moved, {kernels} kernels came or went, \
         {} rows stay · {} near ties",
        changed.num_unchanged,
        changed.num_near_ties()
    ));
    output::line(&format!(
        "policy {policy}: {} choices changed, {} stay · speed-up {} before, {} after",
        changed.choices.changes.len(),
        changed.choices.unchanged,
        total(changed.before.speedup),
        total(changed.after.speedup)
    ));
}

fn print_rows(rows: &[RowChange]) {
    let mut table = TextTable::new(&["site", "gemm", "kernel", "mods", "what", "why"]);
    for change in rows {
        table.row([
            change.site.to_string(),
            change.gemm.to_string(),
            change.kernel.to_string(),
            if change.mods.is_empty() { "-".to_owned() } else { change.mods.to_string() },
            what(&change.moved),
            change.reason.clone(),
        ]);
    }
    table.print();
}

fn what(moved: &Moved) -> String {
    let word = |safety: Safety| match safety {
        Safety::Safe => "safe",
        Safety::Uncertain => "uncertain",
        Safety::Unsafe => "unsafe",
    };
    match moved {
        Moved::Kernel { before, after } => format!("{} → {}", before.as_str(), after.as_str()),
        Moved::Verdict { before, after, .. } => format!("{} → {}", word(*before), word(*after)),
        Moved::Error { .. } => "error".to_owned(),
        Moved::Latency { .. } => "latency".to_owned(),
    }
}
