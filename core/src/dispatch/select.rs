//! Takes candidates, a policy and overrides, gives one choice a GEMM and the totals. A site's three GEMMs are
//! chosen together ([`super::joint`]), and so are sites that codes may be handed on between ([`super::chain`]);
//! under a loss budget all sites are.
//!
//! What was decided ([`Selection`]) has no words: those of a site are told when somebody asks for them. Whoever decides
//! again and knows which sites are judged as they were ([`Before`]) has only the others looked at.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    format::short,
    model::{Gemm, KernelId, ResultRow, Safety, Speed},
};

use super::{
    Candidates, Choice, ChoiceSource, Group, JudgedRows, Override, OverrideError, Overrides, Pick, Policy, SitePattern,
    Target, Totals, Warning, WarningKind,
    chain::{Chain, ChainLink, Form, Links, Picked, Unit},
    compiling::is_made_up_for_late,
    judged::{Judged, Terms, Verdict},
    knapsack::{self, Item},
    overrides::by_group,
    pace::host_bound,
    parallel,
    place::{Handed, Place},
    reason,
    sharing::{Operand, gemm_speedup, saved_us},
    site_table::Timed,
    target::Barred,
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

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Dispatch {
    /// In the order of the candidates' groups.
    pub choices: Vec<Choice>,
    /// In the order of the sites: how many times faster than the baseline the site's GEMMs are together, with the casts that they
    /// share; `None` where no time is known of one of them. What a site hands on as codes is not in it.
    pub together: Vec<Option<f64>>,
    /// What is handed on as codes, by the number of a site that takes part.
    pub chains: BTreeMap<usize, Chain>,
    pub totals: Totals,
    /// What a person should see before shipping: overrides that break the policy, a budget that
    /// cannot be kept, GEMMs without a latency.
    pub warnings: Vec<Warning>,
    /// With a loss budget only.
    pub optimum: Option<Optimum>,
}

/// The same without words, by site.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selection {
    /// In the order of the candidates' sites.
    pub(crate) sites: Vec<Arc<SiteSelection>>,
    pub chains: BTreeMap<usize, Chain>,
    pub totals: Totals,
    pub warnings: Vec<Warning>,
    pub optimum: Option<Optimum>,
}

impl Selection {
    /// Three a site, in the order of [`Gemm::ALL`].
    pub fn picks(&self) -> impl Iterator<Item = &Pick> {
        self.sites.iter().flat_map(|site| &site.picks)
    }

    pub fn pick(&self, at: usize, gemm: Gemm) -> Option<&Pick> {
        Some(&self.sites.get(at)?.picks[gemm as usize])
    }

    /// What the site saves as a whole, where sites like it were timed.
    pub(crate) fn timed_saved_us(&self, at: usize) -> Option<f64> {
        self.sites.get(at)?.timed.map(Timed::saved_us)
    }

    /// The site was not decided anew: everything about it is as it was, but for the limits it is held against.
    pub(crate) fn is_kept_from(&self, other: &Self, at: usize) -> bool {
        self.sites.get(at).zip(other.sites.get(at)).is_some_and(|(site, other)| Arc::ptr_eq(site, other))
    }
}

/// What was selected before, by a policy that decides alike of rows that are judged alike ([`Policy::decides_like`]).
pub(crate) struct Before<'b> {
    pub selection: &'b Selection,
    /// Every row of that site is the same and judged as it was.
    pub is_same: &'b (dyn Fn(usize) -> bool + Sync),
}

impl Before<'_> {
    /// What the site got, where it may have it again: it was decided by itself, and by the policy alone.
    fn site(&self, at: usize) -> Option<&Arc<SiteSelection>> {
        let of_policy = |pick: &Pick| pick.source == ChoiceSource::Dispatch;
        let site = self.selection.sites.get(at).filter(|site| site.unit.alone && site.picks.iter().all(of_policy))?;
        (self.is_same)(at).then_some(site)
    }
}

