//! Takes one site's three judged GEMMs, gives the kernels that suit them together: the least time of the
//! site, casts shared.
//!
//! A GEMM may get any kernel that is safe. One that alone is too slow is taken only where sharing makes it
//! worth it ([`unearned`]); where nothing is shared this is the fastest kernel of each GEMM. At a site that reads
//! or stores codes ([`super::chain`]) the forward GEMM may get any kernel that does.
//!
//! Where sites of this shape were timed as a whole ([`super::target`]) the three take what was measured, casts and all, and
//! codes save what was timed where they are stored: nothing is modelled.

use std::sync::Arc;

use crate::model::{Gemm, ResultRow, Runtime};

use super::{
    Override, Policy,
    chain::{Arriving, Codes, SavedByCodes, codes, produces, reads},
    judged::{Judged, Terms},
    sharing::{Cost, partners, site_us, unearned},
    site_table::{Part, SiteTable, Timed, shares},
};

/// A kernel that a GEMM may get; `row: None` is the baseline.
struct Candidate<'a> {
    row: Option<&'a ResultRow>,
    cost: Cost,
    /// Alone it is too slow.
    slow: bool,
    by_hand: bool,
}

impl Candidate<'_> {
    /// `reference_us: None`: a GEMM that no time is known for adds none.
    fn stay(reference_us: Option<f64>) -> Self {
        let cost = reference_us.map_or_else(Cost::default, Cost::alone);
        Self { row: None, cost, slow: false, by_hand: false }
    }
}

