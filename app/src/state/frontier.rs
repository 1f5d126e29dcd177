//! What is seen of this view and not of the model: kept while the window is open.

use loka_core::views::{FrontierAxis, FrontierView};

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
