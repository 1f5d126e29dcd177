//! What `loka bench` prints: the best kernel of every GEMM, means, what makes the figures doubtful.

use std::path::Path;

use loka_core::{
    bench::{Condition, Means, Moved, REPEATS_WITHIN, Summary, Winner},
    engine::EngineError,
    model::{GemmShape, KernelRecord},
};
use serde_json::json;

use super::output::{self, TextTable, short};

pub fn json(
    out: &Path,
    records: &[KernelRecord],
    summary: &Summary,
    condition: &Condition,
    moved: Option<&Option<Moved>>,
    lost: Option<&EngineError>,
) -> anyhow::Result<()> {
    for record in records {
        // Raw samples are in the file.
        output::json(&record.without_samples())?;
    }
    output::json(&json!({
        "written": out, "num_records": records.len(), "gemms": summary.gemms, "means": summary.means,
        "condition": condition, "against": moved, "lost": lost.map(ToString::to_string),
    }))
}

pub fn print(out: &Path, records: &[KernelRecord], summary: &Summary, condition: &Condition) {
    print_gemms(summary);
    output::line("");
    print_means(summary);
    output::line("");
    for warning in &condition.warnings {
        output::line(&format!("warning: {warning}"));
    }
    match (&condition.unknown, condition.warnings.is_empty()) {
        (Some(reason), _) => {
            output::line(&format!("Whether the GPU was busy or throttled cannot be told: {reason}."));
        }
        (None, true) => output::line("The GPU was idle before, not throttled, and steady while timing."),
        (None, false) => {}
    }
    let unsupported = records.iter().filter(|record| !record.supported).count();
    output::line(&format!("{} records, {unsupported} unsupported: {}", records.len(), out.display()));
}

fn print_gemms(summary: &Summary) {
    let mut table = TextTable::new(&[
        "gemm",
        ">m",
        ">k",
        ">n",
        ">BF16 us",
        "both cast",
        ">x BF16",
        "weight cached",
        ">x BF16",
        "bare GEMM",
        ">x BF16",
    ]);
    for one in &summary.gemms {
        let GemmShape { m, k, n } = one.shape;
        let place = [one.gemm.to_string(), m.to_string(), k.to_string(), n.to_string(), short(one.baseline_us)];
        let winners = [&one.best_both, &one.best_cached, &one.best_gemm];
        let cells = winners.into_iter().flat_map(|Winner { kernel, speedup }| [kernel.to_string(), times(*speedup)]);
        table.row(place.into_iter().chain(cells));
    }
    table.print();
}

fn print_means(summary: &Summary) {
    let mut table = TextTable::new(&[
        "geometric means",
        "gemm",
        ">shapes",
        ">x BF16, both cast",
        ">x BF16, weight cached",
        ">x BF16, bare GEMM",
    ]);
    for Means { gemm, kernel, shapes, speedups } in &summary.means {
        let name = kernel.as_ref().map_or("best native kernel of each shape".to_owned(), ToString::to_string);
        let cell = |speedup: Option<f64>| speedup.map_or("-".to_owned(), times);
        table.row([
            name,
            gemm.to_string(),
            shapes.to_string(),
            cell(speedups.both),
            cell(speedups.cached),
            cell(speedups.gemm),
        ]);
    }
    table.print();
}

fn times(speedup: f64) -> String {
    format!("{speedup:.2}")
}

pub fn print_moved(moved: Option<&Moved>) {
    let limit = 100.0 * REPEATS_WITHIN;
    let Some(moved) = moved else {
        output::line("fail: the other database has no timed kernel, GEMM and shape in common with this one");
        return;
    };
    let word = if moved.passes { "pass" } else { "fail" };
    let other = if moved.other_circumstances { "; its device, driver or versions are others" } else { "" };
    output::line(&format!(
        "{word}: medians moved by {:.1} % at p90 over {} kernels and shapes (limit {limit:.0} %; median {:.1} %, most {:.1} %; {:.3}x in all{other})",
        100.0 * moved.p90,
        moved.compared,
        100.0 * moved.p50,
        100.0 * moved.worst,
        moved.ratio,
    ));
}
