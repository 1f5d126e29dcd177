//! Takes rows and a policy, gives of every row what a decision and the views ask of it: a cache line a row, where the row
//! itself is eight. At 10,000 sites a walk through all rows is a wait for memory; with this there is one a decision.

use crate::model::{Estimate, Gemm, LatencySource, Metric, Quadrant, ResultRow, Safety};

use super::{
    Bound, Policy, bound_of, decided_by,
    judged::{Devices, elsewhere_on},
    parallel, quadrant_of,
    target::Barred,
};

/// One row under a policy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JudgedRow {
    /// In the policy's metric.
    pub error: Option<Estimate>,
    /// Over BF16 of its own source.
    pub speedup: Option<f64>,
    /// What a budget is charged, in units of the loss; NaN where nobody knows or where it means nothing.
    pub loss_cost: f32,
    /// The kernel's place in the catalogue, 255: it has none.
    kernel: u8,
    pub safety: Safety,
    pub quadrant: Quadrant,
    pub source: LatencySource,
    /// Its speed is of another machine than what it would be applied to.
    pub(super) elsewhere: Elsewhere,
    pub supported: bool,
    /// Of a kernel in low precision.
    pub low: bool,
    /// What decided on its safety is the bound on its bias, and not [`bound_of`].
    pub(super) by_bias: bool,
    /// Its loss cost means nothing.
    pub(super) out_of_range: bool,
    /// Its scale is known beforehand; only such kernels may have a tail.
    pub(super) is_static: bool,
    /// It is known what its cast makes zero.
    pub knows_flushed: bool,
}

/// See [`super::judged::elsewhere`]: what that gives, in a byte, where an `Option<Barred>` takes more than the line has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Elsewhere {
    No,
    OtherGpu,
    NotHere,
}

impl Elsewhere {
    pub(super) fn barred(self) -> Option<Barred> {
        match self {
            Self::No => None,
            Self::OtherGpu => Some(Barred::OtherGpu),
            Self::NotHere => Some(Barred::NotHere),
        }
    }
}

impl JudgedRow {
    /// The rows of one GEMM. `loss`: the trace's.
    pub(super) fn of_gemm<'a>(
        rows: impl Iterator<Item = &'a ResultRow> + Clone,
        (policy, loss): (&Policy, f64),
        into: &mut Vec<Self>,
    ) {
        let Some(first) = rows.clone().next() else { return };
        let own = bound_of(policy, &first.site, first.gemm, loss);
        let mut devices = Devices::default();
        let reference = rows.clone().find(|row| row.kernel == policy.baseline).and_then(|row| devices.of(row));
        into.extend(rows.map(|row| Self::of(row, (policy, loss, own), (reference, devices.of(row)))));
    }

    fn of(
        row: &ResultRow,
        (policy, loss, own): (&Policy, f64, Bound),
        (reference, device): (Option<&str>, Option<&str>),
    ) -> Self {
        let (safety, bound) = decided_by(row, policy, loss);
        let speedup = row.speedup();
        let quadrant = if row.supported { quadrant_of(safety, speedup, policy).1 } else { Quadrant::Unsupported };
        Self {
            error: row.metric(policy.metric),
            speedup,
            loss_cost: row.charged_loss_cost(loss).map_or(f32::NAN, |cost| cost.value as f32),
            kernel: row.kernel.number().and_then(|number| u8::try_from(number).ok()).unwrap_or(u8::MAX),
            safety,
            quadrant,
            source: row.latency.source,
            elsewhere: match elsewhere_on(row, reference, device) {
                Some(Barred::OtherGpu) => Elsewhere::OtherGpu,
                Some(_) => Elsewhere::NotHere,
                None => Elsewhere::No,
            },
            supported: row.supported,
            low: row.kernel.is_low_precision(),
            by_bias: bound != own,
            out_of_range: row.is_loss_cost_out_of_range(loss),
            is_static: row.static_scale.is_some(),
            knows_flushed: row.flushed.is_some(),
        }
    }

    /// The kernel's place in the catalogue.
    pub fn number(&self) -> Option<usize> {
        (self.kernel != u8::MAX).then_some(usize::from(self.kernel))
    }

    /// A kernel in low precision could run by it.
    pub fn is_low(&self) -> bool {
        self.supported && self.low
    }

    /// How bad its error is, larger is worse; `None`: it is not known.
    pub fn badness(&self, metric: Metric) -> Option<f64> {
        self.error.map(|error| metric.badness(error.value))
    }
}

/// Sites whose rows are kept together, some 50 kB: a piece is made by one thread and stays where it was made, where one list
/// of all of them would be grown and copied.
const BLOCK: usize = 32;

/// Rows of all sites under one policy.
#[derive(Debug, Default)]
pub(crate) struct JudgedRows {
    /// Of [`BLOCK`] sites each.
    blocks: Vec<Vec<JudgedRow>>,
    /// Where the rows of each GEMM end in its block, three a site.
    ends: Vec<u32>,
}

