//! What the heatmap shows: sites against kernels, or against the steps of a recorded series. Takes the scene, gives
//! the columns, their cells, and the cells in sight as the picture wants them.

use std::sync::Arc;

use loka_core::{
    session::SeriesState,
    views::{Cells, Column, Grid, LineKind, Lines, Mark, SeriesGrid, SeriesTable, ShownColumn, worst_of},
};

use crate::{
    gpu::Texel,
    state::{ColumnWindow, Folding, shown_at, shown_columns},
    theme::Scale,
    views::Scene,
};

/// The columns and the cells behind them.
pub struct HeatmapTable {
    pub grid: Arc<Grid>,
    pub series: Option<(Arc<SeriesTable>, String)>,
    /// Empty where steps are the columns.
    pub columns: Vec<ShownColumn>,
    pub scale: Option<Scale>,
    /// Of decibels the smaller is the worse.
    smaller_is_worse: bool,
}

impl HeatmapTable {
    pub fn of(scene: &Scene<'_>) -> Self {
        let grid = scene.derived.grid.clone();
        let metric = scene.view.metric;
        if let (Some(name), SeriesState::Read(table)) = (&scene.view.heatmap.series, &scene.session.series)
            && let Some(series) = table.get(name)
        {
            return Self {
                grid,
                columns: Vec::new(),
                scale: series.range.map(Scale::plain),
                series: Some((table.clone(), name.clone())),
                smaller_is_worse: false,
            };
        }
        let columns = shown_columns(scene.view, scene.derived);
        let over = scene.view.relative || scene.derived.versus().is_some();
        let scale = grid.shown_range().map(|range| match over {
            true => Scale::relative(metric, range),
            false => Scale::new(metric, range),
        });
        Self { columns, scale, series: None, smaller_is_worse: metric.larger_is_better(), grid }
    }

    pub fn steps(&self) -> Option<&SeriesGrid> {
        self.series.as_ref().and_then(|(table, name)| table.get(name))
    }

    pub fn cells(&self) -> Cells<'_> {
        match self.steps() {
            Some(series) => series.cells(),
            None => Cells { shown: Some(&self.columns), ..Cells::of(&self.grid, self.smaller_is_worse) },
        }
    }

    pub fn num_columns(&self) -> usize {
        self.steps().map_or(self.columns.len(), |series| series.columns.len())
    }

    /// A column of kernels; `None` where steps are the columns.
    pub fn column(&self, shown: usize) -> Option<&ShownColumn> {
        self.columns.get(shown)
    }

    /// The kernel that a site shows there.
    pub fn kernel_at(&self, site: usize, shown: usize) -> Option<Column> {
        self.column(shown)?.column_at(&self.grid, site)
    }

    /// The column that has that kernel.
    pub fn shown_at(&self, wanted: &Column) -> Option<usize> {
        shown_at(&self.columns, &self.grid, wanted)
    }

    /// Beyond the policy's bound.
    fn is_beyond(&self, value: f32) -> bool {
        let bound = self.grid.bound.filter(|_| self.series.is_none()).map(|bound| bound as f32);
        bound.is_some_and(|bound| if self.smaller_is_worse { value < bound } else { value > bound })
    }

    /// Row after row, the shown columns of each.
    pub fn texels(&self, window: &ColumnWindow, lines: &Lines, folding: &Folding, medians: bool) -> Vec<Texel> {
        let mut texels = Vec::with_capacity(window.num_bands * window.num_columns);
        for band in window.first..window.first + window.num_bands {
            let from = band * window.per_band;
            let of = &lines.all[from.min(lines.all.len())..(from + window.per_band).min(lines.all.len())];
            for column in 0..window.num_columns {
                texels.push(match of {
                    [line] => self.texel(lines, folding, medians, line, column),
                    of => {
                        let closed = of.iter().filter(|line| !matches!(line.kind, LineKind::Folder { open: true, .. }));
                        let sites = closed.flat_map(|line| lines.sites(line).iter().copied());
                        let (value, mark, _) = worst_of(self.cells(), sites, column);
                        self.marked(value, mark)
                    }
                });
            }
        }
        texels
    }

    fn texel(
        &self,
        lines: &Lines,
        folding: &Folding,
        medians: bool,
        line: &loka_core::views::Line,
        column: usize,
    ) -> Texel {
        let cells = self.cells();
        let LineKind::Folder { folder, .. } = line.kind else {
            let site = lines.sites(line).first().copied().unwrap_or_default();
            let (value, mark) = cells.get(site as usize, column);
            return self.marked(value, mark);
        };
        let Some(fold) = folding.get(folder, column, cells.num_shown()) else {
            return Texel::new(f32::NAN, Mark::WAITING).with(Texel::FOLDER, true);
        };
        let median = || folding.median(folder, column, cells.num_shown()).unwrap_or(f32::NAN);
        let value = if medians { median() } else { fold.worst };
        // A folder is not chosen: its sites are, one by one.
        let kept = Mark(fold.mark.0 & (Mark::VALUE.0 | Mark::MISSING.0));
        self.marked(value, kept).with(Texel::FOLDER, true)
    }

    fn marked(&self, value: f32, mark: Mark) -> Texel {
        let mark = if mark.has(Mark::VALUE) && value.is_nan() { Mark::MISSING } else { mark };
        let beyond = mark.has(Mark::VALUE) && self.is_beyond(value);
        Texel::new(value, mark).with(Texel::BEYOND, beyond)
    }
}
