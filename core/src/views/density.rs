//! Points too many to be told apart, as hexagons: takes the quadrant's points and the size of a hexagon on its axes,
//! gives how many lie in each and what most of them are. Hexagons stand still while the view moves.

use super::Point;

/// Far more than a screen has room for.
const MOST_CELLS: i64 = 1 << 20;
/// Groups that are told apart in a hexagon.
const GROUPS: usize = 16;

/// One hexagon that holds points.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hex {
    /// Places on the axes.
    pub center: [f32; 2],
    pub count: u32,
    /// The group that most are of: the first of equals.
    pub group: u8,
    /// How many these are.
    pub num_group: u32,
}

/// The hexagons in sight.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Density {
    /// Those that hold most last, to be drawn over the others.
    pub hexes: Vec<Hex>,
    /// In the fullest.
    pub most: u32,
    /// In all of them.
    pub num_points: u32,
    size: [f32; 2],
}

/// A row and a column of the lattice.
type LatticePlace = (i64, i64);

/// Which hexagon each point lies in: whatever is decided of points, while they stand where they are it stays.
#[derive(Clone, Debug, Default)]
pub struct HexLattice {
    /// By point, the number of its hexagon; none has that of [`OUT_OF_SIGHT`].
    cells: Vec<u32>,
    num_cells: usize,
    /// The first row and column, and how many columns there are.
    first: LatticePlace,
    columns: i64,
    size: [f32; 2],
}

const OUT_OF_SIGHT: u32 = u32::MAX;

impl HexLattice {
    /// `sight`: the corners of what is seen; `size`: a hexagon's width and the distance of two rows, in places.
    pub fn of(points: &[Point], sight: [[f32; 2]; 2], size: [f32; 2]) -> Self {
        let [lo, hi] = sight;
        let (lo, hi) = ([lo[0] - size[0], lo[1] - size[1]], [hi[0] + size[0], hi[1] + size[1]]);
        let (first, last) = (place(lo, size), place(hi, size));
        let rows = last.0 - first.0 + 3;
        let columns = last.1 - first.1 + 3;
        if !(1..=MOST_CELLS).contains(&rows.saturating_mul(columns)) || rows < 1 {
            return Self::default();
        }
        // A hexagon more than there is in sight, on every side.
        let corner = (first.0 - 1, first.1 - 1);
        let number = |point: &Point| {
            let is_seen = (0..2).all(|axis| (lo[axis]..=hi[axis]).contains(&point.at[axis]));
            let (row, column) = if is_seen { place(point.at, size) } else { return OUT_OF_SIGHT };
            u32::try_from((row - corner.0) * columns + (column - corner.1)).unwrap_or(OUT_OF_SIGHT)
        };
        Self {
            cells: points.iter().map(number).collect(),
            num_cells: (rows * columns) as usize,
            first: corner,
            columns,
            size,
        }
    }

    /// `points`: those that it was made of; `group`: below 16.
    pub fn density(&self, points: &[Point], group: impl Fn(&Point) -> u8) -> Density {
        let Self { num_cells, first, columns, size, .. } = *self;
        let mut cells = vec![[0_u32; GROUPS]; num_cells];
        for (point, cell) in points.iter().zip(&self.cells) {
            if let Some(counts) = cells.get_mut(*cell as usize) {
                counts[usize::from(group(point)) % GROUPS] += 1;
            }
        }
        let hex = |(at, counts): (usize, [u32; GROUPS])| {
            let at = at as i64;
            let place = (first.0 + at / columns, first.1 + at % columns);
            let most = (0..GROUPS).rev().max_by_key(|group| counts[*group]).unwrap_or(0);
            let (center, count) = (center(place, size), counts.iter().sum());
            Hex { center, count, group: most as u8, num_group: counts[most] }
        };
        let filled = cells.into_iter().enumerate().filter(|(_, counts)| counts.iter().any(|count| *count > 0));
        let mut hexes: Vec<Hex> = filled.map(hex).collect();
        let key = |hex: &Hex| (hex.count, hex.center[1].to_bits(), hex.center[0].to_bits());
        hexes.sort_unstable_by_key(key);
        let num_points = hexes.iter().map(|hex| hex.count).sum();
        Density { most: hexes.last().map_or(0, |hex| hex.count), hexes, num_points, size }
    }
}

impl Density {
    /// The hexagon around a place.
    pub fn at(&self, at: [f32; 2]) -> Option<&Hex> {
        let wanted = center(place(at, self.size), self.size);
        self.hexes.iter().find(|hex| hex.center == wanted)
    }

    /// How large a hexagon is drawn, as a share of its side: by the logarithm, so that one point is seen beside thousands.
    pub fn share(&self, count: u32) -> f32 {
        let most = (f64::from(self.most) + 1.0).ln();
        if most > 0.0 { (0.3 + 0.7 * (f64::from(count) + 1.0).ln() / most) as f32 } else { 1.0 }
    }

