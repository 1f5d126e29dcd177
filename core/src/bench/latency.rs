//! Takes kernel databases, gives the latency of a kernel at a GEMM: recorded, modelled or none.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::model::{Gemm, GemmShape, Kernel, KernelId, KernelRecord, Latency, LatencySource, kernel};

use super::{
    database::KernelDb,
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
}

/// All that is known of one kernel's speed.
#[derive(Clone, Debug)]
struct Timed {
    database: String,
    baseline: Option<KernelId>,
    circumstances: String,
    records: HashMap<(Gemm, GemmShape), KernelRecord>,
    fits: BTreeMap<Gemm, KernelFits>,
}

/// One kernel at one GEMM before the comparison with its baseline.
struct Known {
    latency: Option<f64>,
    range: (Option<f64>, Option<f64>),
    gemm: Option<f64>,
    cast: Option<f64>,
    source: LatencySource,
    note: String,
}

/// Kernel databases with their models, looked up by kernel and shape.
#[derive(Clone, Debug, Default)]
pub struct Latencies {
    kernels: BTreeMap<KernelId, Timed>,
    /// BF16 of each database, by the database's name: speed-ups never mix two sources.
    baselines: BTreeMap<(String, KernelId), Timed>,
    measured: Measured,
}

impl Latencies {
    pub fn builtin() -> Self {
        Self::new(&KernelDb::builtin())
    }

