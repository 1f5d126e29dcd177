//! Takes results, gives `*.results.parquet`, and back: as a file, and as bytes in memory.

use std::{collections::HashMap, path::Path};

use crate::{
    dispatch::parallel,
    model::{
        ErrorSummary, Estimate, Fidelity, GemmShape, KernelId, Latency, LatencySource, Metric, ModSet, NoiseBasis,
        NoiseShare, ResultRow, Results, ResultsMeta, SiteId, StaticScale, UnknownMod, charge_excess,
    },
};

#[cfg(feature = "native")]
use super::frame::{FrameColumns, FrameTable};
#[cfg(feature = "web")]
use super::memory::{MemoryColumns, MemoryTable};
use super::{
    Cause, TableError,
    check::RowCheck,
    columns::{Columns, Table},
};

/// The Parquet metadata key under which the circumstances are kept.
pub const RESULTS_KEY: &str = "loka.results";

const ESTIMATES: [Metric; 4] = [Metric::Mere, Metric::RelL2, Metric::BlockRelL2, Metric::LossCost];
const TIMES: [&str; 6] = ["latency_us", "latency_lo_us", "latency_hi_us", "gemm_us", "cast_us", "baseline_us"];

#[cfg(feature = "native")]
pub fn write_results(path: &Path, results: &Results) -> Result<(), TableError> {
    let mut columns = FrameColumns::new(results.rows.len());
    write_columns(&mut columns, results);
    let meta = metadata(results).map_err(|cause| cause.at(path))?;
    columns.write(path, vec![(RESULTS_KEY.to_owned(), meta)])
}

/// The bytes of a results file.
#[cfg(feature = "web")]
pub fn results_to_bytes(results: &Results) -> Result<Vec<u8>, Cause> {
    let mut columns = MemoryColumns::default();
    write_columns(&mut columns, results);
    columns.into_bytes(vec![(RESULTS_KEY.to_owned(), metadata(results)?)])
}

fn metadata(results: &Results) -> Result<String, Cause> {
    serde_json::to_string(&results.meta).map_err(|error| Cause::Write(error.to_string()))
}

/// The columns of docs/reference/results.md in its order; last those that files of earlier versions lack.
fn write_columns(columns: &mut impl Columns, results: &Results) {
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
    columns.text("engine", rows.iter().map(|r| Some(r.engine.as_str())));
    columns.text("device", rows.iter().map(|r| Some(r.device.as_str())));
    columns.int("seed", rows.iter().map(|r| Some(r.seed.cast_signed())));
    columns.text("sampler", rows.iter().map(|r| Some(r.sampler.as_str())));
    columns.int("heldout_rows", rows.iter().map(|r| r.fidelity.map(|f| f.rows.cast_signed())));
    columns.float("heldout_rel_l2", rows.iter().map(|r| r.fidelity.map(|f| f.heldout_rel_l2)));
    columns.float("heldout_mere", rows.iter().map(|r| r.fidelity.map(|f| f.heldout_mere)));
    columns.float("tail_us", rows.iter().map(|r| r.latency.tail_us));
    columns.text("latency_note", rows.iter().map(|r| Some(r.latency.note.as_str())));
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
    FrameTable::read(path).and_then(|table| results_of(&table)).map_err(|cause| cause.at(path))
}

/// From the bytes of a results file; `name` stands for it in errors.
#[cfg(feature = "web")]
pub fn results_from_bytes(name: &str, bytes: impl AsRef<[u8]> + Send + Sync + 'static) -> Result<Results, TableError> {
    MemoryTable::read(bytes).and_then(|table| results_of(&table)).map_err(|cause| cause.at(Path::new(name)))
}

fn results_of(table: &impl Table) -> Result<Results, Cause> {
    let meta = table.metadata(RESULTS_KEY).ok_or(Cause::NoMetadata)?;
    let meta: ResultsMeta = serde_json::from_str(meta).map_err(|error| Cause::BrokenMetadata(error.to_string()))?;
    let columns = ReadColumns::of(table)?;
    let sites: HashMap<&str, &SiteId> = meta.manifest.sites.iter().map(|site| (site.id.as_str(), &site.id)).collect();
    let rows = parallel::map_ranges(table.height(), |range| {
        let mut shared = Shared { sites: &sites, kernels: HashMap::new(), mods: HashMap::new() };
        range.map(|row| columns.row(row, &mut shared)).collect()
    });
    let mut rows: Vec<ResultRow> = rows.into_iter().collect::<Result<_, _>>()?;
    charge_excess(&mut rows);
    Ok(Results { meta, rows })
}

