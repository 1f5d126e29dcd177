//! The heatmap's grid: one number and a few marks a cell, dense, so that ten thousand sites are a megabyte
//! and what is on screen is a copy away from the GPU.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::{
    dispatch::{ChoiceSource, JudgedRow, JudgedRows, parallel},
    model::{Gemm, Kernel, KernelId, LatencySource, Metric, Quadrant, catalogue},
    views::{PlanView, Snapshot},
};

use super::{
    Versus, ViewQuery,
    cell::{value, value_over},
    changed::Changed,
    recipes::{MOST_RECIPES, recipe},
};

/// One column of the heatmap.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Column {
    pub gemm: Gemm,
    pub kernel: KernelId,
}

/// What a cell shows besides its value. Bits, as the shader reads them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Mark(pub u8);

impl Mark {
    /// No row yet.
    pub const WAITING: Self = Self(0);
    /// A row, but no value: the cell says why.
    pub const MISSING: Self = Self(1);
    pub const VALUE: Self = Self(2);
    /// Beyond the policy's bound, whatever is shown.
    pub const UNSAFE: Self = Self(4);
    /// Its interval straddles the bound.
    pub const UNCERTAIN: Self = Self(8);
    pub const CHOSEN: Self = Self(16);
    /// Its latency is modelled.
    pub const MODELLED: Self = Self(32);
    /// Chosen by hand.
    pub const OVERRIDDEN: Self = Self(64);
    /// The best kernel of its recipe there: what the plan runs, else the fastest that has a value. No shader reads it.
    pub const BEST: Self = Self(128);

    /// Of a value as it was judged.
    pub(crate) fn of(quadrant: Quadrant, source: LatencySource) -> Self {
        let safety = match quadrant {
            Quadrant::UnsafeFast | Quadrant::UnsafeSlow | Quadrant::UnsafeUnknown => Self::UNSAFE,
            Quadrant::Uncertain => Self::UNCERTAIN,
            _ => Self::VALUE,
        };
        let modelled = if source == LatencySource::Modelled { Self::MODELLED } else { Self::VALUE };
        Self::VALUE.with(safety).with(modelled)
    }

    /// Of the kernel that the plan runs.
    #[must_use]
    pub(crate) fn chosen(self, by: ChoiceSource) -> Self {
        let by_hand = if by == ChoiceSource::Override { Self::OVERRIDDEN } else { Self::CHOSEN };
        self.with(Self::CHOSEN).with(by_hand)
    }

    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Sites x (GEMM x kernel), in forward order and catalogue order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Grid {
    pub columns: Vec<Column>,
    pub num_sites: usize,
    /// Row-major, `[sites][columns]`; NaN where there is none.
    pub values: Vec<f32>,
    /// Of the same shape.
    pub marks: Vec<Mark>,
    /// Smallest and largest positive value, for the colour scale; `None` when there is none.
    pub range: Option<(f64, f64)>,
    /// The same over low-precision kernels alone: the high-precision ones would squeeze the rest into
    /// one colour.
    pub low_range: Option<(f64, f64)>,
    /// The policy's bound, when the shown metric is the policy's.
    pub bound: Option<f64>,
}

impl Grid {
    pub fn place(&self, site: usize, column: usize) -> usize {
        site * self.columns.len() + column
    }

    /// A site's values and marks.
    pub fn row(&self, site: usize) -> (&[f32], &[Mark]) {
        let cells = self.place(site, 0)..self.place(site + 1, 0);
        (self.values.get(cells.clone()).unwrap_or_default(), self.marks.get(cells).unwrap_or_default())
    }

