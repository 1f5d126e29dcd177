//! Takes kernel databases, gives the latency of a kernel at a GEMM: recorded, modelled or none.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use crate::model::{Gemm, GemmShape, Kernel, KernelId, KernelRecord, Latency, LatencySource, kernel};

use super::{
    database::{KernelDb, baselines_of},
    fit::{Fit, Sample},
    measured::Measured,
    work::Work,
};

/// The models of one kernel. `None`: too few records of that part.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KernelFits {
    pub gemm: Option<Fit>,
    pub cast: Option<Fit>,
    /// Casts and GEMM as one sequence, fitted as a whole: launches overlap, so it is not the sum.
    pub latency: Option<Fit>,
    /// The same with the weight cast before, of kernels with a static scale: plans ask what x in codes would save.
    pub cached: Option<Fit>,
    /// The tail by itself, of kernels that have it inside.
    pub tail: Option<Fit>,
}

/// All that is known of one kernel's speed.
#[derive(Clone, Debug)]
struct TimedRow {
    database: String,
    baseline: Option<KernelId>,
    circumstances: String,
    records: HashMap<(Gemm, GemmShape), KernelRecord>,
    fits: BTreeMap<Gemm, KernelFits>,
}

/// One kernel at one GEMM before the comparison with its baseline.
struct KnownLatency {
    latency: Option<f64>,
    range: (Option<f64>, Option<f64>),
    gemm: Option<f64>,
    cast: Option<f64>,
    cached: Option<f64>,
    tail: Option<f64>,
    source: LatencySource,
    note: String,
}

/// Kernel databases with their models, looked up by kernel and shape.
#[derive(Clone, Debug, Default)]
pub struct Latencies {
    kernels: BTreeMap<KernelId, Arc<TimedRow>>,
    /// BF16 of each database, by the database's name: speed-ups never mix two sources.
    baselines: BTreeMap<(String, KernelId), Arc<TimedRow>>,
    measured: Measured,
}

impl Latencies {
    pub fn builtin() -> Self {
        Self::new(&KernelDb::builtin())
    }

    /// A kernel that several databases hold is taken from the first of them, whole: rows of
    /// different sources are never mixed. Of one with several devices each is a database for itself ([`super::of_device`]
    /// chooses one).
    pub fn new(databases: &[KernelDb]) -> Self {
        let (mut kernels, mut baselines) = (BTreeMap::new(), BTreeMap::new());
        let sources = databases.iter().flat_map(|database| {
            let by_device = database.by_device();
            by_device.into_iter().map(move |records| (database.name.as_str(), records))
        });
        for (at, (name, records)) in sources.enumerate() {
            // Two files may have one name.
            let name = format!("{at} {name}");
            let mut by_kernel: BTreeMap<&KernelId, Vec<&KernelRecord>> = BTreeMap::new();
            for record in records {
                by_kernel.entry(&record.kernel).or_default().push(record);
            }
            let baseline_of = |id: &KernelId| baselines_of(id).into_iter().find(|own| by_kernel.contains_key(own));
            let needed: BTreeSet<KernelId> = by_kernel.keys().filter_map(|id| baseline_of(id)).collect();
            for (id, records) in &by_kernel {
                let id = *id;
                if !needed.contains(id) && kernels.contains_key(id) {
                    continue;
                }
                let timed = Arc::new(TimedRow::new(&name, baseline_of(id), id, records));
                if needed.contains(id) {
                    baselines.entry((name.clone(), id.clone())).or_insert_with(|| timed.clone());
                }
                kernels.entry(id.clone()).or_insert(timed);
            }
        }
        Self { kernels, baselines, measured: Measured::default() }
    }

    /// Records that this process timed on this machine's GPU: preferred to any database at exactly their
    /// kernel, GEMM and shape, and compared with the baseline of their own run alone.
    #[must_use]
    pub fn with_measured(mut self, records: &[KernelRecord]) -> Self {
        self.measured.add(records);
        self
    }

    /// The models that answer for a kernel at that GEMM: its own, else those of another direction.
    pub fn fits(&self, kernel: &KernelId, gemm: Gemm) -> Option<&KernelFits> {
        self.kernels.get(kernel)?.fits_for(gemm).map(|(_, fits)| fits)
    }

