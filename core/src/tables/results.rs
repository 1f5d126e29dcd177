//! Takes results, gives `*.results.parquet`, and back: as a file, and as bytes in memory.

use std::{collections::HashMap, ops::Range, path::Path, sync::Arc};

use crate::{
    dispatch::parallel,
    model::{
        Bf16LossCosts, Estimate, Gemm, Latency, Metric, ModKind, ResultRow, Results, ResultsBySite, ResultsMeta,
        SiteId, SiteRows, charge_excess,
    },
    parts::RunKey,
};

#[cfg(feature = "native")]
use super::file;
#[cfg(feature = "web")]
use super::memory::{Fills, MemoryTable, bytes_of};
use super::{
    Cause, TableError,
    columns::{Columns, Table},
    seal::{parsed, refuse_part},
};
use read::ReadColumns;

mod read;

/// The Parquet metadata key under which the circumstances are kept.
pub const RESULTS_KEY: &str = "loka.results";

/// The same of a part of a probe: which it is of which, and its seal.
pub const PART_KEY: &str = "loka.part";

const ESTIMATES: [Metric; 4] = [Metric::Mere, Metric::RelL2, Metric::BlockRelL2, Metric::LossCost];
const TIMES: [&str; 6] = ["latency_us", "latency_lo_us", "latency_hi_us", "gemm_us", "cast_us", "baseline_us"];

#[cfg(feature = "native")]
pub fn write_results(path: &Path, results: &Results) -> Result<(), TableError> {
    write_with(path, results, Vec::new())
}

/// With more metadata than that of results.
#[cfg(feature = "native")]
pub(super) fn write_with(path: &Path, results: &Results, more: Vec<(String, String)>) -> Result<(), TableError> {
    let meta = metadata(results).map_err(|cause| cause.at(path))?;
    let pairs = [vec![(RESULTS_KEY.to_owned(), meta)], more].concat();
    file::write_bytes(path, || bytes_of(results, pairs))
}

/// The bytes of a results file.
#[cfg(feature = "web")]
pub fn results_to_bytes(results: &Results) -> Result<Vec<u8>, Cause> {
    bytes_of(results, vec![(RESULTS_KEY.to_owned(), metadata(results)?)])
}

#[cfg(feature = "web")]
impl Fills for Results {
    fn fill(&self, columns: &mut impl Columns) {
        result_columns(columns, self);
    }
}

fn metadata(results: &Results) -> Result<String, Cause> {
    serde_json::to_string(&results.meta).map_err(|error| Cause::Write(error.to_string()))
}

/// The columns of docs/reference/results.md in its order; last those that files of earlier versions lack.
pub fn result_columns(columns: &mut impl Columns, results: &Results) {
    let rows = &results.rows;
    let mods: Vec<String> = rows.iter().map(|row| row.mods.to_string()).collect();
    columns.text("site", rows.iter().map(|r| Some(r.site.as_str())));
    columns.text("gemm", rows.iter().map(|r| Some(r.gemm.as_str())));
    columns.text("kernel", rows.iter().map(|r| Some(r.kernel.as_str())));
    columns.text("library", rows.iter().map(|r| Some(r.kernel.library())));
    columns.text("recipe", rows.iter().map(|r| Some(r.kernel.recipe())));
    columns.text("mods", mods.iter().map(|mods| Some(mods.as_str())));
    columns.int("m", rows.iter().map(|r| Some(r.shape.m as i64)));
    columns.int("k", rows.iter().map(|r| Some(r.shape.k as i64)));
    columns.int("n", rows.iter().map(|r| Some(r.shape.n as i64)));
    columns.flag("supported", rows.iter().map(|r| r.supported));
    columns.text("reason", rows.iter().map(|r| r.reason.as_deref()));
    write_errors(columns, rows);
    write_latencies(columns, rows);
    columns.text("engine", rows.iter().map(|r| Some(&*r.engine)));
    columns.text("device", rows.iter().map(|r| Some(&*r.device)));
    columns.int("seed", rows.iter().map(|r| Some(r.seed.cast_signed())));
    columns.text("sampler", rows.iter().map(|r| Some(&*r.sampler)));
    columns.int("heldout_rows", rows.iter().map(|r| r.fidelity.map(|f| f.rows.cast_signed())));
    columns.float("heldout_rel_l2", rows.iter().map(|r| r.fidelity.map(|f| f.heldout_rel_l2)));
    columns.float("heldout_mere", rows.iter().map(|r| r.fidelity.map(|f| f.heldout_mere)));
    columns.float("tail_us", rows.iter().map(|r| r.latency.tail_us));
    columns.text("latency_note", rows.iter().map(|r| Some(&*r.latency.note)));
    columns.float("static_scale", rows.iter().map(|r| r.static_scale.map(|known| f64::from(known.scale))));
    columns.float("saturation", rows.iter().map(|r| r.static_scale.map(|known| known.saturation)));
    columns.float("cached_us", rows.iter().map(|r| r.latency.cached_us));
    columns.float("flushed", rows.iter().map(|r| r.flushed));
    write_training(columns, rows, results.meta.manifest.loss.value);
}

