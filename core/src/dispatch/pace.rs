//! Takes a site's GEMMs with the kernels that a plan names, gives whether each is fast enough: alone, by the
//! casts that it shares, or by codes that it need not make.

use crate::model::{Gemm, KernelId, Speed};

use super::{
    Group, Policy,
    chain::Arriving,
    judge,
    sharing::{Cost, speedup_in_place, unearned},
};

/// One GEMM's kernel against the policy's least speed-up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Pace {
    pub enough: bool,
    /// With what sharing and codes save credited to it; `None` where that is nothing.
    pub shared_speedup: Option<f64>,
}

/// By GEMM, in the order of [`Gemm::ALL`]; the selection's own rule. `by_hand`: an override is not held
/// against the kernels beside it. `x`: how it reaches the forward GEMM.
pub(crate) fn paces(
    groups: [&Group; 3],
    kernels: [&KernelId; 3],
    by_hand: [bool; 3],
    (policy, x): (&Policy, Arriving),
) -> [Pace; 3] {
    let references = groups.map(|group| group.reference_us(&policy.baseline));
    let rows = [0, 1, 2].map(|at| groups[at].row(kernels[at]).filter(|row| row.kernel != policy.baseline));
    let costs = [0, 1, 2].map(|at| {
        let Some(reference_us) = references[at] else { return Cost::default() };
        let cost = |row| Cost::of(row, reference_us).unwrap_or_default();
        rows[at].map_or_else(|| Cost::alone(reference_us), cost)
    });
    let costs = [costs[0].less(x.saved_us - x.extra_us), costs[1], costs[2]];
    let speeds = rows.map(|row| row.map_or(Speed::Fast, |row| judge::speed(row.speedup(), policy)));
    let slow = [0, 1, 2].map(|at| references[at].filter(|_| speeds[at] == Speed::Slow));
    let chosen = [0, 1, 2].map(|at| slow[at].filter(|_| !by_hand[at]));
    let unearned_by_choice = unearned(&costs, chosen, policy.min_speedup);
    Gemm::ALL.map(|gemm| {
        let at = gemm as usize;
        let mut only = [None; 3];
        only[at] = slow[at];
        let earned = match (slow[at], by_hand[at]) {
            (None, _) => false,
            (Some(_), false) => !unearned_by_choice[at],
            (Some(_), true) => !unearned(&costs, only, policy.min_speedup)[at],
        };
        let shared = references[at].map(|us| speedup_in_place(&costs, gemm, us));
        let alone = rows[at].and_then(|row| row.speedup());
        Pace {
            enough: speeds[at] == Speed::Fast || earned,
            shared_speedup: shared.filter(|shared| alone.is_some_and(|alone| *shared > alone * (1.0 + 1e-9))),
        }
    })
}