    /// Counts for a legend, rising, the last the most.
    pub fn steps(&self) -> Vec<u32> {
        let mut steps: Vec<u32> = (0..9).map(|power| 10_u32.pow(power)).filter(|step| 2 * step < self.most).collect();
        steps.push(self.most);
        steps
    }
}

/// Of two lattices, one in the middles of the other's rectangles, the nearer centre.
fn place([x, y]: [f32; 2], [width, height]: [f32; 2]) -> LatticePlace {
    let (x, y) = (x / width, y / height);
    // Even rows stand at whole columns, odd ones at halves.
    let even = (2.0 * (y / 2.0).round(), x.round());
    let odd = (2.0 * ((y - 1.0) / 2.0).round() + 1.0, (x - 0.5).round() + 0.5);
    // In units of a regular hexagon's width: rows are half of the root of three apart.
    let away = |(row, column): (f32, f32)| (x - column).powi(2) + 0.75 * (y - row).powi(2);
    let nearer = if away(even) <= away(odd) { even } else { odd };
    // What is beyond all bounds is at the lattice's end: differences stay numbers.
    let whole = |at: f32| at.clamp(-1e9, 1e9) as i64;
    (whole(nearer.0), whole(nearer.1.floor()))
}

fn center((row, column): LatticePlace, [width, height]: [f32; 2]) -> [f32; 2] {
    let shift = if row.rem_euclid(2) == 1 { 0.5 } else { 0.0 };
    [(column as f32 + shift) * width, row as f32 * height]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        dispatch::testing::Dice,
        model::{Gemm, LatencySource, Quadrant},
    };

    fn point(at: [f32; 2], kernel: u16) -> Point {
        let (quadrant, source) = (Quadrant::SafeFast, LatencySource::Recorded);
        Point { at, low: at, high: at, site: 0, kernel, gemm: Gemm::Fprop, quadrant, source, chosen: false }
    }

    fn scattered(count: usize) -> Vec<Point> {
        let mut dice = Dice::new(3);
        (0..count).map(|at| point([dice.unit() as f32 - 0.5, 2.0 * dice.unit() as f32 - 1.0], at as u16 % 3)).collect()
    }

    const SIGHT: [[f32; 2]; 2] = [[-0.5, -1.0], [0.5, 1.0]];
    const SIZE: [f32; 2] = [0.05, 0.08];

    fn of(points: &[Point], sight: [[f32; 2]; 2], group: impl Fn(&Point) -> u8) -> Density {
        HexLattice::of(points, sight, SIZE).density(points, group)
    }

    #[test]
    fn every_point_in_sight_is_in_one_hexagon() {
        let points = scattered(5_000);
        let density = of(&points, SIGHT, |point| point.kernel as u8);
        assert_eq!(density.num_points, 5_000);
        for (number, point) in points.iter().enumerate().step_by(53) {
            let hex = density.at(point.at).unwrap();
            // No farther from its centre than a corner is.
            let [dx, dy] = [0, 1].map(|axis| (hex.center[axis] - point.at[axis]) / SIZE[axis]);
            assert!(dx * dx + 0.75 * dy * dy <= 0.34, "{number}: {dx} {dy}");
            let nearest = density.hexes.iter().map(|of| {
                let [dx, dy] = [0, 1].map(|axis| (of.center[axis] - point.at[axis]) / SIZE[axis]);
                dx * dx + 0.75 * dy * dy
            });
            let nearest = nearest.fold(f32::INFINITY, f32::min);
            assert!((dx * dx + 0.75 * dy * dy - nearest).abs() < 1e-4, "{number}: the nearest centre is its own");
        }
    }

    #[test]
    fn hexagons_stand_still_while_the_view_moves() {
        let points = scattered(2_000);
        let whole = of(&points, SIGHT, |_| 0);
        let part = of(&points, [[0.0, 0.0], [0.3, 0.5]], |_| 0);
        assert!(part.hexes.len() < whole.hexes.len() && !part.hexes.is_empty());
        let inside = |hex: &&Hex| (0.05..0.25).contains(&hex.center[0]) && (0.1..0.4).contains(&hex.center[1]);
        for hex in part.hexes.iter().filter(inside) {
            assert_eq!(whole.at(hex.center), Some(hex));
        }
    }

    #[test]
    fn a_hexagon_is_of_what_most_of_it_is() {
        let points = [point([0.0, 0.0], 2), point([0.001, 0.0], 2), point([0.0, 0.001], 1), point([0.4, 0.4], 0)];
        let density = of(&points, SIGHT, |point| point.kernel as u8);
        let hex = density.at([0.0, 0.0]).unwrap();
        assert_eq!((hex.count, hex.group, hex.num_group), (3, 2, 2));
        assert_eq!((density.most, density.hexes.last().unwrap().count), (3, 3), "the fullest is drawn last");
        assert!(density.share(3) == 1.0 && density.share(1) < 1.0 && density.share(1) > 0.3);
        assert_eq!(density.steps(), [1, 3]);
        let nothing = of(&[], SIGHT, |_| 0);
        assert!(nothing.hexes.is_empty() && nothing.at([0.0, 0.0]).is_none());
    }
}
