//! Takes candidates, a policy and overrides, gives one choice a GEMM and the totals. A site's three GEMMs are
//! chosen together ([`super::joint`]); under a loss budget so are the sites.

use std::collections::BTreeMap;

use crate::model::{Gemm, KernelId, Metric, ResultRow, Safety};

use super::{
    Candidates, Choice, ChoiceSource, Override, OverrideError, Overrides, PassedOver, Policy, Totals, Warning,
    joint::{SiteOptions, Triple, forward_cost_hi},
    judged::{Judged, Verdict, loss_cost_hi},
    knapsack::{self, Item},
    overrides::by_group,
    parallel,
    reason::{self, short},
    sharing::{Cost, Operand, saved_us, site_us},
};

const MAX_RUNNERS_UP: usize = 3;

/// How good the optimiser's answer is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Optimum {
    /// Of all three GEMMs of every site, casts shared.
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
    pub warnings: Vec<Warning>,
    /// With a loss budget only.
    pub optimum: Option<Optimum>,
}

/// `loss`: the trace's loss value, that a loss budget is relative to.
pub fn dispatch(
    candidates: &Candidates,
    policy: &Policy,
    overrides: &Overrides,
    loss: f64,
) -> Result<Dispatch, OverrideError> {
    let wanted = by_group(candidates, overrides, &policy.baseline)?;
    let (groups, wanted) = (candidates.groups.as_chunks::<3>().0, wanted.as_chunks::<3>().0);
    let judged = |at: usize| Judged::of_site(&groups[at], policy, loss);
    let mut warnings = Vec::new();
    // A site is decided from its rows to its reasons in one go: they are read from memory once.
    let (decided, optimum): (Vec<Decided>, _) = match policy.loss_budget.map(|share| share * loss) {
        Some(budget) => {
            let sites = parallel::map(groups.len(), |at| {
                let judged = judged(at);
                let triples = SiteOptions::new(&judged, wanted[at], policy).by_forward();
                (judged, triples)
            });
            let (triples, optimum) = optimise(&sites, policy, budget, &mut warnings);
            let of = |at: usize| Site { at, judged: &sites[at].0, wanted: wanted[at] };
            (parallel::map(triples.len(), |at| of(at).decided(&triples[at], policy, budget)), optimum)
        }
        None => {
            let decide = |at: usize| {
                let judged = judged(at);
                let triple = SiteOptions::new(&judged, wanted[at], policy).fastest()?;
                Some(Site { at, judged: &judged, wanted: wanted[at] }.decided(&triple, policy, 0.0))
            };
            (parallel::map(groups.len(), decide).into_iter().flatten().collect(), None)
        }
    };
    let totals = total(&decided);
    let mut choices = Vec::with_capacity(3 * decided.len());
    for site in decided {
        choices.extend(site.choices);
        warnings.extend(site.warnings);
    }
    if totals.num_without_latency > 0 {
        let (missing, all) = (totals.num_without_latency, totals.num_gemms);
        let text = format!("{missing} of {all} GEMMs have no latency and are not in the totals");
        warnings.push(Warning::whole(text));
    }
    Ok(Dispatch { choices, totals, warnings, optimum })
}

/// What was decided for one site, and what it adds to the totals.
struct Decided {
    choices: [Choice; 3],
    tallies: [Tally; 3],
    /// By casts that are shared.
    saved_us: f64,
    warnings: Vec<Warning>,
}

/// One GEMM's part of the totals.
struct Tally {
    /// In the baseline and as planned; `None` in neither sum.
    times_us: Option<(f64, f64)>,
    /// Value and upper end.
    loss_cost: Option<(f64, f64)>,
}

