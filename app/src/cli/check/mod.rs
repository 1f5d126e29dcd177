//! `loka check`: the gate for CI. Reads a plan, its results and who may sign, asks core, and says what it found as text,
//! JSON, SARIF or JUnit.

mod junit;
mod lines;
mod sarif;

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::ValueEnum;
use loka_core::{
    engine::{self, EngineStatus},
    model::{FileMagic, visible, visible_json},
    plan::{AskedApprovals, Finding, Gate, Plan, Severity, gate},
    tables::read_results,
};
use serde_json::json;

use super::{
    output::{self, Outcome},
    plan::policy,
};
use crate::{clock::now, files, keys};

#[derive(clap::Args, Debug)]
pub struct CheckArgs {
    plan: PathBuf,
    /// The results that the plan was made from.
    #[arg(long)]
    results: PathBuf,
    /// The policy that the plan must have been made by: built in, or a file. Without it a plan is held to the policy
    /// that it carries.
    #[arg(long, value_name = "NAME|FILE")]
    policy: Option<String>,
    /// The list that says whose keys are whose: without it no signature counts.
    #[arg(long)]
    keys: Option<PathBuf>,
    /// Signatures that the plan needs: what its policy asks for, at least that many, or none.
    #[arg(long, value_name = "N|policy|none", default_value = "policy", value_parser = parse_approvals)]
    approvals: AskedApprovals,
    /// Fail results that are older.
    #[arg(long, value_name = "DAYS")]
    max_age: Option<u32>,
    /// Fail results of another driver: a version, or same-as-here.
    #[arg(long, value_name = "VERSION|same-as-here")]
    driver: Option<String>,
    /// Fail results of another device: its name, or same-as-here.
    #[arg(long, value_name = "NAME|same-as-here")]
    device: Option<String>,
    /// Share of the trace's GEMMs whose chosen kernels must have been probed and timed.
    #[arg(long, value_name = "PERCENT", default_value = "100", value_parser = parse_percent)]
    coverage: f64,
    /// How to say it.
    #[arg(long, value_enum, default_value_t)]
    format: FindingFormat,
    /// Write it there, and text here.
    #[arg(long)]
    out: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum FindingFormat {
    #[default]
    Text,
    Json,
    /// For the code scanning of GitHub and others.
    Sarif,
    /// For pages that show tests.
    Junit,
}

fn parse_approvals(text: &str) -> Result<AskedApprovals, String> {
    match text {
        "policy" => Ok(AskedApprovals::Policy),
        "none" => Ok(AskedApprovals::Nobody),
        number => match number.parse() {
            Ok(least @ 1..=100) => Ok(AskedApprovals::AtLeast(least)),
            _ => Err("it is policy, none, or 1 to 100".to_owned()),
        },
    }
}

fn parse_percent(text: &str) -> Result<f64, String> {
    let percent = text.trim_end_matches('%').trim().parse().ok().filter(|percent| (0.0..=100.0).contains(percent));
    percent.ok_or_else(|| "it is 0 to 100".to_owned())
}

/// Reads a plan; the error ends with the file.
pub fn read_plan(path: &Path) -> anyhow::Result<Plan> {
    parse_plan(path, &files::read_document(path, "a plan", FileMagic::Plan)?)
}

fn parse_plan(path: &Path, text: &str) -> anyhow::Result<Plan> {
    Plan::from_json(text).map_err(|error| anyhow::anyhow!("{error}: {}", path.display()))
}

/// The driver or the device of the engine that would be taken here.
fn named(asked: Option<&String>, here: impl Fn(EngineStatus) -> String) -> Option<String> {
    let asked = asked?;
    if asked != "same-as-here" {
        return Some(asked.clone());
    }
    Some(engine::statuses().into_iter().find(|status| status.problem.is_none()).map(here).unwrap_or_default())
}

/// What was checked, and what came of it.
struct Checked<'a> {
    path: &'a Path,
    /// The plan's file.
    text: &'a str,
    plan: &'a Plan,
    asked: &'a Gate<'a>,
    findings: &'a [Finding],
}

