//! What is seen of this view and not of the model: kept while the window is open.

use std::sync::Arc;

use egui::Id;
use loka_core::{
    dispatch::Policy,
    model::Quadrant,
    views::{Density, GroupBy, HexLattice, Nearby, Point, QuadrantView, speedup_place},
};

use crate::gpu::points::{Instance, Instances};

/// What colours the quadrant's points.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ColorBy {
    #[default]
    Verdict,
    Group(GroupBy),
}

/// Every verdict, by the number of its colour.
pub const QUADRANTS: [Quadrant; 8] = [
    Quadrant::SafeFast,
    Quadrant::SafeSlow,
    Quadrant::UnsafeFast,
    Quadrant::UnsafeSlow,
    Quadrant::Uncertain,
    Quadrant::SafeUnknown,
    Quadrant::UnsafeUnknown,
    Quadrant::Unsupported,
];

/// What part of the axes is in sight, in their places.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    pub x: (f64, f64),
    pub y: (f64, f64),
}

impl Default for Bounds {
    fn default() -> Self {
        Self { x: (-0.3, 0.3), y: (-3.0, 1.0) }
    }
}

impl Bounds {
    /// Every point and both lines, with some air.
    pub fn fit(view: &QuadrantView, policy: &Policy) -> Self {
        let around = |ends: Option<(f32, f32)>, line: f64, share: f64| {
            let (lo, hi) = ends.map_or((line, line), |(lo, hi)| (line.min(f64::from(lo)), line.max(f64::from(hi))));
            let air = ((hi - lo) * share).max(0.08);
            (lo - air, hi + air)
        };
        let ends = |axis: usize| view.bounds.map(|[lo, hi]| (lo[axis], hi[axis]));
        Self {
            x: around(ends(0), speedup_place(policy.min_speedup), 0.06),
            // Room for the words in the corners.
            y: around(ends(1), view.axis.place(policy.max_error), 0.12),
        }
    }

    /// Magnified by `factor` about a place that stays where it is.
    #[must_use]
    fn zoomed(self, factor: f64, about: (f64, f64)) -> Self {
        let zoomed = |(lo, hi): (f64, f64), about: f64| {
            let (lo, hi) = (about + (lo - about) / factor, about + (hi - about) / factor);
            // Neither into nothing nor out of sight.
            if (1e-4..40.0).contains(&(hi - lo)) { (lo, hi) } else { (about - 0.5, about + 0.5) }
        };
        let (x, y) = (self.x.1 - self.x.0, self.y.1 - self.y.0);
        let too_far = factor < 1.0 && (x.max(y) / factor >= 40.0);
        let too_near = factor > 1.0 && (x.min(y) / factor <= 1e-4);
        if too_far || too_near { self } else { Self { x: zoomed(self.x, about.0), y: zoomed(self.y, about.1) } }
    }

    #[must_use]
    pub fn moved(self, dx: f64, dy: f64) -> Self {
        Self { x: (self.x.0 + dx, self.x.1 + dx), y: (self.y.0 + dy, self.y.1 + dy) }
    }
}

#[derive(Clone, Debug, Default)]
pub struct QuadrantState {
    pub color_by: ColorBy,
    /// `None`: everything is in sight.
    pub zoom: Option<Bounds>,
    /// Of the last frame.
    pub shown: Bounds,
    /// From before the mods in force.
    pub arrows: bool,
    pub lists_unplaced: bool,
    /// Presses of the arrow keys while a line keeps the focus undo as one.
    pub nudging: Option<(Id, u64)>,
    /// The point under the pointer, to tell when it is another.
    pub hovered: Option<usize>,
    pub instances: Instances,
    made_of: Option<(Arc<QuadrantView>, ColorBy)>,
    density: Option<(Arc<QuadrantView>, DensityKey, Option<Arc<Density>>)>,
    /// Where the points lie that `density` counts; `None`: they are few.
    lattice: Option<(Arc<Nearby>, LatticeKey, Option<HexLattice>)>,
}

/// What is in sight, and how large hexagons are there.
type LatticeKey = (Bounds, [f32; 2]);

/// What is in sight, how large hexagons are there, and what colours them.
type DensityKey = (Bounds, [f32; 2], ColorBy);