    /// The latency of `kernel`, with its casts, and of BF16 from the same source. `modelled` when
    /// either of the two is.
    pub fn latency(&self, kernel: &KernelId, gemm: Gemm, shape: GemmShape) -> Latency {
        if let Some(latency) = self.measured.latency(kernel, gemm, shape) {
            return latency;
        }
        let Some(timed) = self.kernels.get(kernel) else {
            return Latency::unknown(&format!("no latency of {kernel} was recorded"));
        };
        let known = timed.at(kernel, gemm, shape);
        let mut latency = Latency {
            latency_us: known.latency,
            latency_lo_us: known.range.0,
            latency_hi_us: known.range.1,
            gemm_us: known.gemm,
            cast_us: known.cast,
            cached_us: known.cached,
            baseline_us: None,
            tail_us: known.tail,
            source: known.source,
            note: known.note.into(),
        };
        self.compare(timed, kernel, (gemm, shape), &mut latency);
        latency
    }

    fn compare(&self, timed: &TimedRow, kernel: &KernelId, at: (Gemm, GemmShape), latency: &mut Latency) {
        let Some(id) = timed.baseline.as_ref() else { return };
        if id == kernel {
            latency.baseline_us = latency.latency_us;
            return;
        }
        let same_source = self.baselines.get(&(timed.database.clone(), id.clone()));
        let Some(baseline) = same_source.map(|baseline| baseline.at(id, at.0, at.1)) else { return };
        latency.baseline_us = with_tail(kernel, baseline.latency, latency.tail_us);
        if baseline.source == LatencySource::Modelled && latency.source == LatencySource::Recorded {
            latency.source = LatencySource::Modelled;
            latency.note = format!("{}; its baseline {id} {}", latency.note, baseline.note).into();
        }
    }
}

/// BF16's time beside that of `id`: of a kernel with the tail inside that is the tail by itself behind it, too.
pub(super) fn with_tail(id: &KernelId, bf16_us: Option<f64>, tail_us: Option<f64>) -> Option<f64> {
    if kernel(id.as_str()).is_some_and(Kernel::has_tail) { Some(bf16_us? + tail_us?) } else { bf16_us }
}

impl TimedRow {
    fn new(database: &str, baseline: Option<KernelId>, id: &KernelId, records: &[&KernelRecord]) -> Self {
        let circumstances = records.first().map_or(String::new(), |first| {
            let parts = [first.device.clone(), format!("driver {}", first.driver), first.versions.clone()];
            parts.join(", ")
        });
        Self {
            database: database.to_owned(),
            baseline,
            circumstances,
            records: records.iter().map(|r| ((r.gemm, r.shape), (*r).clone())).collect(),
            fits: kernel(id.as_str()).map_or_else(BTreeMap::new, |entry| fits_by_gemm(entry, records)),
        }
    }

    /// A direction without a model of its own takes the forward one, then any: the same GEMM with the
    /// bytes of its own casts.
    fn fits_for(&self, gemm: Gemm) -> Option<(Gemm, &KernelFits)> {
        [gemm].into_iter().chain(Gemm::ALL).find_map(|other| Some((other, self.fits.get(&other)?)))
    }

    fn at(&self, id: &KernelId, gemm: Gemm, shape: GemmShape) -> KnownLatency {
        let as_run = kernel(id.as_str()).map_or(shape, |entry| entry.as_run(gemm, shape));
        let records = [shape, as_run].map(|shape| self.records.get(&(gemm, shape)));
        match records.into_iter().flatten().next() {
            Some(record) => self.recorded(record),
            None => self.modelled(id, gemm, shape),
        }
    }

    fn recorded(&self, record: &KernelRecord) -> KnownLatency {
        let circumstances = &self.circumstances;
        let reason = record.reason.as_deref();
        let note = match (record.supported, record.latency_us) {
            (false, _) => {
                format!("does not run there: {} ({circumstances})", reason.unwrap_or("no reason was recorded"))
            }
            (true, None) => format!("only the bare GEMM was recorded, without casts ({circumstances})"),
            (true, Some(_)) => format!("recorded on {circumstances}"),
        };
        KnownLatency {
            latency: record.latency_us,
            range: (record.latency_p10_us, record.latency_p90_us),
            gemm: record.gemm_us,
            cast: record.cast_us,
            cached: record.latency_cached_us,
            tail: record.tail_us,
            source: if record.latency_us.is_some() { LatencySource::Recorded } else { LatencySource::None },
            note,
        }
    }

