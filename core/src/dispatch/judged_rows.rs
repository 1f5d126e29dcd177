//! Takes rows and a policy, gives of every row what a decision and the views ask of it: a cache line a row, where the row
//! itself is eight. At 10,000 sites a walk through all rows is a wait for memory; with this there is one a decision.

use std::sync::Arc;

use crate::model::{Estimate, Gemm, LatencySource, Metric, Quadrant, ResultRow, Safety, Site};

use super::{
    Bound, Policy, bound_of, decided_by, judge,
    judged::{Devices, elsewhere_on},
    parallel, quadrant_of,
    target::Barred,
};

/// One row under a policy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JudgedRow {
    /// In the policy's metric; `None` also where it is a loss cost that means nothing.
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
    by_bias: bool,
    /// Against that bound alone; safe where there is none.
    bias: Safety,
    /// Its loss cost means nothing.
    pub out_of_range: bool,
    /// Its scale is known beforehand; only such kernels may have a tail.
    pub(super) is_static: bool,
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
        let bias = judge::bias_bound(policy, row.gemm).map_or(Safety::Safe, |of| of.safety(row.metric(Metric::Bias)));
        let speedup = row.speedup();
        let quadrant = if row.supported { quadrant_of(safety, speedup, policy).1 } else { Quadrant::Unsupported };
        Self {
            bias,
            error: row.figure(policy.metric, loss),
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
        }
    }

    /// The same row by another policy that asks for the same ([`Policy::asks_like`]): its error and its speed are held against
    /// other limits, and the row itself is not read. `own`: [`bound_of`] of its GEMM now.
    fn again(&self, policy: &Policy, own: Bound) -> Self {
        let by_own = match own.metric {
            // As `loss_cost_means_nothing` of the row.
            Metric::LossCost if self.out_of_range && (self.low || self.loss_cost.is_nan()) => Safety::Uncertain,
            metric if metric == policy.metric => own.safety(self.error),
            // A forward GEMM, whose loss cost is held against the same budget.
            _ => self.safety,
        };
        let (safety, by_bias) = (by_own.max(self.bias), self.bias > by_own);
        let quadrant = if self.supported { quadrant_of(safety, self.speedup, policy).1 } else { self.quadrant };
        Self { safety, by_bias, quadrant, ..*self }
    }

    /// What decided on its safety. `own`: [`bound_of`] of its GEMM.
    pub fn bound(&self, policy: &Policy, gemm: Gemm, own: Bound) -> Bound {
        if self.by_bias { judge::bias_bound(policy, gemm).unwrap_or(own) } else { own }
    }

    /// The kernel's place in the catalogue.
    pub fn number(&self) -> Option<usize> {
        (self.kernel != u8::MAX).then_some(usize::from(self.kernel))
    }

    /// Of the same row, by policies that decide alike ([`Policy::decides_like`]): nothing else of it is the policy's.
    fn is_judged_as(&self, other: &Self) -> bool {
        let verdict = |of: &Self| (of.safety, of.quadrant, of.by_bias, of.out_of_range);
        verdict(self) == verdict(other)
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

/// Of a GEMM's rows, whatever is decided of them; NaN where it is not known.
#[derive(Clone, Copy, Debug)]
struct GemmTimes {
    /// Of the policy's baseline.
    reference_us: f64,
    /// What share of it the fastest kernel in low precision would save if casts cost nothing.
    bare_share: f64,
    /// `None`: none in low precision has a speed-up.
    fastest: Option<FastestLow>,
    /// Of a kernel in low precision it is known what its cast makes zero.
    knows_flushed: bool,
}

/// The kernel in low precision that is fastest against the baseline of its own source; of several the last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FastestLow {
    pub speedup: f64,
    /// The bare GEMM would be faster than the baseline.
    pub bare_is_faster: bool,
    /// Share of its time that is not the bare GEMM's; NaN where it is not known.
    casts: f64,
}

impl FastestLow {
    fn of(row: &ResultRow) -> Option<Self> {
        let (latency, speedup) = (&row.latency, row.speedup()?);
        let casts = || Some(1.0 - latency.gemm_us? / latency.latency_us.filter(|us| *us > 0.0)?);
        let bare_is_faster = latency.baseline_us.zip(latency.gemm_us).is_some_and(|(high, low)| low < high);
        Some(Self { speedup, bare_is_faster, casts: casts().unwrap_or(f64::NAN) })
    }

    pub fn casts(&self) -> Option<f64> {
        Some(self.casts).filter(|share| !share.is_nan())
    }
}

