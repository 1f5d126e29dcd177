//! `loka findings`: results in, what to know of the plan that a policy makes of them, worth most first.

use std::path::PathBuf;

use loka_core::{
    dispatch::Policy,
    model::{Metric, ModKind, ModSet, Runtime},
    session::{Command, Event, Session},
    tables::read_results_by_site,
    views::{ViewQuery, Views},
};
use serde_json::json;

use super::{
    output::{self, Outcome, short},
    plan::policy,
};

#[derive(clap::Args, Debug)]
pub struct FindingsArgs {
    /// The results of `loka probe`.
    results: PathBuf,
    /// balanced, paper, rel-l2, loss-budget, or a JSON file.
    #[arg(long, default_value = Policy::DEFAULT)]
    policy: String,
    /// Where the plan would run: launched, graph or inference.
    #[arg(long, default_value = "launched")]
    runtime: Runtime,
    /// The model with these mods; the results must have rows with them.
    #[arg(long, default_value = "")]
    mods: ModSet,
}

pub fn run(args: &FindingsArgs, json: bool) -> anyhow::Result<Outcome> {
    let policy = policy(&args.policy)?;
    let results = read_results_by_site(&args.results)?;
    let path = args.results.display().to_string();
    let mut session = Session::default();
    session.event(Event::ResultsOpened { path: path.clone(), results: Box::new(results) });
    let mut ask = |command| session.command(command).map_err(|error| anyhow::anyhow!("{error}: {path}"));
    ask(Command::SetPolicy { policy })?;
    ask(Command::SetRuntime { runtime: args.runtime })?;
    for kind in ModKind::ALL.into_iter().filter(|kind| args.mods.contains(*kind)) {
        ask(Command::ToggleMod { kind })?;
    }
    let snapshot = session.snapshot().ok_or_else(|| anyhow::anyhow!("these results have no sites: {path}"))?;
    anyhow::ensure!(snapshot.has_rows(), "these results have no rows under the mods asked for: {path}");
    let question = ViewQuery { metric: Metric::RelL2, gemm: None, relative: false, versus: false };
    let views = Views::of(&snapshot, question, &Views::default());
    let ids = snapshot.index.ids();
    for found in views.findings.iter() {
        if json {
            let gemms: Vec<_> = found.gemms.iter().map(|(at, gemm)| json!({"site": ids[*at], "gemm": gemm})).collect();
            output::json(&json!({
                "finding": found.kind, "text": found.text, "saves_us": found.saves_us, "loss_cost": found.loss_cost,
                "remedy": found.remedy, "gemms": gemms,
            }))?;
        } else {
            let worth = found.saves_us.map_or_else(|| "-".to_owned(), |us| format!("{} us", short(us)));
            output::line(&format!("{worth:>10}  {}", found.text));
        }
    }
    if views.findings.is_empty() && !json {
        output::line("Nothing to find: every GEMM has the fastest kernel that was probed, or FP8 gains nothing there.");
    }
    Ok(Outcome::Done)
}
