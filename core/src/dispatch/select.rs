//! Takes candidates, a policy and overrides, gives one choice a GEMM and the totals.

use std::collections::BTreeMap;

use crate::model::{Gemm, KernelId, Metric, ResultRow, Safety, Speed};

use super::{
    Bound, Candidates, Choice, ChoiceSource, Group, Override, OverrideError, Overrides, PassedOver, Policy, Totals,
    bound_of,
    judge::judge,
    knapsack::{self, Item},
    overrides::by_group,
    reason,
};

const MAX_RUNNERS_UP: usize = 3;

/// How good the optimiser's answer is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Optimum {
    pub time_us: f64,
    /// No selection within the budget is faster.
    pub lower_bound_us: f64,
    /// True: the answer is optimal, not only within the gap.
    pub proven: bool,
    pub loss_cost_hi: f64,
    pub budget: f64,
}

impl Optimum {
    pub fn gap(&self) -> f64 {
        if self.time_us > 0.0 { (self.time_us - self.lower_bound_us) / self.time_us } else { 0.0 }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Dispatch {
    /// In the order of the candidates' groups.
    pub choices: Vec<Choice>,
    pub totals: Totals,
    /// What a person should see before shipping: overrides that break the policy, a budget that
    /// cannot be kept, GEMMs without a latency.
    pub warnings: Vec<String>,
    /// With a loss budget only.
    pub optimum: Option<Optimum>,
}

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
    /// Chosen together with the others, by the optimiser.
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
        let allowed = |verdict: &&Verdict| {
            let safe = if self.budgeted { loss_cost_hi(verdict.row).is_some() } else { verdict.safety == Safety::Safe };
            verdict.row.supported && verdict.speed == Speed::Fast && safe
        };
        let mut found: Vec<&Verdict> = self.verdicts.iter().filter(allowed).collect();
        found.sort_by(|a, b| b.row.speedup().unwrap_or(0.0).total_cmp(&a.row.speedup().unwrap_or(0.0)));
        found
    }
}

pub(super) fn loss_cost_hi(row: &ResultRow) -> Option<f64> {
    row.metric(Metric::LossCost).map(|cost| cost.hi.max(0.0)).filter(|hi| hi.is_finite())
}

/// `loss`: the trace's loss value, that a loss budget is relative to.
pub fn dispatch(
    candidates: &Candidates,
    policy: &Policy,
    overrides: &Overrides,
    loss: f64,
) -> Result<Dispatch, OverrideError> {
    let wanted = by_group(candidates, overrides, &policy.baseline)?;
    let judged: Vec<Judged> = candidates.groups.iter().map(|group| Judged::new(group, policy, loss)).collect();
    let mut warnings = Vec::new();
    let budget = policy.loss_budget.map(|share| share * loss);
    let (budgeted, optimum) = match budget {
        Some(budget) => optimise(&judged, &wanted, policy, budget, &mut warnings),
        None => (BTreeMap::new(), None),
    };
    let mut choices = Vec::with_capacity(judged.len());
    for (index, (group, wanted)) in judged.iter().zip(&wanted).enumerate() {
        choices.push(match wanted {
            Some(wanted) => overridden(group, wanted, policy, &mut warnings),
            None if group.budgeted => {
                choose_budgeted(group, budgeted.get(&index).copied(), policy, budget.unwrap_or(0.0))
            }
            None => choose_alone(group, policy),
        });
    }
    let totals = total(&judged, &choices, policy);
    if totals.num_without_latency > 0 {
        let (missing, all) = (totals.num_without_latency, totals.num_gemms);
        warnings.push(format!("{missing} of {all} GEMMs have no latency and are not in the totals"));
    }
    Ok(Dispatch { choices, totals, warnings, optimum })
}

