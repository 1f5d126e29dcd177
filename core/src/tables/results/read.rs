//! Takes a table of results, gives its rows, each value checked.

use std::{collections::HashMap, ops::Range, sync::Arc};

use crate::{
    dispatch::parallel,
    model::{
        ErrorSummary, Estimate, Fidelity, GemmShape, KernelId, Latency, LatencySource, ModSet, NoiseBasis, NoiseShare,
        ResultRow, SiteId, StaticScale, StepErrors, UnknownMod,
    },
};

use super::{
    super::{
        Cause,
        check::RowCheck,
        columns::{Nullable, Table, Texts, Words},
    },
    ESTIMATES, TIMES,
};

type Floats = Nullable<f64>;
type Ints = Nullable<i64>;

pub(super) struct ReadColumns<'t> {
    /// The manifest's own copy; `None`: it has no such site.
    site: Words<'t, Option<SiteId>>,
    gemm: Texts<'t>,
    kernel: Texts<'t>,
    mods: Words<'t, Result<ModSet, UnknownMod>>,
    shape: [Ints; 3],
    supported: Nullable<bool>,
    reason: Texts<'t>,
    counts: [Ints; 2],
    /// Of each of `ESTIMATES`.
    estimates: [EstimateColumns; ESTIMATES.len()],
    points: [Floats; 3],
    times: [Floats; TIMES.len()],
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
    noise: EstimateColumns,
    noise_basis: Texts<'t>,
    /// In the first and in the last steps.
    step_errors: [Floats; 2],
    bias: EstimateColumns,
}

/// An estimate: of value, lower and upper end the column and its name.
struct EstimateColumns {
    names: [String; 3],
    columns: [Floats; 3],
}

fn estimate_names(name: &str) -> [String; 3] {
    ["", "_lo", "_hi"].map(|end| format!("{name}{end}"))
}

const POINTS: [&str; 3] = ["sqnr_db", "median_rel", "max_abs"];
const HELDOUT: [&str; 2] = ["heldout_rel_l2", "heldout_mere"];
const UNREAD: &str = "speedup";
const INTS: [&str; 7] = ["m", "k", "n", "draws", "zeros_skipped", "seed", "heldout_rows"];

/// What files of earlier versions lack: nulls there.
const OPTIONAL: [&str; 6] = ["static_scale", "saturation", "cached_us", "flushed", "rel_l2_first", "rel_l2_last"];
const OPTIONAL_ESTIMATES: [&str; 2] = ["noise_share", "bias"];

/// Columns of numbers, unpacked on all cores: they are most of what reading takes. Each is asked for once.
struct Numbers {
    floats: HashMap<String, Floats>,
    ints: HashMap<&'static str, Ints>,
}

impl Numbers {
    fn of(table: &(impl Table + Sync)) -> Result<Self, Cause> {
        let estimates = ESTIMATES.iter().flat_map(|metric| estimate_names(metric.as_str()));
        let plain =
            POINTS.iter().chain(&TIMES).chain(&HELDOUT).chain(&["tail_us", UNREAD]).map(|name| (*name).to_owned());
        let optional = OPTIONAL_ESTIMATES.iter().flat_map(|name| estimate_names(name));
        let optional = optional.chain(OPTIONAL.iter().map(|name| (*name).to_owned()));
        let required = estimates.chain(plain).map(|name| (name, true));
        let names: Vec<(String, bool)> = required.chain(optional.map(|name| (name, false))).collect();
        let read = |at: usize| match (names[at].1, table.float(&names[at].0)) {
            (false, Err(Cause::MissingColumn(_))) => Ok(Nullable::nulls(table.height())),
            (_, found) => found,
        };
        let floats = parallel::map_long(names.len(), read).into_iter().collect::<Result<Vec<_>, _>>()?;
        let ints = parallel::map_long(INTS.len(), |at| table.int(INTS[at]));
        let ints = ints.into_iter().collect::<Result<Vec<_>, _>>()?;
        let floats = names.into_iter().map(|(name, _)| name).zip(floats).collect();
        Ok(Self { floats, ints: INTS.into_iter().zip(ints).collect() })
    }

    fn float(&mut self, name: &str) -> Floats {
        self.floats.remove(name).unwrap_or_default()
    }

    fn int(&mut self, name: &str) -> Ints {
        self.ints.remove(name).unwrap_or_default()
    }

    fn estimate(&mut self, name: &str) -> EstimateColumns {
        let names = estimate_names(name);
        EstimateColumns { columns: [0, 1, 2].map(|end| self.float(&names[end])), names }
    }
}

fn optional_text<'t>(table: &'t impl Table, name: &str) -> Result<Texts<'t>, Cause> {
    match table.text(name) {
        Err(Cause::MissingColumn(_)) => Ok(Texts(None)),
        found => found,
    }
}

