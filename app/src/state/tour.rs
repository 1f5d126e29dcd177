//! Five steps through a window for somebody who sees it for the first time: each names a part that is really there and says
//! one sentence of it.

use crate::layout::Pane;

/// What a step shows, and what it says.
pub const TOUR: [(Pane, &str); 5] = [
    (Pane::Sites, "Every linear layer of the model, with what FP8 offers its three GEMMs, each a shape."),
    (Pane::Heatmap, "How wrong each kernel is at each GEMM: click a cell to look into it."),
    (Pane::Quadrant, "Error against speed-up: drag one of the policy's two lines, and verdicts and plan follow."),
    (Pane::Site, "Every kernel of the selected GEMM, which one was chosen, and what would change that."),
    (Pane::Plan, "The decision in words and by GEMM: Ctrl+E takes it out, for a framework or for people."),
];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TourState {
    /// The step that is shown.
    at: Option<usize>,
    /// Its part of the window was not brought to the front yet: that is done once, and a person may go elsewhere.
    fresh: bool,
    /// It was taken, or turned down: it is not offered again.
    pub seen: bool,
}

impl TourState {
    pub fn begin(&mut self) {
        *self = Self { at: Some(0), fresh: true, seen: true };
    }

    /// False: none was under way.
    pub fn leave(&mut self) -> bool {
        self.at.take().is_some()
    }

    /// The step's number from 0, its part of the window and its sentence.
    pub fn step(&self) -> Option<(usize, Pane, &'static str)> {
        let at = self.at?;
        TOUR.get(at).map(|(pane, text)| (at, *pane, *text))
    }

    /// Behind the last step it ends.
    pub fn next(&mut self) {
        (self.at, self.fresh) = (self.at.map(|at| at + 1).filter(|at| *at < TOUR.len()), true);
    }

    pub fn back(&mut self) {
        (self.at, self.fresh) = (self.at.map(|at| at.saturating_sub(1)), true);
    }

    /// True once a step.
    pub fn is_fresh(&mut self) -> bool {
        std::mem::take(&mut self.fresh)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tour_goes_both_ways_and_ends() {
        let mut tour = TourState::default();
        assert!(tour.step().is_none() && !tour.leave());
        tour.begin();
        tour.back();
        assert_eq!(tour.step().map(|(at, pane, _)| (at, pane)), Some((0, Pane::Sites)));
        for at in 1..TOUR.len() {
            tour.next();
            assert_eq!(tour.step().map(|(at, ..)| at), Some(at));
        }
        tour.next();
        assert!(tour.step().is_none() && tour.seen);
        tour.begin();
        assert!(tour.leave() && tour.step().is_none());
    }
}