fn choose_alone(judged: &Judged, policy: &Policy) -> Choice {
    let admissible = judged.admissible();
    match admissible.first() {
        Some(best) => {
            let reason = reason::fastest(judged.bound, best, admissible.len());
            assemble(judged, policy, &best.row.kernel, ChoiceSource::Dispatch, reason)
        }
        None => {
            let reason = reason::stays_high(judged.group, policy, judged.bound, &judged.verdicts);
            assemble(judged, policy, &policy.baseline, ChoiceSource::Dispatch, reason)
        }
    }
}

fn choose_budgeted(judged: &Judged, pick: Option<&ResultRow>, policy: &Policy, budget: f64) -> Choice {
    let chosen = pick.and_then(|row| judged.verdicts.iter().find(|verdict| verdict.row.kernel == row.kernel));
    match chosen {
        Some(verdict) => {
            let reason = reason::within_budget(verdict, loss_cost_hi(verdict.row).unwrap_or(0.0), budget);
            assemble(judged, policy, &verdict.row.kernel, ChoiceSource::Dispatch, reason)
        }
        None => {
            let reason = reason::not_worth_it(judged.group, policy, judged.bound, &judged.verdicts);
            assemble(judged, policy, &policy.baseline, ChoiceSource::Dispatch, reason)
        }
    }
}

fn overridden(judged: &Judged, wanted: &Override, policy: &Policy, warnings: &mut Vec<String>) -> Choice {
    let why = if wanted.reason.is_empty() { "no reason given" } else { &wanted.reason };
    let mut reason = format!("override: {why}");
    let verdict = judged.verdicts.iter().find(|verdict| verdict.row.kernel == wanted.kernel);
    if let Some(verdict) = verdict.filter(|verdict| verdict.safety != Safety::Safe) {
        let broken = reason::against(judged.bound, verdict.row.metric(judged.bound.metric));
        reason += &format!("; breaks the policy: {broken}");
        warnings.push(format!(
            "{}:{} is overridden with {}, which breaks the policy: {broken}",
            judged.group.site.id, judged.group.gemm, wanted.kernel
        ));
    }
    assemble(judged, policy, &wanted.kernel, ChoiceSource::Override, reason)
}

fn assemble(judged: &Judged, policy: &Policy, kernel: &KernelId, source: ChoiceSource, reason: String) -> Choice {
    let row = judged.group.row(kernel);
    let speedup = row.and_then(ResultRow::speedup).filter(|speedup| speedup.is_finite());
    let admissible = judged.admissible();
    let faster = |candidate: &ResultRow| candidate.speedup().is_some_and(|other| other > speedup.unwrap_or(1.0));
    let passed_over = judged.verdicts.iter().filter(|v| v.row.supported && v.row.kernel != *kernel && faster(v.row));
    let why = |verdict: &Verdict| match verdict.safety {
        _ if source == ChoiceSource::Override => PassedOver::Override,
        _ if judged.budgeted => PassedOver::Budget,
        Safety::Unsafe => PassedOver::Unsafe,
        Safety::Safe | Safety::Uncertain => PassedOver::Uncertain,
    };
    // Faster and safe but below the policy's least speed-up is not worth a word.
    let told =
        |verdict: &&Verdict| judged.budgeted || source == ChoiceSource::Override || verdict.safety != Safety::Safe;
    Choice {
        kernel: kernel.clone(),
        source,
        reason,
        error: row.map_or_else(BTreeMap::new, metrics_of),
        speedup,
        passed_over: passed_over.filter(told).map(|verdict| (verdict.row.kernel.clone(), why(verdict))).collect(),
        runners_up: admissible
            .iter()
            .map(|verdict| &verdict.row.kernel)
            .chain([&policy.baseline])
            .filter(|other| *other != kernel)
            .take(MAX_RUNNERS_UP)
            .cloned()
            .collect(),
    }
}

fn metrics_of(row: &ResultRow) -> BTreeMap<Metric, f64> {
    let known = |metric| Some((metric, row.metric(metric)?.value));
    Metric::ALL.into_iter().filter_map(known).filter(|(_, value)| value.is_finite()).collect()
}

