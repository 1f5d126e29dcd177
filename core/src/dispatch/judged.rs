//! Takes one GEMM's rows and a policy, gives them with their verdicts: what the selection chooses from.

use crate::model::{Gemm, Metric, ResultRow, Safety, Speed};

use super::{Bound, Group, Policy, bound_of, judge, sharing::gemm_speedup};

/// One row with its verdicts.
pub(super) struct Verdict<'a> {
    pub row: &'a ResultRow,
    pub safety: Safety,
    pub speed: Speed,
}

/// A group as the selection sees it.
pub(super) struct Judged<'c, 'a> {
    pub group: &'c Group<'a>,
    pub bound: Bound,
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
    pub(super) fn of_site(groups: &'c [Group<'a>; 3], policy: &Policy, loss: f64) -> [Self; 3] {
        [0, 1, 2].map(|at| Self::new(&groups[at], policy, loss))
    }

    pub(super) fn new(group: &'c Group<'a>, policy: &Policy, loss: f64) -> Self {
        let mut verdicts = Vec::with_capacity(group.rows.len());
        verdicts.extend(group.rows.iter().filter(|row| row.kernel != policy.baseline).map(|row| {
            let (safety, speed, _) = judge(row, policy, loss);
            Verdict { row, safety, speed }
        }));
        let mut judged = Self {
            group,
            bound: bound_of(policy, group.gemm, loss),
            verdicts,
            admissible: Vec::new(),
            reference_us: group.reference_us(&policy.baseline),
            budgeted: policy.loss_budget.is_some() && group.gemm == Gemm::Fprop,
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

    fn safe_at(&self, speed: Speed) -> impl Iterator<Item = usize> {
        let is_safe = |verdict: &Verdict| match self.budgeted {
            true => loss_cost_hi(verdict.row).is_some(),
            false => verdict.safety == Safety::Safe,
        };
        let all = self.verdicts.iter().enumerate();
        let found = all.filter(move |(_, of)| of.row.supported && of.speed == speed && is_safe(of));
        found.map(|(at, _)| at)
    }
}

pub(super) fn loss_cost_hi(row: &ResultRow) -> Option<f64> {
    row.metric(Metric::LossCost).map(|cost| cost.hi.max(0.0)).filter(|hi| hi.is_finite())
}
