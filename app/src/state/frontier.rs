//! What is seen of this view and not of the model: kept while the window is open.

use loka_core::{
    dispatch::Policy,
    views::{FrontierAxis, FrontierView},
};

use super::{Derived, ViewState};

#[derive(Clone, Debug, Default)]
pub struct FrontierState {
    pub axis: FrontierAxis,
    /// The curve and its point that the keys stand at.
    pub at: Option<(usize, usize)>,
    /// The one under the pointer, to tell when it is another.
    pub hovered: Option<(usize, usize)>,
}

impl FrontierState {
    /// Another trace.
    pub fn forget(&mut self) {
        self.at = None;
    }

    pub fn switch_cost(&mut self) {
        self.axis = self.axis.next();
    }

    /// Goes to the next policy's curve, to the point as far along it.
    pub fn next_curve(&mut self, view: &FrontierView) {
        let now = self.at.unwrap_or((view.curves.len().saturating_sub(1), 0));
        let curve = (now.0 + 1) % view.curves.len().max(1);
        let share = |curve: usize| view.curves.get(curve).map_or(1, |curve| curve.points.len().max(2) - 1);
        let point = now.1 * share(curve) / share(now.0);
        self.at = view.curves.get(curve).map(|of| (curve, point.min(of.points.len().saturating_sub(1))));
    }
}

/// The keys go along the curve that they stand on; at first, along that of the policy in force.
pub fn step_frontier(view: &mut ViewState, derived: &Derived, step: isize) {
    let frontier = derived.frontier();
    let last = |curve: usize| frontier.curves.get(curve).map(|curve| curve.points.len().saturating_sub(1));
    view.frontier.at = match view.frontier.at {
        Some((curve, point)) => last(curve).map(|last| (curve, point.saturating_add_signed(step).min(last))),
        None => nearest_to_now(derived),
    };
}

/// The point of the curve of the policy in force that is nearest to its plan.
fn nearest_to_now(derived: &Derived) -> Option<(usize, usize)> {
    let frontier = derived.frontier();
    let speedup = derived.now.map_or(1.0, |now| now.speedup.value);
    let curve = frontier.now_at.min(frontier.curves.len().checked_sub(1)?);
    let points = &frontier.curves[curve].points;
    let away = |at: &usize| (points[*at].totals.speedup - speedup).abs();
    (0..points.len()).min_by(|a, b| away(a).total_cmp(&away(b))).map(|point| (curve, point))
}

/// What would be adopted.
pub fn frontier_policy(view: &ViewState, derived: &Derived) -> Option<Policy> {
    let (curve, point) = view.frontier.at?;
    derived.frontier().curves.get(curve)?.policy_at(point)
}
