//! The command line: arguments in, one thin file a subcommand. Nothing here computes; a subcommand
//! reads files, calls core, and prints.
//!
//! Exit codes: 0 done, 1 a check failed or a device was lost half way, 2 bad use or bad input. An error is one line on stderr, cause
//! first, file last.

#[cfg(feature = "gui")]
mod actions;
mod approve;
mod bench;
mod bench_report;
mod check;
mod diff;
mod draws;
mod export;
mod findings;
mod info;
mod kernels;
mod key;
mod log;
#[cfg(feature = "serve")]
mod mcp;
mod merge;
mod open;
mod output;
mod patterns;
mod plan;
mod probe;
mod query;
mod report;
mod selftest;
#[cfg(feature = "serve")]
mod serve;
mod sites;
#[cfg(feature = "serve")]
mod user;
mod verify;
mod version;
mod watch;

use std::path::PathBuf;

use clap::{Parser, Subcommand};

pub use output::Outcome;

/// Make FP8 safe to adopt in large recommendation models.
#[derive(Parser, Debug)]
#[command(name = "loka", version, long_version = version::long(), about, max_term_width = 100)]
#[command(after_help = "Without a command the workbench is opened, in a window or, without a display, in a browser. \
                        Start with `loka open TRACE`, or `loka probe TRACE --out R.results.parquet` and then \
                        `loka plan R.results.parquet --out P.plan.json`.")]
struct Args {
    /// One JSON object a line on stdout, nothing else there.
    #[arg(long, global = true)]
    json: bool,
    /// Files to open in the workbench.
    files: Vec<PathBuf>,
    #[command(subcommand)]
    command: Option<Cmd>,
}

#[derive(Subcommand, Debug)]
enum Cmd {
    /// Open the workbench: in a window, and where there is no display in a browser, at the address that is printed.
    Open(open::OpenArgs),
    /// Every action of the workbench by its id.
    #[cfg(feature = "gui")]
    Actions(actions::ActionsArgs),
    /// Sites, shapes, coverage and problems of a trace.
    Info(info::InfoArgs),
    /// Measure the error of every kernel at every GEMM.
    Probe(probe::ProbeArgs),
    /// Choose a kernel for every GEMM.
    Plan(plan::PlanArgs),
    /// What to know of the plan that results give, worth most first.
    Findings(findings::FindingsArgs),
    /// Gate for CI: exit 1, with reasons, when a plan breaks its policy or does not fit its results.
    Check(check::CheckArgs),
    /// SQL over any number of results, kernel databases and plans.
    Query(query::QueryArgs),
    /// What changed between two plans or two sets of results, site by site.
    Diff(diff::DiffArgs),
    /// Write a plan for the framework that runs it; `loka export --list` names them.
    Export(export::ExportArgs),
    /// One file for reviewers: what a plan decides, how bad, where, and who agreed.
    Report(report::ReportArgs),
    /// Measure latencies on a GPU.
    Bench(bench::BenchArgs),
    /// The kernels and engines known, and why one is not available here.
    Kernels(kernels::KernelsArgs),
    /// Numeric self-checks; the last line is `N passed, N failed`.
    Selftest(selftest::SelftestArgs),
    /// Serve the workbench to browsers, on this machine's engines.
    #[cfg(feature = "serve")]
    Serve(Box<serve::ServeArgs>),
    /// A session for an assistant: a Model Context Protocol server on stdin and stdout, read-only unless allowed more.
    #[cfg(feature = "serve")]
    Mcp(mcp::McpArgs),
    /// The list of people who may come in to a served workbench, and what each may do there.
    #[cfg(feature = "serve")]
    User(user::UserArgs),
    /// Merge the shards of one run into one trace, or the parts of a split probe into one file of results.
    Merge(merge::MergeArgs),
    /// Hold snapshots of a model in training against the plan that it runs: exit 1 where an alarm stands.
    Watch(watch::WatchArgs),
    /// Who decided what in a trace's journal, once its chain holds.
    Log(log::LogArgs),
    /// Keys to sign plans with, and a team's list of them.
    Key(key::KeyArgs),
    /// Sign a plan.
    Approve(approve::ApproveArgs),
    /// Who signed a plan, and whether that is what its policy asks for: exit 1 when not.
    Verify(verify::VerifyArgs),
    /// Every command and option as Markdown: docs/reference/commands.md.
    #[command(hide = true)]
    Reference,
}

/// Runs the command line; the exit code.
pub fn run() -> u8 {
    let args = Args::parse();
    let json = args.json;
    let outcome = match args.command {
        None => open::run(open::OpenArgs::of(args.files), json),
        Some(Cmd::Open(args)) => open::run(args, json),
        #[cfg(feature = "gui")]
        Some(Cmd::Actions(args)) => actions::run(&args, json),
        Some(Cmd::Info(args)) => info::run(&args, json),
        Some(Cmd::Probe(args)) => probe::run(&args, json),
        Some(Cmd::Plan(args)) => plan::run(&args, json),
        Some(Cmd::Findings(args)) => findings::run(&args, json),
        Some(Cmd::Check(args)) => check::run(&args, json),
        Some(Cmd::Query(args)) => query::run(&args, json),
        Some(Cmd::Diff(args)) => diff::run(&args, json),
        Some(Cmd::Export(args)) => export::run(&args, json),
        Some(Cmd::Report(args)) => report::run(&args, json),
        Some(Cmd::Bench(args)) => bench::run(&args, json),
        Some(Cmd::Kernels(args)) => kernels::run(&args, json),
        Some(Cmd::Selftest(args)) => selftest::run(&args, json),
        #[cfg(feature = "serve")]
        Some(Cmd::Serve(args)) => serve::run(*args, json),
        #[cfg(feature = "serve")]
        Some(Cmd::Mcp(args)) => mcp::run(args),
        #[cfg(feature = "serve")]
        Some(Cmd::User(args)) => user::run(&args, json),
        Some(Cmd::Merge(args)) => merge::run(&args, json),
        Some(Cmd::Watch(args)) => watch::run(&args, json),
        Some(Cmd::Log(args)) => log::run(&args, json),
        Some(Cmd::Key(args)) => key::run(&args, json),
        Some(Cmd::Approve(args)) => approve::run(&args, json),
        Some(Cmd::Verify(args)) => verify::run(&args, json),
        Some(Cmd::Reference) => reference(),
    };
    match outcome {
        Ok(outcome) => outcome.exit_code(),
        Err(error) => {
            output::complain(&error);
            2
        }
    }
}

fn reference() -> anyhow::Result<Outcome> {
    let options = clap_markdown::MarkdownOptions::new().title("Every command and option".to_owned()).show_footer(false);
    output::lines(&clap_markdown::help_markdown_custom::<Args>(&options));
    Ok(Outcome::Done)
}