type Floats = Vec<Option<f64>>;
type Ints = Vec<Option<i64>>;
type Texts<'t> = Vec<Option<&'t str>>;

/// Names that many rows have: one allocation each, not one a row.
struct Shared<'t, 's> {
    /// The manifest's own copies.
    sites: &'s HashMap<&'s str, &'s SiteId>,
    kernels: HashMap<&'t str, KernelId>,
    mods: HashMap<&'t str, ModSet>,
}

impl<'t> Shared<'t, '_> {
    fn kernel(&mut self, name: &'t str) -> KernelId {
        self.kernels.entry(name).or_insert_with(|| KernelId::new(name)).clone()
    }

    fn mods(&mut self, names: &'t str) -> Result<ModSet, UnknownMod> {
        if names.is_empty() {
            return Ok(ModSet::none());
        }
        if !self.mods.contains_key(names) {
            self.mods.insert(names, names.parse()?);
        }
        Ok(self.mods.get(names).cloned().unwrap_or_default())
    }
}

struct ReadColumns<'t> {
    site: Texts<'t>,
    gemm: Texts<'t>,
    kernel: Texts<'t>,
    mods: Texts<'t>,
    shape: [Ints; 3],
    supported: Vec<Option<bool>>,
    reason: Texts<'t>,
    counts: [Ints; 2],
    /// Value, lower and upper end of each of `ESTIMATES`.
    estimates: Vec<[Floats; 3]>,
    points: [Floats; 3],
    times: Vec<Floats>,
    source: Texts<'t>,
    engine: Texts<'t>,
    device: Texts<'t>,
    seed: Ints,
    sampler: Texts<'t>,
    heldout_rows: Ints,
    heldout: [Floats; 2],
    tail: Floats,
    note: Texts<'t>,
    /// Scale and probability of saturation.
    static_scale: [Floats; 2],
    cached: Floats,
    flushed: Floats,
    noise: [Floats; 3],
    noise_basis: Texts<'t>,
    bias: [Floats; 3],
}

/// A column that files of earlier versions lack: nulls there.
fn optional_float(table: &impl Table, name: &str) -> Result<Floats, Cause> {
    match table.float(name) {
        Err(Cause::MissingColumn(_)) => Ok(vec![None; table.height()]),
        found => found,
    }
}

fn optional_estimate(table: &impl Table, name: &str) -> Result<[Floats; 3], Cause> {
    let part = |end: &str| optional_float(table, &format!("{name}{end}"));
    Ok([part("")?, part("_lo")?, part("_hi")?])
}

fn optional_text<'t>(table: &'t impl Table, name: &str) -> Result<Texts<'t>, Cause> {
    match table.text(name) {
        Err(Cause::MissingColumn(_)) => Ok(vec![None; table.height()]),
        found => found,
    }
}

impl<'t> ReadColumns<'t> {
    fn of(table: &'t impl Table) -> Result<Self, Cause> {
        let estimate = |metric: Metric| -> Result<[Floats; 3], Cause> {
            Ok([
                table.float(metric.as_str())?,
                table.float(&format!("{metric}_lo"))?,
                table.float(&format!("{metric}_hi"))?,
            ])
        };
        // In no read value, and yet of the contract: a file without it was made by something else.
        table.float("speedup")?;
        table.text("library")?;
        table.text("recipe")?;
        Ok(Self {
            site: table.text("site")?,
            gemm: table.text("gemm")?,
            kernel: table.text("kernel")?,
            mods: table.text("mods")?,
            shape: [table.int("m")?, table.int("k")?, table.int("n")?],
            supported: table.flag("supported")?,
            reason: table.text("reason")?,
            counts: [table.int("draws")?, table.int("zeros_skipped")?],
            estimates: ESTIMATES.into_iter().map(estimate).collect::<Result<_, _>>()?,
            points: [table.float("sqnr_db")?, table.float("median_rel")?, table.float("max_abs")?],
            times: TIMES.iter().map(|name| table.float(name)).collect::<Result<_, _>>()?,
            source: table.text("latency_source")?,
            engine: table.text("engine")?,
            device: table.text("device")?,
            seed: table.int("seed")?,
            sampler: table.text("sampler")?,
            heldout_rows: table.int("heldout_rows")?,
            heldout: [table.float("heldout_rel_l2")?, table.float("heldout_mere")?],
            tail: table.float("tail_us")?,
            note: table.text("latency_note")?,
            static_scale: [optional_float(table, "static_scale")?, optional_float(table, "saturation")?],
            cached: optional_float(table, "cached_us")?,
            flushed: optional_float(table, "flushed")?,
            noise: optional_estimate(table, "noise_share")?,
            noise_basis: optional_text(table, "noise_basis")?,
            bias: optional_estimate(table, "bias")?,
        })
    }

