//! One cell of the heatmap in full: its value with the interval and verdict, or why there is none.

use crate::{
    dispatch::{Policy, judge, out_of_range},
    model::{Estimate, Metric, Quadrant, ResultRow, SiteId},
};

use super::{Column, Snapshot};

/// One cell: a value, or why there is none.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    Value {
        estimate: Estimate,
        quadrant: Quadrant,
    },
    /// Not supported or not measurable, with the reason.
    Missing {
        reason: String,
    },
    /// No row yet.
    Waiting,
}

/// The cell of one site and column under the mods in force. `relative`: divided by the baseline's value.
pub fn cell(snapshot: &Snapshot, site: &SiteId, column: &Column, metric: Metric, relative: bool) -> Cell {
    let policy = &snapshot.document.policy;
    let Some(at) = snapshot.index.at(site) else { return Cell::Waiting };
    if snapshot.sites().get(at).is_some_and(|known| !known.runs(column.gemm)) {
        return Cell::Missing { reason: "it never runs: training does not need it".to_owned() };
    }
    let Some(row) = snapshot.row(at, column.gemm, &column.kernel) else { return Cell::Waiting };
    let base = snapshot.row(at, column.gemm, &policy.baseline).filter(|_| relative);
    of_row(row, base, metric, policy, snapshot.loss())
}

fn of_row(row: &ResultRow, base: Option<&ResultRow>, metric: Metric, policy: &Policy, loss: f64) -> Cell {
    match value(row, base, metric, loss) {
        Some(estimate) => Cell::Value { estimate, quadrant: judge(row, policy, loss).2 },
        None => Cell::Missing { reason: why_missing(row, metric, loss) },
    }
}

fn why_missing(row: &ResultRow, metric: Metric, loss: f64) -> String {
    let unknown = match metric {
        _ if !row.supported => "not supported",
        Metric::LossCost if row.is_loss_cost_out_of_range(loss) => return out_of_range(row),
        _ => metric.why_missing(row.gemm).unwrap_or("not measured"),
    };
    row.reason.as_deref().unwrap_or(unknown).to_owned()
}

/// A row's value in `metric`, divided by the baseline's when there is one; `None` also where the value means nothing.
/// `loss`: the trace's.
pub(crate) fn value(row: &ResultRow, base: Option<&ResultRow>, metric: Metric, loss: f64) -> Option<Estimate> {
    // As measured: what is charged of BF16's is nothing, which nothing can be divided by.
    let of = |row: &ResultRow| match (metric, base) {
        (Metric::LossCost, Some(_)) => row.error.as_ref()?.loss_cost,
        (_, Some(_)) => row.metric(metric).map(|estimate| metric.on_scale(estimate)),
        (_, None) => row.metric(metric),
    };
    let means_nothing = metric == Metric::LossCost && row.charged_loss_cost(loss).is_none();
    let estimate = of(row).filter(|_| row.supported && !means_nothing)?;
    let base = base.and_then(of).map(|base| base.value).filter(|base| *base > 0.0);
    Some(base.map_or(estimate, |base| Estimate::new(estimate.value / base, estimate.lo / base, estimate.hi / base)))
}
