//! Takes a table of results, gives its rows, each value checked.

use std::{collections::HashMap, sync::Arc};

use crate::model::{
    ErrorSummary, Estimate, Fidelity, GemmShape, KernelId, Latency, LatencySource, Metric, ModSet, NoiseBasis,
    NoiseShare, ResultRow, SiteId, StaticScale, StepErrors, UnknownMod,
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
    /// In the first and in the last steps.
    step_errors: [Floats; 2],
    bias: [Floats; 3],
}

/// A column that files of earlier versions lack: nulls there.
fn optional_float(table: &impl Table, name: &str) -> Result<Floats, Cause> {
    match table.float(name) {
        Err(Cause::MissingColumn(_)) => Ok(Nullable::nulls(table.height())),
        found => found,
    }
}

fn optional_estimate(table: &impl Table, name: &str) -> Result<[Floats; 3], Cause> {
    let part = |end: &str| optional_float(table, &format!("{name}{end}"));
    Ok([part("")?, part("_lo")?, part("_hi")?])
}

fn optional_text<'t>(table: &'t impl Table, name: &str) -> Result<Texts<'t>, Cause> {
    match table.text(name) {
        Err(Cause::MissingColumn(_)) => Ok(Texts(None)),
        found => found,
    }
}

impl<'t> ReadColumns<'t> {
    pub fn of(table: &'t impl Table, sites: &HashMap<&str, &SiteId>) -> Result<Self, Cause> {
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
            site: table.text("site")?.each(|name| sites.get(name).map(|site| (*site).clone())),
            gemm: table.text("gemm")?,
            kernel: table.text("kernel")?,
            mods: table.text("mods")?.each(mods_of),
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
            step_errors: [optional_float(table, "rel_l2_first")?, optional_float(table, "rel_l2_last")?],
            bias: optional_estimate(table, "bias")?,
        })
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
        estimate_of(check, ESTIMATES[index].as_str(), &self.estimates[index], RowCheck::not_negative)
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
        let Some(share) = estimate_of(check, "noise_share", &self.noise, RowCheck::not_negative)? else {
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
        estimate_of(check, "bias", &self.bias, |check, name, value| match value {
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
    name: &str,
    [value, lo, hi]: &[Floats; 3],
    allowed: impl Fn(&RowCheck, &str, Option<f64>) -> Result<Option<f64>, Cause>,
) -> Result<Option<Estimate>, Cause> {
    let Some(value) = allowed(check, name, value.at(check.row))? else { return Ok(None) };
    let end = |end: &str, values: &Floats| {
        let name = format!("{name}_{end}");
        check.required(&name, allowed(check, &name, values.at(check.row))?)
    };
    let (lo, hi) = (end("lo", lo)?, end("hi", hi)?);
    if lo > hi {
        return Err(check.fault(format!("{name}_lo {lo} is above {name}_hi {hi}")));
    }
    Ok(Some(Estimate { value, lo, hi }))
}
