//! Takes candidates, a policy and overrides, gives one choice a GEMM and the totals. A site's three GEMMs are
//! chosen together ([`super::joint`]), and so are sites that codes may be handed on between ([`super::chain`]);
//! under a loss budget all sites are.

use std::collections::BTreeMap;

use crate::model::{Gemm, KernelId, Metric, ResultRow, Safety};

use super::{
    Candidates, Choice, ChoiceSource, Group, Override, OverrideError, Overrides, PassedOver, Policy, Totals, Warning,
    chain::{Chain, Form, Link, Links, Picked, Unit},
    joint::Triple,
    judged::{Judged, Verdict, loss_cost_hi},
    knapsack::{self, Item},
    overrides::by_group,
    parallel,
    reason::{self, short},
    sharing::{Cost, Operand, gemm_speedup, saved_us, site_us},
};

const MAX_RUNNERS_UP: usize = 3;

/// How good the optimiser's answer is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Optimum {
    /// Of all three GEMMs of every site, casts shared and codes handed on.
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
    /// What is handed on as codes, by the number of a site that takes part.
    pub chains: BTreeMap<usize, Chain>,
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
    let links = Links::of(groups);
    let units = links.units(groups.len());
    let unit = |at: usize| Unit::new(units.get(at), (groups, wanted), &links, (policy, loss));
    let mut warnings = Vec::new();
    // A site is decided from its rows to its reasons in one go: they are read from memory once.
    let (mut decided, optimum): (Vec<Decided>, _) = match policy.loss_budget.map(|share| share * loss) {
        Some(budget) => {
            let all = parallel::map(units.len(), unit);
            let (items, optimum) = optimise(&all, budget, &mut warnings);
            let decide = |at: usize| decided(&all[at], items.get(at).copied(), (groups, wanted), policy, budget);
            (parallel::map(all.len(), decide).into_iter().flatten().collect(), optimum)
        }
        None => {
            let decide = |at: usize| decided(&unit(at), Some(0), (groups, wanted), policy, 0.0);
            (parallel::map(units.len(), decide).into_iter().flatten().collect(), None)
        }
    };
    if units.len() < groups.len() {
        decided.sort_by_key(|site| site.at);
    }
    let totals = total(&decided);
    let mut choices = Vec::with_capacity(3 * decided.len());
    let mut chains = BTreeMap::new();
    for site in decided {
        choices.extend(site.choices);
        warnings.extend(site.warnings);
        chains.extend(site.chain.map(|chain| (site.at, chain)));
    }
    if totals.num_without_latency > 0 {
        let (missing, all) = (totals.num_without_latency, totals.num_gemms);
        let text = format!("{missing} of {all} GEMMs have no latency and are not in the totals");
        warnings.push(Warning::whole(text));
    }
    Ok(Dispatch { choices, chains, totals, warnings, optimum })
}

/// The sites of one unit. `item`: what the optimiser chose there.
fn decided(
    unit: &Unit,
    item: Option<usize>,
    (groups, wanted): (&[[Group; 3]], &[[Option<&Override>; 3]]),
    policy: &Policy,
    budget: f64,
) -> Vec<Decided> {
    let sites = unit.sites().zip(unit.picked(item));
    let decide = |((at, judged), picked): ((usize, &[Judged; 3]), Picked)| {
        Site { at, judged, wanted: wanted[at], groups }.decided(&picked, policy, budget)
    };
    sites.map(decide).collect()
}

/// What was decided for one site, and what it adds to the totals.
struct Decided {
    at: usize,
    choices: [Choice; 3],
    tallies: [Tally; 3],
    /// By casts that are shared.
    saved_us: f64,
    /// What the site hands on, or takes, as codes; what that saves is in no tally.
    chain: Option<Chain>,
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
    /// Of all sites.
    groups: &'p [[Group<'a>; 3]],
}

impl Site<'_, '_, '_, '_> {
    fn decided(&self, picked: &Picked, policy: &Policy, budget: f64) -> Decided {
        let (judged, triple) = (self.judged, &picked.triple);
        let mut warnings = Vec::new();
        let chain = picked.link.as_ref().map(|link| self.chain(link));
        let choices = [0, 1, 2].map(|at| {
            // Only forward GEMMs read and store codes.
            let link = picked.link.as_ref().filter(|_| at == Gemm::Fprop as usize);
            let told = link.and_then(|link| reason::handed_on(link, self.groups));
            let handed = Handed {
                told,
                decided: link.is_some_and(|link| link.decided),
                credit_us: link.map_or(0.0, |link| link.credit_us),
            };
            let place = Place { judged: &judged[at], triple, policy, handed };
            match self.wanted[at] {
                Some(wanted) => place.overridden(wanted, 3 * self.at + at, &mut warnings),
                None => place.chosen(budget),
            }
        });
        let tallies = [0, 1, 2].map(|at| Tally::of(&judged[at], &choices[at], policy));
        let saved_us = Operand::ALL.map(|operand| saved_us(&triple.costs, operand)).iter().sum();
        Decided { at: self.at, choices, tallies, saved_us, chain, warnings }
    }

