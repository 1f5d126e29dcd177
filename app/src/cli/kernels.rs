//! `loka kernels`: what is known, and what can be said of each here. `loka bench`: why not here.

use std::path::PathBuf;

use loka_core::{
    bench::KernelDb,
    model::{Gemm, Kernel, catalogue},
};
use serde_json::json;

use super::output::{self, Outcome, Table};

#[derive(clap::Args, Debug)]
pub struct BenchArgs {
    /// A CSV of m,k,n or a trace.
    #[arg(long)]
    shapes: PathBuf,
    /// The kernel database to write, *.kernels.parquet.
    #[arg(long)]
    out: PathBuf,
}

/// Measuring needs a GPU engine; this build has none.
pub fn bench(args: &BenchArgs) -> anyhow::Result<Outcome> {
    anyhow::bail!(
        "this build has no CUDA engine and the CPU engine cannot time GPU kernels, so there is nothing to measure: {}",
        args.shapes.display()
    )
}

pub fn run(json: bool) -> anyhow::Result<Outcome> {
    let databases = KernelDb::builtin();
    let mut table = Table::new(&["kernel", "operands forward", "error", "latency", "about"]);
    for kernel in catalogue() {
        let id = kernel.id();
        let timed = databases
            .iter()
            .find(|database| database.records.iter().any(|record| record.kernel == id && record.latency_us.is_some()));
        let latency = match timed {
            Some(database) => format!("recorded ({}), other shapes modelled", database.name),
            None => "none: not recorded, and there is no GPU engine here to measure it".to_owned(),
        };
        if json {
            output::json(&json!({
                "kernel": id, "library": id.library(), "recipe": id.recipe(), "about": kernel.about,
                "numerics": Gemm::ALL.map(|gemm| (gemm.as_str(), kernel.numerics(gemm))).into_iter()
                    .collect::<std::collections::BTreeMap<_, _>>(),
                "error_engine": "cpu", "latency": latency, "runs_here": false,
            }))?;
        } else {
            table.row([
                id.to_string(),
                operands(kernel),
                "emulated (cpu)".to_owned(),
                latency,
                kernel.about.to_owned(),
            ]);
        }
    }
    if !json {
        table.print();
        output::line("");
        output::line(
            "No kernel runs on this machine: this build has the CPU engine alone, which emulates their numerics.",
        );
    }
    Ok(Outcome::Done)
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