/// What an error does to training. `loss_cost` itself is as it was measured; what is charged of it, and whether it means
/// anything, are for other programs: read back they are derived.
fn write_training(columns: &mut impl Columns, rows: &[ResultRow], loss: f64) {
    write_estimate(columns, "noise_share", || rows.iter().map(|row| row.metric(Metric::NoiseShare)));
    let basis = |row: &ResultRow| Some(row.error.as_ref()?.noise?.basis.as_str());
    columns.text("noise_basis", rows.iter().map(basis));
    write_estimate(columns, "bias", || rows.iter().map(|row| row.metric(Metric::Bias)));
    let excess = |row: &ResultRow| row.error.as_ref()?.loss_excess;
    write_estimate(columns, "loss_cost_excess", || rows.iter().map(excess));
    columns.flag("loss_cost_in_range", rows.iter().map(|row| !row.is_loss_cost_out_of_range(loss)));
    let steps = |row: &ResultRow| row.error.as_ref()?.noise?.steps;
    columns.float("rel_l2_first", rows.iter().map(|row| steps(row).map(|steps| steps.first)));
    columns.float("rel_l2_last", rows.iter().map(|row| steps(row).map(|steps| steps.last)));
}

fn write_errors(columns: &mut impl Columns, rows: &[ResultRow]) {
    let errors = || rows.iter().map(|row| row.error.as_ref());
    columns.int("draws", errors().map(|e| e.map(|e| e.draws.cast_signed())));
    columns.int("zeros_skipped", errors().map(|e| e.map(|e| e.zeros_skipped.cast_signed())));
    write_estimate(columns, "mere", || errors().map(|e| e.map(|e| e.mere)));
    write_estimate(columns, "rel_l2", || errors().map(|e| e.map(|e| e.rel_l2)));
    columns.float("sqnr_db", errors().map(|e| e.map(|e| e.sqnr_db)));
    columns.float("median_rel", errors().map(|e| e.map(|e| e.median_rel)));
    columns.float("max_abs", errors().map(|e| e.map(|e| e.max_abs)));
    write_estimate(columns, "block_rel_l2", || errors().map(|e| e.and_then(|e| e.block_rel_l2)));
    write_estimate(columns, "loss_cost", || errors().map(|e| e.and_then(|e| e.loss_cost)));
}

fn write_estimate<I: Iterator<Item = Option<Estimate>>>(
    columns: &mut impl Columns,
    name: &str,
    estimates: impl Fn() -> I,
) {
    columns.float(name, estimates().map(|e| e.map(|e| e.value)));
    columns.float(&format!("{name}_lo"), estimates().map(|e| e.map(|e| e.lo)));
    columns.float(&format!("{name}_hi"), estimates().map(|e| e.map(|e| e.hi)));
}

fn write_latencies(columns: &mut impl Columns, rows: &[ResultRow]) {
    for (index, name) in TIMES.iter().enumerate() {
        columns.float(name, rows.iter().map(|row| times(&row.latency)[index]));
    }
    columns.float("speedup", rows.iter().map(ResultRow::speedup));
    columns.text("latency_source", rows.iter().map(|row| Some(row.latency.source.as_str())));
}

fn times(latency: &Latency) -> [Option<f64>; 6] {
    let range = [latency.latency_us, latency.latency_lo_us, latency.latency_hi_us];
    let [us, lo, hi] = range;
    [us, lo, hi, latency.gemm_us, latency.cast_us, latency.baseline_us]
}

