//! `loka check`: the gate for CI.

use std::path::{Path, PathBuf};

use loka_core::{
    plan::{Plan, Severity, check},
    tables::read_results,
};
use serde_json::json;

use super::output::{self, Outcome};

#[derive(clap::Args, Debug)]
pub struct CheckArgs {
    plan: PathBuf,
    /// The results that the plan was made from.
    #[arg(long)]
    results: PathBuf,
}

/// Reads a plan; the error ends with the file.
pub fn read_plan(path: &Path) -> anyhow::Result<Plan> {
    let text = crate::files::read_text(path)?;
    Plan::from_json(&text).map_err(|error| anyhow::anyhow!("{error}: {}", path.display()))
}

pub fn run(args: &CheckArgs, json: bool) -> anyhow::Result<Outcome> {
    let plan = read_plan(&args.plan)?;
    let results = read_results(&args.results)?;
    let findings = check(&plan, &results);
    let failed = findings.iter().filter(|finding| finding.severity == Severity::Fails).count();
    for finding in &findings {
        if json {
            output::json(finding)?;
        } else {
            let word = if finding.severity == Severity::Fails { "fails" } else { "warns" };
            output::line(&format!("{word}: {finding}"));
        }
    }
    if json {
        output::json(
            &json!({"plan": args.plan, "passed": failed == 0, "num_failed": failed, "num_findings": findings.len()}),
        )?;
    } else if failed == 0 {
        output::line(&format!("the plan keeps its policy and fits its results: {}", args.plan.display()));
    } else {
        output::line(&format!("{failed} reasons why the plan must not ship: {}", args.plan.display()));
    }
    Ok(if failed == 0 { Outcome::Done } else { Outcome::Failed })
}