/// One kernel a GEMM, in the order of [`Gemm::ALL`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Triple<'a> {
    /// `None`: the baseline.
    pub rows: [Option<&'a ResultRow>; 3],
    pub costs: [Cost; 3],
    /// Of the site, casts shared.
    pub us: f64,
    /// What each GEMM would get, were there no sharing.
    pub alone: [Option<&'a ResultRow>; 3],
    /// The site with these.
    pub alone_us: f64,
    /// The site's time was measured: the costs above share nothing.
    pub timed: Option<Timed>,
}

impl<'a> Triple<'a> {
    /// True where the GEMM has another kernel than it would have alone.
    /// A cast of it counts once for two GEMMs.
    pub(super) fn shares_casts(&self, gemm: Gemm) -> bool {
        !partners(&self.costs, gemm).is_empty()
    }

    pub(super) fn decided_by_sharing(&self, gemm: Gemm) -> bool {
        let name = |row: Option<&'a ResultRow>| row.map(|row| &row.kernel);
        name(self.rows[gemm as usize]) != name(self.alone[gemm as usize])
    }
}

/// What the GEMMs of one site may get.
pub(super) struct SiteOptions<'a> {
    gemms: [Vec<Candidate<'a>>; 3],
    references: [Option<f64>; 3],
    min_speedup: f64,
    /// The forward GEMM's kernel is for the loss budget to choose.
    budgeted: bool,
    /// Of sites like this one, and of the time in BF16 what each GEMM has of it.
    timed: Option<(Arc<SiteTable>, [f64; 3])>,
    runtime: Runtime,
}

impl<'a> SiteOptions<'a> {
    /// `linked`: the site may read codes, or store them.
    pub(super) fn new(
        judged: &[Judged<'_, 'a>; 3],
        wanted: [Option<&Override>; 3],
        terms: Terms<'_>,
        linked: bool,
    ) -> Self {
        let policy = terms.policy;
        let references = [0, 1, 2].map(|at| judged[at].reference_us);
        let (table, runtime) = (terms.table(judged[0].group), terms.target.runtime());
        let at = |gemm: Gemm| {
            let (judged, wanted) = (&judged[gemm as usize], wanted[gemm as usize]);
            match table {
                Some(_) => timed_candidates(judged, wanted, policy),
                None => candidates(judged, wanted, policy, (linked && gemm == Gemm::Fprop, runtime)),
            }
        };
        let (min_speedup, budgeted) = (policy.min_speedup, judged[Gemm::Fprop as usize].budgeted);
        let timed = table.map(|table| (table.clone(), shares(references, runtime)));
        Self { gemms: Gemm::ALL.map(at), references, min_speedup, budgeted, timed, runtime }
    }

    /// The least time. Ties: the kernel that is faster alone.
    pub(super) fn fastest(&self) -> Option<Triple<'a>> {
        let mut best: Option<Triple> = None;
        for triple in (0..self.gemms[0].len()).filter_map(|forward| self.completed(forward, Arriving::BF16)) {
            if best.as_ref().is_none_or(|best| triple.us < best.us) {
                best = Some(triple);
            }
        }
        best
    }

    /// For every kernel that the forward GEMM may get the least time that goes with it; the first is the
    /// baseline or the override, if the forward GEMM is under a loss budget.
    pub(super) fn by_forward(&self) -> Vec<Triple<'a>> {
        let mut found = Vec::with_capacity(self.gemms[0].len());
        found.extend((0..self.gemms[0].len()).filter_map(|forward| self.completed(forward, Arriving::BF16)));
        found
    }

    /// The same where x arrives as codes, for every kernel that reads such. `extra_us`: what storing them costs the
    /// site that feeds this one.
    pub(super) fn by_forward_on_codes(&self, extra_us: f64, saved: SavedByCodes) -> Vec<(Codes, Triple<'a>)> {
        let reading = |forward: usize| {
            let codes = codes(self.gemms[0][forward].row?, self.references[0]?, (saved, self.runtime))?;
            let arriving = Arriving { saved_us: codes.saved_us, extra_us };
            Some((codes, self.completed(forward, arriving)?))
        };
        (0..self.gemms[0].len()).filter_map(reading).collect()
    }

    /// `None`: too slow alone, and neither backward kernels nor codes make it worth it.
    fn completed(&self, forward: usize, x: Arriving) -> Option<Triple<'a>> {
        if let Some((table, shares)) = &self.timed {
            let found = self.completed_as_timed(forward, (table, *shares))?;
            return Some(Triple { us: found.us - x.saved_us, ..found });
        }
        let mut best: Option<([usize; 3], f64)> = None;
        for dgrad in 0..self.gemms[1].len() {
            for wgrad in 0..self.gemms[2].len() {
                let picks = [forward, dgrad, wgrad];
                let us = site_us(&self.costs(picks, x.saved_us));
                if best.is_none_or(|(_, least)| us < least) && self.earned(picks, x) {
                    best = Some((picks, us));
                }
            }
        }
        let (picks, us) = best?;
        let alone = [if self.budgeted && !self.gemms[0][forward].slow { forward } else { 0 }, 0, 0];
        let rows = |picks: [usize; 3]| [0, 1, 2].map(|at| self.gemms[at][picks[at]].row);
        let alone_us = self.costs(alone, 0.0).iter().map(|cost| cost.us).sum();
        let (costs, timed) = (self.costs(picks, x.saved_us), None);
        Some(Triple { rows: rows(picks), costs, us, alone: rows(alone), alone_us, timed })
    }

    /// The same by measured times of the three together.
    fn completed_as_timed(&self, forward: usize, (table, shares): (&SiteTable, [f64; 3])) -> Option<Triple<'a>> {
        let parts: [Vec<Part>; 3] = Gemm::ALL.map(|gemm| {
            let at = gemm as usize;
            let part = |of: &Candidate<'a>| {
                let must_earn = of.row.is_some() && !of.by_hand;
                Part { share: shares[at], must_earn, ..table.part(gemm, of.row, self.references[at]) }
            };
            self.gemms[at].iter().map(part).collect()
        });
        let mut best: Option<([usize; 3], Timed)> = None;
        for dgrad in 0..parts[1].len() {
            for wgrad in 0..parts[2].len() {
                let chosen = [parts[0][forward], parts[1][dgrad], parts[2][wgrad]];
                let Some(timed) = table.timed(&chosen) else { continue };
                if best.is_none_or(|(_, least)| timed.us < least.us)
                    && table.unearned(&chosen, self.min_speedup) == [false; 3]
                {
                    best = Some(([forward, dgrad, wgrad], timed));
                }
            }
        }
        let (picks, timed) = best?;
        let rows = [0, 1, 2].map(|at| self.gemms[at][picks[at]].row);
        let costs = self.references.map(|us| us.map_or_else(Cost::default, Cost::alone));
        Some(Triple { rows, costs, us: timed.us, alone: rows, alone_us: timed.us, timed: Some(timed) })
    }

    fn costs(&self, picks: [usize; 3], saved_us: f64) -> [Cost; 3] {
        let [fprop, dgrad, wgrad] = [0, 1, 2].map(|at| self.gemms[at][picks[at]].cost);
        [fprop.less(saved_us), dgrad, wgrad]
    }

    /// Whoever is too slow alone must earn what it makes the site before it do, too.
    fn earned(&self, picks: [usize; 3], x: Arriving) -> bool {
        let slow = [0, 1, 2].map(|at| self.references[at].filter(|_| self.gemms[at][picks[at]].slow));
        slow == [None; 3] || unearned(&self.costs(picks, x.saved_us - x.extra_us), slow, self.min_speedup) == [false; 3]
    }
}

