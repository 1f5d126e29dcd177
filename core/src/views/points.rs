//! The quadrant's points: one row each, error against speed-up, with what stands where. Numbers only, so that
//! a quarter of a million of them are ten megabytes and a copy away from the GPU.

use std::sync::Arc;

use crate::{
    dispatch::{JudgedRows, parallel},
    model::{Estimate, Gemm, KernelId, LatencySource, Metric, Quadrant, ResultRow, catalogue},
    views::{PlanView, Snapshot},
};

use super::{
    Versus,
    axis::{ErrorAxis, speedup_place},
    changed::Changed,
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

impl Unplaced {
    /// The same row.
    fn is_of(&self, other: &Self) -> bool {
        (self.site, self.kernel, self.gemm) == (other.site, other.kernel, other.gemm)
    }
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
    /// What its errors are in; `None`: nothing was placed.
    metric: Option<Metric>,
    pub kernels: Vec<KernelId>,
    /// By site: three GEMMs, then kernels by name.
    pub points: Arc<Vec<Point>>,
    /// Lower left and upper right of all points, and of arrows from a baseline; `None` without any.
    pub bounds: Option<[[f32; 2]; 2]>,
    pub unplaced: Vec<Unplaced>,
    /// Points that the mods in force moved; with a baseline what changed since: rows that are others, or choices.
    pub arrows: Vec<Arrow>,
    pub shares: Shares,
    pub nearby: Arc<Nearby>,
    /// By library, recipe and module, in the order of [`super::GroupBy::ALL`].
    pub groupings: Arc<[Grouping; 3]>,
    /// By latency's source, in the order measured, recorded, modelled.
    pub num_by_source: [usize; 3],
    /// Points that the plan runs by.
    pub num_chosen: usize,
    /// Three a site: under which verdict its GEMM's time counts.
    spoken: Vec<Option<Quadrant>>,
}

impl QuadrantView {
    /// High-precision kernels are left out: they are what the others are compared with. `last`: of the same rows, by another
    /// plan, and where that is known to differ.
    pub(super) fn of(
        rows: (&Snapshot, &JudgedRows),
        plan: &PlanView,
        gemm: Option<Gemm>,
        last: Option<(&Self, Option<&Changed>)>,
    ) -> Self {
        match last {
            Some((last, changed)) if last.metric == Some(rows.0.document.policy.metric) => {
                last.clone().decided(rows, plan, gemm, changed)
            }
            last => Self::placed(rows, gemm, last.map(|(last, _)| last)).decided(rows, plan, gemm, None),
        }
    }

    /// What depends on the rows alone: where each stands. `last`: of the same rows in another metric; in speed they stand as
    /// they did.
    fn placed((snapshot, judged): (&Snapshot, &JudgedRows), gemm: Option<Gemm>, last: Option<&Self>) -> Self {
        let metric = snapshot.document.policy.metric;
        let (axis, sites) = (ErrorAxis::of(metric), snapshot.sites().len());
        let (kernels, numbers) = match last {
            Some(last) => (last.kernels.clone(), numbers_of(&last.kernels)),
            None => kernels_of(snapshot, gemm),
        };
        let bands = parallel::map_ranges(sites, |sites| {
            let before = last.map_or(&[][..], |last| &last.points[last.of_site(sites.start).start..]);
            let num_rows =
                sites.clone().map(|at| gemms(gemm).map(|gemm| judged.at(at, gemm).len()).sum::<usize>()).sum();
            let (mut points, mut unplaced, mut before) =
                (Vec::with_capacity(num_rows), Vec::new(), before.iter().peekable());
            for (site, gemm) in sites.flat_map(|at| gemms(gemm).map(move |gemm| (at, gemm))) {
                for (row, judged) in snapshot.rows_of(site, gemm).iter().zip(judged.at(site, gemm)) {
                    let number = judged.number().filter(|_| judged.is_low());
                    let (Some(kernel), site) = (number.and_then(|number| numbers[number]), site as u32) else {
                        continue;
                    };
                    let known = before.next_if(|point| (point.site, point.gemm, point.kernel) == (site, gemm, kernel));
                    let across = known.map_or_else(|| speed_places(row), |of| Some([of.at[0], of.low[0], of.high[0]]));
                    match across.zip(judged.error.and_then(|error| error_places(error, metric, axis))) {
                        None => unplaced.push(Unplaced { site, kernel, gemm, has_error: judged.error.is_some() }),
                        Some((across, up)) => {
                            let [at, low, high] = [0, 1, 2].map(|end| [across[end], up[end]]);
                            let (quadrant, source) = (judged.quadrant, judged.source);
                            points.push(Point { at, low, high, site, kernel, gemm, quadrant, source, chosen: false });
                        }
                    }
                }
            }
            vec![(points, unplaced)]
        });
        let (mut points, mut unplaced) = (Vec::new(), Vec::new());
        for (mut more, mut others) in bands {
            if points.is_empty() {
                points = more;
            } else {
                points.append(&mut more);
            }
            unplaced.append(&mut others);
        }
        points.shrink_to_fit();
        let same = last.filter(|last| last.points.len() == points.len() && last.unplaced.len() == unplaced.len());
        let mut view =
            Self { axis, metric: Some(metric), kernels, points: Arc::new(points), unplaced, ..Self::default() };
        let by_source = [LatencySource::Measured, LatencySource::Recorded, LatencySource::Modelled];
        view.num_by_source = by_source.map(|of| view.points.iter().filter(|point| point.source == of).count());
        view.arrows = view.moved_by_mods(snapshot);
        view.bounds = bounds_of(&view.points);
        view.nearby = Arc::new(Nearby::of(&view.points, view.bounds));
        let groupings = || Arc::new(Grouping::all(&view.points, &view.kernels, snapshot.index.ids()));
        // No row has found a place that had none, or lost it.
        let same = same.filter(|last| last.unplaced.iter().zip(&view.unplaced).all(|(a, b)| a.is_of(b)));
        view.groupings = same.map_or_else(groupings, |last| last.groupings.clone());
        view
    }

    /// The same points by what is decided now: their verdicts, which are chosen, and the shares of both. `changed`: `None`: all
    /// sites.
    fn decided(
        mut self,
        (snapshot, judged): (&Snapshot, &JudgedRows),
        plan: &PlanView,
        gemm: Option<Gemm>,
        changed: Option<&Changed>,
    ) -> Self {
        let num_sites = snapshot.sites().len();
        let numbers = numbers_of(&self.kernels);
        if changed.is_none() {
            (self.shares, self.num_chosen) = (Shares::default(), 0);
            self.spoken = vec![None; 3 * num_sites];
        }
        let points = Arc::make_mut(&mut self.points);
        let mut next = 0;
        let (every_one, some) = (changed.is_none().then_some(0..num_sites), changed.map(Changed::sites));
        for at in every_one.into_iter().flatten().chain(some.into_iter().flatten()) {
            if changed.is_some() {
                next = points.partition_point(|point| (point.site as usize) < at);
            }
            for gemm in gemms(gemm) {
                let chosen = plan.pick_at(at, gemm).and_then(|choice| choice.kernel.number());
                let mut best: Option<Share> = None;
                for row in judged.at(at, gemm).iter().filter(|row| row.low) {
                    let Some(kernel) = row.number().and_then(|number| numbers[number]) else { continue };
                    let (is_chosen, quadrant) = (chosen == row.number(), row.quadrant);
                    best = Share::better(best, Share { chosen: is_chosen, quadrant, speedup: row.speedup });
                    // Points are in the order of the rows; a row without a place has none.
                    let own = |point: &&mut Point| (point.site, point.gemm, point.kernel) == (at as u32, gemm, kernel);
                    let Some(point) = points.get_mut(next).filter(own) else { continue };
                    next += 1;
                    if changed.is_some() {
                        self.shares.remove_point(point.quadrant);
                        self.num_chosen -= usize::from(point.chosen);
                    }
                    (point.quadrant, point.chosen) = (quadrant, is_chosen);
                    self.shares.add_point(quadrant);
                    self.num_chosen += usize::from(is_chosen);
                }
                self.spoken[3 * at + gemm as usize] = best.map(|best| best.quadrant);
            }
        }
        // Times are added up anew, in one order: sums do not depend on what was looked at before.
        self.shares.forget_times();
        for (at, site) in snapshot.sites().iter().enumerate() {
            for gemm in gemms(gemm) {
                if let Some(us) = judged.reference_us(at, gemm) {
                    self.shares.add_time(self.spoken[3 * at + gemm as usize], site.calls as f64 * us);
                }
            }
        }
        self
    }

    /// Points that stand elsewhere in the model as recorded.
    fn moved_by_mods(&self, snapshot: &Snapshot) -> Vec<Arrow> {
        let (metric, loss) = (snapshot.document.policy.metric, snapshot.loss());
        let arrow = |(number, point): (usize, &Point)| {
            let rows = snapshot.before.get(point.site as usize)?.as_ref()?;
            let from = place(rows.get(point.gemm, self.kernel(point.kernel)?)?, (metric, loss), self.axis)?;
            (from != point.at).then_some(Arrow { point: number as u32, from, to: point.at })
        };
        self.points.iter().enumerate().filter_map(arrow).collect()
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
        let (metric, loss) = (snapshot.document.policy.metric, snapshot.loss());
        let arrow = |(number, point): (usize, &Point)| {
            let base = versus.base(snapshot, point.site as usize, point.gemm, self.kernel(point.kernel)?)?;
            let from = place(base, (metric, loss), self.axis)?;
            (from != point.at).then_some(Arrow { point: number as u32, from, to: point.at })
        };
        self.points.iter().enumerate().filter_map(arrow).collect()
    }

    /// Where the rows are the same: from what the baseline runs to what is chosen now.
    fn moves(&self, snapshot: &Snapshot, plan: &PlanView, versus: &Versus) -> Vec<Arrow> {
        let (metric, loss) = (snapshot.document.policy.metric, snapshot.loss());
        let arrow = |(at, gemm): (usize, Gemm)| {
            let line = versus.line(at, gemm).filter(|line| line.moved)?;
            let chosen = &plan.pick_at(at, gemm)?.kernel;
            let place = |row: Option<&ResultRow>| place(row?, (metric, loss), self.axis);
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

/// `None`: all three.
fn gemms(only: Option<Gemm>) -> impl Iterator<Item = Gemm> {
    Gemm::ALL.into_iter().filter(move |gemm| only.is_none_or(|only| only == *gemm))
}

/// Kernels in low precision as their rows come, and their numbers there by the place in the catalogue.
fn kernels_of(snapshot: &Snapshot, gemm: Option<Gemm>) -> (Vec<KernelId>, Vec<Option<u16>>) {
    let (mut kernels, mut numbers): (Vec<KernelId>, _) = (Vec::new(), vec![None; catalogue().len()]);
    let rows = snapshot.rows.iter().flatten();
    for kernel in rows.flat_map(|rows| gemms(gemm).flat_map(|gemm| rows.kernels_of(gemm))) {
        let Some(number) = kernel.number().filter(|number| numbers[*number].is_none()) else { continue };
        if kernel.is_low_precision() {
            numbers[number] = u16::try_from(kernels.len()).ok();
            kernels.push(kernel.clone());
        }
    }
    (kernels, numbers)
}

/// The numbers of these by their place in the catalogue.
fn numbers_of(kernels: &[KernelId]) -> Vec<Option<u16>> {
    let mut numbers = vec![None; catalogue().len()];
    for (at, kernel) in kernels.iter().enumerate() {
        kernel.number().into_iter().for_each(|number| numbers[number] = u16::try_from(at).ok());
    }
    numbers
}

/// A row's place on both axes; `None`: it lacks an error or a speed-up. `loss`: the trace's.
fn place(row: &ResultRow, (metric, loss): (Metric, f64), axis: ErrorAxis) -> Option<[f32; 2]> {
    let [up, ..] = error_places(row.figure(metric, loss)?, metric, axis)?;
    Some([speed_places(row)?[0], up])
}

/// A row's place among the speed-ups, and the lower and upper ends of its interval there.
fn speed_places(row: &ResultRow) -> Option<[f32; 3]> {
    let at = speedup_place(row.speedup()?) as f32;
    // The longer the latency, the lower the speed-up.
    let end = |us: Option<f64>| {
        let us = us.filter(|us| *us > 0.0)?;
        Some(speedup_place(row.latency.baseline_us? / us) as f32)
    };
    let ends = [row.latency.latency_hi_us, row.latency.latency_lo_us].map(|us| end(us).unwrap_or(at));
    at.is_finite().then_some([at, ends[0], ends[1]])
}

/// The same among errors.
fn error_places(error: Estimate, metric: Metric, axis: ErrorAxis) -> Option<[f32; 3]> {
    let Estimate { value, lo, hi } = metric.on_scale(error);
    let places = [value, lo, hi].map(|error| axis.place(error) as f32);
    places[0].is_finite().then_some(places)
}

fn bounds_of(points: &[Point]) -> Option<[[f32; 2]; 2]> {
    let first = points.first()?.at;
    Some(points.iter().fold([first, first], |bounds, point| widened(bounds, point.at)))
}

fn widened([lo, hi]: [[f32; 2]; 2], [x, y]: [f32; 2]) -> [[f32; 2]; 2] {
    [[lo[0].min(x), lo[1].min(y)], [hi[0].max(x), hi[1].max(y)]]
}