    /// `versus`: values are divided by those of what a person compares with. `last`: of the same rows and the same question, by
    /// another plan, and where that is known to differ; its values are taken.
    pub(super) fn of(
        (snapshot, judged): (&Snapshot, &JudgedRows),
        plan: &PlanView,
        question: ViewQuery,
        (versus, last): (Option<&Versus>, Option<(&Self, Option<&Changed>)>),
    ) -> Self {
        let gemms: Vec<Gemm> =
            Gemm::ALL.into_iter().filter(|of| question.gemm.is_none_or(|only| only == *of)).collect();
        let columns = match last {
            Some((last, _)) => last.columns.clone(),
            None => {
                let kernels = kernels_of(snapshot);
                let column = |gemm: Gemm| kernels.iter().map(move |kernel| Column { gemm, kernel: kernel.clone() });
                gemms.iter().flat_map(|gemm| column(*gemm)).collect()
            }
        };
        let policy = &snapshot.document.policy;
        let num_sites = snapshot.sites().len();
        let bound =
            (versus.is_none() && !question.relative && question.metric == policy.metric).then_some(policy.max_error);
        // Every GEMM has the same.
        let num_kernels = columns.len() / gemms.len().max(1);
        let mut column_of = vec![None; catalogue().len()];
        for (at, column) in columns[..num_kernels].iter().enumerate() {
            column.kernel.number().into_iter().for_each(|number| column_of[number] = Some(at));
        }
        let known = last.is_some();
        let filling = Filling { snapshot, judged, plan, question, versus, column_of, known };
        let fill = |grid: &mut Self, row: usize, site: usize| {
            for (at, gemm) in gemms.iter().enumerate() {
                filling.fill(grid, (row, site), *gemm, at * num_kernels);
            }
        };
        if let Some((last, Some(changed))) = last {
            let mut grid = Self { bound, ..last.clone() };
            changed.sites().for_each(|site| fill(&mut grid, site, site));
            return grid;
        }
        let bands = parallel::map_ranges(num_sites, |sites| {
            let mut band = match last {
                Some((last, _)) => last.band(&sites),
                None => Self::waiting(columns.clone(), sites.len()),
            };
            sites.enumerate().for_each(|(row, site)| fill(&mut band, row, site));
            vec![band]
        });
        let mut bands = bands.into_iter();
        let mut grid = bands.next().unwrap_or_default();
        bands.for_each(|band| grid.append(band));
        Self { columns, num_sites, bound, ..grid }
    }

    /// The rows of those sites.
    fn band(&self, sites: &Range<usize>) -> Self {
        let cells = self.place(sites.start, 0)..self.place(sites.end, 0);
        let (values, marks) = (self.values[cells.clone()].to_vec(), self.marks[cells].to_vec());
        let (columns, ranges) = (self.columns.clone(), (self.range, self.low_range));
        Self { columns, num_sites: sites.len(), values, marks, range: ranges.0, low_range: ranges.1, bound: None }
    }