impl Checked<'_> {
    fn num_failed(&self) -> usize {
        self.findings.iter().filter(|finding| finding.severity == Severity::Fails).count()
    }
}

pub fn run(args: &CheckArgs, json: bool) -> anyhow::Result<Outcome> {
    let format = match (json, args.format) {
        (false, format) => format,
        (true, FindingFormat::Text | FindingFormat::Json) => FindingFormat::Json,
        (true, _) if args.out.is_some() => args.format,
        (true, _) => anyhow::bail!("--json and another --format on one stdout: give the other an --out"),
    };
    let text = files::read_document(&args.plan, "a plan", FileMagic::Plan)?;
    let plan = parse_plan(&args.plan, &text)?;
    let results = read_results(&args.results)?;
    let policy = args.policy.as_deref().map(policy).transpose()?;
    let keys = args.keys.as_deref().map(keys::read_ring).transpose()?;
    let driver = named(args.driver.as_ref(), |status| status.driver);
    let device = named(args.device.as_ref(), |status| status.device);
    let asked = Gate {
        policy: policy.as_ref(),
        keys: keys.as_ref(),
        approvals: args.approvals,
        max_age_days: args.max_age,
        driver: driver.as_deref(),
        device: device.as_deref(),
        coverage_percent: args.coverage,
        ..Gate::at(now())
    };
    let findings = gate(&plan, &results, &asked);
    let checked = Checked { path: &args.plan, text: &text, plan: &plan, asked: &asked, findings: &findings };
    match &args.out {
        Some(out) => {
            let mut whole = report(&checked, format)?;
            whole.push('\n');
            files::write_atomically(out, whole.as_bytes())?;
            output::lines(&report(&checked, if json { FindingFormat::Json } else { FindingFormat::Text })?);
        }
        None => output::lines(&report(&checked, format)?),
    }
    Ok(if checked.num_failed() == 0 { Outcome::Done } else { Outcome::Failed })
}

/// Without a line break at its end.
fn report(checked: &Checked<'_>, format: FindingFormat) -> anyhow::Result<String> {
    match format {
        FindingFormat::Text => Ok(lines_of_text(checked)),
        FindingFormat::Json => lines_of_json(checked),
        FindingFormat::Sarif => {
            let whole = serde_json::to_string_pretty(&sarif::sarif(checked));
            // As a terminal may show it; the breaks of lines are this document's own.
            let lines: Vec<String> = whole.context("cannot write SARIF")?.lines().map(visible_json).collect();
            Ok(lines.join("\n"))
        }
        FindingFormat::Junit => junit::junit(checked),
    }
}

fn lines_of_text(checked: &Checked<'_>) -> String {
    let word = |finding: &Finding| if finding.severity == Severity::Fails { "fails" } else { "warns" };
    let mut lines: Vec<String> =
        checked.findings.iter().map(|finding| visible(&format!("{}: {finding}", word(finding)))).collect();
    let path = checked.path.display();
    lines.push(match checked.num_failed() {
        0 => format!("the plan keeps its policy and fits its results: {path}"),
        failed => format!("{failed} reasons why the plan must not ship: {path}"),
    });
    lines.join("\n")
}

fn lines_of_json(checked: &Checked<'_>) -> anyhow::Result<String> {
    let num_failed = checked.num_failed();
    let summary = json!({
        "plan": checked.path, "passed": num_failed == 0, "num_failed": num_failed,
        "num_findings": checked.findings.len(),
    });
    let values = checked.findings.iter().map(serde_json::to_value).chain([Ok(summary)]);
    let lines: Result<Vec<String>, _> =
        values.map(|value| value.map(|value| visible_json(&value.to_string()))).collect();
    Ok(lines.context("cannot write JSON")?.join("\n"))
}
