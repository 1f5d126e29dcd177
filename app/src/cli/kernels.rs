//! `loka kernels`: the kernels and engines known, and what can be said of each here.

use std::path::PathBuf;

use loka_core::{
    bench::KernelDb,
    engine::{self, EngineStatus, LibraryStatus},
    model::{Gemm, Kernel, KernelRecord, catalogue, catalogue_json},
};
use serde_json::json;

use crate::probing;

use super::output::{self, Outcome, TextTable};

#[derive(clap::Args, Debug)]
pub struct KernelsArgs {
    /// Look at the libraries of this Python too: PyTorch, TorchAO, DeepGEMM, FBGEMM, Transformer Engine (CUDA only).
    #[arg(long)]
    libraries: bool,
    #[arg(long, default_value = "python3")]
    python: PathBuf,
    /// Print what each runtime can run, as the Python package carries it: one JSON document.
    #[arg(long, conflicts_with = "libraries")]
    catalogue: bool,
}

pub fn run(args: &KernelsArgs, json: bool) -> anyhow::Result<Outcome> {
    if args.catalogue {
        output::lines(&serde_json::to_string_pretty(&catalogue_json())?);
        return Ok(Outcome::Done);
    }
    if args.libraries {
        probing::load_libraries(&args.python)?;
    }
    let (databases, statuses) = (KernelDb::builtin(), engine::statuses());
    let mut table = TextTable::new(&["kernel", "operands forward", "errors by", "runs here", "latency", "about"]);
    for kernel in catalogue() {
        let latency = Latency::of(kernel, &databases, &statuses);
        let (errors, runs) = (error_engines(&statuses), runs_here(kernel, &statuses));
        if json {
            print_json(kernel, &latency, &errors, &runs)?;
        } else {
            let runs = runs.map_or_else(|reason| format!("no: {reason}"), |engine| format!("yes ({engine})"));
            table.row([
                kernel.name.to_owned(),
                operands(kernel),
                errors.join(", "),
                runs,
                latency.text,
                kernel.about.to_owned(),
            ]);
        }
    }
    if json {
        statuses.iter().try_for_each(|status| output::json(&json!({ "engine": status })))?;
        for (library, remedy) in probing::library_remedies() {
            output::json(&json!({ "library": library, "remedy": remedy }))?;
        }
        return Ok(Outcome::Done);
    }
    table.print();
    output::line("");
    print_engines(&statuses);
    for (library, remedy) in probing::library_remedies() {
        output::line(&format!("to have {library}: {remedy}"));
    }
    Ok(Outcome::Done)
}

fn print_json(kernel: &Kernel, latency: &Latency, errors: &[&str], runs: &Result<&str, String>) -> anyhow::Result<()> {
    let (id, recorded) = (kernel.id(), latency.recorded);
    output::json(&json!({
        "kernel": id, "library": id.library(), "recipe": id.recipe(), "about": kernel.about,
        "numerics": Gemm::ALL.map(|gemm| (gemm.as_str(), kernel.numerics(gemm))).into_iter()
            .collect::<std::collections::BTreeMap<_, _>>(),
        "error_engines": errors, "latency": latency.text,
        "recorded_on": recorded.map(|record| json!({
            "device": record.device, "driver": record.driver, "versions": record.versions,
            "recorded_at": record.recorded_at,
        })),
        "runs_here": runs.is_ok(), "reason": runs.as_ref().err(),
    }))
}

/// What is known of a kernel's speed.
struct Latency<'a> {
    recorded: Option<&'a KernelRecord>,
    text: String,
}

impl<'a> Latency<'a> {
    fn of(kernel: &Kernel, databases: &'a [KernelDb], statuses: &[EngineStatus]) -> Self {
        let id = kernel.id();
        let timed = |record: &&KernelRecord| record.kernel == id && record.latency_us.is_some();
        let found = databases.iter().find_map(|database| Some((database, database.records.iter().find(timed)?)));
        let here = runs_here(kernel, statuses).is_ok();
        let measured = if here { "can be measured here (loka bench)" } else { "" };
        let text = match found {
            Some((database, record)) => {
                let recorded = format!(
                    "recorded on {}, driver {}, {} ({}), other shapes modelled",
                    record.device, record.driver, record.versions, database.name
                );
                if here { format!("{measured}; {recorded}") } else { recorded }
            }
            None if here => measured.to_owned(),
            None => "none: never timed".to_owned(),
        };
        Self { recorded: found.map(|(_, record)| record), text }
    }
}

/// Engines that measure a kernel's error here.
fn error_engines(statuses: &[EngineStatus]) -> Vec<&str> {
    statuses.iter().filter(|status| status.problem.is_none()).map(|status| status.name.as_str()).collect()
}

/// The engine that runs a kernel itself, or why none does.
fn runs_here<'a>(kernel: &Kernel, statuses: &'a [EngineStatus]) -> Result<&'a str, String> {
    let library = kernel.id().library().to_owned();
    let cuda = statuses.iter().find(|status| status.name == "cuda");
    if !kernel.is_native() && cuda.is_none_or(|status| status.problem.is_none()) {
        let found = cuda.and_then(|status| status.libraries.iter().find(|known| known.name == library));
        return match found {
            None => Err(format!("{library} runs in a Python process: ask with --libraries")),
            Some(LibraryStatus { problem: Some(problem), .. }) => Err(problem.clone()),
            Some(_) => Ok("cuda"),
        };
    }
    match cuda {
        None => Err("this build has no CUDA engine".to_owned()),
        Some(EngineStatus { problem: Some(problem), .. }) => Err(problem.clone()),
        Some(status) => Ok(&status.name),
    }
}

fn print_engines(statuses: &[EngineStatus]) {
    let mut table = TextTable::new(&["engine", "state", "device", "driver", "libraries"]);
    for status in statuses {
        let libraries = status.libraries.iter().map(|library| match &library.problem {
            None => format!("{} {} ({})", library.name, library.version, library.path),
            Some(problem) => format!("{}: {problem}", library.name),
        });
        table.row([
            status.name.clone(),
            status.problem.as_ref().map_or("ready".to_owned(), |problem| format!("missing: {problem}")),
            status.device.clone(),
            status.driver.clone(),
            libraries.collect::<Vec<_>>().join(", "),
        ]);
    }
    table.print();
}

fn operands(kernel: &Kernel) -> String {
    let numerics = kernel.numerics(Gemm::Fprop);
    let side = |cast: loka_core::model::OperandCast| {
        let pow2 = if cast.power_of_two { " 2^n" } else { "" };
        match cast.granularity {
            loka_core::model::Granularity::None => format!("{:?}", cast.format).to_lowercase(),
            granularity => format!("{:?} {granularity:?}{pow2}", cast.format).to_lowercase(),
        }
    };
    format!("{} x {}", side(numerics.a), side(numerics.b))
}
