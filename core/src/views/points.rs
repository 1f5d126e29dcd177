//! The quadrant's points: one row each, error against speed-up, with what stands where. Numbers only, so that
//! a quarter of a million of them are ten megabytes and a copy away from the GPU.

use crate::{
    dispatch::JudgedRows,
    model::{Estimate, Gemm, KernelId, LatencySource, Metric, Quadrant, ResultRow, catalogue},
    views::{PlanView, Snapshot},
};

use super::{
    Versus,
    axis::{ErrorAxis, speedup_place},
    groups::Grouping,
    nearby::Nearby,
    shares::{Share, Shares},
};

/// One row in the quadrant view; places are those of the axes ([`ErrorAxis`]).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Speed-up and error.
    pub at: [f32; 2],
    /// The lower and upper ends of both intervals, as far as they are known.
    pub low: [f32; 2],
    pub high: [f32; 2],
    /// The site's number in the trace.
    pub site: u32,
    /// The kernel's number in [`QuadrantView::kernels`].
    pub kernel: u16,
    pub gemm: Gemm,
    pub quadrant: Quadrant,
    pub source: LatencySource,
    pub chosen: bool,
}

/// A row that has no place, as it lacks an error or a speed-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unplaced {
    pub site: u32,
    pub kernel: u16,
    pub gemm: Gemm,
    pub has_error: bool,
}

/// Where a point was before the mods in force, or in what a person compares with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arrow {
    /// The point's number; of a GEMM that moved to high precision, which has no point, that of what it left.
    pub point: u32,
    pub from: [f32; 2],
    pub to: [f32; 2],
}

/// Points with both an error in the policy's metric and a speed-up, and those that lack one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QuadrantView {
    pub axis: ErrorAxis,
    pub kernels: Vec<KernelId>,
    /// By site: three GEMMs, then kernels by name.
    pub points: Vec<Point>,
    /// Lower left and upper right of all points, and of arrows from a baseline; `None` without any.
    pub bounds: Option<[[f32; 2]; 2]>,
    pub unplaced: Vec<Unplaced>,
    /// Points that the mods in force moved; with a baseline what changed since: rows that are others, or choices.
    pub arrows: Vec<Arrow>,
    pub shares: Shares,
    pub nearby: Nearby,
    /// By library, recipe and module, in the order of [`super::GroupBy::ALL`].
    pub groupings: [Grouping; 3],
    /// By latency's source, in the order measured, recorded, modelled.
    pub num_by_source: [usize; 3],
    /// Points that the plan runs by.
    pub num_chosen: usize,
}

impl QuadrantView {
    /// High-precision kernels are left out: they are what the others are compared with.
    pub(super) fn of((snapshot, judged): (&Snapshot, &JudgedRows), plan: &PlanView, gemm: Option<Gemm>) -> Self {
        let metric = snapshot.document.policy.metric;
        let mut filling = Filling {
            snapshot,
            judged,
            metric,
            numbers: vec![None; catalogue().len()],
            view: Self { axis: ErrorAxis::of(metric), ..Self::default() },
        };
        for at in 0..snapshot.sites().len() {
            for gemm in Gemm::ALL.into_iter().filter(|of| gemm.is_none_or(|only| only == *of)) {
                filling.gemm(at, gemm, plan.choice_at(at, gemm).map(|choice| &choice.kernel));
            }
        }
        let mut view = filling.view;
        // What is kept with a view is what it shows.
        view.points.shrink_to_fit();
        view.bounds = bounds_of(&view.points);
        view.nearby = Nearby::of(&view.points, view.bounds);
        view.groupings = Grouping::all(&view.points, &view.kernels, snapshot.index.ids());
        view
    }

    /// The same with arrows from what a person compares with, and the ends of those in sight.
    pub(super) fn against(&self, snapshot: &Snapshot, plan: &PlanView, versus: &Versus) -> Self {
        let arrows =
            if versus.by_kernel { self.rows_moved(snapshot, versus) } else { self.moves(snapshot, plan, versus) };
        let ends = arrows.iter().flat_map(|arrow| [arrow.from, arrow.to]);
        let bounds = self.bounds.map(|bounds| ends.fold(bounds, widened));
        Self { arrows, bounds, ..self.clone() }
    }

