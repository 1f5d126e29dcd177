//! The quadrant's points: takes entries, gives where each kernel in low precision stands by speed-up and error, what
//! stands at one place once, and what share of the baseline's time falls under each verdict.

use std::collections::BTreeMap;

use crate::{
    model::{LatencySource, Metric},
    plan::Plan,
    views::{Scale, Share, Shares},
};

use super::entries::{Entry, by_gemm};

/// With more, those at one place are drawn once.
const FEW: usize = 2_000;
/// Steps of a place, in units of the picture.
const PLACE: f64 = 5.0;

/// Where a shape stands and what it looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shape {
    /// Drawn last, larger.
    pub chosen: bool,
    pub verdict: usize,
    pub modelled: bool,
}

#[derive(Clone, Debug)]
pub struct Points {
    pub speed: Scale,
    pub error: Scale,
    /// Places in tenths of a unit from the lower left of a field of the given size.
    pub shapes: BTreeMap<Shape, Vec<[i32; 2]>>,
    /// Ends of the intervals of what was chosen: `[x0, x1, y0, y1, x, y]`.
    pub whiskers: Vec<[i32; 6]>,
    pub num_points: usize,
    pub num_unplaced: usize,
    pub merged: bool,
    pub num_by_source: BTreeMap<LatencySource, usize>,
    pub shares: Shares,
}

impl Points {
    /// `size`: of the field that they are drawn in. `None`: no kernel has both an error and a speed-up.
    pub fn of(plan: &Plan, entries: &[Entry], size: [f64; 2]) -> Option<Self> {
        let (policy, metric) = (&plan.policy, plan.policy.metric);
        let low = || entries.iter().filter(|entry| entry.low && entry.supported);
        let placed: Vec<(&Entry, f64, f64)> =
            low().filter_map(|entry| place(entry, metric).map(|[speed, error]| (entry, speed, error))).collect();
        placed.first()?;
        let over = |start: f64, of: fn(&(&Entry, f64, f64)) -> f64| {
            placed.iter().map(of).fold((start, start), |(lo, hi), value| (lo.min(value), hi.max(value)))
        };
        let speed = Scale::ratio(over(policy.min_speedup.max(1e-3), |of| of.1)).widened(0.06);
        let least = if metric.is_log() { policy.max_error.max(1e-9) } else { policy.max_error };
        let error = Scale::new(metric, over(least, |of| of.2)).widened(0.06);
        let mut points = Self {
            speed,
            error,
            shapes: BTreeMap::new(),
            whiskers: Vec::new(),
            num_points: placed.len(),
            num_unplaced: low().count() - placed.len(),
            merged: placed.len() > FEW,
            num_by_source: BTreeMap::new(),
            shares: Shares::default(),
        };
        add_times(&mut points.shares, entries);
        for (entry, speedup, value) in &placed {
            points.add(entry, metric, [*speedup, *value], size);
        }
        if points.merged {
            points.shapes.values_mut().for_each(|places| {
                places.sort_unstable();
                places.dedup();
            });
        }
        Some(points)
    }

    fn add(&mut self, entry: &Entry, metric: Metric, [speedup, value]: [f64; 2], [width, height]: [f64; 2]) {
        let verdict = entry.quadrant.rank();
        self.shares.add_point(entry.quadrant);
        *self.num_by_source.entry(entry.source).or_default() += 1;
        let step = if self.merged { PLACE } else { 0.1 };
        let whole = |at: f64| ((at / step).round() * step * 10.0).round() as i32;
        let (x, y) = (whole(width * self.speed.share(speedup)), whole(height * self.error.share(value)));
        let modelled = entry.source == LatencySource::Modelled;
        let shape = Shape { chosen: entry.chosen.is_some(), verdict, modelled };
        self.shapes.entry(shape).or_default().push([x, y]);
        if let (true, false, Some(error)) =
            (entry.chosen.is_some(), self.merged, entry.error.map(|error| metric.on_scale(error)))
        {
            let across = |at: Option<f64>| whole(width * self.speed.share(at.unwrap_or(speedup)));
            let up = |at: f64| whole(height * self.error.share(at));
            self.whiskers.push([across(entry.slowest), across(entry.fastest), up(error.lo), up(error.hi), x, y]);
        }
    }
}

fn place(entry: &Entry, metric: Metric) -> Option<[f64; 2]> {
    let (speed, error) = (entry.speedup?, metric.on_scale(entry.error?).value);
    (speed > 0.0 && speed.is_finite() && error.is_finite()).then_some([speed, error])
}

/// As the workbench shares them out: under the verdict of the kernel that speaks for its GEMM.
fn add_times(shares: &mut Shares, entries: &[Entry]) {
    for gemm in by_gemm(entries) {
        let Some(us) = gemm.iter().find_map(|entry| entry.reference_us) else { continue };
        let low = gemm.iter().filter(|entry| entry.low);
        let best = low.fold(None, |best, &Entry { chosen, quadrant, speedup, .. }| {
            Share::better(best, Share { chosen: chosen.is_some(), quadrant, speedup })
        });
        shares.add_time(best.map(|best| best.quadrant), us);
    }
}
