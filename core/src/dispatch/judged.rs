//! Takes one GEMM's rows and a policy, gives them with their verdicts: what the selection chooses from.

use std::sync::Arc;

use crate::model::{Estimate, Gemm, GemmShape, LatencySource, Metric, ResultRow, Safety, Speed, baseline_kernel};

use super::{
    Bound, Group, Policy, Target, decided_by, judge,
    sharing::gemm_speedup,
    target::{Barred, SiteTable},
};

/// What every choice goes by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms<'p> {
    pub policy: &'p Policy,
    /// The trace's, that a loss budget is relative to.
    pub loss: f64,
    pub target: &'p Target,
}

impl<'p> Terms<'p> {
    /// Measured times of sites like this one. They are against BF16: a policy of another baseline has none.
    pub(crate) fn table(&self, group: &Group) -> Option<&'p Arc<SiteTable>> {
        let site = group.site;
        let shape = GemmShape { m: site.m, k: site.k, n: site.n };
        // Whole sites are timed with all GEMMs that the runtime has: one that lacks some takes less.
        let whole = Gemm::ALL.into_iter().all(|gemm| site.runs(gemm) || !self.target.runtime().runs(gemm));
        self.target.table(shape).filter(|_| whole && self.policy.baseline == baseline_kernel())
    }

    /// Why Dispatch does not choose that row's kernel by itself; `None` where it may. `reference`: [`Self::device`] of the
    /// row's group.
    pub(crate) fn bars(&self, reference: Option<&str>, row: &ResultRow) -> Option<Barred> {
        self.target.bars(row).or_else(|| elsewhere(row, reference).filter(|_| !self.target.times(row)))
    }

    /// The GPU that the group's time of BF16 is of.
    pub(crate) fn device<'a>(&self, group: &Group<'a>) -> Option<&'a str> {
        group.row(&self.policy.baseline)?.latency.device()
    }

    /// False of GEMMs that the runtime has none of, or that training has no use for: nothing is chosen there, nothing
    /// counted.
    pub(crate) fn runs(&self, group: &Group) -> bool {
        group.site.runs(group.gemm) && self.target.runtime().runs(group.gemm)
    }
}

/// One row with its verdicts.
pub(super) struct Verdict<'a> {
    pub row: &'a ResultRow,
    pub safety: Safety,
    /// What decided on that.
    pub bound: Bound,
    /// Its loss cost is none that a budget could be charged with: the figure means nothing, and so it is not taken.
    pub out_of_range: bool,
    pub speed: Speed,
    /// Only a person may choose it.
    pub barred: Option<Barred>,
}

impl Verdict<'_> {
    /// In the metric that decided.
    pub fn estimate(&self) -> Option<Estimate> {
        self.row.metric(self.bound.metric)
    }
}

/// A group as the selection sees it.
pub(super) struct Judged<'c, 'a> {
    pub group: &'c Group<'a>,
    /// Every row but the baseline's.
    pub verdicts: Vec<Verdict<'a>>,
    /// Places in `verdicts` of kernels that the policy would let run here, fastest first. Ties: by name, as the
    /// rows are.
    admissible: Vec<usize>,
    pub reference_us: Option<f64>,
    /// Chosen together with the other sites', by the optimiser.
    pub budgeted: bool,
}

impl<'c, 'a> Judged<'c, 'a> {
    pub(super) fn of_site(groups: &'c [Group<'a>; 3], terms: Terms<'_>) -> [Self; 3] {
        [0, 1, 2].map(|at| Self::new(&groups[at], terms))
    }

    pub(super) fn new(group: &'c Group<'a>, terms: Terms<'_>) -> Self {
        let Terms { policy, loss, .. } = terms;
        let fixed = group.site.fixed().map(|_| Barred::Fixed);
        let (reference, budgeted) = (terms.device(group), policy.loss_budget.is_some() && group.gemm == Gemm::Fprop);
        let mut verdicts = Vec::with_capacity(group.rows.len());
        verdicts.extend(group.rows.iter().filter(|row| row.kernel != policy.baseline).map(|row| {
            let (safety, bound) = decided_by(row, policy, loss);
            let out_of_range = budgeted && row.is_loss_cost_out_of_range(loss);
            let speed = judge::speed(row.speedup(), policy);
            let barred = fixed.or_else(|| terms.bars(reference, row));
            Verdict { row, safety, bound, out_of_range, speed, barred }
        }));
        let mut judged = Self {
            group,
            verdicts,
            admissible: Vec::new(),
            reference_us: group.reference_us(&policy.baseline).filter(|_| terms.runs(group)),
            budgeted,
        };
        judged.admissible = judged.safe_at(Speed::Fast).collect();
        let speedup = |at: &usize| gemm_speedup(judged.verdicts[*at].row, judged.reference_us).unwrap_or(0.0);
        judged.admissible.sort_by(|a, b| speedup(b).total_cmp(&speedup(a)));
        judged
    }

    /// Kernels that the policy would let run here, fastest first. Ties: by name, as the rows are.
    pub(super) fn admissible(&self) -> impl ExactSizeIterator<Item = &Verdict<'a>> {
        self.admissible.iter().map(|at| &self.verdicts[*at])
    }

    /// Kernels that only what they share with the site's other GEMMs may make worth it.
    pub(super) fn safe_but_slow(&self) -> impl Iterator<Item = &Verdict<'a>> {
        self.safe_at(Speed::Slow).map(|at| &self.verdicts[at])
    }

    /// Whatever their own latencies: those of the whole site are known.
    pub(super) fn safe(&self) -> impl Iterator<Item = &Verdict<'a>> {
        [Speed::Fast, Speed::Slow, Speed::Unknown]
            .into_iter()
            .flat_map(|speed| self.safe_at(speed))
            .map(|at| &self.verdicts[at])
    }

    fn safe_at(&self, speed: Speed) -> impl Iterator<Item = usize> {
        let is_safe = |verdict: &Verdict| match self.budgeted {
            true => !verdict.out_of_range && loss_cost_hi(verdict.row).is_some(),
            false => verdict.safety == Safety::Safe,
        };
        let all = self.verdicts.iter().enumerate();
        let found =
            all.filter(move |(_, of)| of.row.supported && of.barred.is_none() && of.speed == speed && is_safe(of));
        found.map(|(at, _)| at)
    }
}

/// Libraries that LoKA has recorded and that not everyone has who trains.
const OPTIONAL: [&str; 3] = ["deepgemm", "fbgemm", "te"];

/// Why a speed that was taken on another machine says nothing of this one: with it comes no library, and where it is of
/// another GPU than the time that it would be applied to, that of `reference`, no speed-up.
pub(super) fn elsewhere(row: &ResultRow, reference: Option<&str>) -> Option<Barred> {
    let device = row.latency.device()?;
    if reference.is_some_and(|reference| device != reference) {
        return Some(Barred::OtherGpu);
    }
    let recorded = row.latency.source != LatencySource::Measured;
    (recorded && OPTIONAL.contains(&row.kernel.library())).then_some(Barred::NotHere)
}

pub(super) fn loss_cost_hi(row: &ResultRow) -> Option<f64> {
    row.metric(Metric::LossCost).map(|cost| cost.hi.max(0.0)).filter(|hi| hi.is_finite())
}