impl GemmTimes {
    fn of<'a>(rows: impl Iterator<Item = &'a ResultRow> + Clone, policy: &Policy) -> Self {
        let is_time = |us: &f64| *us > 0.0 && us.is_finite();
        let reference = rows.clone().find(|row| row.kernel == policy.baseline);
        let low = rows.filter(|row| row.supported && row.kernel.is_low_precision());
        let shares = low.clone().filter_map(|row| {
            let (gemm_us, baseline_us) = (row.latency.gemm_us?, row.latency.baseline_us.filter(|us| *us > 0.0)?);
            Some(1.0 - gemm_us / baseline_us)
        });
        let fastest = low.clone().filter_map(FastestLow::of);
        Self {
            reference_us: reference.and_then(|row| row.latency.latency_us).filter(is_time).unwrap_or(f64::NAN),
            bare_share: shares.max_by(f64::total_cmp).unwrap_or(f64::NAN),
            fastest: fastest.max_by(|a, b| a.speedup.total_cmp(&b.speedup)),
            knows_flushed: low.into_iter().any(|row| row.flushed.is_some()),
        }
    }
}

/// Sites whose rows are kept together, some 50 kB: a piece is made by one thread and stays where it was made, where one list
/// of all of them would be grown and copied.
const BLOCK: usize = 32;

#[derive(Debug)]
struct JudgedBlock {
    rows: Vec<JudgedRow>,
    /// Three a site.
    times: Vec<GemmTimes>,
}

/// Rows of all sites under one policy.
#[derive(Debug, Default)]
pub(crate) struct JudgedRows {
    /// Of [`BLOCK`] sites each; what is judged as before is shared with before.
    blocks: Vec<Arc<JudgedBlock>>,
    /// Where the rows of each GEMM end in its block, three a site.
    ends: Arc<Vec<u32>>,
    /// Which these are, for what is judged after them.
    own: Arc<()>,
    /// What was judged before, and by site whether every row is judged as there.
    since: Option<(Arc<()>, Vec<bool>)>,
}

/// What was judged before, by a policy that asks for the same of rows.
#[derive(Clone, Copy)]
pub(crate) struct JudgedBefore<'j> {
    pub rows: &'j JudgedRows,
    /// By site: its rows are the same. `None`: those of all sites are.
    pub same: Option<&'j (dyn Fn(usize) -> bool + Sync)>,
}

impl<'j> JudgedBefore<'j> {
    fn at(&self, site: usize) -> Option<&'j JudgedRows> {
        self.same.is_none_or(|same| same(site)).then_some(self.rows)
    }
}