    fn row(&self, row: usize, shared: &mut Shared<'t, '_>) -> Result<ResultRow, Cause> {
        let check = RowCheck { row };
        let site = check.required("site", self.site[row])?;
        let Some(site) = shared.sites.get(site) else {
            return Err(check.fault(format!("site '{site}' is not in the trace")));
        };
        let mods = check.required("mods", self.mods[row])?;
        let owned = |name: &str, value: Option<&str>| check.required(name, value).map(str::to_owned);
        let [m, k, n] = &self.shape;
        Ok(ResultRow {
            site: (*site).clone(),
            gemm: check.required("gemm", self.gemm[row])?.parse().map_err(|problem| check.fault(problem))?,
            kernel: shared.kernel(check.required("kernel", self.kernel[row])?),
            mods: shared.mods(mods).map_err(|problem| check.fault(format!("{problem}")))?,
            shape: GemmShape { m: check.size("m", m[row])?, k: check.size("k", k[row])?, n: check.size("n", n[row])? },
            supported: check.required("supported", self.supported[row])?,
            reason: self.reason[row].map(str::to_owned),
            error: self.error(&check)?,
            latency: self.latency(&check)?,
            fidelity: self.fidelity(&check)?,
            static_scale: self.static_scale(&check)?,
            flushed: self.flushed(&check)?,
            sampler: owned("sampler", self.sampler[row])?,
            engine: owned("engine", self.engine[row])?,
            device: owned("device", self.device[row])?,
            seed: check.required("seed", self.seed[row])?.cast_unsigned(),
        })
    }

    fn estimate(&self, check: &RowCheck, index: usize) -> Result<Option<Estimate>, Cause> {
        estimate_of(check, ESTIMATES[index].as_str(), &self.estimates[index], RowCheck::not_negative)
    }

    /// A row has an error when it has a MERE; then it has the rest of it too.
    fn error(&self, check: &RowCheck) -> Result<Option<ErrorSummary>, Cause> {
        let Some(mere) = self.estimate(check, 0)? else { return Ok(None) };
        let [sqnr_db, median_rel, max_abs] = [0, 1, 2].map(|index| self.points[index][check.row]);
        let point = |name, value| check.required(name, check.not_negative(name, value)?);
        let sqnr_db = check.required("sqnr_db", sqnr_db)?;
        if sqnr_db.is_nan() {
            return Err(check.fault("sqnr_db is NaN".to_owned()));
        }
        Ok(Some(ErrorSummary {
            draws: check.count("draws", self.counts[0][check.row])?,
            zeros_skipped: check.count("zeros_skipped", self.counts[1][check.row])?,
            mere,
            rel_l2: check.required("rel_l2", self.estimate(check, 1)?)?,
            sqnr_db,
            median_rel: point("median_rel", median_rel)?,
            max_abs: point("max_abs", max_abs)?,
            block_rel_l2: self.estimate(check, 2)?,
            loss_cost: self.estimate(check, 3)?,
            loss_excess: None,
            noise: self.noise(check)?,
            bias: self.bias(check)?,
        }))
    }