    fn modelled(&self, id: &KernelId, gemm: Gemm, shape: GemmShape) -> KnownLatency {
        let circumstances = &self.circumstances;
        let nothing = |note| {
            let source = LatencySource::None;
            KnownLatency {
                latency: None,
                range: (None, None),
                gemm: None,
                cast: None,
                cached: None,
                tail: None,
                source,
                note,
            }
        };
        let Some(entry) = kernel(id.as_str()) else {
            return nothing(format!("this shape was not recorded, and {id} is not a kernel that can be modelled"));
        };
        if let Some(reason) = entry.refuses(gemm, shape) {
            return nothing(format!("does not run there: {reason}"));
        }
        let work = Work::of(entry, gemm, entry.as_run(gemm, shape));
        let Some((recorded, fits)) = self.fits_for(gemm) else {
            return nothing(format!("too few records to model ({circumstances})"));
        };
        let bare = fits.gemm.as_ref().map(|fit| fit.us(gemm_part(work)));
        let cast = fits.cast.as_ref().map(|fit| fit.us(cast_part(work))).filter(|_| work.cast_mb > 0.0);
        let Some(fit) = &fits.latency else {
            let bare_only = format!("only bare GEMMs were recorded, without casts ({circumstances})");
            return KnownLatency {
                gemm: bare,
                ..nothing(if bare.is_some() {
                    bare_only
                } else {
                    format!("too few records to model ({circumstances})")
                })
            };
        };
        let us = fit.us(work);
        let error = fit.error;
        KnownLatency {
            latency: Some(us),
            range: (Some(us * error.ratio_p10), Some(us * error.ratio_p90)),
            gemm: bare,
            cast: cast.or((work.cast_mb == 0.0).then_some(0.0)),
            cached: fits.cached.as_ref().map(|fit| fit.us(cached_part(work))),
            tail: fits.tail.as_ref().map(|fit| fit.us(tail_part(work))),
            source: LatencySource::Modelled,
            note: modelled_note(fit, work, (gemm, recorded), circumstances),
        }
    }
}

fn modelled_note(fit: &Fit, work: Work, (gemm, recorded): (Gemm, Gemm), circumstances: &str) -> String {
    let mut note = format!(
        "modelled from {} shapes recorded on {circumstances}; left out in turn, half of them are within {:.0} % and nine in ten within {:.0} %",
        fit.records,
        100.0 * fit.error.p50,
        100.0 * fit.error.p90
    );
    if gemm != recorded {
        note += &format!("; {gemm} is modelled from {recorded} records");
    }
    if let Some(beyond) = fit.extrapolates(work) {
        note += &format!("; {beyond}");
    }
    note
}

fn gemm_part(work: Work) -> Work {
    Work { cast_mb: 0.0, ..work }
}

fn cast_part(work: Work) -> Work {
    Work { mega_flop: 0.0, gemm_mb: 0.0, ..work }
}

fn cached_part(work: Work) -> Work {
    Work { cast_mb: work.cached_mb, ..work }
}

/// As a copy: bytes alone.
fn tail_part(work: Work) -> Work {
    Work { mega_flop: 0.0, gemm_mb: 0.0, wave_mega_flop: 0.0, cast_mb: work.tail_mb, ..work }
}

/// A model for each direction that has any; which one a fit is of matters: the transposed copies of dgrad
/// and wgrad and their layouts cost what fprop does not show.
fn fits_by_gemm(entry: &Kernel, records: &[&KernelRecord]) -> BTreeMap<Gemm, KernelFits> {
    let of = |gemm| {
        let own: Vec<&KernelRecord> = records.iter().copied().filter(|record| record.gemm == gemm).collect();
        KernelFits::to_records(entry, &own)
    };
    Gemm::ALL.into_iter().map(|gemm| (gemm, of(gemm))).filter(|(_, fits)| *fits != KernelFits::default()).collect()
}

impl KernelFits {
    fn to_records(entry: &Kernel, records: &[&KernelRecord]) -> Self {
        let fit = |value: fn(&KernelRecord) -> Option<f64>, part: fn(Work) -> Work| {
            let samples: Vec<Sample> = records
                .iter()
                .filter_map(|record| {
                    let us = value(record).filter(|us| *us > 0.0)?;
                    Some(Sample { work: part(Work::of(entry, record.gemm, record.shape)), us })
                })
                .collect();
            Fit::to_samples(&samples)
        };
        Self {
            gemm: fit(|r| r.gemm_us, gemm_part),
            cast: fit(|r| r.cast_us, cast_part),
            latency: fit(|r| r.latency_us, |work| work),
            cached: if entry.is_static() { fit(|r| r.latency_cached_us, cached_part) } else { None },
            tail: if entry.has_tail() { fit(|r| r.tail_us, tail_part) } else { None },
        }
    }
}

#[cfg(test)]
#[path = "latency_tests.rs"]
mod tests;
