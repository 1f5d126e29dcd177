//! Takes one GEMM's rows and a policy, gives them with their verdicts: what the selection chooses from.

use crate::model::{Gemm, Metric, ResultRow, Safety, Speed};

use super::{Bound, Group, Policy, bound_of, judge};

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
    pub reference_us: Option<f64>,
    /// Chosen together with the other sites', by the optimiser.
    pub budgeted: bool,
}

impl<'c, 'a> Judged<'c, 'a> {
    pub(super) fn new(group: &'c Group<'a>, policy: &Policy, loss: f64) -> Self {
        let verdicts = group.rows.iter().filter(|row| row.kernel != policy.baseline).map(|row| {
            let (safety, speed, _) = judge(row, policy, loss);
            Verdict { row, safety, speed }
        });
        Self {
            group,
            bound: bound_of(policy, group.gemm, loss),
            verdicts: verdicts.collect(),
            reference_us: group.reference_us(&policy.baseline),
            budgeted: policy.loss_budget.is_some() && group.gemm == Gemm::Fprop,
        }
    }

    /// Kernels that the policy would let run here, fastest first. Ties: by name, as the rows are.
    pub(super) fn admissible(&self) -> Vec<&Verdict<'a>> {
        let mut found: Vec<&Verdict> = self.safe(Speed::Fast).collect();
        found.sort_by(|a, b| b.row.speedup().unwrap_or(0.0).total_cmp(&a.row.speedup().unwrap_or(0.0)));
        found
    }

    /// Kernels that only what they share with the site's other GEMMs may make worth it.
    pub(super) fn safe_but_slow(&self) -> impl Iterator<Item = &Verdict<'a>> {
        self.safe(Speed::Slow)
    }

    fn safe(&self, speed: Speed) -> impl Iterator<Item = &Verdict<'a>> {
        self.verdicts.iter().filter(move |verdict| {
            let safe = if self.budgeted { loss_cost_hi(verdict.row).is_some() } else { verdict.safety == Safety::Safe };
            verdict.row.supported && verdict.speed == speed && safe
        })
    }
}

pub(super) fn loss_cost_hi(row: &ResultRow) -> Option<f64> {
    row.metric(Metric::LossCost).map(|cost| cost.hi.max(0.0)).filter(|hi| hi.is_finite())
}