#[cfg(feature = "native")]
pub fn read_results(path: &Path) -> Result<Results, TableError> {
    file::read_keyed(path, head_of).and_then(|read| whole(read, results_of)).map_err(|cause| cause.at(path))
}

/// The same with its rows put together by site.
#[cfg(feature = "native")]
pub fn read_results_by_site(path: &Path) -> Result<ResultsBySite, TableError> {
    file::read_keyed(path, head_of).and_then(|read| whole(read, results_by_site_of)).map_err(|cause| cause.at(path))
}

/// From the bytes of a results file; `name` stands for it in errors.
#[cfg(feature = "web")]
pub fn results_from_bytes(name: &str, bytes: impl AsRef<[u8]> + Send + Sync + 'static) -> Result<Results, TableError> {
    let read = MemoryTable::read_keyed(bytes, head_of);
    read.and_then(|read| whole(read, results_of)).map_err(|cause| cause.at(Path::new(name)))
}

/// The same with its rows put together by site.
#[cfg(feature = "web")]
pub fn results_by_site_from_bytes(
    name: &str,
    bytes: impl AsRef<[u8]> + Send + Sync + 'static,
) -> Result<ResultsBySite, TableError> {
    let read = MemoryTable::read_keyed(bytes, head_of);
    read.and_then(|read| whole(read, results_by_site_of)).map_err(|cause| cause.at(Path::new(name)))
}

/// What is made of a table that is no part of a run.
fn whole<R>(
    (table, meta): (MemoryTable, ResultsMeta),
    of: fn(&MemoryTable, ResultsMeta) -> Result<R, Cause>,
) -> Result<R, Cause> {
    refuse_part::<RunKey>(&table, PART_KEY)?;
    of(&table, meta)
}

/// Kernels on the engines that one file has rows of: many times those that are known.
const MOST_KERNELS: usize = 512;

/// The rows that it can mean, which are each GEMM of each site by each kernel with each set of mods; and what says so.
pub(super) fn head_of(table: &MemoryTable) -> Result<(usize, ResultsMeta), Cause> {
    let meta = table.metadata(RESULTS_KEY).ok_or(Cause::NoMetadata)?;
    let meta: ResultsMeta = parsed(RESULTS_KEY, meta)?;
    let mod_sets = 1 << ModKind::ALL.len();
    Ok((meta.manifest.sites.len().saturating_mul(Gemm::ALL.len() * MOST_KERNELS * mod_sets), meta))
}

pub(super) fn results_of(table: &MemoryTable, meta: ResultsMeta) -> Result<Results, Cause> {
    let columns = ReadColumns::of(table, &sites_of(&meta))?;
    let rows = parallel::map_ranges(table.height(), |range| range.map(|row| columns.row(row)).collect());
    let mut rows: Vec<ResultRow> = rows.into_iter().collect::<Result<_, _>>()?;
    charge_excess(&mut rows);
    Ok(Results { meta, rows })
}

fn results_by_site_of(table: &MemoryTable, meta: ResultsMeta) -> Result<ResultsBySite, Cause> {
    let columns = ReadColumns::of(table, &sites_of(&meta))?;
    let pieces = columns.pieces(table.height());
    // Rows are large, and a list that may end at any of them is grown and copied on the way.
    let read = |range: Range<usize>| {
        let mut rows = Vec::with_capacity(range.len());
        for row in range {
            rows.push(columns.row(row)?);
        }
        Ok(rows)
    };
    let pieces = parallel::map_owned(pieces, read).into_iter().collect::<Result<Vec<_>, Cause>>()?;
    let of_bf16 = Bf16LossCosts::of(pieces.iter().flatten());
    let sites = parallel::map_owned(pieces, |mut rows| {
        of_bf16.charge(&mut rows);
        Arc::new(SiteRows::from(rows))
    });
    Ok(ResultsBySite { meta, sites })
}

fn sites_of(meta: &ResultsMeta) -> HashMap<&str, &SiteId> {
    meta.manifest.sites.iter().map(|site| (site.id.as_str(), &site.id)).collect()
}

#[cfg(test)]
#[cfg(feature = "native")]
mod tests;
