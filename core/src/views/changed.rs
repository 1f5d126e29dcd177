//! Which sites were decided otherwise since the last look: takes two moments of the same rows, gives the sites. What a view
//! says of all others it says again, and does not look at them.

use crate::{
    dispatch::JudgedRows,
    views::{PlanView, Snapshot, plan_view::Earlier},
};

/// By number, ascending.
#[derive(Debug)]
pub(super) struct Changed(Vec<usize>);

impl Changed {
    /// `None`: nothing is known to stand, since rows are judged by other questions. Both moments are of the same rows.
    pub(super) fn since(
        then: Earlier<'_>,
        (snapshot, judged): (&Snapshot, &JudgedRows),
        plan: &PlanView,
    ) -> Option<Self> {
        let (before, after) = (then.plan.decided.as_ref()?, plan.decided.as_ref()?);
        let asks_like = snapshot.document.policy.asks_like(&then.snapshot.document.policy);
        if !asks_like || !then.decides_like(snapshot) {
            return None;
        }
        let is_kept = |at: &usize| after.is_kept_from(before, *at) && judged.are_judged_as(then.judged, *at);
        Some(Self((0..snapshot.sites().len()).filter(|at| !is_kept(at)).collect()))
    }

    pub(super) fn sites(&self) -> impl Iterator<Item = usize> {
        self.0.iter().copied()
    }
}