    fn noise(&self, check: &RowCheck) -> Result<Option<NoiseShare>, Cause> {
        let Some(share) = estimate_of(check, "noise_share", &self.noise, RowCheck::not_negative)? else {
            return Ok(None);
        };
        let name = check.required("noise_basis", self.noise_basis[check.row])?;
        let basis = NoiseBasis::ALL.into_iter().find(|known| known.as_str() == name);
        let basis = basis.ok_or_else(|| check.fault(format!("unknown noise_basis '{name}'")))?;
        Ok(Some(NoiseShare { share, basis }))
    }

    /// It has a sign.
    fn bias(&self, check: &RowCheck) -> Result<Option<Estimate>, Cause> {
        estimate_of(check, "bias", &self.bias, |check, name, value| match value {
            Some(value) if value.is_nan() => Err(check.fault(format!("{name} is NaN"))),
            value => Ok(value),
        })
    }

    fn latency(&self, check: &RowCheck) -> Result<Latency, Cause> {
        let time = |index: usize| check.not_negative(TIMES[index], self.times[index][check.row]);
        let source = check.required("latency_source", self.source[check.row])?;
        let known = LatencySource::ALL.into_iter().find(|known| known.as_str() == source);
        Ok(Latency {
            latency_us: time(0)?,
            latency_lo_us: time(1)?,
            latency_hi_us: time(2)?,
            gemm_us: time(3)?,
            cast_us: time(4)?,
            baseline_us: time(5)?,
            cached_us: check.not_negative("cached_us", self.cached[check.row])?,
            tail_us: check.not_negative("tail_us", self.tail[check.row])?,
            source: known.ok_or_else(|| check.fault(format!("unknown latency_source '{source}'")))?,
            note: check.required("latency_note", self.note[check.row])?.to_owned(),
        })
    }

    fn static_scale(&self, check: &RowCheck) -> Result<Option<StaticScale>, Cause> {
        let [scale, saturation] = [0, 1].map(|index| self.static_scale[index][check.row]);
        let Some(scale) = scale else { return Ok(None) };
        let saturation = check.required("saturation", check.not_negative("saturation", saturation)?)?;
        let narrow = scale as f32;
        // A power of two of FP32: nothing else makes scaling exact.
        if !(narrow.is_normal() && narrow > 0.0 && f64::from(narrow) == scale && narrow.to_bits() & 0x7F_FFFF == 0) {
            return Err(check.fault(format!("static_scale is {scale}, not a power of two")));
        }
        if saturation > 1.0 {
            return Err(check.fault(format!("saturation is {saturation}, above 1")));
        }
        Ok(Some(StaticScale { scale: narrow, saturation }))
    }

    fn flushed(&self, check: &RowCheck) -> Result<Option<f64>, Cause> {
        match check.not_negative("flushed", self.flushed[check.row])? {
            Some(share) if share > 1.0 => Err(check.fault(format!("flushed is {share}, above 1"))),
            share => Ok(share),
        }
    }

    fn fidelity(&self, check: &RowCheck) -> Result<Option<Fidelity>, Cause> {
        let Some(rows) = self.heldout_rows[check.row] else { return Ok(None) };
        let error = |name: &str, values: &Floats| check.required(name, check.not_negative(name, values[check.row])?);
        Ok(Some(Fidelity {
            rows: check.count("heldout_rows", Some(rows))?,
            heldout_rel_l2: error("heldout_rel_l2", &self.heldout[0])?,
            heldout_mere: error("heldout_mere", &self.heldout[1])?,
        }))
    }
}

/// `allowed`: what a value may be.
fn estimate_of(
    check: &RowCheck,
    name: &str,
    [value, lo, hi]: &[Floats; 3],
    allowed: impl Fn(&RowCheck, &str, Option<f64>) -> Result<Option<f64>, Cause>,
) -> Result<Option<Estimate>, Cause> {
    let Some(value) = allowed(check, name, value[check.row])? else { return Ok(None) };
    let end = |end: &str, values: &Floats| {
        let name = format!("{name}_{end}");
        check.required(&name, allowed(check, &name, values[check.row])?)
    };
    let (lo, hi) = (end("lo", lo)?, end("hi", hi)?);
    if lo > hi {
        return Err(check.fault(format!("{name}_lo {lo} is above {name}_hi {hi}")));
    }
    Ok(Some(Estimate { value, lo, hi }))
}

#[cfg(test)]
#[cfg(feature = "native")]
mod tests;
