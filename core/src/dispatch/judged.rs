//! Takes one GEMM's rows and a policy, gives them with their verdicts: what the selection chooses from.

use std::sync::Arc;

use crate::model::{Estimate, Gemm, LatencySource, Metric, ResultRow, Safety, Speed};

use super::{
    Bound, Group, Policy, Target, bound_of, chain::SavedByCodes, judge, judged_rows::JudgedRow, sharing::gemm_speedup,
    site_table::SiteTable, target::Barred,
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
        self.target.table_of(group.site, self.policy)
    }

    /// What it saves a site that its x arrives as codes from the one that feeds it, and that many others.
    pub(crate) fn saved_by_codes(&self, reader: &Group, feeder: &Group, num_readers: usize) -> SavedByCodes {
        self.target.saved_by_codes((reader, feeder), num_readers, self.policy)
    }

    /// Why Dispatch does not choose that row's kernel by itself; `None` where it may. `reference`: [`Self::device`] of the
    /// row's group.
    pub(crate) fn bars(&self, reference: Option<&str>, row: &ResultRow) -> Option<Barred> {
        self.bars_at(row, elsewhere(row, reference))
    }

    fn bars_at(&self, row: &ResultRow, elsewhere: Option<Barred>) -> Option<Barred> {
        self.target.bars(row).or_else(|| elsewhere.filter(|_| !self.target.times(row)))
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
    /// The row's: asked of all of them, where what else a row says is asked of few.
    pub supported: bool,
    pub speed: Speed,
    /// Of the GEMM, a tail in the kernel taken out.
    pub gemm_speedup: Option<f64>,
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
    /// `judged`: of the site's rows, by GEMM; `None`: they are judged here.
    pub(super) fn of_site(
        groups: &'c [Group<'a>; 3],
        terms: Terms<'_>,
        judged: Option<[&[JudgedRow]; 3]>,
    ) -> [Self; 3] {
        if let Some(judged) = judged {
            return [0, 1, 2].map(|at| Self::new(&groups[at], terms, judged[at]));
        }
        let mut judged = Vec::new();
        [0, 1, 2].map(|at| {
            judged.clear();
            JudgedRow::of_gemm(groups[at].rows.iter(), (terms.policy, terms.loss), &mut judged);
            Self::new(&groups[at], terms, &judged)
        })
    }

    fn new(group: &'c Group<'a>, terms: Terms<'_>, judged: &[JudgedRow]) -> Self {
        let Terms { policy, loss, .. } = terms;
        let (site, gemm) = (group.site, group.gemm);
        let fixed = site.fixed().map(|_| Barred::Fixed);
        let budgeted = policy.loss_budget.is_some() && gemm == Gemm::Fprop;
        let own = bound_of(policy, &site.id, gemm, loss);
        let reference_us = group.reference_us(&policy.baseline).filter(|_| terms.runs(group));
        let mut verdicts = Vec::with_capacity(group.rows.len());
        let others = group.rows.iter().zip(judged).filter(|(row, _)| row.kernel != policy.baseline);
        verdicts.extend(others.map(|(row, judged)| {
            // Where it may have a tail, the row itself says what is left of it.
            let gemm_speedup = if judged.is_static { gemm_speedup(row, reference_us) } else { judged.speedup };
            Verdict {
                row,
                safety: judged.safety,
                bound: judged.bound(policy, gemm, own),
                out_of_range: budgeted && judged.out_of_range,
                supported: judged.supported,
                speed: judge::speed(judged.speedup, policy),
                gemm_speedup,
                barred: fixed.or_else(|| terms.bars_at(row, judged.elsewhere.barred())),
            }
        }));
        let mut judged = Self { group, verdicts, admissible: Vec::new(), reference_us, budgeted };
        judged.admissible = judged.safe_at(Speed::Fast).collect();
        let speedup = |at: &usize| judged.verdicts[*at].gemm_speedup.unwrap_or(0.0);
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
        let found = all.filter(move |(_, of)| of.supported && of.barred.is_none() && of.speed == speed && is_safe(of));
        found.map(|(at, _)| at)
    }
}

/// The devices that the last few notes name. Rows of a file share their notes: who has read one has read most of them.
#[derive(Default)]
pub(super) struct Devices<'a>([Option<(&'a Arc<str>, Option<&'a str>)>; 2]);

impl<'a> Devices<'a> {
    pub(super) fn of(&mut self, row: &'a ResultRow) -> Option<&'a str> {
        let note = &row.latency.note;
        let known = self.0.iter().flatten().find(|(of, _)| Arc::ptr_eq(of, note)).map(|(_, device)| *device);
        known.unwrap_or_else(|| {
            let device = row.latency.device();
            self.0 = [Some((note, device)), self.0[0]];
            device
        })
    }
}

/// Libraries that LoKA has recorded and that not everyone has who trains.
const OPTIONAL: [&str; 3] = ["deepgemm", "fbgemm", "te"];

/// Why a speed that was taken on another machine says nothing of this one: with it comes no library, and where it is of
/// another GPU than the time that it would be applied to, that of `reference`, no speed-up.
pub(super) fn elsewhere(row: &ResultRow, reference: Option<&str>) -> Option<Barred> {
    elsewhere_on(row, reference, row.latency.device())
}

pub(super) fn elsewhere_on(row: &ResultRow, reference: Option<&str>, device: Option<&str>) -> Option<Barred> {
    let device = device?;
    if reference.is_some_and(|reference| device != reference) {
        return Some(Barred::OtherGpu);
    }
    let recorded = row.latency.source != LatencySource::Measured;
    (recorded && OPTIONAL.contains(&row.kernel.library())).then_some(Barred::NotHere)
}

pub(super) fn loss_cost_hi(row: &ResultRow) -> Option<f64> {
    row.metric(Metric::LossCost).map(|cost| cost.hi.max(0.0)).filter(|hi| hi.is_finite())
}