/// `loss`: the trace's loss value, that a loss budget is relative to.
pub fn dispatch(
    candidates: &Candidates,
    policy: &Policy,
    overrides: &Overrides,
    loss: f64,
) -> Result<Dispatch, OverrideError> {
    let (selection, told) = run(candidates, (policy, loss), overrides, (None, None), true)?;
    let together = selection.sites.iter().map(|site| site.times_faster()).collect();
    let Selection { chains, totals, warnings, optimum, .. } = selection;
    Ok(Dispatch { choices: told.into_iter().flatten().collect(), together, chains, totals, warnings, optimum })
}

/// The same without words. `rows`: judged by that policy and loss.
pub(crate) fn select(
    candidates: &Candidates,
    by: (&Policy, f64),
    overrides: &Overrides,
    (rows, before): (&JudgedRows, Option<&Before<'_>>),
) -> Result<Selection, OverrideError> {
    run(candidates, by, overrides, (Some(rows), before), false).map(|(selection, _)| selection)
}

/// The words of one site that was decided by itself. `item`: what it got ([`OfUnit::item`]).
pub(crate) fn told_alone(
    site: &[Group; 3],
    wanted: [Option<&Override>; 3],
    (policy, loss, target): (&Policy, f64, &Target),
    item: Option<usize>,
) -> Option<[Choice; 3]> {
    let terms = Terms { policy, loss, target };
    let (groups, wanted) = (std::slice::from_ref(site), [wanted]);
    let unit = Unit::new(&[0], (groups, &wanted), &Links::default(), (terms, None));
    let mut told = Vec::new();
    selected(&unit, item, (groups, &wanted), (terms, budget_of(policy, loss)), true, &mut told);
    Some(*told.pop()?.1?)
}

/// The words of all sites that were decided together with others, by their numbers.
pub(crate) fn told_together(
    candidates: &Candidates,
    (policy, loss): (&Policy, f64),
    overrides: &Overrides,
    selection: &Selection,
) -> Vec<(usize, [Choice; 3])> {
    let Ok(wanted) = by_group(candidates, overrides, &policy.baseline) else { return Vec::new() };
    let (groups, wanted) = (candidates.groups.as_chunks::<3>().0, wanted.as_chunks::<3>().0);
    let terms = Terms { policy, loss, target: &candidates.target };
    let links = Links::of(groups, terms.target.runtime(), None);
    let units = links.units(groups.len());
    let mut told = Vec::new();
    for sites in (0..units.len()).map(|unit| units.get(unit)).filter(|sites| sites.len() > 1) {
        let item = selection.sites.get(sites[0]).and_then(|site| site.unit.item);
        let unit = Unit::new(sites, (groups, wanted), &links, (terms, None));
        selected(&unit, item, (groups, wanted), (terms, budget_of(policy, loss)), true, &mut told);
    }
    told.into_iter().filter_map(|(site, choices)| Some((site.at, *choices?))).collect()
}

/// 0 where the policy has none.
fn budget_of(policy: &Policy, loss: f64) -> f64 {
    policy.loss_budget.map_or(0.0, |share| share * loss)
}

/// A unit before it is known what it gets.
enum Weighed<'b, 'c, 'a> {
    /// It is one site, weighed as before.
    Known(&'b Arc<SiteSelection>),
    Anew(Unit<'c, 'a>),
}

impl Weighed<'_, '_, '_> {
    fn items(&self) -> &[Item] {
        match self {
            Self::Known(site) => &site.unit.items,
            Self::Anew(unit) => unit.items(),
        }
    }

    fn slack_us(&self) -> f64 {
        match self {
            Self::Known(_) => 0.0,
            Self::Anew(unit) => unit.slack_us(),
        }
    }
}

/// A site, and its words where they were asked for: apart, as they are a kilobyte, and mostly were not.
type Decided = (Arc<SiteSelection>, Option<Box<[Choice; 3]>>);

