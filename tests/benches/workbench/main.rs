//! Takes made-up results of 1,000, 10,000 and 100,000 sites x 3 GEMMs x 8 kernels, gives how long the workbench takes:
//! to open them, for a frame while a person scrolls, hovers, drags and types, to decide anew under another policy;
//! and how much memory. Every session is measured in a process of its own, on the program's own code: a window
//! without a screen, its CPU time by the system's clock of that thread.
//!
//! `cargo bench --workspace --bench workbench -- [--sites 1000,10000] [--frames 300] [--no-gpu] [--json]`

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a benchmark that cannot set itself up has nothing to report"
)]
#![allow(clippy::print_stdout, reason = "its table is its output")]

mod clock;
mod deriving;
mod frames;
mod machine;
mod report;
mod window;

use std::path::{Path, PathBuf};

use loka_core::tables;
use loka_tests::big;

use report::Figure;

/// Rows differ from seed to seed; the figures do not.
const SEED: u64 = 1;

struct BenchOptions {
    sites: Vec<usize>,
    frames: usize,
    gpu: bool,
    json: bool,
    /// Of a child: the file that it measures.
    child: Option<PathBuf>,
}

fn main() {
    loka::platform::give_back_large_lists();
    let asked = asked(std::env::args().skip(1));
    match &asked.child {
        Some(path) => measure(path, &asked),
        None => compare(&asked),
    }
}

/// What Cargo adds (`--bench`) is passed over.
fn asked(mut args: impl Iterator<Item = String>) -> BenchOptions {
    let mut asked = BenchOptions { sites: vec![1_000, 10_000], frames: 300, gpu: true, json: false, child: None };
    while let Some(arg) = args.next() {
        let mut value = || args.next().unwrap_or_else(|| panic!("{arg} needs a value"));
        match arg.as_str() {
            "--sites" => asked.sites = value().split(',').map(|text| text.parse().unwrap()).collect(),
            "--frames" => asked.frames = value().parse().unwrap(),
            "--no-gpu" => asked.gpu = false,
            "--json" => asked.json = true,
            "--child" => asked.child = Some(value().into()),
            _ => {}
        }
    }
    asked
}

/// One process a size: what one leaves behind in memory is not counted to the next.
fn compare(asked: &BenchOptions) {
    let folder = tempfile::tempdir().unwrap();
    let mut figures = Vec::new();
    for sites in &asked.sites {
        let path = folder.path().join(format!("{sites}.results.parquet"));
        tables::write_results(&path, &big::results(*sites, SEED)).unwrap();
        figures.extend(child(&path, *sites, asked));
    }
    if asked.json {
        println!("{}", report::json(&machine::describe(), &figures));
    } else {
        println!("{}", report::table(&machine::describe(), &figures));
    }
}

fn child(path: &Path, sites: usize, asked: &BenchOptions) -> Vec<Figure> {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.arg("--child").arg(path).args(["--sites", &sites.to_string(), "--frames", &asked.frames.to_string()]);
    if !asked.gpu {
        command.arg("--no-gpu");
    }
    let output = command.stderr(std::process::Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "{sites} sites: {}", output.status);
    serde_json::from_slice(&output.stdout).unwrap()
}

fn measure(path: &Path, asked: &BenchOptions) {
    let sites = asked.sites[0];
    let mut figures = Vec::new();
    let mut window = frames::open(path, asked.gpu, &mut figures);
    eprintln!("{sites} sites: {}", window.adapter());
    frames::gestures(&mut window, asked.frames, &mut figures);
    frames::idle(&mut window, &mut figures);
    deriving::decide_anew(window.session(), &mut figures);
    drop(window);
    frames::streaming(path, asked.frames, asked.gpu, &mut figures);
    figures.iter_mut().for_each(|figure| figure.sites = sites);
    println!("{}", serde_json::to_string(&figures).unwrap());
}
