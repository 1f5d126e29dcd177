//! One cell of the heatmap in full: its value with the interval and verdict, or why there is none.

use crate::{
    dispatch::{Policy, judge, out_of_range},
    model::{Estimate, Metric, Quadrant, ResultRow, SiteId},
};

use super::{Column, Snapshot, Versus, versus::NOT_IN_BASELINE};

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

/// The cell of one site and column under the mods in force. `relative`: divided by the value of the policy's baseline.
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

/// The same divided by the value of what a person compares with.
pub fn cell_versus(snapshot: &Snapshot, versus: &Versus, site: &SiteId, column: &Column, metric: Metric) -> Cell {
    let now = cell(snapshot, site, column, metric, false);
    let (Cell::Value { quadrant, .. }, Some(at)) = (&now, snapshot.index.at(site)) else { return now };
    let row = snapshot.row(at, column.gemm, &column.kernel);
    let base = versus.base(snapshot, at, column.gemm, &column.kernel);
    match (row, base) {
        (_, None) => Cell::Missing { reason: NOT_IN_BASELINE.to_owned() },
        (Some(row), Some(base)) => match value_over(row, base, metric, snapshot.loss()) {
            Some(estimate) => Cell::Value { estimate, quadrant: *quadrant },
            None => Cell::Missing { reason: format!("the baseline has no {} here to divide by", metric.label()) },
        },
        (None, _) => now,
    }
}

/// A row's value over another's, with the interval of the first; `None` also where the other has none, or none that means anything.
pub(crate) fn value_over(row: &ResultRow, base: &ResultRow, metric: Metric, loss: f64) -> Option<Estimate> {
    let means_nothing = metric == Metric::LossCost && base.is_loss_cost_out_of_range(loss);
    reference(base, metric).filter(|_| base.supported && !means_nothing)?;
    value(row, Some(base), metric, loss)
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
    let of = |row: &ResultRow| if base.is_some() { measured(row, metric) } else { row.metric(metric) };
    let means_nothing = metric == Metric::LossCost && row.charged_loss_cost(loss).is_none();
    let estimate = of(row).filter(|_| row.supported && !means_nothing)?;
    let base = base.and_then(|base| reference(base, metric));
    Some(base.map_or(estimate, |base| Estimate::new(estimate.value / base, estimate.lo / base, estimate.hi / base)))
}

/// As measured: what is charged of BF16's loss cost is nothing, which nothing can be divided by.
fn measured(row: &ResultRow, metric: Metric) -> Option<Estimate> {
    match metric {
        Metric::LossCost => row.error.as_ref()?.loss_cost,
        metric => row.metric(metric).map(|estimate| metric.on_scale(estimate)),
    }
}

/// What others are divided by.
fn reference(row: &ResultRow, metric: Metric) -> Option<f64> {
    measured(row, metric).map(|estimate| estimate.value).filter(|value| *value > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{dispatch::testing::row, model::Gemm};

    /// Of a loss of .5 a loss cost is in range up to .05.
    #[test]
    fn nothing_is_divided_by_a_loss_cost_outside_its_range() {
        let of = |cost: f64| row("a", Gemm::Fprop, "te/current", 0.1, Some(1.3), cost);
        let over = |base: f64, loss| value_over(&of(0.02), &of(base), Metric::LossCost, loss).map(|of| of.value);
        assert_eq!((over(0.04, 0.5), over(0.06, 0.5), over(0.06, 0.0)), (Some(0.5), None, Some(0.02 / 0.06)));
        assert!(value_over(&of(0.02), &of(0.06), Metric::Mere, 0.5).is_some(), "that is another figure");
    }
}