/// More points in sight are drawn as hexagons: each by itself would cover others.
pub const MANY: usize = 20_000;

impl QuadrantState {
    /// Another trace.
    pub fn forget(&mut self) {
        *self =
            Self { color_by: self.color_by, arrows: self.arrows, instances: self.instances.clone(), ..Self::default() };
    }

    /// About the middle for `None`.
    pub fn zoom_by(&mut self, factor: f64, about: Option<(f64, f64)>) {
        let shown = self.shown;
        let middle = ((shown.x.0 + shown.x.1) / 2.0, (shown.y.0 + shown.y.1) / 2.0);
        self.zoom = Some(shown.zoomed(factor, about.unwrap_or(middle)));
    }

    /// How many points lie where, while more are in sight than can be told apart. `size`: of a hexagon, in places.
    pub fn density(&mut self, view: &Arc<QuadrantView>, size: [f32; 2]) -> Option<Arc<Density>> {
        let key = (self.shown, size, self.color_by);
        if let Some((of, known, density)) = &self.density
            && Arc::ptr_eq(of, view)
            && *known == key
        {
            return density.clone();
        }
        let color = color_number(view, self.color_by);
        let density = self.lattice(view, size).map(|lattice| Arc::new(lattice.density(&view.points, color)));
        self.density = Some((view.clone(), key, density.clone()));
        density
    }

    /// Made when points move, or what is in sight of them; deciding on them moves none.
    fn lattice(&mut self, view: &QuadrantView, size: [f32; 2]) -> Option<&HexLattice> {
        let key = (self.shown, size);
        let is_known =
            self.lattice.as_ref().is_some_and(|(of, known, _)| Arc::ptr_eq(of, &view.nearby) && *known == key);
        if !is_known {
            let (x, y) = (self.shown.x, self.shown.y);
            let sight = [[x.0 as f32, y.0 as f32], [x.1 as f32, y.1 as f32]];
            let seen = |point: &&Point| (0..2).all(|axis| (sight[0][axis]..=sight[1][axis]).contains(&point.at[axis]));
            let many = view.points.len() > MANY && view.points.iter().filter(seen).count() > MANY;
            let lattice = many.then(|| HexLattice::of(&view.points, sight, size));
            self.lattice = Some((view.nearby.clone(), key, lattice));
        }
        self.lattice.as_ref()?.2.as_ref()
    }

    /// Instances of these points, made anew only when something about them changed.
    pub fn instances_of(&mut self, view: &Arc<QuadrantView>) -> Instances {
        let same = |(of, by): &(Arc<QuadrantView>, ColorBy)| Arc::ptr_eq(of, view) && *by == self.color_by;
        if !self.made_of.as_ref().is_some_and(same) {
            let number = color_number(view, self.color_by);
            let instance =
                |point: &Point| Instance::new(point.at, point.site, point.quadrant, point.source, number(point));
            self.instances.all = Arc::new(view.points.iter().map(instance).collect());
            self.instances.version += 1;
            self.made_of = Some((view.clone(), self.color_by));
        }
        self.instances.clone()
    }
}

/// Which of the colours of the theme a point has.
pub fn color_number(view: &QuadrantView, by: ColorBy) -> impl Fn(&Point) -> u8 + '_ {
    move |point| match by {
        ColorBy::Verdict => QUADRANTS.iter().position(|of| *of == point.quadrant).unwrap_or(0) as u8,
        ColorBy::Group(group) => view.groupings[group as usize].of(point),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zoom_keeps_its_place_and_leads_back() {
        let whole = Bounds { x: (-1.0, 1.0), y: (-3.0, 1.0) };
        let near = whole.zoomed(2.0, (0.5, 0.0));
        assert_eq!((near.x, near.y), ((-0.25, 0.75), (-1.5, 0.5)));
        assert_eq!(near.zoomed(0.5, (0.5, 0.0)), whole);
        assert_eq!(whole.zoomed(1e9, (0.0, 0.0)), whole, "not into nothing");
        assert_eq!(whole.zoomed(1e-9, (0.0, 0.0)), whole, "not out of sight");
    }
}
