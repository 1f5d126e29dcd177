//! Takes the plan of now and what it is compared with, gives the changes with their reasons.

use crate::{
    dispatch::{Dispatch, Overrides, Totals, dispatch},
    model::Gemm,
    plan::{Changes, Decided, changes},
    views::Snapshot,
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
pub(super) fn with_dispatch(snapshot: &Snapshot, now: &Dispatch) -> Option<Comparison> {
    if snapshot.document.overrides.is_empty() {
        return None;
    }
    let candidates = snapshot.candidates();
    let pure = dispatch(&candidates, &snapshot.document.policy, &Overrides::new(), snapshot.loss()).ok()?;
    let changes = changes(&decided(snapshot, &pure), &decided(snapshot, now));
    Some(compared(String::new(), changes, pure.totals, false))
}

pub(super) fn with_other(snapshot: &Snapshot, now: &Dispatch) -> Option<Comparison> {
    let other = &snapshot.baseline.as_ref()?.plan;
    let changes = changes(&other.as_ref().into(), &decided(snapshot, now));
    // While the trace is still read for its digest nobody knows.
    let ours = &snapshot.trace.meta.trace_digest;
    let another_trace = !ours.is_empty() && *ours != other.trace_digest;
    Some(compared(other.name.clone(), changes, other.totals, another_trace))
}

fn compared(name: String, changes: Changes, before: Totals, another_trace: bool) -> Comparison {
    let num_near_ties = changes.changes.iter().filter(|change| change.near_tie).count();
    Comparison { name, changes, before, num_near_ties, another_trace }
}

fn decided<'a>(snapshot: &'a Snapshot, dispatch: &'a Dispatch) -> Decided<'a> {
    let sites = snapshot.sites();
    let gemms = sites.iter().flat_map(|site| Gemm::ALL.map(|gemm| (&site.id, gemm)));
    let modified = sites.iter().map(|site| (&site.id, snapshot.document.mods.of(&site.id)));
    Decided {
        policy: &snapshot.document.policy,
        mods: modified.filter(|(_, mods)| !mods.is_empty()).collect(),
        chains: dispatch.chains.iter().filter_map(|(at, chain)| Some((&sites.get(*at)?.id, chain))).collect(),
        choices: gemms.zip(&dispatch.choices).map(|((site, gemm), choice)| (site, gemm, choice)).collect(),
    }
}