    fn append(&mut self, band: Self) {
        self.values.extend(band.values);
        self.marks.extend(band.marks);
        let both = |a: Option<(f64, f64)>, b: Option<(f64, f64)>| match (a, b) {
            (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
            (a, b) => a.or(b),
        };
        (self.range, self.low_range) = (both(self.range, band.range), both(self.low_range, band.low_range));
    }

    /// Without any row yet.
    pub(crate) fn waiting(columns: Vec<Column>, num_sites: usize) -> Self {
        let len = num_sites * columns.len();
        let (values, marks) = (vec![f32::NAN; len], vec![Mark::WAITING; len]);
        Self { columns, num_sites, values, marks, ..Self::default() }
    }

    /// `low`: of a kernel in low precision.
    pub(crate) fn put(&mut self, place: usize, value: f64, low: bool) {
        self.values[place] = value as f32;
        self.widen(value, low);
    }

    /// What colours are for.
    pub fn shown_range(&self) -> Option<(f64, f64)> {
        self.low_range.or(self.range)
    }

    fn widen(&mut self, value: f64, low: bool) {
        let widened = |range: Option<(f64, f64)>| {
            let (lo, hi) = range.unwrap_or((value, value));
            Some((lo.min(value), hi.max(value)))
        };
        if value > 0.0 && value.is_finite() {
            self.range = widened(self.range);
            if low {
                self.low_range = widened(self.low_range);
            }
        }
    }
}

/// The kernels that have rows, in catalogue order.
fn kernels_of(snapshot: &Snapshot) -> Vec<KernelId> {
    let mut seen = vec![false; catalogue().len()];
    let kernels = snapshot.rows.iter().flatten().flat_map(|rows| Gemm::ALL.map(|gemm| rows.kernels_of(gemm)));
    kernels.flatten().filter_map(KernelId::number).for_each(|number| seen[number] = true);
    catalogue().iter().zip(seen).filter(|(_, seen)| *seen).map(|(kernel, _)| Kernel::id(kernel)).collect()
}

struct Filling<'a> {
    snapshot: &'a Snapshot,
    judged: &'a JudgedRows,
    plan: &'a PlanView,
    question: ViewQuery,
    versus: Option<&'a Versus>,
    /// By the kernel's place in the catalogue, among the columns of a GEMM.
    column_of: Vec<Option<usize>>,
    /// The values are there.
    known: bool,
}

impl Filling<'_> {
    /// `row`: of the site in that grid. `first`: the GEMM's first column.
    fn fill(&self, grid: &mut Grid, (row, site): (usize, usize), gemm: Gemm, first: usize) {
        let chosen = self.plan.pick_at(site, gemm).and_then(|choice| Some((choice.kernel.number()?, choice.source)));
        let mark = |grid: &mut Grid, place: usize, judged: &JudgedRow, has_value: bool| {
            let mark = if has_value { Mark::of(judged.quadrant, judged.source) } else { Mark::MISSING };
            let source = chosen.filter(|(kernel, _)| judged.number() == Some(*kernel)).map(|(_, source)| source);
            grid.marks[place] = source.map_or(mark, |source| mark.chosen(source));
        };
        let place = |grid: &Grid, judged: &JudgedRow| Some(grid.place(row, first + self.column_of[judged.number()?]?));
        let mut best = BestOfRecipes::default();
        if self.known {
            for judged in self.judged.at(site, gemm) {
                let Some(place) = place(grid, judged) else { continue };
                let has_value = grid.marks[place].has(Mark::VALUE);
                mark(grid, place, judged, has_value);
                best.take((judged.number(), gemm), judged.speedup, (place, grid.marks[place]));
            }
            return best.mark(grid);
        }
        let rows = self.snapshot.rows_of(site, gemm);
        let policy = &self.snapshot.document.policy;
        let base = rows.iter().find(|row| self.question.relative && row.kernel == policy.baseline);
        // Mostly what is shown is what was judged; a loss cost may mean nothing.
        let metric = self.question.metric;
        let as_judged =
            self.versus.is_none() && base.is_none() && metric == policy.metric && metric != Metric::LossCost;
        let loss = self.snapshot.loss();
        // What the baseline runs is the same whatever the kernel.
        let run = self.versus.filter(|versus| !versus.by_kernel);
        let run = run.and_then(|versus| versus.base(self.snapshot, site, gemm, &policy.baseline));
        for (of, judged) in rows.iter().zip(self.judged.at(site, gemm)) {
            let Some(place) = place(grid, judged) else { continue };
            let shown = match self.versus {
                None if as_judged => judged.error.filter(|_| judged.supported).map(|of| metric.on_scale(of)),
                Some(versus) => {
                    let base = if versus.by_kernel { versus.base(self.snapshot, site, gemm, &of.kernel) } else { run };
                    base.and_then(|base| value_over(of, base, metric, loss))
                }
                // Colours tell how far from 0 a value with a sign is.
                None => value(of, base, metric, loss).map(|of| metric.on_scale(of)),
            };
            if let Some(estimate) = shown {
                grid.put(place, estimate.value, judged.low);
            }
            mark(grid, place, judged, shown.is_some());
            best.take((judged.number(), gemm), judged.speedup, (place, grid.marks[place]));
        }
        best.mark(grid);
    }
}

/// Of the rows of one GEMM at one site: by recipe, how good the best is and where its cell is.
pub(crate) struct BestOfRecipes([(f32, usize); MOST_RECIPES]);

impl Default for BestOfRecipes {
    fn default() -> Self {
        Self([(f32::NEG_INFINITY, usize::MAX); MOST_RECIPES])
    }
}

impl BestOfRecipes {
    /// `kernel`: by its place in the catalogue.
    pub(crate) fn take(&mut self, of: (Option<usize>, Gemm), speedup: Option<f64>, (place, mark): (usize, Mark)) {
        let (kernel, gemm) = of;
        let Some(best) = kernel.and_then(|kernel| self.0.get_mut(recipe(kernel, gemm))) else { return };
        let goodness = match (mark.has(Mark::CHOSEN), mark.has(Mark::VALUE)) {
            (true, _) => f32::INFINITY,
            (_, true) => speedup.map_or(0.0, |speedup| speedup as f32),
            (_, false) => -1.0,
        };
        if goodness > best.0 {
            *best = (goodness, place);
        }
    }

    pub(crate) fn mark(&self, grid: &mut Grid) {
        for (_, place) in &self.0 {
            if let Some(mark) = grid.marks.get_mut(*place) {
                *mark = mark.with(Mark::BEST);
            }
        }
    }
}