/// `told`: with the words of all, in the order of the sites.
fn run(
    candidates: &Candidates,
    (policy, loss): (&Policy, f64),
    overrides: &Overrides,
    (rows, before): (Option<&JudgedRows>, Option<&Before<'_>>),
    told: bool,
) -> Result<(Selection, Vec<[Choice; 3]>), OverrideError> {
    let wanted = by_group(candidates, overrides, &policy.baseline)?;
    let (groups, wanted) = (candidates.groups.as_chunks::<3>().0, wanted.as_chunks::<3>().0);
    let terms = Terms { policy, loss, target: &candidates.target };
    let links = Links::of(groups, terms.target.runtime(), rows);
    let units = links.units(groups.len());
    let unit = |at: usize| Unit::new(units.get(at), (groups, wanted), &links, (terms, rows));
    let known = |at: usize| match units.get(at) {
        [site] if wanted[*site] == [None; 3] => before?.site(*site),
        _ => None,
    };
    let mut warnings = Vec::new();
    let budget = policy.loss_budget.map(|_| budget_of(policy, loss));
    let weighed = budget
        .map(|_| parallel::map(units.len(), |at| known(at).map_or_else(|| Weighed::Anew(unit(at)), Weighed::Known)));
    let (items, optimum) = match (&weighed, budget) {
        (Some(weighed), Some(budget)) => optimise(weighed, budget, &mut warnings),
        _ => (vec![0; units.len()], None),
    };
    // A site is decided from its rows to its words in one go: they are read from memory once.
    // A unit that was weighed is let go where it is decided: freed at the end they take a tenth of the time.
    let decide = |at: usize, weighed: Option<Weighed>, into: &mut Vec<Decided>| {
        let item = items.get(at).copied();
        let (known, made) = match weighed {
            Some(Weighed::Known(site)) => (Some(site), None),
            Some(Weighed::Anew(unit)) => (None, Some(unit)),
            None => (known(at), None),
        };
        if let Some(site) = known.filter(|site| site.unit.item == item) {
            return into.push((site.clone(), None));
        }
        let unit = made.unwrap_or_else(|| unit(at));
        selected(&unit, item, (groups, wanted), (terms, budget.unwrap_or(0.0)), told, into);
    };
    let mut sites = parallel::map_pieces(units.len(), weighed.unwrap_or_default(), |range, weighed| {
        let (mut all, mut weighed) = (Vec::with_capacity(range.len()), weighed.into_iter());
        range.for_each(|at| decide(at, weighed.next(), &mut all));
        all
    });
    if units.len() < groups.len() {
        sites.sort_by_key(|(site, _)| site.at);
    }
    let (sites, words): (Vec<_>, Vec<_>) = sites.into_iter().unzip();
    let totals = total(&sites);
    warnings.extend(sites.iter().flat_map(|site| site.warnings.iter().cloned()));
    if totals.num_without_latency > 0 {
        let (missing, all) = (totals.num_without_latency, totals.num_gemms);
        let text = format!("{missing} of {all} GEMMs have no latency and are not in the totals");
        warnings.push(Warning { kind: WarningKind::NoLatency, ..Warning::whole(text) });
    }
    warnings.extend(without_loss(budget, loss));
    warnings.extend(unmatched(policy, groups));
    warnings.extend(decided_untimed(&sites));
    let num_low = || sites.iter().flat_map(|site| &site.picks).filter(|pick| pick.kernel.is_low_precision()).count();
    warnings.extend(host_bound(&candidates.target, &totals, num_low));
    warnings.extend(is_made_up_for_late(&candidates.target, &totals, num_low));
    warnings.extend(out_of_range(groups, (policy, loss), rows, &totals));
    let chains = sites.iter().filter_map(|site| Some((site.at, site.chain.clone()?))).collect();
    let words = words.into_iter().flatten().map(|words| *words).collect();
    Ok((Selection { sites, chains, totals, warnings, optimum }, words))
}

/// A share of no loss is nothing, and nothing can be had for it.
fn without_loss(budget: Option<f64>, loss: f64) -> Option<Warning> {
    const TEXT: &str = "the trace has no loss, of which a loss budget is a share: nothing that costs any is chosen. Record it \
                        (loss = recorder.loss(loss)), or take a policy without a loss budget";
    (budget == Some(0.0) && loss == 0.0).then(|| Warning::whole(TEXT.to_owned()))
}

/// A pattern that hits nothing was misspelt, and what it should have protected is not.
fn unmatched(policy: &Policy, groups: &[[Group; 3]]) -> Vec<Warning> {
    let hits = |pattern: &SitePattern| groups.iter().any(|[group, ..]| pattern.matches(&group.site.id));
    let missed = policy.groups.iter().map(|group| &group.sites).filter(|pattern| !hits(pattern));
    missed.map(|pattern| Warning::whole(format!("the policy's group {pattern} matches no site"))).collect()
}

/// What the plan does without, and what whoever has a GPU can do about it.
fn decided_untimed(sites: &[Arc<SiteSelection>]) -> Option<Warning> {
    let count = sites.iter().filter(|site| site.left_out).count();
    let sites = format!("{count} of {} sites", sites.len());
    let text = format!(
        "at {sites} a kernel of LoKA's own (loka/*) is safe and, in a CUDA graph, faster than BF16; the plan does without, since \
         what it takes in a launched step was never timed. On the GPU that trains, time it: loka bench --sites --kernels \
         'loka/*' --shapes TRACE --out S.sites.json, then loka probe TRACE --sites-times S.sites.json --out R.results.parquet. Is the \
         step replayed as a CUDA graph, loka plan --runtime graph needs no such times"
    );
    (count > 0).then(|| Warning::whole(text))
}

/// Sites that no loss budget reaches, and choices that no total counts.
fn out_of_range(
    groups: &[[Group; 3]],
    (policy, loss): (&Policy, f64),
    rows: Option<&JudgedRows>,
    totals: &Totals,
) -> Vec<Warning> {
    let mut warnings = Vec::new();
    if policy.loss_budget.is_some() {
        let baseline = policy.baseline.number();
        let may = |rows: &JudgedRows, at: usize| {
            rows.at(at, Gemm::Fprop).iter().any(|row| row.out_of_range && row.number() == baseline)
        };
        let means_nothing = |at: &usize| {
            // Of most sites the judged line says so; the row itself is then not read.
            rows.is_none_or(|rows| may(rows, *at)).then_some(())?;
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

/// The sites of one unit. `item`: what the optimiser chose there. `told`: with their words.
#[inline(never)]
fn selected(
    unit: &Unit,
    item: Option<usize>,
    (groups, wanted): (&[[Group; 3]], &[[Option<&Override>; 3]]),
    (terms, budget): (Terms<'_>, f64),
    told: bool,
    into: &mut Vec<Decided>,
) {
    let alone = unit.sites().len() == 1;
    let weighed = alone && terms.policy.loss_budget.is_some();
    let of = OfUnit { alone, item, items: if weighed { unit.items().to_vec() } else { Vec::new() } };
    for ((at, judged), picked) in unit.sites().zip(unit.picked(item)) {
        let options = SiteOptions { at, judged, wanted: wanted[at], groups };
        let places = [0, 1, 2].map(|gemm| options.place(&picked, gemm, terms));
        let selection = options.selected(&picked, &places, terms, &of);
        let words = |gemm: usize| places[gemm].told(&selection.picks[gemm], options.wanted[gemm], budget);
        let told = told.then(|| Box::new([0, 1, 2].map(words)));
        into.push((Arc::new(selection), told));
    }
}

/// What was decided for one site, and what it adds to the totals.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SiteSelection {
    at: usize,
    pub picks: [Pick; 3],
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
    pub unit: OfUnit,
}

/// What a site's unit got, for who asks for words, or decides again.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OfUnit {
    /// No other site was decided together with it.
    pub alone: bool,
    /// `None`: nothing could be chosen.
    pub item: Option<usize>,
    /// What the optimiser had to choose from, of a site alone under a loss budget.
    items: Vec<Item>,
}

/// One GEMM's part of the totals.
#[derive(Clone, Copy, Debug, PartialEq)]
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

impl<'c, 'a> SiteOptions<'_, 'c, 'a, '_> {
    /// `gemm`: by its number.
    fn place<'p>(&'p self, picked: &'p Picked<'a>, gemm: usize, terms: Terms<'p>) -> Place<'p, 'c, 'a> {
        // Only forward GEMMs read and store codes.
        let link = picked.link.as_ref().filter(|_| gemm == Gemm::Fprop as usize);
        let handed = Handed {
            told: link.and_then(|link| reason::handed_on(link, self.groups)),
            decided: link.is_some_and(|link| link.decided),
            credit_us: link.map_or(0.0, |link| link.credit_us),
        };
        Place { judged: &self.judged[gemm], triple: &picked.triple, terms, handed }
    }

    fn selected(&self, picked: &Picked, places: &[Place; 3], terms: Terms<'_>, of: &OfUnit) -> SiteSelection {
        let (judged, triple) = (self.judged, &picked.triple);
        let mut warnings = Vec::new();
        let chain = picked.link.as_ref().map(|link| self.chain(link));
        let picks = [0, 1, 2].map(|at| match self.wanted[at] {
            Some(wanted) => places[at].picked_by_hand(wanted, 3 * self.at + at, &mut warnings),
            None => places[at].picked(),
        });
        let tallies = [0, 1, 2].map(|at| Tally::of(&judged[at], &picks[at].kernel, terms));
        let calls = judged[0].group.site.calls as f64;
        let saved_us = Operand::ALL.map(|operand| saved_us(&triple.costs, operand)).iter().sum();
        let untimed = |of: &Verdict| {
            of.barred == Some(Barred::NeverLaunched) && of.safety == Safety::Safe && of.speed == Speed::Fast
        };
        let left_out = judged.iter().any(|judged| judged.verdicts.iter().any(untimed));
        let (at, timed, unit) = (self.at, triple.timed, of.clone());
        SiteSelection { at, picks, tallies, saved_us, chain, timed, calls, left_out, warnings, unit }
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

impl SiteSelection {
    /// Its GEMMs together against the baseline, as the totals count them.
    fn times_faster(&self) -> Option<f64> {
        let (baseline_us, planned_us) = match self.timed {
            Some(timed) => (timed.bf16_us, timed.us),
            None => {
                let ran = self.tallies.iter().filter(|tally| tally.runs);
                let times = ran.map(|tally| tally.times_us).collect::<Option<Vec<_>>>()?;
                let (baseline, planned): (f64, f64) =
                    times.into_iter().fold((0.0, 0.0), |sum, (baseline, planned)| (sum.0 + baseline, sum.1 + planned));
                (baseline, planned - self.saved_us)
            }
        };
        (planned_us > 0.0).then(|| baseline_us / planned_us)
    }
}

impl Tally {
    fn of(judged: &Judged, kernel: &KernelId, terms: Terms<'_>) -> Self {
        let policy = terms.policy;
        let row = judged.group.row(kernel);
        let is_forward = judged.group.gemm == Gemm::Fprop;
        let speedup = match row {
            _ if *kernel == policy.baseline => Some(1.0),
            Some(row) if is_forward => gemm_speedup(row, judged.reference_us),
            // Only forward kernels have a tail.
            row => row.and_then(ResultRow::speedup),
        };
        let (speedup, row) = (speedup.filter(|speedup| speedup.is_finite()), row.filter(|_| is_forward));
        let times_us = judged.reference_us.zip(speedup).map(|(us, speedup)| (us, us / speedup));
        let cost = row.and_then(|row| row.charged_loss_cost(terms.loss));
        let out_of_range = cost.is_none() && row.is_some_and(|row| row.is_loss_cost_out_of_range(terms.loss));
        let loss_cost = cost.map(|cost| (cost.value, cost.hi.max(0.0)));
        Self { runs: terms.runs(judged.group), times_us, loss_cost, out_of_range }
    }
}

/// What every unit takes for the least time in the loss budget, overrides fixed and paid for first. Empty: the
/// budget cannot be kept.
fn optimise(units: &[Weighed], budget: f64, warnings: &mut Vec<Warning>) -> (Vec<usize>, Option<Optimum>) {
    let items: Vec<&[Item]> = units.iter().map(Weighed::items).collect();
    let Some(solution) = knapsack::solve(&items, budget) else {
        // High precision is charged nothing: only what a person fixed can be too much.
        let text =
            format!("the overrides alone break the loss budget of {}: nothing else is chosen within it", short(budget));
        warnings.push(Warning::whole(text));
        return (Vec::new(), None);
    };
    let slack_us: f64 = units.iter().map(Weighed::slack_us).sum();
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
fn total(sites: &[Arc<SiteSelection>]) -> Totals {
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
