//! Takes candidates, a policy and overrides, gives one choice a GEMM and the totals. A site's three GEMMs are
//! chosen together ([`super::joint`]), and so are sites that codes may be handed on between ([`super::chain`]);
//! under a loss budget all sites are.

use std::collections::BTreeMap;

use crate::{
    format::short,
    model::{Gemm, Safety, Speed},
};

use super::{
    Candidates, Choice, Group, JudgedRows, Override, OverrideError, Overrides, Policy, SitePattern, Totals, Warning,
    WarningKind,
    chain::{Chain, ChainLink, Form, Links, Picked, Unit},
    judged::{Judged, Terms, Verdict},
    knapsack::{self, Item},
    overrides::by_group,
    parallel,
    place::{Handed, Place},
    reason,
    sharing::{Operand, gemm_speedup, saved_us},
    target::{Barred, Timed},
};

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
    dispatch_judged(candidates, (policy, loss), overrides, None)
}

/// The same of rows that were judged by that policy and loss.
pub(crate) fn dispatch_judged(
    candidates: &Candidates,
    (policy, loss): (&Policy, f64),
    overrides: &Overrides,
    rows: Option<&JudgedRows>,
) -> Result<Dispatch, OverrideError> {
    let wanted = by_group(candidates, overrides, &policy.baseline)?;
    let (groups, wanted) = (candidates.groups.as_chunks::<3>().0, wanted.as_chunks::<3>().0);
    let terms = Terms { policy, loss, target: &candidates.target };
    let links = Links::of(groups, terms.target.runtime(), rows);
    let units = links.units(groups.len());
    let unit = |at: usize| Unit::new(units.get(at), (groups, wanted), &links, (terms, rows));
    let mut warnings = Vec::new();
    // A site is decided from its rows to its reasons in one go: they are read from memory once.
    let (mut decided, optimum): (Vec<Decided>, _) = match policy.loss_budget.map(|share| share * loss) {
        Some(budget) => {
            let all = parallel::map(units.len(), unit);
            let (items, optimum) = optimise(&all, budget, &mut warnings);
            let decide = |at: usize, into: &mut Vec<Decided>| {
                decided(&all[at], items.get(at).copied(), (groups, wanted), (terms, budget), into);
            };
            (every(units.len(), decide), optimum)
        }
        None => {
            let decide = |at: usize, into: &mut Vec<Decided>| {
                decided(&unit(at), Some(0), (groups, wanted), (terms, 0.0), into);
            };
            (every(units.len(), decide), None)
        }
    };
    if units.len() < groups.len() {
        decided.sort_by_key(|site| site.at);
    }
    let totals = total(&decided);
    let left_out: Vec<bool> = decided.iter().map(|site| site.left_out).collect();
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
        warnings.push(Warning { kind: WarningKind::NoLatency, ..Warning::whole(text) });
    }
    warnings.extend(unmatched(policy, groups));
    warnings.extend(decided_untimed(&left_out));
    warnings.extend(out_of_range(groups, policy, loss, &totals));
    Ok(Dispatch { choices, chains, totals, warnings, optimum })
}

/// A pattern that hits nothing was misspelt, and what it should have protected is not.
fn unmatched(policy: &Policy, groups: &[[Group; 3]]) -> Vec<Warning> {
    let hits = |pattern: &SitePattern| groups.iter().any(|[group, ..]| pattern.matches(&group.site.id));
    let missed = policy.groups.iter().map(|group| &group.sites).filter(|pattern| !hits(pattern));
    missed.map(|pattern| Warning::whole(format!("the policy's group {pattern} matches no site"))).collect()
}

/// What the plan does without, and what whoever has a GPU can do about it.
fn decided_untimed(left_out: &[bool]) -> Option<Warning> {
    let count = left_out.iter().filter(|left_out| **left_out).count();
    let sites = format!("{count} of {} sites", left_out.len());
    let text = format!(
        "at {sites} a kernel of LoKA's own (loka/*) is safe and, in a CUDA graph, faster than BF16; the plan does without, since \
         what it takes in a launched step was never timed. On the GPU that trains, time it: loka bench --sites --kernels \
         'loka/*' --shapes TRACE --out S.sites.json, then loka probe TRACE --sites-times S.sites.json --out R.results.parquet. Is the \
         step replayed as a CUDA graph, loka plan --runtime graph needs no such times"
    );
    (count > 0).then(|| Warning::whole(text))
}