    /// Every row that stands elsewhere in the baseline.
    fn rows_moved(&self, snapshot: &Snapshot, versus: &Versus) -> Vec<Arrow> {
        let metric = snapshot.document.policy.metric;
        let arrow = |(number, point): (usize, &Point)| {
            let base = versus.base(snapshot, point.site as usize, point.gemm, self.kernel(point.kernel)?)?;
            let from = places(base, metric, self.axis)?.0;
            (from != point.at).then_some(Arrow { point: number as u32, from, to: point.at })
        };
        self.points.iter().enumerate().filter_map(arrow).collect()
    }

    /// Where the rows are the same: from what the baseline runs to what is chosen now.
    fn moves(&self, snapshot: &Snapshot, plan: &PlanView, versus: &Versus) -> Vec<Arrow> {
        let metric = snapshot.document.policy.metric;
        let arrow = |(at, gemm): (usize, Gemm)| {
            let line = versus.line(at, gemm).filter(|line| line.moved)?;
            let chosen = &plan.choice_at(at, gemm)?.kernel;
            let place = |row: Option<&ResultRow>| Some(places(row?, metric, self.axis)?.0);
            let from = place(versus.base(snapshot, at, gemm, chosen))?;
            let to = place(snapshot.row(at, gemm, chosen)).filter(|to| *to != from)?;
            let own = self.of_site(at);
            let number_of = |kernel: &KernelId| {
                let is_it = |point: &Point| point.gemm == gemm && self.kernel(point.kernel) == Some(kernel);
                self.points[own.clone()].iter().position(is_it).map(|of| (own.start + of) as u32)
            };
            Some(Arrow { point: number_of(chosen).or_else(|| number_of(&line.kernel))?, from, to })
        };
        let gemms = (0..snapshot.sites().len()).flat_map(|at| Gemm::ALL.map(|gemm| (at, gemm)));
        gemms.filter_map(arrow).collect()
    }

    /// The points of one site, in the order of [`Self::points`].
    pub fn of_site(&self, site: usize) -> std::ops::Range<usize> {
        let from = self.points.partition_point(|point| (point.site as usize) < site);
        from..from + self.points[from..].partition_point(|point| point.site as usize == site)
    }

    /// A site's points from the slowest to the fastest, or from the lowest to the highest on the error's axis.
    pub fn ordered(&self, site: usize, by_error: bool) -> Vec<usize> {
        let key = |at: usize| self.points[at].at[usize::from(by_error)];
        let mut order: Vec<usize> = self.of_site(site).collect();
        order.sort_by(|a, b| key(*a).total_cmp(&key(*b)).then(a.cmp(b)));
        order
    }

    pub fn kernel(&self, number: u16) -> Option<&KernelId> {
        self.kernels.get(usize::from(number))
    }
}

struct Filling<'a> {
    snapshot: &'a Snapshot,
    judged: &'a JudgedRows,
    metric: Metric,
    /// By the kernel's place in the catalogue: its number here, `None` where none of its rows has been seen.
    numbers: Vec<Option<u16>>,
    view: QuadrantView,
}

