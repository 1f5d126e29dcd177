//! Takes the plan of now and what it is compared with, gives the changes with their reasons.

use crate::{
    dispatch::{JudgedRows, Totals},
    model::Gemm,
    plan::{Changes, Decided, Got, changes},
    views::{PlanView, Snapshot, plan_view::Earlier},
};

/// From what it is compared with to the plan of now.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// The other plan's name; pure Dispatch has none.
    pub name: String,
    pub changes: Changes,
    /// Of what it is compared with.
    pub before: Totals,
    pub num_near_ties: usize,
    /// The other plan was made from another trace: sites of the same name may be other layers.
    pub another_trace: bool,
}

/// What the policy alone would choose.
pub(super) fn with_dispatch((snapshot, judged): (&Snapshot, &JudgedRows), plan: &PlanView) -> Option<Comparison> {
    if snapshot.document.overrides.is_empty() {
        return None;
    }
    let mut bare = Snapshot::clone(snapshot);
    bare.document.overrides.clear();
    let pure = PlanView::of_judged(&bare, judged, Some(Earlier { snapshot, judged, plan }));
    let totals = pure.decided.as_ref()?.totals;
    let changes = changes(&decided(&bare, &pure)?, &decided(snapshot, plan)?);
    Some(compared(String::new(), changes, totals, false))
}

pub(super) fn with_other(snapshot: &Snapshot, plan: &PlanView) -> Option<Comparison> {
    let other = &snapshot.baseline.as_ref()?.plan;
    let changes = changes(&other.as_ref().into(), &decided(snapshot, plan)?);
    // While the trace is still read for its digest nobody knows.
    let ours = &snapshot.trace.meta.trace_digest;
    let another_trace = !ours.is_empty() && *ours != other.trace_digest;
    Some(compared(other.name.clone(), changes, other.totals, another_trace))
}

fn compared(name: String, changes: Changes, before: Totals, another_trace: bool) -> Comparison {
    let num_near_ties = changes.changes.iter().filter(|change| change.near_tie).count();
    Comparison { name, changes, before, num_near_ties, another_trace }
}

fn decided<'a>(snapshot: &'a Snapshot, plan: &'a PlanView) -> Option<Decided<'a>> {
    let (sites, selection) = (snapshot.sites(), plan.decided.as_ref()?);
    let gemms = sites.iter().flat_map(|site| Gemm::ALL.map(|gemm| (&site.id, gemm)));
    let picks =
        gemms.zip(selection.picks()).map(|((site, gemm), pick)| Got::of(site, gemm, (&pick.kernel, pick.source)));
    let modified = sites.iter().map(|site| (&site.id, snapshot.document.mods.of(&site.id)));
    Some(Decided {
        policy: &snapshot.document.policy,
        mods: modified.filter(|(_, mods)| !mods.is_empty()).collect(),
        chains: selection.chains.iter().filter_map(|(at, chain)| Some((&sites.get(*at)?.id, chain))).collect(),
        picks: picks.collect(),
        choice: Box::new(|at| plan.choice_at(snapshot, at / 3, Gemm::ALL[at % 3])),
    })
}