/// Sites that no loss budget reaches, and choices that no total counts.
fn out_of_range(groups: &[[Group; 3]], policy: &Policy, loss: f64, totals: &Totals) -> Vec<Warning> {
    let mut warnings = Vec::new();
    if policy.loss_budget.is_some() {
        let means_nothing = |at: &usize| {
            let row = groups[*at][0].row(&policy.baseline);
            row.filter(|row| row.is_loss_cost_out_of_range(loss)).map(|row| (*at, row))
        };
        for (at, row) in (0..groups.len()).filter_map(|at| means_nothing(&at)) {
            let text = format!("{} leaves the loss budget: {}", row.site, reason::out_of_range(row));
            warnings.push(Warning::at(WarningKind::LeavesBudget, 3 * at, text));
        }
    }
    if totals.num_cost_out_of_range > 0 {
        let count = totals.num_cost_out_of_range;
        let text = format!("the loss cost of {count} forward GEMMs is outside its range and in no total");
        warnings.push(Warning::whole(text));
    }
    warnings
}

/// What `decide` puts down of every unit, in one list a thread: a site decided is a kilobyte, which is not moved about.
fn every(num_units: usize, decide: impl Fn(usize, &mut Vec<Decided>) + Sync) -> Vec<Decided> {
    parallel::map_ranges(num_units, |range| {
        let mut all = Vec::with_capacity(range.len());
        range.for_each(|at| decide(at, &mut all));
        all
    })
}

/// The sites of one unit. `item`: what the optimiser chose there.
fn decided(
    unit: &Unit,
    item: Option<usize>,
    (groups, wanted): (&[[Group; 3]], &[[Option<&Override>; 3]]),
    (terms, budget): (Terms<'_>, f64),
    into: &mut Vec<Decided>,
) {
    let sites = unit.sites().zip(unit.picked(item));
    let decide = |((at, judged), picked): ((usize, &[Judged; 3]), Picked)| {
        SiteOptions { at, judged, wanted: wanted[at], groups }.decided(&picked, terms, budget)
    };
    into.extend(sites.map(decide));
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
    /// The site as a whole, in place of its tallies' times.
    timed: Option<Timed>,
    /// Of the module a step: everything above is of one.
    calls: f64,
    /// A kernel of LoKA's own would be safe and is fast by its row, which is of a CUDA graph; it was never timed where it
    /// would run.
    left_out: bool,
    warnings: Vec<Warning>,
}

/// One GEMM's part of the totals.
struct Tally {
    /// False of one that the runtime, or training, has no use for: it is in no count.
    runs: bool,
    /// In the baseline and as planned; `None` in neither sum.
    times_us: Option<(f64, f64)>,
    /// Value and upper end.
    loss_cost: Option<(f64, f64)>,
    /// There is a figure, and it means nothing.
    out_of_range: bool,
}

/// One site's GEMMs as they were judged, and what a person wants of them.
struct SiteOptions<'p, 'c, 'a, 'o> {
    /// Its number among the sites.
    at: usize,
    judged: &'p [Judged<'c, 'a>; 3],
    wanted: [Option<&'o Override>; 3],
    /// Of all sites.
    groups: &'p [[Group<'a>; 3]],
}