impl<'t> ReadColumns<'t> {
    pub fn of(table: &'t (impl Table + Sync), sites: &HashMap<&str, &SiteId>) -> Result<Self, Cause> {
        // In no read value, and yet of the contract, as `UNREAD` is: a file without it was made by something else.
        table.text("library")?;
        table.text("recipe")?;
        let mut numbers = Numbers::of(table)?;
        Ok(Self {
            site: table.text("site")?.each(|name| sites.get(name).map(|site| (*site).clone())),
            gemm: table.text("gemm")?,
            kernel: table.text("kernel")?,
            mods: table.text("mods")?.each(mods_of),
            shape: ["m", "k", "n"].map(|name| numbers.int(name)),
            supported: table.flag("supported")?,
            reason: table.text("reason")?,
            counts: ["draws", "zeros_skipped"].map(|name| numbers.int(name)),
            estimates: ESTIMATES.map(|metric| numbers.estimate(metric.as_str())),
            points: POINTS.map(|name| numbers.float(name)),
            times: TIMES.map(|name| numbers.float(name)),
            source: table.text("latency_source")?,
            engine: table.text("engine")?,
            device: table.text("device")?,
            seed: numbers.int("seed"),
            sampler: table.text("sampler")?,
            heldout_rows: numbers.int("heldout_rows"),
            heldout: HELDOUT.map(|name| numbers.float(name)),
            tail: numbers.float("tail_us"),
            note: table.text("latency_note")?,
            static_scale: ["static_scale", "saturation"].map(|name| numbers.float(name)),
            cached: numbers.float("cached_us"),
            flushed: numbers.float("flushed"),
            noise: numbers.estimate("noise_share"),
            noise_basis: optional_text(table, "noise_basis")?,
            step_errors: ["rel_l2_first", "rel_l2_last"].map(|name| numbers.float(name)),
            bias: numbers.estimate("bias"),
        })
    }

    /// Neighbours of one site under one set of mods from one engine: what `together` makes of the rows, before there are any.
    pub fn pieces(&self, height: usize) -> Vec<Range<usize>> {
        let of = [self.site.texts, self.mods.texts, self.engine, self.device];
        let key = |row: usize| of.map(|texts| texts.word(row));
        let mut pieces: Vec<Range<usize>> = Vec::new();
        let mut before = None;
        for row in 0..height {
            let key = Some(key(row));
            match pieces.last_mut() {
                Some(piece) if key == before => piece.end = row + 1,
                _ => pieces.push(row..row + 1),
            }
            before = key;
        }
        pieces
    }

    pub fn row(&self, row: usize) -> Result<ResultRow, Cause> {
        let check = RowCheck { row };
        let Some(site) = check.required("site", self.site.at(row))? else {
            let name = self.site.texts.at(row).map_or("", |name| name);
            return Err(check.fault(format!("site '{name}' is not in the trace")));
        };
        let mods = check.required("mods", self.mods.at(row))?.as_ref();
        let [m, k, n] = &self.shape;
        Ok(ResultRow {
            site: site.clone(),
            gemm: check.required("gemm", self.gemm.at(row))?.parse().map_err(|problem| check.fault(problem))?,
            kernel: KernelId::from(check.required("kernel", self.kernel.at(row))?),
            mods: mods.map_err(|problem| check.fault(format!("{problem}")))?.clone(),
            shape: GemmShape {
                m: check.size("m", m.at(row))?,
                k: check.size("k", k.at(row))?,
                n: check.size("n", n.at(row))?,
            },
            supported: check.required("supported", self.supported.at(row))?,
            reason: self.reason.at(row).map(|text| check.text("reason", text).cloned()).transpose()?,
            error: self.error(&check)?,
            latency: self.latency(&check)?,
            fidelity: self.fidelity(&check)?,
            static_scale: self.static_scale(&check)?,
            flushed: self.flushed(&check)?,
            sampler: text(&check, "sampler", self.sampler)?,
            engine: text(&check, "engine", self.engine)?,
            device: text(&check, "device", self.device)?,
            seed: check.required("seed", self.seed.at(row))?.cast_unsigned(),
        })
    }

    fn estimate(&self, check: &RowCheck, index: usize) -> Result<Option<Estimate>, Cause> {
        estimate_of(check, &self.estimates[index], RowCheck::not_negative)
    }

