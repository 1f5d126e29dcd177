//! `loka diff`: what changed between two plans.

use std::path::PathBuf;

use loka_core::plan::{PlanDiff, diff};

use super::{
    check::read_plan,
    output::{self, Outcome, Table},
};

#[derive(clap::Args, Debug)]
pub struct DiffArgs {
    before: PathBuf,
    after: PathBuf,
}

pub fn run(args: &DiffArgs, json: bool) -> anyhow::Result<Outcome> {
    let changed = diff(&read_plan(&args.before)?, &read_plan(&args.after)?);
    if json {
        for change in &changed.changes {
            output::json(change)?;
        }
        let PlanDiff { whole, mods, added, removed, unchanged, before, after, .. } = &changed;
        output::json(&serde_json::json!({
            "whole": whole, "mods": mods, "added": added, "removed": removed, "num_changed": changed.changes.len(),
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
    changed.added.iter().for_each(|site| output::line(&format!("{site}: added")));
    changed.removed.iter().for_each(|site| output::line(&format!("{site}: removed")));
    if !changed.changes.is_empty() {
        let mut table = Table::new(&["site", "gemm", "before", ">x", "after", ">x", "cause", "why"]);
        let times = |speedup: Option<f64>| speedup.map_or("-".to_owned(), |speedup| format!("{speedup:.2}"));
        for change in &changed.changes {
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
    let total = |speedup: Option<f64>| speedup.map_or("unknown".to_owned(), |speedup| format!("{speedup:.3}x"));
    output::line(&format!(
        "{} choices changed, {} stay · speed-up {} before, {} after",
        changed.changes.len(),
        changed.unchanged,
        total(changed.before.speedup),
        total(changed.after.speedup)
    ));
}