/// Options of a forward GEMM under a loss budget: staying (always first), or a kernel that is
/// faster and whose cost is known. The time is the reference's, scaled by the kernel's own speed-up.
pub(super) fn options<'a>(judged: &Judged<'_, 'a>, policy: &Policy) -> (Vec<Item>, Vec<Option<&'a ResultRow>>) {
    let stay = judged.group.row(&policy.baseline).and_then(loss_cost_hi).unwrap_or(0.0);
    let reference = judged.reference_us.unwrap_or(0.0);
    let mut items = vec![Item { cost: stay, time: reference }];
    let mut rows = vec![None];
    if judged.reference_us.is_some() {
        for verdict in judged.admissible() {
            let (Some(cost), Some(speedup)) = (loss_cost_hi(verdict.row), verdict.row.speedup()) else { continue };
            items.push(Item { cost, time: reference / speedup });
            rows.push(Some(verdict.row));
        }
    }
    (items, rows)
}

/// The optimiser's picks by group, overrides fixed and paid for first.
fn optimise<'a>(
    judged: &[Judged<'_, 'a>],
    wanted: &[Option<&Override>],
    policy: &Policy,
    budget: f64,
    warnings: &mut Vec<String>,
) -> (BTreeMap<usize, &'a ResultRow>, Option<Optimum>) {
    let mut groups = Vec::new();
    let mut meaning = Vec::new();
    for (index, (group, wanted)) in judged.iter().zip(wanted).enumerate().filter(|(_, (group, _))| group.budgeted) {
        let (items, rows) = match wanted {
            Some(wanted) => (vec![fixed(group, wanted)], vec![None]),
            None => options(group, policy),
        };
        groups.push(items);
        meaning.push((index, rows));
    }
    let Some(solution) = knapsack::solve(&groups, budget) else {
        warnings.push(format!("the loss budget of {} cannot be kept even in high precision", short(budget)));
        return (BTreeMap::new(), None);
    };
    let picked =
        solution.picks.iter().zip(&meaning).filter_map(|(pick, (index, rows))| Some((*index, rows[*pick]?))).collect();
    let optimum = Optimum {
        time_us: solution.time,
        lower_bound_us: solution.lower_bound,
        proven: solution.proven,
        loss_cost_hi: solution.cost,
        budget,
    };
    if !optimum.proven {
        warnings
            .push(format!("the optimum is not proven: at most {} % faster is possible", short(100.0 * optimum.gap())));
    }
    (picked, Some(optimum))
}

use reason::short;

fn fixed(judged: &Judged, wanted: &Override) -> Item {
    let row = judged.group.row(&wanted.kernel);
    let reference = judged.reference_us.unwrap_or(0.0);
    let speedup = row.and_then(ResultRow::speedup).unwrap_or(1.0);
    Item { cost: row.and_then(loss_cost_hi).unwrap_or(0.0), time: reference / speedup }
}

/// A GEMM counts in both sums or in neither: a speed-up of what is known.
pub(super) fn total(judged: &[Judged], choices: &[Choice], policy: &Policy) -> Totals {
    let mut totals = Totals { num_gemms: choices.len(), ..Totals::default() };
    for (group, choice) in judged.iter().zip(choices) {
        let speedup = if choice.kernel == policy.baseline { Some(1.0) } else { choice.speedup };
        match (group.reference_us, speedup) {
            (Some(reference), Some(speedup)) => {
                totals.baseline_us += reference;
                totals.planned_us += reference / speedup;
            }
            _ => totals.num_without_latency += 1,
        }
        let cost = group.group.row(&choice.kernel).and_then(|row| row.metric(Metric::LossCost));
        if let Some(cost) = cost.filter(|cost| group.group.gemm == Gemm::Fprop && cost.hi.is_finite()) {
            *totals.loss_cost.get_or_insert(0.0) += cost.value;
            *totals.loss_cost_hi.get_or_insert(0.0) += cost.hi.max(0.0);
        }
    }
    totals.speedup = (totals.planned_us > 0.0).then(|| totals.baseline_us / totals.planned_us);
    totals
}

#[cfg(test)]
mod tests;