    /// A row has an error when it has a MERE; then it has the rest of it too.
    fn error(&self, check: &RowCheck) -> Result<Option<ErrorSummary>, Cause> {
        let Some(mere) = self.estimate(check, 0)? else { return Ok(None) };
        let [sqnr_db, median_rel, max_abs] = [0, 1, 2].map(|index| self.points[index].at(check.row));
        let point = |name, value| check.required(name, check.not_negative(name, value)?);
        let sqnr_db = check.required("sqnr_db", sqnr_db)?;
        if sqnr_db.is_nan() {
            return Err(check.fault("sqnr_db is NaN".to_owned()));
        }
        Ok(Some(ErrorSummary {
            draws: check.count("draws", self.counts[0].at(check.row))?,
            zeros_skipped: check.count("zeros_skipped", self.counts[1].at(check.row))?,
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
        let Some(share) = estimate_of(check, &self.noise, RowCheck::not_negative)? else {
            return Ok(None);
        };
        let name = &**check.required("noise_basis", self.noise_basis.at(check.row))?;
        let basis = NoiseBasis::ALL.into_iter().find(|known| known.as_str() == name);
        let basis = basis.ok_or_else(|| check.fault(format!("unknown noise_basis '{name}'")))?;
        let [first, last] = ["rel_l2_first", "rel_l2_last"];
        let first = check.not_negative(first, self.step_errors[0].at(check.row))?;
        let last = check.not_negative(last, self.step_errors[1].at(check.row))?;
        let steps = first.zip(last).map(|(first, last)| StepErrors { first, last });
        Ok(Some(NoiseShare { share, basis, steps }))
    }

    /// It has a sign.
    fn bias(&self, check: &RowCheck) -> Result<Option<Estimate>, Cause> {
        estimate_of(check, &self.bias, |check, name, value| match value {
            Some(value) if value.is_nan() => Err(check.fault(format!("{name} is NaN"))),
            value => Ok(value),
        })
    }

    fn latency(&self, check: &RowCheck) -> Result<Latency, Cause> {
        let time = |index: usize| check.not_negative(TIMES[index], self.times[index].at(check.row));
        let source = &**check.required("latency_source", self.source.at(check.row))?;
        let known = LatencySource::ALL.into_iter().find(|known| known.as_str() == source);
        Ok(Latency {
            latency_us: time(0)?,
            latency_lo_us: time(1)?,
            latency_hi_us: time(2)?,
            gemm_us: time(3)?,
            cast_us: time(4)?,
            baseline_us: time(5)?,
            cached_us: check.not_negative("cached_us", self.cached.at(check.row))?,
            tail_us: check.not_negative("tail_us", self.tail.at(check.row))?,
            source: known.ok_or_else(|| check.fault(format!("unknown latency_source '{source}'")))?,
            note: text(check, "latency_note", self.note)?,
        })
    }

    fn static_scale(&self, check: &RowCheck) -> Result<Option<StaticScale>, Cause> {
        let [scale, saturation] = [0, 1].map(|index| self.static_scale[index].at(check.row));
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
        match check.not_negative("flushed", self.flushed.at(check.row))? {
            Some(share) if share > 1.0 => Err(check.fault(format!("flushed is {share}, above 1"))),
            share => Ok(share),
        }
    }

    fn fidelity(&self, check: &RowCheck) -> Result<Option<Fidelity>, Cause> {
        let Some(rows) = self.heldout_rows.at(check.row) else { return Ok(None) };
        let error = |name: &str, values: &Floats| check.required(name, check.not_negative(name, values.at(check.row))?);
        Ok(Some(Fidelity {
            rows: check.count("heldout_rows", Some(rows))?,
            heldout_rel_l2: error("heldout_rel_l2", &self.heldout[0])?,
            heldout_mere: error("heldout_mere", &self.heldout[1])?,
        }))
    }
}

fn mods_of(names: &str) -> Result<ModSet, UnknownMod> {
    if names.is_empty() { Ok(ModSet::none()) } else { names.parse() }
}

fn text(check: &RowCheck, name: &str, column: Texts<'_>) -> Result<Arc<str>, Cause> {
    check.text(name, check.required(name, column.at(check.row))?).cloned()
}

/// `allowed`: what a value may be.
fn estimate_of(
    check: &RowCheck,
    of: &EstimateColumns,
    allowed: impl Fn(&RowCheck, &str, Option<f64>) -> Result<Option<f64>, Cause>,
) -> Result<Option<Estimate>, Cause> {
    let [(name, value), lo, hi] = [0, 1, 2].map(|end| (&*of.names[end], of.columns[end].at(check.row)));
    let Some(value) = allowed(check, name, value)? else { return Ok(None) };
    let end = |(name, value): (&str, Option<f64>)| check.required(name, allowed(check, name, value)?);
    let ((lo_name, _), (hi_name, _)) = (lo, hi);
    let (lo, hi) = (end(lo)?, end(hi)?);
    if lo > hi {
        return Err(check.fault(format!("{lo_name} {lo} is above {hi_name} {hi}")));
    }
    Ok(Some(Estimate { value, lo, hi }))
}
