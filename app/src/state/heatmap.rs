//! What is seen of the heatmap: zoom, what its columns are, and the cells in sight, remade when they change.

use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
};

use loka_core::{
    model::SiteId,
    session::{SeriesState, Session},
};

use super::folding::Folding;
use crate::gpu::Texel;

pub const NO_SERIES: &str = "This trace holds no series over steps";

/// Which cells are in sight: lines in bands, so many lines a band.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ColumnWindow {
    pub first: usize,
    pub num_bands: usize,
    pub per_band: usize,
    pub num_columns: usize,
}

/// A row lower than this shares its line of pixels with the next.
const LEAST_BAND: f32 = 2.0;

impl ColumnWindow {
    /// Lines of `row` points each; `from` and `to`: what is in sight, in points from the first.
    pub fn of(from: f32, to: f32, row: f32, num_lines: usize, num_columns: usize) -> Self {
        let per_band = if row < LEAST_BAND { (LEAST_BAND / row).ceil() as usize } else { 1 };
        let band = row * per_band as f32;
        let first = (from.max(0.0) / band).floor() as usize;
        let last = ((to.max(0.0) / band).ceil() as usize).min(num_lines.div_ceil(per_band));
        Self { first, num_bands: last.saturating_sub(first), per_band, num_columns }
    }
}

#[derive(Clone, Debug, Default)]
pub struct HeatmapState {
    /// Height of a row in points; `None`: as it fits.
    pub row: Option<f32>,
    /// Width of a column in points; `None`: as it fits.
    pub width: Option<f32>,
    /// As it was drawn last.
    pub drawn_width: f32,
    /// The recorded series whose steps are the columns; `None`: kernels are.
    pub series: Option<String>,
    /// A column a kernel, not one for all that compute the same.
    pub by_library: bool,
    /// Recipes that have one all the same, by their short name.
    pub opened: BTreeSet<String>,
    /// Steps are to be the columns as soon as their series are read.
    pub wants_series: bool,
    /// The selected step, by its column.
    pub step: Option<usize>,
    /// Folders show their median; otherwise their worst.
    pub medians: bool,
    /// How far the rows are scrolled, and how much of them is in sight.
    pub offset: f32,
    pub height: f32,
    /// Where the rows are to be scrolled in the next frame.
    pub scroll_to: Option<f32>,
    /// The selected site that was last brought into sight.
    pub seen: Option<SiteId>,
    pub folding: Folding,
    cells: Option<(u64, Arc<[Texel]>)>,
    revision: u64,
}

pub const MAX_ROW: f32 = 42.0;
/// What a step of zoom multiplies by.
const STEP: f32 = 1.25;

impl HeatmapState {
    /// Moves the selected step; `false` when kernels are the columns.
    pub fn step_along(&mut self, session: &Session, step: isize) -> bool {
        let (Some(name), SeriesState::Read(table)) = (&self.series, &session.series) else { return false };
        let count = table.get(name).map_or(0, |series| series.columns.len());
        if count > 0 {
            self.step = Some(self.step.map_or(0, |at| at.saturating_add_signed(step).min(count - 1)));
        }
        count > 0
    }

    /// That recipe has a column a kernel.
    pub fn opens(&self, recipe: &str) -> bool {
        self.by_library || self.opened.contains(recipe)
    }

    /// A column a kernel, or one for all that compute the same; recipes that were opened by themselves are closed.
    pub fn set_by_library(&mut self, on: bool) {
        self.by_library = on;
        self.opened.clear();
    }

    /// Opens a recipe's columns, or closes them.
    pub fn toggle_recipe(&mut self, recipe: &str) {
        // Of all that are open, one is closed: it closes all, since nothing says which were meant.
        if self.by_library {
            return self.set_by_library(false);
        }
        if !self.opened.remove(recipe) {
            self.opened.insert(recipe.to_owned());
        }
    }