/// One site's GEMMs as they were judged, and what a person wants of them.
struct Site<'p, 'c, 'a, 'o> {
    /// Its number among the sites.
    at: usize,
    judged: &'p [Judged<'c, 'a>; 3],
    wanted: [Option<&'o Override>; 3],
}

impl Site<'_, '_, '_, '_> {
    fn decided(&self, triple: &Triple, policy: &Policy, budget: f64) -> Decided {
        let judged = self.judged;
        let mut warnings = Vec::new();
        let choices = [0, 1, 2].map(|at| {
            let place = Place { judged: &judged[at], triple, policy };
            match self.wanted[at] {
                Some(wanted) => place.overridden(wanted, 3 * self.at + at, &mut warnings),
                None => place.chosen(budget),
            }
        });
        let tallies = [0, 1, 2].map(|at| Tally::of(&judged[at], &choices[at], policy));
        let saved_us = Operand::ALL.map(|operand| saved_us(&triple.costs, operand)).iter().sum();
        Decided { choices, tallies, saved_us, warnings }
    }
}

impl Tally {
    fn of(judged: &Judged, choice: &Choice, policy: &Policy) -> Self {
        let speedup = if choice.kernel == policy.baseline { Some(1.0) } else { choice.speedup };
        let times_us = judged.reference_us.zip(speedup).map(|(us, speedup)| (us, us / speedup));
        let row = judged.group.row(&choice.kernel).filter(|_| judged.group.gemm == Gemm::Fprop);
        let cost = row.and_then(|row| row.metric(Metric::LossCost)).filter(|cost| cost.hi.is_finite());
        Self { times_us, loss_cost: cost.map(|cost| (cost.value, cost.hi.max(0.0))) }
    }
}

/// One GEMM among those of its site.
struct Place<'p, 'c, 'a> {
    judged: &'p Judged<'c, 'a>,
    triple: &'p Triple<'a>,
    policy: &'p Policy,
}

impl Place<'_, '_, '_> {
    fn chosen(&self, budget: f64) -> Choice {
        let (judged, policy) = (self.judged, self.policy);
        let row = self.triple.rows[judged.group.gemm as usize];
        let picked = row.and_then(|row| judged.verdicts.iter().find(|verdict| verdict.row.kernel == row.kernel));
        let reason = match picked {
            Some(verdict) => self.reason(verdict, budget),
            None if judged.budgeted => reason::not_worth_it(judged.group, policy, judged.bound, &judged.verdicts),
            None => reason::stays_high(judged.group, policy, judged.bound, &judged.verdicts),
        };
        let kernel = picked.map_or(&policy.baseline, |verdict| &verdict.row.kernel);
        self.assemble(kernel, ChoiceSource::Dispatch, reason)
    }

    fn reason(&self, verdict: &Verdict, budget: f64) -> String {
        let (judged, triple, gemm) = (self.judged, self.triple, self.judged.group.gemm);
        let decided = triple.decided_by_sharing(gemm);
        let shared = reason::sharing(triple, gemm, decided);
        let own = if judged.budgeted {
            reason::within_budget(verdict, loss_cost_hi(verdict.row).unwrap_or(0.0), budget)
        } else if decided {
            reason::alone(judged.bound, verdict)
        } else {
            reason::fastest(judged.bound, verdict, judged.admissible().len())
        };
        match shared {
            None => own,
            Some(shared) if decided => format!("{shared}; {own}"),
            Some(shared) => format!("{own}; {shared}"),
        }
    }

    fn overridden(&self, wanted: &Override, at: usize, warnings: &mut Vec<Warning>) -> Choice {
        let judged = self.judged;
        let why = if wanted.reason.is_empty() { "no reason given" } else { &wanted.reason };
        let mut reason = format!("override: {why}");
        let verdict = judged.verdicts.iter().find(|verdict| verdict.row.kernel == wanted.kernel);
        if let Some(verdict) = verdict.filter(|verdict| verdict.safety != Safety::Safe) {
            let broken = reason::against(judged.bound, verdict.row.metric(judged.bound.metric));
            reason += &format!("; breaks the policy: {broken}");
            let (site, gemm, kernel) = (&judged.group.site.id, judged.group.gemm, &wanted.kernel);
            let text = format!("{site}:{gemm} is overridden with {kernel}, which breaks the policy: {broken}");
            warnings.push(Warning { at: Some(at), text });
        }
        self.assemble(&wanted.kernel, ChoiceSource::Override, reason)
    }

    fn assemble(&self, kernel: &KernelId, source: ChoiceSource, reason: String) -> Choice {
        let judged = self.judged;
        let row = judged.group.row(kernel);
        let reason = reason::with_scale(reason, row);
        let speedup = row.and_then(ResultRow::speedup).filter(|speedup| speedup.is_finite());
        let others = judged.verdicts.iter().filter(|verdict| verdict.row.supported && verdict.row.kernel != *kernel);
        let passed_over = others.filter(|verdict| self.faster_than(speedup.unwrap_or(1.0), verdict.row));
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
            static_scale: row.and_then(|row| row.static_scale).map(|known| f64::from(known.scale)),
            saturation: row.and_then(|row| row.static_scale).map(|known| known.saturation),
            passed_over: passed_over.filter(told).map(|verdict| (verdict.row.kernel.clone(), why(verdict))).collect(),
            runners_up: judged
                .admissible()
                .map(|verdict| &verdict.row.kernel)
                .chain([&self.policy.baseline])
                .filter(|other| *other != kernel)
                .take(MAX_RUNNERS_UP)
                .cloned()
                .collect(),
        }
    }

    /// True where `other` would be faster here, with what each of the two shares with the GEMMs beside it.
    fn faster_than(&self, speedup: f64, other: &ResultRow) -> bool {
        let (costs, at) = (self.triple.costs, self.judged.group.gemm as usize);
        let alone = (0..3).all(|other| other == at || !costs[other].can_share());
        match (alone, self.judged.reference_us.and_then(|us| Cost::of(other, us))) {
            (false, Some(cost)) => {
                let mut swapped = costs;
                swapped[at] = cost;
                site_us(&swapped) < site_us(&costs)
            }
            _ => other.speedup().is_some_and(|other| other > speedup),
        }
    }
}

