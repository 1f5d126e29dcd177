//! `loka report`: a plan, and what is known of it, as one file for people.

use std::path::{Path, PathBuf};

use loka_core::{
    plan::standing,
    report::{Figure, Source, figure, html, markdown},
    tables::read_results,
};
use serde_json::json;

use crate::{clock, files, keys};

use super::{
    check::read_plan,
    output::{self, Outcome},
};

#[derive(clap::Args, Debug)]
pub struct ReportArgs {
    plan: PathBuf,
    /// The results that the plan was made from: every kernel is shown, and the plan is checked.
    #[arg(long)]
    results: Option<PathBuf>,
    /// The list of keys that signatures are held against.
    #[arg(long)]
    keys: Option<PathBuf>,
    /// The report to write, *.html or *.md.
    #[arg(long)]
    out: PathBuf,
    /// By the name of the file when left out.
    #[arg(long)]
    format: Option<ReportFormat>,
    /// One figure of the report alone, as HTML to put into another page: heatmap, quadrant, frontier or graph (these two need the
    /// results).
    #[arg(long, value_name = "NAME", conflicts_with = "format")]
    figure: Option<Figure>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ReportFormat {
    Html,
    /// For a comment on a pull request.
    Markdown,
}

impl ReportFormat {
    fn of(path: &Path) -> anyhow::Result<Self> {
        let end = path.extension().and_then(|end| end.to_str()).unwrap_or_default().to_ascii_lowercase();
        match end.as_str() {
            "html" | "htm" => Ok(Self::Html),
            "md" | "markdown" => Ok(Self::Markdown),
            _ => anyhow::bail!("neither .html nor .md, and no --format was given: {}", path.display()),
        }
    }
}

pub fn run(args: &ReportArgs, json: bool) -> anyhow::Result<Outcome> {
    let format = match (args.figure, args.format) {
        (Some(_), _) => ReportFormat::Html,
        (None, Some(format)) => format,
        (None, None) => ReportFormat::of(&args.out)?,
    };
    let of_results = matches!(args.figure, Some(Figure::Frontier | Figure::Graph));
    anyhow::ensure!(!of_results || args.results.is_some(), "a frontier and a graph need --results");
    let plan = read_plan(&args.plan)?;
    let results = args.results.as_deref().map(read_results).transpose()?;
    let keys = args.keys.as_deref().map(keys::read_ring).transpose()?;
    // The clock is asked for signatures of the future alone: the report says nothing of when it was made.
    let standing = standing(&plan, keys.as_ref(), Some(clock::now()));
    let source = Source::new(&plan, results.as_ref(), standing)
        .map_err(|error| anyhow::anyhow!("{error}: {}", args.results.as_deref().unwrap_or(&args.plan).display()))?;
    let text = match (args.figure, format) {
        (Some(which), _) => figure(&source, which),
        (None, ReportFormat::Html) => html(&source),
        (None, ReportFormat::Markdown) => markdown(&source),
    };
    files::write_atomically(&args.out, text.as_bytes())?;
    if json {
        output::json(&json!({"written": args.out, "bytes": text.len(), "digest": plan.digest}))?;
    } else {
        output::line(&format!("report written: {}", args.out.display()));
    }
    Ok(Outcome::Done)
}