impl SiteOptions<'_, '_, '_, '_> {
    fn decided(&self, picked: &Picked, terms: Terms<'_>, budget: f64) -> Decided {
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
            let place = Place { judged: &judged[at], triple, terms, handed };
            match self.wanted[at] {
                Some(wanted) => place.overridden(wanted, 3 * self.at + at, &mut warnings),
                None => place.chosen(budget),
            }
        });
        let tallies = [0, 1, 2].map(|at| Tally::of(&judged[at], &choices[at], terms));
        let calls = judged[0].group.site.calls as f64;
        let saved_us = Operand::ALL.map(|operand| saved_us(&triple.costs, operand)).iter().sum();
        let untimed = |of: &Verdict| {
            of.barred == Some(Barred::NeverLaunched) && of.safety == Safety::Safe && of.speed == Speed::Fast
        };
        let left_out = judged.iter().any(|judged| judged.verdicts.iter().any(untimed));
        Decided { at: self.at, choices, tallies, saved_us, chain, timed: triple.timed, calls, left_out, warnings }
    }

    fn chain(&self, link: &ChainLink) -> Chain {
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
    fn of(judged: &Judged, choice: &Choice, terms: Terms<'_>) -> Self {
        let policy = terms.policy;
        let forward = judged.group.gemm == Gemm::Fprop;
        let row = judged.group.row(&choice.kernel).filter(|_| forward);
        let speedup = match row {
            _ if choice.kernel == policy.baseline => Some(1.0),
            Some(row) => gemm_speedup(row, judged.reference_us).filter(|speedup| speedup.is_finite()),
            // Only forward kernels have a tail.
            None => choice.speedup,
        };
        let times_us = judged.reference_us.zip(speedup).map(|(us, speedup)| (us, us / speedup));
        let cost = row.and_then(|row| row.charged_loss_cost(terms.loss));
        let out_of_range = cost.is_none() && row.is_some_and(|row| row.is_loss_cost_out_of_range(terms.loss));
        let loss_cost = cost.map(|cost| (cost.value, cost.hi.max(0.0)));
        Self { runs: terms.runs(judged.group), times_us, loss_cost, out_of_range }
    }
}

/// What every unit takes for the least time in the loss budget, overrides fixed and paid for first. Empty: the
/// budget cannot be kept.
fn optimise(units: &[Unit], budget: f64, warnings: &mut Vec<Warning>) -> (Vec<usize>, Option<Optimum>) {
    let items: Vec<Vec<Item>> = units.iter().map(|unit| unit.items().to_vec()).collect();
    let Some(solution) = knapsack::solve(&items, budget) else {
        // High precision is charged nothing: only what a person fixed can be too much.
        let text =
            format!("the overrides alone break the loss budget of {}: nothing else is chosen within it", short(budget));
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

/// A GEMM counts in both sums or in neither: a speed-up of what is known; and as often as its module is called. Summed
/// in the order of the sites, so that it is the same on any number of threads.
fn total(sites: &[Decided]) -> Totals {
    let mut totals = Totals::default();
    for site in sites {
        if let Some(timed) = site.timed {
            totals.baseline_us += site.calls * timed.bf16_us;
            totals.planned_us += site.calls * timed.us;
        }
        let is_measured = site.timed.is_some_and(|timed| !timed.modelled);
        *if is_measured { &mut totals.measured_sites } else { &mut totals.modelled_sites } += 1;
    }
    for (site, tally) in sites.iter().flat_map(|site| site.tallies.iter().map(move |tally| (site, tally))) {
        if !tally.runs {
            continue;
        }
        totals.num_gemms += 1;
        match tally.times_us {
            _ if site.timed.is_some() => {}
            Some((baseline_us, planned_us)) => {
                totals.baseline_us += site.calls * baseline_us;
                totals.planned_us += site.calls * planned_us;
            }
            None => totals.num_without_latency += 1,
        }
        if let Some((value, hi)) = tally.loss_cost {
            *totals.loss_cost.get_or_insert(0.0) += value;
            *totals.loss_cost_hi.get_or_insert(0.0) += hi;
        }
        totals.num_cost_out_of_range += usize::from(tally.out_of_range);
    }
    totals.planned_us -= sites.iter().map(|site| site.calls * site.saved_us).sum::<f64>();
    // Whoever takes part is called once.
    totals.handed_on_us = sites.iter().filter_map(|site| site.chain.as_ref()).map(|chain| chain.saved_us).sum();
    totals.planned_us -= totals.handed_on_us;
    totals.saved_us = totals.baseline_us - totals.planned_us;
    totals.speedup = (totals.planned_us > 0.0).then(|| totals.baseline_us / totals.planned_us);
    totals
}

#[cfg(test)]
mod tests;