    fn chain(&self, link: &Link) -> Chain {
        let id = |at: usize| self.groups[at][0].site.id.clone();
        let stores = match &link.store {
            None => vec![Form::Bf16],
            Some(store) if store.beside_us.is_some() => vec![Form::Bf16, Form::E4m3],
            Some(_) => vec![Form::E4m3],
        };
        let extra_us = link.store.as_ref().and_then(|store| store.beside_us).unwrap_or(0.0);
        Chain {
            reads: if link.from.is_some() { Form::E4m3 } else { Form::Bf16 },
            from: link.from.map(|(at, _)| id(at)),
            stores,
            store_scale: link.store.as_ref().map(|store| store.scale),
            saved_us: link.from.map_or(0.0, |(_, saved_us)| saved_us) - extra_us,
        }
    }
}

impl Tally {
    fn of(judged: &Judged, choice: &Choice, policy: &Policy) -> Self {
        let forward = judged.group.gemm == Gemm::Fprop;
        let row = judged.group.row(&choice.kernel).filter(|_| forward);
        let speedup = match row {
            _ if choice.kernel == policy.baseline => Some(1.0),
            Some(row) => gemm_speedup(row, judged.reference_us).filter(|speedup| speedup.is_finite()),
            // Only forward kernels have a tail.
            None => choice.speedup,
        };
        let times_us = judged.reference_us.zip(speedup).map(|(us, speedup)| (us, us / speedup));
        let cost = row.and_then(|row| row.metric(Metric::LossCost)).filter(|cost| cost.hi.is_finite());
        Self { times_us, loss_cost: cost.map(|cost| (cost.value, cost.hi.max(0.0))) }
    }
}

/// One GEMM among those of its site.
struct Place<'p, 'c, 'a> {
    judged: &'p Judged<'c, 'a>,
    triple: &'p Triple<'a>,
    policy: &'p Policy,
    handed: Handed,
}

/// What a GEMM takes, or hands on, as codes.
struct Handed {
    /// `None`: nothing.
    told: Option<String>,
    /// Without it there would be another kernel.
    decided: bool,
    /// What other GEMMs would take longer without the codes that this one stores.
    credit_us: f64,
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
        if let (Some(told), true) = (&self.handed.told, self.handed.decided) {
            return format!("{told}; {}", reason::alone(judged.bound, verdict));
        }
        let own = self.own_reason(verdict, budget, triple.decided_by_sharing(gemm));
        match &self.handed.told {
            None => own,
            Some(told) => format!("{own}; {told}"),
        }
    }

    fn own_reason(&self, verdict: &Verdict, budget: f64, decided: bool) -> String {
        let (judged, triple, gemm) = (self.judged, self.triple, self.judged.group.gemm);
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
        if let Some(told) = &self.handed.told {
            reason += &format!("; {told}");
        }
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
        let own = row.and_then(|row| gemm_speedup(row, judged.reference_us)).filter(|speedup| speedup.is_finite());
        let passed_over = others.filter(|verdict| self.faster_than(own.unwrap_or(1.0), verdict.row));
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

    /// True where `other` would be faster here, with what each of the two shares with the GEMMs beside it, and
    /// what this one takes and hands on as codes.
    fn faster_than(&self, speedup: f64, other: &ResultRow) -> bool {
        let (costs, at) = (self.triple.costs, self.judged.group.gemm as usize);
        let alone = self.handed.told.is_none() && (0..3).all(|other| other == at || !costs[other].can_share());
        match (alone, self.judged.reference_us.and_then(|us| Cost::of(other, us))) {
            (false, Some(cost)) => {
                let mut swapped = costs;
                swapped[at] = cost;
                site_us(&swapped) < site_us(&costs) - self.handed.credit_us
            }
            _ => gemm_speedup(other, self.judged.reference_us).is_some_and(|other| other > speedup),
        }
    }
}

fn metrics_of(row: &ResultRow) -> BTreeMap<Metric, f64> {
    let known = |metric| Some((metric, row.metric(metric)?.value));
    Metric::ALL.into_iter().filter_map(known).filter(|(_, value)| value.is_finite()).collect()
}

/// What every unit takes for the least time in the loss budget, overrides fixed and paid for first. Empty: the
/// budget cannot be kept.
fn optimise(units: &[Unit], budget: f64, warnings: &mut Vec<Warning>) -> (Vec<usize>, Option<Optimum>) {
    let items: Vec<Vec<Item>> = units.iter().map(|unit| unit.items().to_vec()).collect();
    let Some(solution) = knapsack::solve(&items, budget) else {
        let text = format!("the loss budget of {} cannot be kept even in high precision", short(budget));
        warnings.push(Warning::whole(text));
        return (Vec::new(), None);
    };
    let slack_us: f64 = units.iter().map(Unit::slack_us).sum();
    let optimum = Optimum {
        time_us: solution.time,
        lower_bound_us: solution.lower_bound - slack_us,
        proven: solution.proven && slack_us == 0.0,
        loss_cost_hi: solution.cost,
        budget,
    };
    if !optimum.proven {
        let text = format!("the optimum is not proven: at most {} % faster is possible", short(100.0 * optimum.gap()));
        warnings.push(Warning::whole(text));
    }
    (solution.picks, Some(optimum))
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
    totals.handed_on_us = sites.iter().filter_map(|site| site.chain.as_ref()).map(|chain| chain.saved_us).sum();
    totals.planned_us -= totals.handed_on_us;
    totals.speedup = (totals.planned_us > 0.0).then(|| totals.baseline_us / totals.planned_us);
    totals
}

#[cfg(test)]
mod tests;