/// First what the GEMM would get alone; then what sharing, or codes, may prefer. Never empty.
fn candidates<'a>(
    judged: &Judged<'_, 'a>,
    wanted: Option<&Override>,
    policy: &Policy,
    (linked, runtime): (bool, Runtime),
) -> Vec<Candidate<'a>> {
    let reference = judged.reference_us;
    if let Some(wanted) = wanted {
        let row = judged.group.row(&wanted.kernel).filter(|row| row.kernel != policy.baseline);
        let Some(row) = row else { return vec![Candidate::stay(reference)] };
        let cost = reference.and_then(|us| Cost::of(row, us)).unwrap_or_default();
        return vec![Candidate { row: Some(row), cost, slow: false, by_hand: true }];
    }
    let mut fast = judged.admissible();
    let Some(reference_us) = reference else {
        // A speed-up is known, but no time to apply it to: nothing to weigh against other GEMMs.
        let first = fast.next().filter(|_| !judged.budgeted);
        return vec![Candidate { row: first.map(|verdict| verdict.row), ..Candidate::stay(None) }];
    };
    let mut found = Vec::with_capacity(1 + fast.len());
    // Where a kernel is fast enough alone it comes before the baseline, whatever "enough" is.
    if judged.budgeted || fast.len() == 0 {
        found.push(Candidate::stay(reference));
    }
    for (rank, verdict) in fast.enumerate() {
        let cost = Cost::of(verdict.row, reference_us).unwrap_or_default();
        let hands_on = linked && (reads(verdict.row, runtime) || produces(verdict.row));
        if rank == 0 || judged.budgeted || cost.can_share() || hands_on {
            found.push(Candidate { row: Some(verdict.row), cost, slow: false, by_hand: false });
        }
    }
    for verdict in judged.safe_but_slow() {
        let may_earn = |cost: &Cost| cost.can_share() || (linked && reads(verdict.row, runtime));
        let cost = Cost::of(verdict.row, reference_us).filter(may_earn);
        found.extend(cost.map(|cost| Candidate { row: Some(verdict.row), cost, slow: true, by_hand: false }));
    }
    found
}

/// BF16, then every kernel that is safe and was timed there; an override alone.
fn timed_candidates<'a>(judged: &Judged<'_, 'a>, wanted: Option<&Override>, policy: &Policy) -> Vec<Candidate<'a>> {
    let stay = Candidate::stay(judged.reference_us);
    if let Some(wanted) = wanted {
        let row = judged.group.row(&wanted.kernel).filter(|row| row.kernel != policy.baseline);
        return vec![Candidate { row, by_hand: true, ..stay }];
    }
    let candidate = |row| Candidate { row: Some(row), cost: stay.cost, slow: false, by_hand: false };
    let mut found: Vec<Candidate<'a>> = judged.safe().map(|verdict| candidate(verdict.row)).collect();
    found.insert(0, stay);
    found
}

/// What the forward kernel of a triple costs in loss, as a budget counts it.
pub(super) fn forward_cost_hi(triple: &Triple, judged: &[Judged<'_, '_>; 3], terms: Terms<'_>) -> f64 {
    let forward = triple.rows[Gemm::Fprop as usize].or_else(|| judged[0].group.row(&terms.policy.baseline));
    // A site whose figures mean nothing is not in the budget: one of them would leave nothing to all others.
    forward.and_then(|row| row.charged_loss_cost(terms.loss)).map_or(0.0, |cost| cost.hi.max(0.0))
}

#[cfg(test)]
mod tests;
