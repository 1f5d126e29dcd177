//! Takes a site's GEMMs with the kernels that a plan names, gives whether each is fast enough: alone, by the
//! casts that it shares, or by codes that it need not make.

use crate::model::{Gemm, KernelId, ResultRow, Speed};

use super::{
    Group,
    chain::Arriving,
    judge,
    judged::Terms,
    sharing::{Cost, speedup_in_place, unearned},
    site_table::{Part, SiteTable, Timed, shares},
};

/// One GEMM's kernel against the policy's least speed-up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SpeedCheck {
    pub enough: bool,
    /// With what sharing and codes save credited to it; `None` where that is nothing.
    pub shared_speedup: Option<f64>,
    /// The site as a whole, where that was measured: it decides.
    pub timed: Option<Timed>,
}

/// By GEMM, in the order of [`Gemm::ALL`]; the selection's own rule. `by_hand`: an override is not held
/// against the kernels beside it. `x`: how it reaches the forward GEMM.
pub(crate) fn paces(
    groups: [&Group; 3],
    kernels: [&KernelId; 3],
    by_hand: [bool; 3],
    (terms, x): (Terms<'_>, Arriving),
) -> [SpeedCheck; 3] {
    let policy = terms.policy;
    let references = groups.map(|group| group.reference_us(&policy.baseline).filter(|_| terms.runs(group)));
    let rows = [0, 1, 2].map(|at| groups[at].row(kernels[at]).filter(|row| row.kernel != policy.baseline));
    if let Some(table) = terms.table(groups[0]) {
        return as_timed(rows, by_hand, references, (terms, table));
    }
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
        SpeedCheck {
            timed: None,
            enough: speeds[at] == Speed::Fast || earned,
            shared_speedup: shared.filter(|shared| alone.is_some_and(|alone| *shared > alone * (1.0 + 1e-9))),
        }
    })
}

/// Where sites of this shape were timed as a whole.
fn as_timed(
    rows: [Option<&ResultRow>; 3],
    by_hand: [bool; 3],
    references: [Option<f64>; 3],
    (terms, table): (Terms<'_>, &SiteTable),
) -> [SpeedCheck; 3] {
    let shares = shares(references, terms.target.runtime());
    let parts = Gemm::ALL.map(|gemm| {
        let at = gemm as usize;
        let must_earn = rows[at].is_some() && !by_hand[at];
        Part { share: shares[at], must_earn, ..table.part(gemm, rows[at], references[at]) }
    });
    let (timed, unearned) = (table.timed(&parts), table.unearned(&parts, terms.policy.min_speedup));
    [0, 1, 2].map(|at| {
        // An override is held against the site as it is.
        let mut only = parts.map(|part| Part { must_earn: false, ..part });
        only[at].must_earn = rows[at].is_some();
        let earned = if by_hand[at] { !table.unearned(&only, terms.policy.min_speedup)[at] } else { !unearned[at] };
        let is_timed = parts[at].modelled_us.is_none();
        SpeedCheck { enough: earned && is_timed, shared_speedup: None, timed }
    })
}
