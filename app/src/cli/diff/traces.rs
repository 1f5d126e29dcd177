//! Takes two traces, of a good and a bad run, says which sites changed most and in what.

use std::collections::BTreeSet;

use loka_core::{
    engine,
    model::{Kernel, SiteId},
    probe::{ProbeConfig, TraceDiff, WATCHED, diff_traces},
    trace::Trace,
};
use serde_json::json;

use super::{
    super::{
        output::{self, Outcome, TextTable, short},
        patterns,
    },
    DiffArgs,
};

/// Draws of each GEMM: factors of two are looked for, not percents.
const DRAWS: u64 = 8;

/// Symptoms told of a site.
const TOLD: usize = 3;

pub fn run(args: &DiffArgs, json: bool) -> anyhow::Result<Outcome> {
    anyhow::ensure!(
        args.policy.is_none() && args.mods.is_none(),
        "traces have no policy and no mods: {}",
        args.before.display()
    );
    let watched = watched(args.kernel.as_deref().unwrap_or(WATCHED))?;
    let (before, after) = (Trace::open(&args.before)?, Trace::open(&args.after)?);
    let engine = engine::open("cpu").map_err(|error| anyhow::anyhow!("{error}"))?;
    let config = ProbeConfig { min_draws: DRAWS, max_draws: DRAWS, ..ProbeConfig::default() };
    let (diff, out_of_range) = diff_traces([&before, &after], watched, engine.as_ref(), &config);
    if json {
        print_json(&diff, &out_of_range)?;
    } else {
        print(&diff, &out_of_range, watched);
    }
    Ok(Outcome::Done)
}

/// One kernel by its name.
fn watched(name: &str) -> anyhow::Result<&'static Kernel> {
    let found = patterns::kernels(&[name.to_owned()])?;
    anyhow::ensure!(found.len() == 1, "--kernel is one kernel, '{name}' are {}", found.len());
    Ok(found[0])
}

/// `out_of_range`: sites whose loss cost means nothing in one of the two.
fn print_json(diff: &TraceDiff, out_of_range: &BTreeSet<SiteId>) -> anyhow::Result<()> {
    for site in &diff.sites {
        output::json(&json!({"site": site.site, "octaves": site.octaves(), "shifts": site.shifts}))?;
    }
    output::json(&json!({
        "added": diff.added, "removed": diff.removed, "problems": diff.problems, "loss_cost_out_of_range": out_of_range,
    }))
}

fn print(diff: &TraceDiff, out_of_range: &BTreeSet<SiteId>, watched: &Kernel) {
    let changed = diff.changed();
    let mut table = TextTable::new(&["site", "what", "before", ">after", ">x"]);
    for site in changed {
        let told = site.shifts.iter().filter(|shift| shift.is_changed()).take(TOLD);
        for (at, shift) in told.enumerate() {
            let name = if at == 0 { site.site.to_string() } else { String::new() };
            let times = format!("{}x", short(shift.octaves().exp2()));
            table.row([name, shift.symptom.label().to_owned(), short(shift.before), short(shift.after), times]);
        }
    }
    if !changed.is_empty() {
        table.print();
        output::line("");
    }
    for (sites, word) in [(&diff.added, "only in the second"), (&diff.removed, "only in the first")] {
        sites.iter().for_each(|site| output::line(&format!("{site}: {word}")));
    }
    for site in out_of_range {
        output::line(&format!("{site}: its loss cost is outside its range, where it means nothing: not compared"));
    }
    for (site, problem) in &diff.problems {
        output::line(&format!("{site}: cannot be compared: {problem}"));
    }
    output::line(&format!(
        "{} of {} sites changed twofold or more, {} did not (noise shares and loss costs of {})",
        changed.len(),
        diff.sites.len(),
        diff.sites.len() - changed.len(),
        watched.name
    ));
}