fn metrics_of(row: &ResultRow) -> BTreeMap<Metric, f64> {
    let known = |metric| Some((metric, row.metric(metric)?.value));
    Metric::ALL.into_iter().filter_map(known).filter(|(_, value)| value.is_finite()).collect()
}

/// The sites' kernels with the least time in the loss budget, overrides fixed and paid for first.
fn optimise<'a>(
    sites: &[([Judged<'_, 'a>; 3], Vec<Triple<'a>>)],
    policy: &Policy,
    budget: f64,
    warnings: &mut Vec<Warning>,
) -> (Vec<Triple<'a>>, Option<Optimum>) {
    let triples = || sites.iter().map(|(_, triples)| triples);
    let items: Vec<Vec<Item>> = sites.iter().map(|(judged, triples)| items(triples, judged, policy)).collect();
    let Some(solution) = knapsack::solve(&items, budget) else {
        let text = format!("the loss budget of {} cannot be kept even in high precision", short(budget));
        warnings.push(Warning::whole(text));
        return (triples().filter_map(|triples| triples.first().copied()).collect(), None);
    };
    let optimum = Optimum {
        time_us: solution.time,
        lower_bound_us: solution.lower_bound,
        proven: solution.proven,
        loss_cost_hi: solution.cost,
        budget,
    };
    if !optimum.proven {
        let text = format!("the optimum is not proven: at most {} % faster is possible", short(100.0 * optimum.gap()));
        warnings.push(Warning::whole(text));
    }
    let picked = solution.picks.iter().zip(triples()).filter_map(|(pick, triples)| triples.get(*pick).copied());
    (picked.collect(), Some(optimum))
}

/// A site's options for the optimiser: one a kernel of the forward GEMM, with the least time that goes
/// with it. The backward GEMMs have no loss cost.
pub(super) fn items(triples: &[Triple], judged: &[Judged<'_, '_>; 3], policy: &Policy) -> Vec<Item> {
    let cost = |triple: &Triple| forward_cost_hi(triple, judged, policy);
    triples.iter().map(|triple| Item { cost: cost(triple), time: triple.us }).collect()
}

/// A GEMM counts in both sums or in neither: a speed-up of what is known. Summed in the order of the sites,
/// so that it is the same on any number of threads.
fn total(sites: &[Decided]) -> Totals {
    let mut totals = Totals { num_gemms: 3 * sites.len(), ..Totals::default() };
    for tally in sites.iter().flat_map(|site| &site.tallies) {
        match tally.times_us {
            Some((baseline_us, planned_us)) => {
                totals.baseline_us += baseline_us;
                totals.planned_us += planned_us;
            }
            None => totals.num_without_latency += 1,
        }
        if let Some((value, hi)) = tally.loss_cost {
            *totals.loss_cost.get_or_insert(0.0) += value;
            *totals.loss_cost_hi.get_or_insert(0.0) += hi;
        }
    }
    totals.planned_us -= sites.iter().map(|site| site.saved_us).sum::<f64>();
    totals.speedup = (totals.planned_us > 0.0).then(|| totals.baseline_us / totals.planned_us);
    totals
}

#[cfg(test)]
mod tests;