    /// Rows `factor` times as high; the line at `keep` (points below the top of the rows in sight) stays where
    /// it is.
    pub fn zoom_rows(&mut self, now: f32, factor: f32, num_lines: usize, keep: f32) {
        let least = (self.height / num_lines.max(1) as f32).clamp(0.02, crate::theme::ROW);
        let row = (now * factor).clamp(least, MAX_ROW);
        let line = (self.offset + keep) / now;
        self.scroll_to = Some((line * row - keep).max(0.0));
        self.row = Some(row);
    }

    /// By a key: around the middle.
    pub fn zoom_step(&mut self, closer: bool, num_lines: usize) {
        let now = self.row.unwrap_or_else(|| self.fitting(num_lines));
        let (factor, keep) = (if closer { STEP } else { 1.0 / STEP }, self.height / 2.0);
        self.zoom_rows(now, factor, num_lines, keep);
    }

    pub fn fitting(&self, num_lines: usize) -> f32 {
        (self.height / num_lines.max(1) as f32).floor().clamp(crate::theme::ROW, MAX_ROW)
    }

    pub fn widen(&mut self, wider: bool) {
        self.width = Some((self.drawn_width * if wider { STEP } else { 1.0 / STEP }).clamp(2.0, 96.0));
    }

    /// A series that was asked for before it was read, or one of a trace that is gone.
    pub fn settle_series(&mut self, session: &Session) {
        let SeriesState::Read(table) = &session.series else {
            if session.series == SeriesState::NotAsked {
                self.series = None;
            }
            return;
        };
        if std::mem::take(&mut self.wants_series) && self.series.is_none() {
            self.series = table.series.first().map(|series| series.name.clone());
        }
    }

    pub fn is_zoomed(&self) -> bool {
        self.row.is_some() || self.width.is_some()
    }

    pub fn reset_zoom(&mut self) {
        (self.row, self.width, self.scroll_to) = (None, None, Some(0.0));
        self.seen = None;
    }

    /// The cells in sight with a number that changes with them; made again only when `window` shows others.
    pub fn cells(&mut self, window: &ColumnWindow, make: impl FnOnce(&Folding) -> Vec<Texel>) -> (u64, Arc<[Texel]>) {
        let mut hasher = DefaultHasher::new();
        (window, self.medians, self.folding.version()).hash(&mut hasher);
        let key = hasher.finish();
        match &self.cells {
            Some((known, cells)) if *known == key => (self.revision, cells.clone()),
            _ => {
                let cells: Arc<[Texel]> = make(&self.folding).into();
                self.revision += 1;
                self.cells = Some((key, cells.clone()));
                (self.revision, cells)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zoom_keeps_the_line_under_the_pointer() {
        let mut state = HeatmapState { height: 400.0, offset: 1000.0, ..HeatmapState::default() };
        state.zoom_rows(20.0, 0.5, 1000, 100.0);
        assert_eq!(state.row, Some(10.0));
        let line = (state.scroll_to.unwrap_or_default() + 100.0) / 10.0;
        assert_eq!(line, 55.0, "the line that was there before");
    }

    #[test]
    fn zoom_ends_where_all_is_in_sight() {
        let mut state = HeatmapState { height: 400.0, ..HeatmapState::default() };
        (0..100).for_each(|_| state.zoom_step(false, 10_000));
        assert_eq!(state.row, Some(0.04));
        (0..200).for_each(|_| state.zoom_step(true, 10_000));
        assert_eq!(state.row, Some(MAX_ROW));
        state.reset_zoom();
        assert!(!state.is_zoomed());
    }

    #[test]
    fn low_rows_share_a_band_and_none_is_left_out() {
        let window = ColumnWindow::of(0.0, 400.0, 0.1, 4000, 1);
        assert_eq!((window.per_band, window.num_bands), (20, 200));
        let window = ColumnWindow::of(44.0, 88.0, 22.0, 100, 1);
        assert_eq!((window.first, window.num_bands, window.per_band), (2, 2, 1));
        let window = ColumnWindow::of(0.0, 400.0, 22.0, 3, 1);
        assert_eq!(window.num_bands, 3, "no more than there are");
        assert_eq!(ColumnWindow::of(900.0, 950.0, 22.0, 3, 1).num_bands, 0);
    }
}
