//! Where the graph's boxes stand: takes boxes with their times and the room, gives their left edges. A box is as wide as
//! its time, and no narrower than what can be read and hit.

use super::GraphItems;

/// Boxes beside each other, in points from the first one's left edge.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GraphLayout {
    /// One more than there are boxes: the last is where the next would begin.
    lefts: Vec<f32>,
    gap: f32,
    /// Points a microsecond.
    pub per_us: f64,
    /// Boxes that are drawn wider than their time, as none is narrower than `least`.
    pub num_least: usize,
}

impl GraphLayout {
    /// `room`: all boxes take that much where it is enough for each to be `least` wide and a quarter more, so that times
    /// still show; else what that takes. `zoom`: times that.
    pub fn of(items: &GraphItems, room: f32, zoom: f32, least: f32, gap: f32) -> Self {
        let count = items.all.len();
        if count == 0 {
            return Self::default();
        }
        let gaps = gap * count.saturating_sub(1) as f32;
        let wanted = (room - gaps).max(1.25 * least * count as f32) * zoom.max(0.01);
        let least = f64::from(least);
        let taken =
            |per_us: f64| items.all.iter().map(|item| (per_us * item.planned_us.max(0.0)).max(least)).sum::<f64>();
        let most = items.most_us();
        let per_us = if most > 0.0 { solve(taken, f64::from(wanted), most) } else { 0.0 };
        // Without any time all are alike.
        let even = (f64::from(wanted) / count as f64).max(least);
        let mut lefts = Vec::with_capacity(count + 1);
        let (mut left, mut num_least) = (0.0, 0);
        for item in &items.all {
            lefts.push(left as f32);
            let own = per_us * item.planned_us.max(0.0);
            num_least += usize::from(own < least);
            left += if most > 0.0 { own.max(least) } else { even } + f64::from(gap);
        }
        lefts.push(left as f32);
        Self { lefts, gap, per_us, num_least }
    }

    pub fn total(&self) -> f32 {
        self.lefts.last().map_or(0.0, |left| (left - self.gap).max(0.0))
    }

    pub fn left(&self, at: usize) -> f32 {
        self.lefts.get(at).copied().unwrap_or(0.0)
    }

    pub fn right(&self, at: usize) -> f32 {
        self.lefts.get(at + 1).map_or(0.0, |next| next - self.gap)
    }

    pub fn center(&self, at: usize) -> f32 {
        f32::midpoint(self.left(at), self.right(at))
    }

    /// The boxes between two places.
    pub fn visible(&self, from: f32, to: f32) -> std::ops::Range<usize> {
        let count = self.lefts.len().saturating_sub(1);
        let first = self.lefts.partition_point(|left| *left <= from).saturating_sub(1).min(count);
        let last = self.lefts.partition_point(|left| *left < to).min(count);
        first..last.max(first)
    }

    /// The box at a place.
    pub fn at(&self, x: f32) -> Option<usize> {
        let at = self.lefts.partition_point(|left| *left <= x).checked_sub(1)?;
        (x < self.right(at) && at + 1 < self.lefts.len()).then_some(at)
    }
}

/// The scale at which the boxes take `wanted`; 0 where that is less than the narrowest take.
fn solve(taken: impl Fn(f64) -> f64, wanted: f64, most_us: f64) -> f64 {
    let (mut lo, mut hi) = (0.0, wanted / most_us);
    // Sums of maxima rise with the scale: halving finds the place to a thousandth of a point.
    for _ in 0..48 {
        let middle = f64::midpoint(lo, hi);
        *(if taken(middle) > wanted { &mut hi } else { &mut lo }) = middle;
    }
    lo
}