impl JudgedRows {
    /// `rows`: of one GEMM of one site, sorted by kernel. `loss`: the trace's.
    pub fn of<'a, R>(
        sites: &[Site],
        (policy, loss): (&Policy, f64),
        rows: impl Fn(usize, Gemm) -> R + Sync,
        before: Option<JudgedBefore>,
    ) -> Self
    where
        R: ExactSizeIterator<Item = &'a ResultRow> + Clone,
    {
        let (all, num_sites) = (sites, sites.len());
        let sites = |block: usize| block * BLOCK..num_sites.min((block + 1) * BLOCK);
        let num_blocks = num_sites.div_ceil(BLOCK);
        let ends = || {
            let mut ends = Vec::with_capacity(3 * num_sites);
            for block in 0..num_blocks {
                let mut end = 0;
                for (site, gemm) in sites(block).flat_map(|site| Gemm::ALL.map(|gemm| (site, gemm))) {
                    end += rows(site, gemm).len() as u32;
                    ends.push(end);
                }
            }
            Arc::new(ends)
        };
        let ends = before.filter(|before| before.same.is_none()).map_or_else(ends, |before| before.rows.ends.clone());
        let known = |site: usize| before.and_then(|before| before.at(site));
        let is_as_before = |site: usize| {
            known(site).is_some_and(|known| {
                Gemm::ALL.into_iter().all(|gemm| {
                    let own = bound_of(policy, &all[site].id, gemm, loss);
                    known.at(site, gemm).iter().all(|row| row.is_judged_as(&row.again(policy, own)))
                })
            })
        };
        let block = |block: usize| {
            let as_before: Vec<bool> = sites(block).map(is_as_before).collect();
            if let Some(before) = before.filter(|_| as_before.iter().all(|same| *same)) {
                return (before.rows.blocks[block].clone(), as_before);
            }
            let num_rows = ends[3 * sites(block).end - 1];
            let mut found = Vec::with_capacity(num_rows as usize);
            let mut times = Vec::with_capacity(3 * BLOCK);
            for (site, is_as_before) in sites(block).zip(&as_before) {
                for gemm in Gemm::ALL {
                    let Some(known) = known(site) else {
                        JudgedRow::of_gemm(rows(site, gemm), (policy, loss), &mut found);
                        times.push(GemmTimes::of(rows(site, gemm), policy));
                        continue;
                    };
                    times.extend(known.times(site, gemm));
                    if *is_as_before {
                        found.extend_from_slice(known.at(site, gemm));
                        continue;
                    }
                    let own = bound_of(policy, &all[site].id, gemm, loss);
                    found.extend(known.at(site, gemm).iter().map(|row| row.again(policy, own)));
                }
            }
            (Arc::new(JudgedBlock { rows: found, times }), as_before)
        };
        let (mut blocks, mut same) = (Vec::with_capacity(num_blocks), Vec::with_capacity(num_sites));
        for (block, as_before) in parallel::map_few(num_blocks, |range| range.map(block).collect()) {
            blocks.push(block);
            same.extend(as_before);
        }
        let since = before.map(|before| (before.rows.own.clone(), same));
        Self { blocks, ends, own: Arc::default(), since }
    }

    /// Parallel to the rows of that GEMM.
    pub fn at(&self, at: usize, gemm: Gemm) -> &[JudgedRow] {
        let place = 3 * at + gemm as usize;
        let from = if place.is_multiple_of(3 * BLOCK) { Some(&0) } else { self.ends.get(place - 1) };
        let range = from.zip(self.ends.get(place)).map(|(from, to)| *from as usize..*to as usize);
        range.and_then(|range| self.blocks.get(at / BLOCK)?.rows.get(range)).unwrap_or_default()
    }

    fn times(&self, at: usize, gemm: Gemm) -> Option<&GemmTimes> {
        self.blocks.get(at / BLOCK)?.times.get(3 * (at % BLOCK) + gemm as usize)
    }

    /// What a GEMM takes in the policy's baseline; `None`: nobody knows.
    pub fn reference_us(&self, at: usize, gemm: Gemm) -> Option<f64> {
        self.times(at, gemm).map(|times| times.reference_us).filter(|us| !us.is_nan())
    }

    /// What the fastest bare GEMM in low precision would save of that, as a share; `None`: it is not known, or nothing.
    pub fn bare_share(&self, at: usize, gemm: Gemm) -> Option<f64> {
        self.times(at, gemm).map(|times| times.bare_share).filter(|share| *share > 0.0)
    }

    /// Of the same rows there, by policies that decide alike.
    pub fn are_judged_as(&self, other: &Self, at: usize) -> bool {
        if let Some((_, same)) = self.since.as_ref().filter(|(before, _)| Arc::ptr_eq(before, &other.own)) {
            return same.get(at).copied().unwrap_or_default();
        }
        // By another question: nothing is shared with before.
        Gemm::ALL.into_iter().all(|gemm| {
            let (ours, theirs) = (self.at(at, gemm), other.at(at, gemm));
            ours.len() == theirs.len() && ours.iter().zip(theirs).all(|(a, b)| a.is_judged_as(b))
        })
    }

    /// `None`: none in low precision has a speed-up.
    pub fn fastest_low(&self, at: usize, gemm: Gemm) -> Option<FastestLow> {
        self.times(at, gemm)?.fastest
    }

    /// Of a kernel in low precision it is known what its cast makes zero.
    pub fn knows_flushed(&self, at: usize, gemm: Gemm) -> bool {
        self.times(at, gemm).is_some_and(|times| times.knows_flushed)
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
        dispatch::{Candidates, Overrides, dispatch, judge, select, testing::every_kind_of_row},
        model::{KernelId, Runtime, SiteMods},
    };

    #[test]
    fn rows_judged_beforehand_give_the_same_plan() {
        let results = every_kind_of_row();
        for runtime in Runtime::ALL {
            let candidates = Candidates::at(&results, &SiteMods::default(), runtime);
            let rows = |at: usize, gemm: Gemm| candidates.groups[3 * at + gemm as usize].rows.iter();
            for name in Policy::BUILTIN {
                let (policy, loss) = (Policy::builtin(name).unwrap(), 0.5);
                let judged = JudgedRows::of(&results.meta.manifest.sites, (&policy, loss), rows, None);
                let by = (&policy, loss);
                let selection = select(&candidates, by, &Overrides::new(), (&judged, None)).unwrap();
                let plan = dispatch(&candidates, &policy, &Overrides::new(), loss).unwrap();
                assert_eq!(selection.totals, plan.totals, "{name} {runtime}");
                assert_eq!((&selection.chains, &selection.warnings), (&plan.chains, &plan.warnings));
                for (pick, choice) in selection.picks().zip(&plan.choices) {
                    assert_eq!(
                        (&pick.kernel, pick.source, pick.together),
                        (&choice.kernel, choice.source, choice.together)
                    );
                    assert!(pick.passed_over.iter().map(|(kernel, why)| (kernel, why)).eq(&choice.passed_over));
                }
                for (place, group) in candidates.groups.iter().enumerate() {
                    let judged = judged.at(place / 3, group.gemm);
                    assert_eq!(judged.len(), group.rows.len());
                    for (row, judged) in group.rows.iter().zip(judged) {
                        let (safety, _, quadrant) = judge(row, &policy, loss);
                        assert_eq!((judged.safety, judged.quadrant), (safety, quadrant));
                        assert_eq!((judged.error, judged.speedup), (row.figure(policy.metric, loss), row.speedup()));
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