    /// A kernel that several databases hold is taken from the first of them, whole: rows of
    /// different sources are never mixed.
    pub fn new(databases: &[KernelDb]) -> Self {
        let (mut kernels, mut baselines) = (BTreeMap::new(), BTreeMap::new());
        for database in databases {
            let mut by_kernel: BTreeMap<&KernelId, Vec<&KernelRecord>> = BTreeMap::new();
            for record in &database.records {
                by_kernel.entry(&record.kernel).or_default().push(record);
            }
            let needed: BTreeSet<KernelId> = by_kernel.keys().filter_map(|id| database.baseline_of(id)).collect();
            for (id, records) in by_kernel {
                if needed.contains(id) {
                    let at = (database.name.clone(), id.clone());
                    baselines.entry(at).or_insert_with(|| Timed::new(database, id, &records));
                }
                kernels.entry(id.clone()).or_insert_with(|| Timed::new(database, id, &records));
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
            baseline_us: None,
            tail_us: None,
            source: known.source,
            note: known.note,
        };
        self.compare(timed, kernel, (gemm, shape), &mut latency);
        latency
    }

    fn compare(&self, timed: &Timed, kernel: &KernelId, at: (Gemm, GemmShape), latency: &mut Latency) {
        let Some(id) = timed.baseline.as_ref() else { return };
        if id == kernel {
            latency.baseline_us = latency.latency_us;
            return;
        }
        let same_source = self.baselines.get(&(timed.database.clone(), id.clone()));
        let Some(baseline) = same_source.map(|baseline| baseline.at(id, at.0, at.1)) else { return };
        latency.baseline_us = baseline.latency;
        if baseline.source == LatencySource::Modelled && latency.source == LatencySource::Recorded {
            latency.source = LatencySource::Modelled;
            latency.note = format!("{}; its baseline {id} {}", latency.note, baseline.note);
        }
    }
}

impl Timed {
    fn new(database: &KernelDb, id: &KernelId, records: &[&KernelRecord]) -> Self {
        let circumstances = records.first().map_or(String::new(), |first| {
            let parts = [first.device.clone(), format!("driver {}", first.driver), first.versions.clone()];
            parts.join(", ")
        });
        Self {
            database: database.name.clone(),
            baseline: database.baseline_of(id),
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

    fn at(&self, id: &KernelId, gemm: Gemm, shape: GemmShape) -> Known {
        match self.records.get(&(gemm, shape)) {
            Some(record) => self.recorded(record),
            None => self.modelled(id, gemm, shape),
        }
    }

    fn recorded(&self, record: &KernelRecord) -> Known {
        let circumstances = &self.circumstances;
        let reason = record.reason.as_deref();
        let note = match (record.supported, record.latency_us) {
            (false, _) => {
                format!("does not run there: {} ({circumstances})", reason.unwrap_or("no reason was recorded"))
            }
            (true, None) => format!("only the bare GEMM was recorded, without casts ({circumstances})"),
            (true, Some(_)) => format!("recorded on {circumstances}"),
        };
        Known {
            latency: record.latency_us,
            range: (record.latency_p10_us, record.latency_p90_us),
            gemm: record.gemm_us,
            cast: record.cast_us,
            source: if record.latency_us.is_some() { LatencySource::Recorded } else { LatencySource::None },
            note,
        }
    }

    fn modelled(&self, id: &KernelId, gemm: Gemm, shape: GemmShape) -> Known {
        let circumstances = &self.circumstances;
        let nothing = |note| {
            let source = LatencySource::None;
            Known { latency: None, range: (None, None), gemm: None, cast: None, source, note }
        };
        let Some(entry) = kernel(id.as_str()) else {
            return nothing(format!("this shape was not recorded, and {id} is not a kernel that can be modelled"));
        };
        if let Some(reason) = entry.refuses(gemm, shape) {
            return nothing(format!("does not run there: {reason}"));
        }
        let work = Work::of(entry, gemm, shape);
        let Some((recorded, fits)) = self.fits_for(gemm) else {
            return nothing(format!("too few records to model ({circumstances})"));
        };
        let bare = fits.gemm.as_ref().map(|fit| fit.us(gemm_part(work)));
        let cast = fits.cast.as_ref().map(|fit| fit.us(cast_part(work))).filter(|_| work.cast_mb > 0.0);
        let Some(fit) = &fits.latency else {
            let bare_only = format!("only bare GEMMs were recorded, without casts ({circumstances})");
            return Known {
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
        Known {
            latency: Some(us),
            range: (Some(us * error.ratio_p10), Some(us * error.ratio_p90)),
            gemm: bare,
            cast: cast.or((work.cast_mb == 0.0).then_some(0.0)),
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
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(name: &str, gemm: Gemm, (m, k, n): (usize, usize, usize)) -> Latency {
        older().latency(&KernelId::new(name), gemm, GemmShape { m, k, n })
    }

    /// From the databases that were timed from PyTorch.
    fn older() -> Latencies {
        let native = |database: &KernelDb| database.name.contains("native");
        Latencies::new(&KernelDb::builtin().into_iter().filter(|database| !native(database)).collect::<Vec<_>>())
    }

    #[test]
    fn a_recorded_shape_is_given_as_it_was_timed() {
        let latency = at("cublaslt/fp8-rowwise+fast", Gemm::Fprop, (2048, 256, 768));
        assert_eq!(latency.source, LatencySource::Recorded);
        assert_eq!(latency.latency_us, Some(9.684000164270401));
        assert_eq!(latency.baseline_us, Some(4.142666546006997));
        assert_eq!(latency.latency_lo_us, None, "p10 was not recorded");
        assert!(latency.note.starts_with("recorded on NVIDIA H200, driver 580, PyTorch 2.11"), "{}", latency.note);
    }

    #[test]
    fn baselines_come_from_the_same_library() {
        let eager = at("pytorch/fp8-rowwise+fast", Gemm::Fprop, (2048, 512, 512));
        assert_eq!(eager.baseline_us, Some(8.576000109314919));
        let own = at("pytorch/bf16", Gemm::Fprop, (2048, 512, 512));
        assert_eq!(own.speedup(), Some(1.0));
    }

    #[test]
    fn an_unrecorded_shape_is_modelled_and_says_so() {
        let latency = at("pytorch/fp8-rowwise+fast", Gemm::Fprop, (8192, 512, 512));
        assert_eq!(latency.source, LatencySource::Modelled);
        assert!(latency.latency_lo_us < latency.latency_us && latency.latency_us < latency.latency_hi_us);
        assert!(latency.note.contains("27 shapes") && latency.note.contains("nine in ten"), "{}", latency.note);
        assert!(!latency.note.contains("fprop records"));
    }

    #[test]
    fn backward_directions_are_modelled_from_forward_records() {
        for gemm in [Gemm::Dgrad, Gemm::Wgrad] {
            let latency = at("cublaslt/fp8-rowwise+fast", gemm, (2048, 512, 512));
            assert_eq!(latency.source, LatencySource::Modelled);
            assert!(latency.note.contains(&format!("{gemm} is modelled from fprop records")), "{}", latency.note);
        }
        let (fprop, wgrad) = (Gemm::Fprop, Gemm::Wgrad);
        let us = |gemm| at("cublaslt/fp8-rowwise+fast", gemm, (8192, 520 * 16, 512)).latency_us.unwrap();
        assert!(us(wgrad) > us(fprop), "transposed copies cost");
    }

    #[test]
    fn a_bare_gemm_gives_no_latency() {
        for shape in [(2048, 512, 512), (8192, 512, 512)] {
            let latency = at("cublaslt/fp8-tensorwise+fast", Gemm::Fprop, shape);
            assert_eq!((latency.latency_us, latency.source), (None, LatencySource::None));
            assert!(latency.gemm_us.is_some());
            assert!(latency.note.contains("without casts"), "{}", latency.note);
            assert_eq!(latency.speedup(), None);
        }
    }

    #[test]
    fn what_nobody_timed_has_none_and_says_why() {
        let latency = at("deepgemm/blockwise", Gemm::Fprop, (2048, 512, 512));
        assert_eq!(latency, Latency::unknown("no latency of deepgemm/blockwise was recorded"));
        let refused = at("pytorch/fp8-blockwise", Gemm::Fprop, (2048, 256, 768));
        assert!(refused.note.contains("scale_b must have shape 4 x 6"), "{}", refused.note);
        let head = at("pytorch/fp8-rowwise+fast", Gemm::Fprop, (8192, 512, 1));
        assert_eq!(head.note, "does not run there: n = 1 is not a multiple of 16");
    }

    #[test]
    fn fits_are_as_good_as_the_docs_say() {
        let latencies = older();
        for (name, p50, p90) in [
            ("cublaslt/bf16", 0.07, 0.11),
            ("cublaslt/fp8-rowwise+fast", 0.05, 0.12),
            ("pytorch/bf16", 0.04, 0.08),
            ("pytorch/fp8-rowwise+fast", 0.07, 0.20),
            ("pytorch/fp8-tensorwise+fast", 0.11, 0.26),
            ("pytorch/fp8-blockwise", 0.10, 0.26),
        ] {
            let fit = latencies.fits(&KernelId::new(name), Gemm::Fprop).unwrap().latency.as_ref().unwrap();
            assert!(fit.error.p50 < p50 && fit.error.p90 < p90, "{name} {:?}", fit.error);
        }
    }

    /// Every direction of every native kernel in the built-in database: what the aim is.
    #[test]
    fn native_fits_keep_the_aim() {
        for database in KernelDb::builtin().into_iter().filter(|database| database.name.contains("native")) {
            for (id, timed) in Latencies::new(&[database]).kernels {
                for (gemm, fits) in &timed.fits {
                    let Some(fit) = &fits.latency else { continue };
                    // Seen with --nocapture: docs/performance.md has the table.
                    println!("{id} {gemm}: p50 {:.3}, p90 {:.3}", fit.error.p50, fit.error.p90);
                    assert!(fit.error.p50 < 0.10 && fit.error.p90 < 0.25, "{id} {gemm} {:?}", fit.error);
                }
            }
        }
    }

    #[test]
    fn a_direction_is_modelled_from_its_own_records() {
        let mut database = KernelDb::builtin().into_iter().find(|database| database.name.contains("cublaslt")).unwrap();
        let doubled = |us: Option<f64>| us.map(|us| 2.0 * us);
        let backward: Vec<KernelRecord> = database
            .records
            .iter()
            .map(|r| KernelRecord { gemm: Gemm::Wgrad, latency_us: doubled(r.latency_us), ..r.clone() })
            .collect();
        database.records.extend(backward);
        let latencies = Latencies::new(&[database]);
        let shape = GemmShape { m: 4096, k: 2048, n: 1024 };
        let at = |gemm| latencies.latency(&KernelId::new("cublaslt/bf16"), gemm, shape);
        assert!(!at(Gemm::Wgrad).note.contains("is modelled from"), "{}", at(Gemm::Wgrad).note);
        assert!(at(Gemm::Dgrad).note.contains("dgrad is modelled from fprop records"));
        assert!(at(Gemm::Wgrad).latency_us.unwrap() > 1.5 * at(Gemm::Fprop).latency_us.unwrap());
    }
}
