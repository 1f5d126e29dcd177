//! Takes kernel databases, gives the latency of a kernel at a GEMM: recorded, modelled or none.

use std::collections::{BTreeMap, HashMap};

use crate::model::{Gemm, GemmShape, Kernel, KernelId, KernelRecord, Latency, LatencySource, kernel};

use super::{
    database::KernelDb,
    fit::{Fit, Sample},
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
    fits: KernelFits,
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
}

impl Latencies {
    pub fn builtin() -> Self {
        Self::new(&KernelDb::builtin())
    }

    /// A kernel that several databases hold is taken from the first of them, whole: rows of
    /// different sources are never mixed.
    pub fn new(databases: &[KernelDb]) -> Self {
        let mut kernels = BTreeMap::new();
        for database in databases {
            let mut by_kernel: BTreeMap<&KernelId, Vec<&KernelRecord>> = BTreeMap::new();
            for record in &database.records {
                by_kernel.entry(&record.kernel).or_default().push(record);
            }
            for (id, records) in by_kernel {
                kernels.entry(id.clone()).or_insert_with(|| Timed::new(database, id, &records));
            }
        }
        Self { kernels }
    }

    pub fn fits(&self, kernel: &KernelId) -> Option<&KernelFits> {
        self.kernels.get(kernel).map(|timed| &timed.fits)
    }

    /// The latency of `kernel`, with its casts, and of BF16 from the same database. `modelled` when
    /// either of the two is.
    pub fn latency(&self, kernel: &KernelId, gemm: Gemm, shape: GemmShape) -> Latency {
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
        let same_source = self.kernels.get(id).filter(|baseline| baseline.database == timed.database);
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
            fits: kernel(id.as_str()).map_or_else(KernelFits::default, |entry| KernelFits::to_records(entry, records)),
        }
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
        let bare = self.fits.gemm.as_ref().map(|fit| fit.us(gemm_part(work)));
        let cast = self.fits.cast.as_ref().map(|fit| fit.us(cast_part(work))).filter(|_| work.cast_mb > 0.0);
        let Some(fit) = &self.fits.latency else {
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
            note: modelled_note(fit, work, gemm, circumstances),
        }
    }
}

fn modelled_note(fit: &Fit, work: Work, gemm: Gemm, circumstances: &str) -> String {
    let mut note = format!(
        "modelled from {} shapes recorded on {circumstances}; left out in turn, half of them are within {:.0} % and nine in ten within {:.0} %",
        fit.records,
        100.0 * fit.error.p50,
        100.0 * fit.error.p90
    );
    if gemm != Gemm::Fprop {
        note += &format!("; {gemm} is modelled from fprop records");
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
        Latencies::builtin().latency(&KernelId::new(name), gemm, GemmShape { m, k, n })
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
        let latencies = Latencies::builtin();
        for (name, p50, p90) in [
            ("cublaslt/bf16", 0.10, 0.20),
            ("cublaslt/fp8-rowwise+fast", 0.08, 0.18),
            ("pytorch/bf16", 0.07, 0.13),
            ("pytorch/fp8-rowwise+fast", 0.07, 0.20),
            ("pytorch/fp8-tensorwise+fast", 0.11, 0.26),
            ("pytorch/fp8-blockwise", 0.10, 0.26),
        ] {
            let fit = latencies.fits(&KernelId::new(name)).unwrap().latency.as_ref().unwrap();
            assert!(fit.error.p50 < p50 && fit.error.p90 < p90, "{name} {fit:?}");
        }
    }
}