impl JudgedRows {
    /// `rows`: of one GEMM of one site, sorted by kernel. `loss`: the trace's.
    pub fn of<'a, R>(num_sites: usize, by: (&Policy, f64), rows: impl Fn(usize, Gemm) -> R + Sync) -> Self
    where
        R: ExactSizeIterator<Item = &'a ResultRow> + Clone,
    {
        let sites = |block: usize| block * BLOCK..num_sites.min((block + 1) * BLOCK);
        let num_blocks = num_sites.div_ceil(BLOCK);
        let mut ends = Vec::with_capacity(3 * num_sites);
        for block in 0..num_blocks {
            let mut end = 0;
            for (site, gemm) in sites(block).flat_map(|site| Gemm::ALL.map(|gemm| (site, gemm))) {
                end += rows(site, gemm).len() as u32;
                ends.push(end);
            }
        }
        let judged = |block: usize| {
            let num_rows = ends[3 * sites(block).end - 1];
            let mut judged = Vec::with_capacity(num_rows as usize);
            for (site, gemm) in sites(block).flat_map(|site| Gemm::ALL.map(|gemm| (site, gemm))) {
                JudgedRow::of_gemm(rows(site, gemm), by, &mut judged);
            }
            judged
        };
        let blocks = parallel::map_few(num_blocks, |range| range.map(judged).collect());
        Self { blocks, ends }
    }

    /// Parallel to the rows of that GEMM.
    pub fn at(&self, at: usize, gemm: Gemm) -> &[JudgedRow] {
        let place = 3 * at + gemm as usize;
        let from = if place.is_multiple_of(3 * BLOCK) { Some(&0) } else { self.ends.get(place - 1) };
        let range = from.zip(self.ends.get(place)).map(|(from, to)| *from as usize..*to as usize);
        range.and_then(|range| self.blocks.get(at / BLOCK)?.get(range)).unwrap_or_default()
    }

    /// The place of the one in low precision that is fastest against the baseline of its own source; of several the last.
    pub fn fastest_low(&self, at: usize, gemm: Gemm) -> Option<usize> {
        let rows = self.at(at, gemm).iter().enumerate().filter(|(_, row)| row.is_low());
        let timed = rows.filter_map(|(place, row)| Some((place, row.speedup?)));
        timed.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(place, _)| place)
    }

    /// A kernel of that GEMM has its scale beforehand: no other can store codes.
    pub(super) fn has_static(&self, at: usize, gemm: Gemm) -> bool {
        self.at(at, gemm).iter().any(|row| row.is_static)
    }

    /// Those of one GEMM that a kernel in low precision could run by.
    pub fn low(&self, at: usize, gemm: Gemm) -> impl Iterator<Item = &JudgedRow> {
        self.at(at, gemm).iter().filter(|row| row.is_low())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        dispatch::{
            Candidates, Overrides, dispatch, dispatch_judged, judge,
            testing::{Dice, block, fed, results, row, unsupported, with_codes, with_gemm_us},
        },
        model::{KernelId, Results, Runtime, SiteMods},
    };

    /// Every kind of row: fast and slow, with casts to share and with codes, of other GPUs, refused, of unknown kernels.
    fn made() -> Results {
        let mut dice = Dice::new(11);
        let names: Vec<String> = (0..40).map(|site| format!("s{site}")).collect();
        let mut rows = Vec::new();
        for name in &names {
            for gemm in Gemm::ALL {
                for kernel in ["cublaslt/fp8-tensorwise+fast", "te/current", "fbgemm/rowwise", "own/unknown"] {
                    let speedup = (dice.below(9) > 0).then(|| 0.8 + dice.unit());
                    let mut made = row(name, gemm, kernel, 0.3 * dice.unit(), speedup, 2e-6 * dice.unit());
                    made.latency.note = ["recorded on A, driver 1", "recorded on B, driver 1"][dice.below(2)].into();
                    rows.push(with_gemm_us(made, 40.0));
                }
                rows.push(unsupported(name, gemm, "deepgemm/blockwise", "k is 13"));
            }
            let error = 0.1 * dice.unit();
            rows.push(with_codes(
                row(name, Gemm::Fprop, "loka/fp8-static+fast", error, Some(1.3), 1e-6),
                0.5,
                60.0,
                40.0,
            ));
            rows.push(with_codes(block(name, error, 70.0, 20.0, 1e-6), 0.5, 60.0, 40.0));
        }
        let sites: Vec<&str> = names.iter().map(String::as_str).collect();
        fed(results(&sites, rows), &[("s0", &["s1"]), ("s1", &["s2", "s3"])])
    }

    #[test]
    fn rows_judged_beforehand_give_the_same_plan() {
        let results = made();
        for runtime in Runtime::ALL {
            let candidates = Candidates::at(&results, &SiteMods::default(), runtime);
            let rows = |at: usize, gemm: Gemm| candidates.groups[3 * at + gemm as usize].rows.iter().copied();
            for name in Policy::BUILTIN {
                let (policy, loss) = (Policy::builtin(name).unwrap(), 0.5);
                let judged = JudgedRows::of(candidates.groups.len() / 3, (&policy, loss), rows);
                let by = (&policy, loss);
                let plan = dispatch_judged(&candidates, by, &Overrides::new(), Some(&judged)).unwrap();
                assert_eq!(plan, dispatch(&candidates, &policy, &Overrides::new(), loss).unwrap(), "{name} {runtime}");
                for (place, group) in candidates.groups.iter().enumerate() {
                    let judged = judged.at(place / 3, group.gemm);
                    assert_eq!(judged.len(), group.rows.len());
                    for (row, judged) in group.rows.iter().zip(judged) {
                        let (safety, _, quadrant) = judge(row, &policy, loss);
                        assert_eq!((judged.safety, judged.quadrant), (safety, quadrant));
                        assert_eq!((judged.error, judged.speedup), (row.metric(policy.metric), row.speedup()));
                        assert_eq!(judged.low, row.kernel.is_low_precision());
                        assert_eq!(judged.number(), KernelId::number(&row.kernel));
                    }
                }
            }
        }
    }

    #[test]
    fn a_row_is_a_cache_line() {
        assert!(size_of::<JudgedRow>() <= 64);
    }
}