impl Filling<'_> {
    fn gemm(&mut self, at: usize, gemm: Gemm, chosen: Option<&KernelId>) {
        let snapshot = self.snapshot;
        let reference = snapshot.row(at, gemm, &snapshot.document.policy.baseline);
        let reference_us = reference.and_then(|row| row.latency.latency_us).filter(|us| *us > 0.0 && us.is_finite());
        let chosen = chosen.and_then(KernelId::number);
        let mut best: Option<Share> = None;
        for (row, judged) in snapshot.rows_of(at, gemm).iter().zip(self.judged.at(at, gemm)) {
            let place = judged.number().filter(|_| judged.low);
            let Some(kernel) = place.and_then(|place| self.number(place, &row.kernel)) else { continue };
            let (is_chosen, quadrant) = (chosen == judged.number(), judged.quadrant);
            best = Share::better(best, Share { chosen: is_chosen, quadrant, speedup: judged.speedup });
            if judged.supported {
                self.row(at, row, kernel, quadrant, is_chosen);
            }
        }
        if let Some(us) = reference_us {
            let calls = snapshot.sites().get(at).map_or(1, |site| site.calls);
            self.view.shares.add_time(best.map(|best| best.quadrant), calls as f64 * us);
        }
    }

    /// The kernel's number here; `place`: in the catalogue.
    fn number(&mut self, place: usize, kernel: &KernelId) -> Option<u16> {
        if self.numbers[place].is_none() {
            self.numbers[place] = u16::try_from(self.view.kernels.len()).ok();
            self.view.kernels.push(kernel.clone());
        }
        self.numbers[place]
    }

    fn row(&mut self, at: usize, row: &ResultRow, kernel: u16, quadrant: Quadrant, chosen: bool) {
        let site = at as u32;
        let Some((place, low, high)) = self.places(row) else {
            let has_error = row.metric(self.metric).is_some();
            self.view.unplaced.push(Unplaced { site, kernel, gemm: row.gemm, has_error });
            return;
        };
        if let Some(from) = self.before(at, row).filter(|from| *from != place) {
            self.view.arrows.push(Arrow { point: self.view.points.len() as u32, from, to: place });
        }
        self.view.shares.add_point(quadrant);
        self.view.num_chosen += usize::from(chosen);
        let source = row.latency.source;
        let by_source = [LatencySource::Measured, LatencySource::Recorded, LatencySource::Modelled];
        if let Some(of) = by_source.iter().position(|of| *of == source) {
            self.view.num_by_source[of] += 1;
        }
        self.view.points.push(Point { at: place, low, high, site, kernel, gemm: row.gemm, quadrant, source, chosen });
    }

    /// Of the same row of the model as recorded.
    fn before(&self, at: usize, row: &ResultRow) -> Option<[f32; 2]> {
        let rows = self.snapshot.before.get(at)?.as_ref()?;
        Some(self.places(rows.get(row.gemm, &row.kernel)?)?.0)
    }

    fn places(&self, row: &ResultRow) -> Option<([f32; 2], [f32; 2], [f32; 2])> {
        places(row, self.metric, self.view.axis)
    }
}

/// A row's place on the axes, and the ends of its intervals there.
fn places(row: &ResultRow, metric: Metric, axis: ErrorAxis) -> Option<([f32; 2], [f32; 2], [f32; 2])> {
    let estimate = row.metric(metric)?;
    let Estimate { value, lo, hi } = metric.on_scale(estimate);
    let speedup = row.speedup()?;
    let at = [speedup_place(speedup) as f32, axis.place(value) as f32];
    if !(at[0].is_finite() && at[1].is_finite()) {
        return None;
    }
    // The longer the latency, the lower the speed-up.
    let end = |us: Option<f64>| {
        let us = us.filter(|us| *us > 0.0)?;
        Some(speedup_place(row.latency.baseline_us? / us) as f32)
    };
    let low = [end(row.latency.latency_hi_us).unwrap_or(at[0]), axis.place(lo) as f32];
    let high = [end(row.latency.latency_lo_us).unwrap_or(at[0]), axis.place(hi) as f32];
    Some((at, low, high))
}

fn bounds_of(points: &[Point]) -> Option<[[f32; 2]; 2]> {
    let first = points.first()?.at;
    Some(points.iter().fold([first, first], |bounds, point| widened(bounds, point.at)))
}

fn widened([lo, hi]: [[f32; 2]; 2], [x, y]: [f32; 2]) -> [[f32; 2]; 2] {
    [[lo[0].min(x), lo[1].min(y)], [hi[0].max(x), hi[1].max(y)]]
}
