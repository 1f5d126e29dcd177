//! Takes the plan of now and what it is compared with, gives the changes with their reasons.

use crate::{
    dispatch::{JudgedRows, Totals},
    plan::{Changes, changes},
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
    let (before, after) = (pure.decided.as_ref()?, plan.decided.as_ref()?);
    // What one of the two has kept from the other is the same there, and is not looked at.
    let (kept, anew): (Vec<_>, Vec<_>) = (0..snapshot.sites().len()).partition(|at| before.is_kept_from(after, *at));
    let mut changes = changes(&pure.compared_at(&bare, anew.clone())?, &plan.compared_at(snapshot, anew)?);
    changes.unchanged += 3 * kept.len();
    Some(compared(String::new(), changes, before.totals, false))
}

pub(super) fn with_other(snapshot: &Snapshot, plan: &PlanView) -> Option<Comparison> {
    let other = &snapshot.baseline.as_ref()?.plan;
    let changes = changes(&other.decided()?, &plan.compared(snapshot)?);
    // While the trace is still read for its digest nobody knows.
    let ours = &snapshot.trace.meta.trace_digest;
    let another_trace = !ours.is_empty() && *ours != *other.trace_digest();
    Some(compared(other.name().to_owned(), changes, other.totals(), another_trace))
}

fn compared(name: String, changes: Changes, before: Totals, another_trace: bool) -> Comparison {
    let num_near_ties = changes.changes.iter().filter(|change| change.near_tie).count();
    Comparison { name, changes, before, num_near_ties, another_trace }
}
