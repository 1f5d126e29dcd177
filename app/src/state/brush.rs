//! What was brushed: an area dragged in the quadrant or the heatmap, or grown by keys; the rows that it held then, which
//! stay the same while the policy changes; and their sums, made when the plan changes.

use std::sync::Arc;

use loka_core::{
    model::SiteId,
    session::Session,
    views::{BrushTotals, BrushedRows, Column, Grid, Lines, PlanTable, ShownColumn},
};

use super::Derived;
use crate::layout::{Layout, Pane};

/// Where it lies. The first corner stays while keys move the second.
#[derive(Clone, Debug)]
pub enum BrushShape {
    /// Corners on the quadrant's axes.
    Box([[f32; 2]; 2]),
    /// Lines of the heatmap with the columns, ends included, as the lines stood.
    Cells { lines: Arc<Lines>, corners: [(usize, Column); 2] },
}

/// A drag under way; with Shift what it holds is added.
#[derive(Clone, Debug, PartialEq)]
pub enum BrushDrag {
    /// In the axes' places.
    Box { from: [f64; 2], adds: bool },
    /// A line and a shown column.
    Cells { from: (usize, usize), adds: bool },
}

/// Presses of the arrow keys, as the screen has it: to the right and down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steps(pub isize, pub isize);

#[derive(Clone, Debug, Default)]
pub struct BrushState {
    pub set: Arc<BrushedRows>,
    pub shape: Option<BrushShape>,
    pub drag: Option<BrushDrag>,
    /// Counts areas that were begun: the card stands where its area began until a person moves it.
    pub begun: u64,
    totals: Option<(Arc<PlanTable>, Arc<BrushedRows>, Arc<BrushTotals>)>,
}

impl BrushState {
    pub fn forget(&mut self) {
        *self = Self { begun: self.begun, ..Self::default() };
    }

    pub fn is_empty(&self) -> bool {
        self.set.is_empty()
    }

    /// The view that it was drawn in.
    pub fn pane(&self) -> Option<Pane> {
        let of_drag = self.drag.as_ref().map(|drag| match drag {
            BrushDrag::Box { .. } => Pane::Quadrant,
            BrushDrag::Cells { .. } => Pane::Heatmap,
        });
        of_drag.or_else(|| {
            self.shape.as_ref().map(|shape| match shape {
                BrushShape::Box(_) => Pane::Quadrant,
                BrushShape::Cells { .. } => Pane::Heatmap,
            })
        })
    }

    /// There is an area, or one is being dragged, and a person can see it.
    pub fn is_shown(&self, layout: &Layout) -> bool {
        self.pane().is_some_and(|pane| layout.is_on_screen(pane))
    }

    /// Arrows with Shift are its own.
    pub fn takes_keys(&self, layout: &Layout) -> bool {
        layout.active() == Pane::Quadrant || (self.pane() == Some(layout.active()) && self.is_shown(layout))
    }

    /// An area that holds nothing is left.
    pub fn take(&mut self, set: BrushedRows, shape: BrushShape, adds: bool) {
        self.drag = None;
        let set = if adds { self.set.with(&set) } else { set };
        if set.is_empty() {
            return self.forget();
        }
        self.begun += u64::from(!adds);
        (self.set, self.shape) = (Arc::new(set), Some(shape));
    }

    /// The same area, grown.
    pub(super) fn grow(&mut self, set: BrushedRows, shape: BrushShape) {
        self.begun += u64::from(self.shape.is_none());
        (self.set, self.shape) = (Arc::new(set), Some(shape));
    }

    /// Made when the plan or the set changes; `None`: nothing is brushed.
    pub fn totals(&mut self, derived: &Derived) -> Option<Arc<BrushTotals>> {
        if self.set.is_empty() {
            return None;
        }
        if let Some((table, set, totals)) = &self.totals
            && Arc::ptr_eq(table, &derived.table)
            && Arc::ptr_eq(set, &self.set)
        {
            return Some(totals.clone());
        }
        let snapshot = derived.snapshot.as_ref()?;
        let totals = Arc::new(BrushTotals::of(snapshot, &derived.plan, &derived.table, &self.set));
        self.totals = Some((derived.table.clone(), self.set.clone(), totals.clone()));
        Some(totals)
    }

    /// By name, in forward order.
    pub fn sites(&self, session: &Session) -> Vec<SiteId> {
        let ids = session.index().ids();
        self.set.sites().into_iter().filter_map(|at| ids.get(at as usize).cloned()).collect()
    }
}

/// What lies between two corners of the heatmap.
pub fn rows_of_cells(
    lines: &Lines,
    (grid, columns): (&Grid, &[ShownColumn]),
    (from, to): ((usize, usize), (usize, usize)),
) -> BrushedRows {
    let (first, last) = (from.1.min(to.1), from.1.max(to.1));
    let columns = columns.get(first..(last + 1).min(columns.len())).unwrap_or_default();
    BrushedRows::of_cells(lines.between(from.0, to.0), grid, columns)
}
