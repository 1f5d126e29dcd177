//! Takes the quadrant's points, gives the ones near a place or within a box without looking at all of them: a
//! grid of cells, made once with the points.

use super::Point;

/// Cells along each side.
const SIDE: usize = 128;

/// Points sorted into cells; those of cell `c` are `order[starts[c]..starts[c + 1]]`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Nearby {
    origin: [f32; 2],
    /// Cells a unit of each axis.
    per_unit: [f32; 2],
    starts: Vec<u32>,
    order: Vec<u32>,
}

impl Nearby {
    pub(super) fn of(points: &[Point], bounds: Option<[[f32; 2]; 2]>) -> Self {
        let Some([lo, hi]) = bounds else { return Self::default() };
        // All at one speed-up still are one column of cells.
        let per_unit = [0, 1].map(|axis| SIDE as f32 / (hi[axis] - lo[axis]).max(1e-6));
        let mut grid = Self { origin: lo, per_unit, starts: vec![0; SIDE * SIDE + 1], order: vec![0; points.len()] };
        for point in points {
            let cell = grid.cell(point.at);
            grid.starts[cell + 1] += 1;
        }
        for cell in 0..SIDE * SIDE {
            grid.starts[cell + 1] += grid.starts[cell];
        }
        let mut next = grid.starts.clone();
        for (number, point) in points.iter().enumerate() {
            let cell = grid.cell(point.at);
            grid.order[next[cell] as usize] = number as u32;
            next[cell] += 1;
        }
        grid
    }

    fn along(&self, axis: usize, place: f32) -> usize {
        // A cast from a float saturates: what lies outside is in the outermost cell.
        (((place - self.origin[axis]) * self.per_unit[axis]) as usize).min(SIDE - 1)
    }

    fn cell(&self, at: [f32; 2]) -> usize {
        self.along(1, at[1]) * SIDE + self.along(0, at[0])
    }

    /// The numbers of the points in the box, its corners in any order. `points`: those it was made of.
    pub fn within<'a>(&'a self, points: &'a [Point], a: [f32; 2], b: [f32; 2]) -> impl Iterator<Item = usize> + 'a {
        let lo = [a[0].min(b[0]), a[1].min(b[1])];
        let hi = [a[0].max(b[0]), a[1].max(b[1])];
        let (columns, rows) =
            (self.along(0, lo[0])..=self.along(0, hi[0]), self.along(1, lo[1])..=self.along(1, hi[1]));
        let cells = rows.flat_map(move |row| columns.clone().map(move |column| row * SIDE + column));
        let cells = cells.filter_map(|cell| self.order.get(self.range(cell)?));
        let inside = move |point: &Point| (0..2).all(|axis| (lo[axis]..=hi[axis]).contains(&point.at[axis]));
        cells.flatten().map(|number| *number as usize).filter(move |number| points.get(*number).is_some_and(inside))
    }

    fn range(&self, cell: usize) -> Option<std::ops::Range<usize>> {
        Some(*self.starts.get(cell)? as usize..*self.starts.get(cell + 1)? as usize)
    }

    /// The point nearest to `at` among those within `reach` along both axes, where a `reach` counts the same
    /// along either. Ties: the first.
    pub fn nearest(&self, points: &[Point], at: [f32; 2], reach: [f32; 2]) -> Option<usize> {
        let distance = |number: usize| {
            let place = points[number].at;
            (0..2).map(|axis| ((place[axis] - at[axis]) / reach[axis].max(f32::MIN_POSITIVE)).powi(2)).sum::<f32>()
        };
        let (a, b) = ([at[0] - reach[0], at[1] - reach[1]], [at[0] + reach[0], at[1] + reach[1]]);
        let near = self.within(points, a, b).map(|number| (distance(number), number));
        near.filter(|(distance, _)| *distance <= 1.0)
            .min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)))
            .map(|of| of.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        dispatch::testing::Dice,
        model::{Gemm, LatencySource, Quadrant},
    };

    fn scattered(count: usize) -> (Vec<Point>, Nearby) {
        let mut dice = Dice::new(7);
        let points: Vec<Point> = (0..count)
            .map(|site| {
                let at = [dice.unit() as f32, -2.0 + 3.0 * dice.unit() as f32];
                let (source, quadrant) = (LatencySource::Recorded, Quadrant::SafeFast);
                let site = site as u32;
                Point { at, low: at, high: at, site, kernel: 0, gemm: Gemm::Fprop, quadrant, source, chosen: false }
            })
            .collect();
        let bounds = Some([[0.0, -2.0], [1.0, 1.0]]);
        let nearby = Nearby::of(&points, bounds);
        (points, nearby)
    }

    #[test]
    fn a_box_finds_what_a_look_at_all_finds() {
        let (points, nearby) = scattered(3000);
        for (a, b) in [([0.2, -1.0], [0.4, 0.5]), ([0.9, 2.0], [-1.0, -0.2]), ([0.5, 0.5], [0.5, 0.5])] {
            let mut found: Vec<usize> = nearby.within(&points, a, b).collect();
            found.sort_unstable();
            let inside = |point: &Point| {
                (0..2).all(|axis| point.at[axis] >= a[axis].min(b[axis]) && point.at[axis] <= a[axis].max(b[axis]))
            };
            let all: Vec<usize> = (0..points.len()).filter(|at| inside(&points[*at])).collect();
            assert_eq!(found, all);
        }
    }

    #[test]
    fn the_nearest_is_the_nearest() {
        let (points, nearby) = scattered(3000);
        for (number, point) in points.iter().enumerate().step_by(97) {
            assert_eq!(nearby.nearest(&points, point.at, [0.01, 0.03]), Some(number));
        }
        assert_eq!(nearby.nearest(&points, [5.0, 5.0], [0.01, 0.03]), None);
        assert_eq!(Nearby::default().nearest(&[], [0.0, 0.0], [1.0, 1.0]), None);
    }
}
